"""Read settings written as TOML into records; name file and key of what is wrong.

    read_settings(Path("run.toml"), TrainingConfig)
    read_settings(Path("run.toml"), TrainingConfig, ["contrastive.num-steps=4"])

A table is a record and a key one of its fields, with `-` for `_`: `[supervised] learning-rate`. A
key that is not there has the record's default.
"""

from __future__ import annotations

import difflib
import tomllib
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from cudal1_ci.errors import ConfigError
from cudal1_ci.records import Record

T = TypeVar("T")


def read_settings(path: Path, form: type[T], changes: Sequence[str] = ()) -> T:
    """Return the record that a file describes, with `changes`, each `KEY=VALUE`, in place of what
    it says.

    Raises:
        ConfigError: The file cannot be read, a change is none, a key is unknown, or a value is none
            of its kind.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: expected TOML in UTF-8: {error}") from error
    for change in changes:
        make(table, change)
    return record_of(form, table, str(path), "")


def make(table: dict[str, Any], change: str) -> None:
    """Put what `KEY=VALUE` says into a file's table. A value is TOML, or a text without quotes."""
    key, is_given, text = change.partition("=")
    *places, last = key.strip().split(".")
    if not is_given or not all((*places, last)):
        raise ConfigError(
            f"--set: expected KEY=VALUE, such as contrastive.num-steps=4, got {change!r}"
        )
    inner: Any = table
    for place in places:
        inner = inner.setdefault(spelled(inner, place), {})
        if not isinstance(inner, dict):
            raise ConfigError(f"--set: {change!r}: `{place}` is no table in the file")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    inner[spelled(inner, last)] = value


def spelled(table: Mapping[str, Any], key: str) -> str:
    """Return the key as the table has it, with `-` or with `_`."""
    return next((one for one in table if one.replace("-", "_") == key.replace("-", "_")), key)


def record_of(form: type[T], table: Any, file: str, place: str) -> T:
    """Return the record of a table; `place` is its name in the file."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"{file}: `{place}` must be a table, got {table!r}: write [{place}]")
    types = typing.get_type_hints(form)
    values: dict[str, Any] = {}
    for key, value in table.items():
        field, named = key.replace("-", "_"), f"{place}.{key}" if place else key
        if field not in types:
            raise unknown(file, named, [name.replace("_", "-") for name in types])
        values[field] = value_of(types[field], value, file, named)
    try:
        return form(**values)
    except (ConfigError, ValueError, TypeError) as error:
        raise ConfigError(f"{file}: [{place or 'top'}] {error}") from error


def value_of(form: Any, value: Any, file: str, place: str) -> Any:
    """Read a value of a key, which may be a table or a list of them."""
    if is_table(form):
        return record_of(form, value, file, place)
    (inner, *_) = typing.get_args(form) or (None,)
    if typing.get_origin(form) is tuple and is_table(inner):
        if not isinstance(value, list):
            raise ConfigError(
                f"{file}: `{place}` must be a list of tables, got {value!r}: write [[{place}]]"
            )
        return tuple(
            record_of(inner, one, file, f"{place}[{number}]") for number, one in enumerate(value)
        )
    try:
        return msgspec.convert(value, form)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{file}: `{place}`: {error}, got {value!r}") from error


def is_table(form: Any) -> bool:
    """Return whether a form is a record, or one of the few settings that are dataclasses."""
    if not isinstance(form, type):
        return False
    return issubclass(form, Record) or hasattr(form, "__dataclass_fields__")


def unknown(file: str, key: str, known: list[str]) -> ConfigError:
    """Return the error of a key that does not exist, with the nearest that does."""
    near = difflib.get_close_matches(key.rpartition(".")[2], known, n=1, cutoff=0.6)
    hint = f"did you mean `{near[0]}`?" if near else f"known keys: {', '.join(known)}"
    return ConfigError(f"{file}: unknown key `{key}`; {hint}")
