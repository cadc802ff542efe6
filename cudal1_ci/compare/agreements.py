"""Read agreed slowdowns: `[[tool.cudal1-ci.ack]]` in the configuration.

    [[tool.cudal1-ci.ack]]
    target = "src/attention.py:Attention*"
    max-slowdown = 1.2
    reason = "the mask was wrong before"
    owner = "@someone"
    expires = "2027-03-31"

An agreement covers a regression up to its slowdown and until the end of its last day, in UTC.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from cudal1_ci.errors import ConfigError
from cudal1_ci.records import Acknowledgement, Comparison, Target
from cudal1_ci.stats.regression import decisive, slowdown

FIELDS = {field.replace("_", "-"): field for field in Acknowledgement.__struct_fields__}


def agreements(tables: Sequence[Mapping[str, Any]], file: str) -> tuple[Acknowledgement, ...]:
    """Read the tables of a configuration file as records.

    Raises:
        ConfigError: A key is missing, unknown or of another type, or a day is none.
    """
    return tuple(_agreement(table, f"{file}, ack[{i}]") for i, table in enumerate(tables))


def _agreement(table: Mapping[str, Any], place: str) -> Acknowledgement:
    unknown = table.keys() - FIELDS.keys()
    missing = FIELDS.keys() - table.keys()
    if unknown or missing:
        wrong = f"unknown key `{min(unknown)}`" if unknown else f"`{min(missing)}` is missing"
        raise ConfigError(f"{place}: {wrong}; its keys are {', '.join(FIELDS)}")
    given = {field: table[name] for name, field in FIELDS.items()}
    if isinstance(given["expires"], datetime.date):  # TOML has dates of its own
        given["expires"] = given["expires"].isoformat()
    for name, field in FIELDS.items():
        given[field] = _converted(name, given[field], f"{place}: `{name}`")
    found = Acknowledgement(**given)
    if found.max_slowdown <= 1:
        raise ConfigError(f"{place}: `max-slowdown` must be above 1, got {found.max_slowdown:g}")
    for name in ("reason", "owner"):
        if not getattr(found, name).strip():
            raise ConfigError(f"{place}: `{name}` must not be empty")
    return found


def _converted(name: str, value: Any, key: str) -> Any:
    """Convert a value of an agreement.

    Raises: ConfigError that names the key, what it must be and what came.
    """
    if name == "max-slowdown":
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{key} must be a number above 1, such as 1.2, got {value!r}")
        return float(value)
    if not isinstance(value, str):
        raise ConfigError(f"{key} must be text, got {value!r}")
    if name == "expires":
        try:
            return datetime.date.fromisoformat(value).isoformat()
        except ValueError as error:
            raise ConfigError(
                f'{key} must be a day of the calendar, such as "2027-03-31", got {value!r}'
            ) from error
    return value


def agreed(
    target: Target,
    comparison: Comparison,
    known: Sequence[Acknowledgement],
    today: datetime.date,
) -> tuple[Acknowledgement | None, str | None]:
    """Return the agreement that covers a regression. Where none does, return why one that names the
    target does not.
    """
    if comparison.verdict != "regression":
        return None, None
    worst = max(
        found.estimate
        for row in comparison.rows
        if row.verdict == "regression"
        and (measurement := decisive(row)) is not None
        and (found := slowdown(measurement)) is not None
    )
    return covering(target.address, worst, known, today)


def covering(
    name: str, worst: float, known: Sequence[Acknowledgement], today: datetime.date
) -> tuple[Acknowledgement | None, str | None]:
    """Return the agreement that covers a slowdown of the target `path:qualname`, or why one that
    names it does not.
    """
    why = None
    for one in known:
        if not fnmatchcase(name, one.target):
            continue
        if datetime.date.fromisoformat(one.expires) < today:
            why = f"the agreement of {one.owner} on {name} ended on {one.expires}"
        elif worst > one.max_slowdown:
            why = f"{one.owner} agreed to {one.max_slowdown:g}x for {name}; it is {worst:.3g}x"
        else:
            return one, None
    return None, why
