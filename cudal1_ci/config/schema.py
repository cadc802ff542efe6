"""Describe the configuration as JSON Schema, for editors: `schema/config.schema.json`.

The schema is of the table `[tool.cudal1-ci]`, which is also all of `.github/cudal1-ci.toml`.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Any

import msgspec

from cudal1_ci.config.keys import Key, Settings, all_keys, all_rooms
from cudal1_ci.config.written import ACK, WORKLOAD
from cudal1_ci.discover import declared
from cudal1_ci.records import Record

DIALECT = "http://json-schema.org/draft-07/schema#"
"""The dialect that most editors read."""
DURATION = {"type": "string", "pattern": r"^(\d+(\.\d+)?h)? ?(\d+(\.\d+)?m)? ?(\d+(\.\d+)?s)?$"}
ARGUMENTS = {"type": "array", "items": {"type": ["string", "number", "boolean"]}}
WORKLOAD_KEYS: dict[str, Any] = {
    "target": {"type": "string", "pattern": ".+:.+"},
    "name": {"type": "string"},
    "init": ARGUMENTS,
    "inputs": ARGUMENTS,
    "mode": {"enum": list(declared.MODES)},
    "dtype": {"enum": list(declared.DTYPES)},
    "autocast": {"enum": list(declared.AUTOCASTS)},
    "atol": {"type": "number", "minimum": 0},
    "rtol": {"type": "number", "minimum": 0},
}


def config_schema() -> dict[str, Any]:
    """Return the schema."""
    keys = all_keys()
    types = [key.type for key in keys.values() if not key.is_duration]
    _, forms = msgspec.json.schema_components(types, ref_template="#/definitions/{name}")
    table: dict[str, Any] = {}
    for name, key in keys.items():
        room, _, last = name.rpartition(".")
        place = table
        if room:
            place = table.setdefault(room, closed({}))["properties"]
        place[last] = schema_of(key)
    table[WORKLOAD] = {
        "type": "array",
        "items": closed(WORKLOAD_KEYS) | {"required": list(declared.REQUIRED)},
    }
    table[ACK] = {"type": "array", "items": {"type": "object"}}
    return {
        "$schema": DIALECT,
        "title": "Configuration of cudal1-ci",
        **closed(table),
        **({"definitions": forms} if forms else {}),
    }


def closed(properties: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a table with these keys and no others."""
    return {"type": "object", "additionalProperties": False, "properties": properties}


def schema_of(key: Key) -> dict[str, Any]:
    """Return the schema of one key, with what it means and its default."""
    if key.is_duration:
        schema = dict(DURATION)
    else:
        (found,), _ = msgspec.json.schema_components(
            [key.type], ref_template="#/definitions/{name}"
        )
        schema = dict(found)
    record = all_rooms()[key.room] if key.room else Settings
    said = meanings(record).get(key.field)
    return schema | ({"description": said} if said else {})


def meanings(record: type[Record]) -> dict[str, str]:
    """Return what the fields of a record mean: the text below each."""
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(record))).body
    assert isinstance(node, ast.ClassDef)
    found = {}
    for field, below in zip(node.body, node.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
            text = getattr(below.value, "value", None)
            if isinstance(field.target, ast.Name) and isinstance(text, str):
                found[field.target.id] = " ".join(text.split())
    return found


def schema_text() -> str:
    """Return the text of `schema/config.schema.json`."""
    return msgspec.json.format(msgspec.json.encode(config_schema()), indent=2).decode() + "\n"
