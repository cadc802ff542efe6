"""Paired ratios multiplied over commits: a line that does not drift with the machine.

A comparison times base and head in one session, so its ratio holds whatever the machine does from
week to week, and over a change of driver as well. The product over commits says how a target's code
changed in speed. A commit that was compared and whose report does not name a target did not touch
it: the ratio is 1 there. Where the line from the last ratio's commit to the next one's base is not
covered by comparisons, something may have changed unseen: the chain has a gap and says so.

The interval of the product adds the widths of the ratios' intervals in quadrature, on a log scale,
as those of different sessions are independent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cudal1_ci.trend.commits import Commits
from cudal1_ci.trend.record import History, Row, Run
from cudal1_ci.trend.series import Series, hardware, machines_of


@dataclass(frozen=True, kw_only=True)
class Link:
    """One comparison within a chain; `product` is with it."""

    place: int
    since: int | None
    """Place of its base, None where that was not measured."""
    ratio: float
    product: float
    low: float
    high: float
    has_gap: bool
    """Whether something may have changed unseen between the last link and this one."""


@dataclass(frozen=True, kw_only=True)
class Chain:
    """The ratios of one series."""

    links: tuple[Link, ...] = ()

    @property
    def num_gaps(self) -> int:
        return sum(link.has_gap for link in self.links)


class Compared:
    """Which commit was compared with which, by hardware; and what had no ratio."""

    def __init__(self, history: History, commits: Commits) -> None:
        self._commits = commits
        self._machines = machines_of(history)
        self._bases: dict[object, dict[int, int]] = {}
        self._untimed: dict[str, list[Row]] = {}
        for run in history.of(Run):
            place, base = commits.place(run.commit), commits.place(run.base)
            if place is not None and base is not None and base < place:
                of = hardware(run.machine) if run.machine else None
                self._bases.setdefault(of, {})[place] = base
        for row in history.of(Row):
            if row.time_us is None and row.verdict is not None:
                self._untimed.setdefault(row.target, []).append(row)

    def base(self, sha: str, series: Series) -> int | None:
        """Place of what a commit was compared with."""
        place = self._commits.place(sha)
        return None if place is None else self._base_at(place, series)

    def covers(self, start: int, end: int, series: Series) -> bool:
        """Whether every commit from one place to another was compared, and the target timed
        wherever it was touched."""
        untimed = self._untimed_places(series)
        place: int | None = end
        while place is not None and place > start:
            if place in untimed:
                return False
            place = self._base_at(place, series)
        return place == start

    def _base_at(self, place: int, series: Series) -> int | None:
        for of in (hardware(series.machine), None):
            found = self._bases.get(of, {}).get(place)
            if found is not None:
                return found
        return None

    def _untimed_places(self, series: Series) -> set[int]:
        found = set()
        for row in self._untimed.get(series.target, ()):
            machine = self._machines.get(row.device or "")
            is_here = machine is None or hardware(machine) == hardware(series.machine)
            place = self._commits.place(row.commit)
            if is_here and row.workload in (None, series.workload) and place is not None:
                found.add(place)
        return found


def chain_of(series: Series, compared: Compared) -> Chain:
    """The chain of a series; empty where nothing was compared with its base."""
    return Chain(links=tuple(_links(series, compared)))


def _links(series: Series, compared: Compared) -> Iterator[Link]:
    log_product, variance = 0.0, 0.0
    last: int | None = None
    for place, row in _rows(series):
        if row.slowdown is None:
            continue
        base = compared.base(row.commit, series)
        log_product += math.log(row.slowdown)
        variance += _half_width(row) ** 2
        half = math.sqrt(variance)
        yield Link(
            place=place,
            since=base,
            ratio=row.slowdown,
            product=math.exp(log_product),
            low=math.exp(log_product - half),
            high=math.exp(log_product + half),
            has_gap=last is not None and not _is_continuous(last, base, series, compared),
        )
        last = place


def _rows(series: Series) -> Sequence[tuple[int, Row]]:
    return [(point.place, point.row) for point in series.points]


def _is_continuous(last: int, base: int | None, series: Series, compared: Compared) -> bool:
    return base is not None and base >= last and compared.covers(last, base, series)


def _half_width(row: Row) -> float:
    if row.slowdown_low is None or row.slowdown_high is None:
        return 0.0
    return math.log(row.slowdown_high / row.slowdown_low) / 2
