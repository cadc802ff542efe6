"""Convert written values, and say what is wrong with one.

    parse_duration("1h30m") == 5400.0

This is the one place where durations and types are read. It knows only the name of a value's place.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from cudal1_ci.config.keys import Key
from cudal1_ci.errors import ConfigError
from cudal1_ci.records import Record


class Given(Record, frozen=True, kw_only=True):
    """A value as it was written, where, and the folder that a relative path in it starts from."""

    value: Any
    origin: str
    folder: Path
    is_text: bool = False
    """True in the environment, where a number is text too."""
    name: str | None = None
    """As it is spelled there: `--timeout`; None where it is the key's own name."""

    def name_of(self, key: Key) -> str:
        return self.name or key.name


def converted(key: Key, given: Given) -> Any:
    """Convert the value of a key to the type of its record."""
    value = given.value
    try:
        if key.is_duration:
            return parse_duration(value)
        if given.is_text and isinstance(inspect.type_info(key.type), inspect.VarTupleType):
            value = [part.strip() for part in value.split(",") if part.strip()]
        value = msgspec.convert(value, key.type, strict=not given.is_text)
    except ValueError as error:  # msgspec.ValidationError is one
        raise ConfigError(
            f"{given.origin}: `{given.name_of(key)}` must be {expected(key)}, "
            f"got {described(given.value)}"
        ) from error
    return interpreter(value, given.folder) if key.name in INTERPRETERS and value else value


INTERPRETERS = frozenset({"python", "model.python"})


def interpreter(value: str, folder: Path) -> str:
    """Return the interpreter as an absolute path, or as a name to find on PATH.

    Not resolved: a virtual environment is known by the link that its interpreter is.
    """
    if "/" not in value:
        return value
    return str(folder / Path(value).expanduser())


DURATION = re.compile(
    r"(?:(?P<h>\d+(?:\.\d+)?)h)?\s*(?:(?P<m>\d+(?:\.\d+)?)m)?\s*(?:(?P<s>\d+(?:\.\d+)?)s)?"
)
UNITS_S = {"h": 3600.0, "m": 60.0, "s": 1.0}


def parse_duration(value: Any) -> float:
    """Parse a duration with its units, in seconds: `90s`, `10m`, `1h30m`.

    Raises:
        ValueError: It is not text, or a number without a unit, or anything else.
    """
    match = DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or not any(match.groups()):
        raise ValueError(f"not a duration: {value!r}")
    return sum(UNITS_S[unit] * float(count) for unit, count in match.groupdict().items() if count)


def format_duration(seconds: float) -> str:
    """Format a duration as it would be written: 5400 is `1h30m`."""
    minutes, rest_s = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    parts = [(hours, "h"), (minutes, "m"), (rest_s, "s")]
    return "".join(f"{count:g}{unit}" for count, unit in parts if count) or "0s"


def shown(key: Key, value: Any) -> Any:
    """Return a value as a person would write it."""
    if key.is_duration and value is not None:
        return format_duration(value)
    return list(value) if isinstance(value, tuple) else value


def expected(key: Key) -> str:
    """Say what a key's value must be."""
    if key.is_duration:
        return 'a duration with its unit, such as "90s", "10m" or "1h30m"'
    return in_words(inspect.type_info(key.type))


def in_words(annotation: inspect.Type) -> str:
    """Describe a field's type in terms of a TOML value."""
    match annotation:
        case inspect.Metadata(type=inner, extra_json_schema=extra):
            return str((extra or {}).get("description") or in_words(inner))
        case inspect.UnionType(types=types):
            given = [one for one in types if not isinstance(one, inspect.NoneType)]
            return " or ".join(in_words(one) for one in given)
        case inspect.LiteralType(values=values):
            return "one of " + ", ".join(f"`{value}`" for value in sorted(values, key=str))
        case inspect.VarTupleType(item_type=item):
            return f"a list, each item {in_words(item)}"
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType(ge=ge):
            return "a whole number" + (f" of at least {ge}" if ge is not None else "")
        case inspect.FloatType():
            return "a number"
        case _:
            return "text"


def described(value: Any) -> str:
    """Describe a given value, with its type where the value does not show it."""
    match value:
        case dict():
            return f"a table with the keys {', '.join(map(repr, value)) or '(none)'}"
        case str():
            return f'the text "{value}"'
        case bool():
            return str(value).lower()
        case _:
            return repr(value)
