"""Sort the lines of a history by target, workload and hardware, in the order of commits.

A checkout knows that order; without one it is that of the lines. Commits that a checkout does not
reach from its HEAD, such as those of squashed pull requests, are left out.

Times of one session can be compared: the two sides of a row (`slowdown`). Times of different
sessions can be compared while the machine stayed the same. So a series belongs to one kind of
hardware and is cut where driver or software changed. Such a cut is a break and never a step. Steps
are found within a stretch alone (steps.py).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from cudal1_ci.stats.regression import RELATIVE
from cudal1_ci.trend.record import History, Machine, Row, Run
from cudal1_ci.trend.steps import level_of, level_starts

ABSOLUTE_US = 0.5
"""Of a call; a smaller difference is no step, as it is no regression."""


@dataclass(frozen=True, kw_only=True)
class Commit:
    """A commit of the history, at its place."""

    sha: str
    date: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Commits:
    """Commits that were measured, the oldest first."""

    all: tuple[Commit, ...]
    left_out: tuple[str, ...] = ()
    places: dict[str, int] = field(default_factory=dict)

    def place(self, sha: str | None) -> int | None:
        """Return the index of a commit in `all`; None for one that was not measured."""
        return None if sha is None else self.places.get(sha)


def commits_of(history: History, known: Iterable[Commit] = ()) -> Commits:
    """Return the commits of a history. `known` are those of a checkout, the oldest first."""
    dates: dict[str, datetime | None] = {}
    for run in history.of(Run):
        dates[run.commit] = dates.get(run.commit) or run.date
    lineage = list(known) or [Commit(sha=sha, date=date) for sha, date in dates.items()]
    measured = tuple(commit for commit in lineage if commit.sha in dates)
    places = {commit.sha: place for place, commit in enumerate(measured)}
    left_out = tuple(sha for sha in dates if sha not in places)
    return Commits(all=measured, left_out=left_out, places=places)


@dataclass(frozen=True, kw_only=True)
class Point:
    """A row at its place. `environment` is the key of machine and software."""

    place: int
    row: Row
    time_us: float
    environment: str


@dataclass(frozen=True, kw_only=True)
class Level:
    """Commits between which the time did not change: indices of the series' points."""

    start: int
    end: int
    time_us: float


@dataclass(frozen=True, kw_only=True)
class Break:
    """Mark where the machine changed, so that times before and after cannot be compared."""

    place: int
    what: str


@dataclass(frozen=True, kw_only=True)
class Step:
    """Mark where a time changed and the machine did not. `ratio` above 1 is slower."""

    place: int
    since: int
    """Place of the last commit that was measured before."""
    ratio: float
    before_us: float
    after_us: float
    row: Row
    """The first one of the new level."""

    @property
    def is_confirmed(self) -> bool:
        """Return whether the paired comparison of that commit agrees."""
        return self.row.verdict == ("regression" if self.ratio > 1 else "improvement")


@dataclass(frozen=True, kw_only=True)
class Series:
    """Hold one target under one workload on one kind of hardware, over commits."""

    target: str
    workload: str
    machine: Machine
    """The last one of that hardware."""
    points: tuple[Point, ...]
    levels: tuple[Level, ...]
    breaks: tuple[Break, ...]
    steps: tuple[Step, ...]

    @property
    def change(self) -> float:
        """Return all steps together: 1.1 is a tenth slower than at first."""
        return math.prod(step.ratio for step in self.steps)


def hardware(machine: Machine) -> tuple[str, str, int | None]:
    """Return the hardware that identifies a series."""
    return machine.kind, machine.name, machine.num_threads


def machines_of(history: History) -> dict[str, Machine]:
    """Return machines by the key under which rows name them."""
    return {run.device: run.machine for run in history.of(Run) if run.device and run.machine}


def all_series(history: History, commits: Commits) -> list[Series]:
    """Return every series with a time, in the order in which they were first written."""
    machines = machines_of(history)
    points: dict[tuple[object, ...], dict[int, Point]] = {}
    for row in history.of(Row):
        place, machine = commits.place(row.commit), machines.get(row.device or "")
        if row.time_us is None or place is None or machine is None:
            continue
        point = Point(place=place, row=row, time_us=row.time_us, environment=row.device or "")
        key = (row.target, row.workload, hardware(machine))
        # The last measurement of a commit counts.
        points.setdefault(key, {})[place] = point
    return [_series(sorted(p.values(), key=lambda q: q.place), machines) for p in points.values()]


def _series(points: Sequence[Point], machines: dict[str, Machine]) -> Series:
    last = points[-1]
    machine = machines[last.environment]
    levels: list[Level] = []
    breaks: list[Break] = []
    steps: list[Step] = []
    start = 0
    for environment, group in itertools.groupby(points, key=lambda point: point.environment):
        stretch = list(group)
        if start:
            what = changed(machines[points[start - 1].environment], machines[environment])
            breaks.append(Break(place=stretch[0].place, what=what))
        found = _levels(stretch, start, RELATIVE[machine.kind])
        steps += [_step(points, a, b) for a, b in itertools.pairwise(found)]
        levels += found
        start += len(stretch)
    return Series(
        target=last.row.target,
        workload=last.row.workload or "",
        machine=machine,
        points=tuple(points),
        levels=tuple(levels),
        breaks=tuple(breaks),
        steps=tuple(steps),
    )


def _levels(stretch: Sequence[Point], offset: int, relative: float) -> list[Level]:
    times = [point.time_us for point in stretch]
    smallest = max(relative, ABSOLUTE_US / level_of(times))
    starts = level_starts(times, smallest)
    return [
        Level(start=offset + start, end=offset + end, time_us=level_of(times[start:end]))
        for start, end in itertools.pairwise((*starts, len(times)))
    ]


def _step(points: Sequence[Point], before: Level, after: Level) -> Step:
    first = points[after.start]
    return Step(
        place=first.place,
        since=points[after.start - 1].place,
        ratio=after.time_us / before.time_us,
        before_us=before.time_us,
        after_us=after.time_us,
        row=first.row,
    )


def changed(before: Machine, after: Machine) -> str:
    """Format `driver 570.86 -> 580.12, torch 2.12 -> 2.13`."""
    told = []
    if before.driver != after.driver:
        told.append(("driver", before.driver, after.driver))
    if before.capability != after.capability:
        told.append(("capability", before.capability, after.capability))
    for name in sorted({*before.software, *after.software}):
        one, other = before.software.get(name), after.software.get(name)
        if one != other:
            told.append((name, one, other))
    return ", ".join(f"{name} {one or 'none'} → {other or 'none'}" for name, one, other in told)
