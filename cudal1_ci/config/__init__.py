"""Gather every setting: from a flag, else the environment, else a file, else its default.

    settings = load_settings(Path("."), overrides={"budget": "10m"})
    settings.trial.threads, settings.review.budget_s

This room only gathers, and remembers where each value was found:

    keys.py     what can be set: the fields of Settings and of each room's own Config
    written.py  the file, the environment and the command line
    values.py   types and durations, and the words for what is wrong with one
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cudal1_ci.config.keys import Key, Setting, Settings, all_keys, all_rooms
from cudal1_ci.config.values import Given, converted, shown
from cudal1_ci.config.written import (
    ACK,
    TABLES,
    WORKLOAD,
    from_environment,
    from_file,
    from_flags,
    read_file,
    tables_of,
)
from cudal1_ci.errors import ConfigError
from cudal1_ci.records import Record

__all__ = ["Setting", "Settings", "load_settings"]


def load_settings(
    root: Path,
    overrides: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
) -> Settings:
    """Return the settings for the tree at `root`. `overrides` are flags by the key that they set,
    and `options` is how those are spelled: `{"trial.call": "--timeout"}`.

    Raises:
        ConfigError: Two files, an unknown key, a value of the wrong type or out of its range; the
            message names the file, variable or flag, the key, what was expected and what came.
    """
    keys = all_keys()
    file, table = read_file(root)
    given = {
        **from_file(table, file, root, keys),
        **from_environment(os.environ if environ is None else environ, keys),
        **from_flags(overrides or {}, keys, options or {}),
    }
    values = {
        name: converted(key, given[name]) if name in given else key.default
        for name, key in keys.items()
    }
    fields: dict[str, Any] = {
        key.field: values[name] for name, key in keys.items() if key.room is None
    }
    for room, record in all_rooms().items():
        of_room = {key: values[name] for name, key in keys.items() if key.room == room}
        fields[room] = built(record, of_room, given)
    sources = tuple(
        Setting(
            key=name,
            value=shown(key, values[name]),
            origin=given[name].origin if name in given else "default",
        )
        for name, key in keys.items()
    )
    tables = {name: tables_of(name, table, file) for name in TABLES}
    return Settings(
        **fields, workloads=tables[WORKLOAD], acks=tables[ACK], file=file, sources=sources
    )


def built(record: type[Record], values: Mapping[Key, Any], given: Mapping[str, Given]) -> Record:
    """Build a room's Config; an error of the record names the place of the setting."""
    try:
        return record(**{key.field: value for key, value in values.items()})
    except (ConfigError, ValueError) as error:
        said = str(error)
        places = []
        for key in values:
            if key.name in given:
                name = given[key.name].name_of(key)
                said = re.sub(rf"(?<![\w.-]){re.escape(key.name)}(?![\w.-])", name, said)
                origin = given[key.name].origin
                where = "on the command line" if origin == "command line" else f"in {origin}"
                places.append(f"`{name}` {where}")
        raise ConfigError(f"{said} (set here: {', '.join(places)})") from error
