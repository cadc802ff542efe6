"""Check the bounds of numbers in a configuration, and name the key that each has in a file.

The Config records of several rooms use this when they are made. None, where a field allows it, is
within all bounds.
"""

from __future__ import annotations

from cudal1_ci.errors import ConfigError
from cudal1_ci.records import Record


def key_of(room: str, field: str) -> str:
    """Return `trial.max-calls` for `max_calls`; `trial.launch` for `launch_s`, whose value has the
    unit.
    """
    return f"{room}.{field.removesuffix('_s').replace('_', '-')}"


def at_least(config: Record, room: str, least: int, *fields: str) -> None:
    """Refuse the first field below `least`. Raises ConfigError."""
    for field in fields:
        value = getattr(config, field)
        if value is not None and value < least:
            raise ConfigError(f"{key_of(room, field)}: expected {least} or more, got {value}")


def positive(config: Record, room: str, *fields: str) -> None:
    """Refuse the first field that is not above 0. Raises ConfigError."""
    for field in fields:
        value = getattr(config, field)
        if value is not None and not value > 0:
            unit = "s" if field.endswith("_s") else ""
            raise ConfigError(
                f"{key_of(room, field)}: expected more than 0{unit}, got {value}{unit}"
            )
