"""Parse the flags of `bench`, and refuse bad values before anything is run."""

from __future__ import annotations

import click

from cudal1_ci.config.values import parse_duration
from cudal1_ci.report_card.columns import COLUMNS


def columns_of(context: click.Context, option: click.Parameter, given: str) -> tuple[str, ...]:
    """Parse names of solvers between commas, in the order of a card."""
    del context, option
    names = [one.strip() for one in given.split(",") if one.strip()]
    if not names or any(one not in COLUMNS for one in names):
        raise click.BadParameter(f"expected some of {', '.join(COLUMNS)}, got {given!r}")
    return tuple(one for one in COLUMNS if one in names)


def shard_of(
    context: click.Context | None, option: click.Parameter | None, given: str
) -> tuple[int, int]:
    """Parse `2/4`."""
    del context, option
    number, _, count = given.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise click.BadParameter(f"expected a part and their number, such as 2/4, got {given!r}")
    return int(number), int(count)


def seconds_of(context: click.Context, option: click.Parameter, given: str | None) -> float | None:
    """Parse `8h`."""
    del context, option
    try:
        return None if given is None else parse_duration(given)
    except ValueError as error:
        raise click.BadParameter(f"expected 90s, 10m or 8h, got {given!r}") from error
