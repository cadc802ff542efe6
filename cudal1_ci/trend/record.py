"""Describe one line of the history. Published and append-only: docs/trend.md lists every field.

A report becomes a `Run` for each of its devices and a `Row` for each target, workload and device.

Lines hold what the commit and the report say and nothing of when they were written, so the same
report makes the same lines, and a line that is there already is not written again. Absent values
are left out. Unknown fields are ignored, and so are lines of kinds that are unknown here.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, TypeVar

import msgspec

from cudal1_ci.records import ComparisonVerdict
from cudal1_ci.records.record import Count, Name, Positive

SCHEMA_VERSION: Literal[1] = 1

Sha = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{7,64}\Z")]
Key = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{16}\Z")]
Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="record"):
    """Base of every line."""


class Machine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Describe what was measured on: hardware, and the software with which times may change."""

    kind: Literal["cpu", "cuda"]
    name: Name
    num_threads: Count | None = None
    capability: Name | None = None
    driver: Name | None = None
    software: dict[Name, Name] = {}


class Run(Entry, frozen=True, kw_only=True, tag="run"):
    """A commit was measured on a device, or had nothing to measure (no device)."""

    schema_version: Literal[1]
    repository: Name
    commit: Sha
    base: Sha | None = None
    """The commit it was compared with, where it was: what no row names did not change since."""
    date: Moment | None = None
    """Of the commit where a checkout knew it, else of the report."""
    generated_at: Moment | None = None
    """Of the report, so that measuring a commit again is another run."""
    device: Key | None = None
    machine: Machine | None = None


class Row(Entry, frozen=True, kw_only=True, tag="row"):
    """Describe one workload of one target on one device at one commit. Without a time the `verdict`
    says why (new, removed, skipped, ...). Without a workload the row covers all of them.
    """

    commit: Sha
    target: Name
    """`path:qualname`"""
    workload: Name | None = None
    device: Key | None = None
    time_us: Positive | None = None
    low_us: Positive | None = None
    high_us: Positive | None = None
    """Interval over fresh processes of one session; another session may drift beyond it."""
    slowdown: Positive | None = None
    slowdown_low: Positive | None = None
    slowdown_high: Positive | None = None
    """Against the base, paired in one session: above 1 is slower."""
    verdict: ComparisonVerdict | None = None

    def __post_init__(self) -> None:
        _refuse_disorder("time_us", self.low_us, self.time_us, self.high_us)
        _refuse_disorder("slowdown", self.slowdown_low, self.slowdown, self.slowdown_high)
        if self.time_us is not None and (self.workload is None or self.device is None):
            raise ValueError("a row with a time needs a workload and a device")


def _refuse_disorder(name: str, low: float | None, value: float | None, high: float | None) -> None:
    if low is None and high is None:
        return
    if low is None or value is None or high is None or not low <= value <= high:
        raise ValueError(f"expected {name} between its bounds, got {(low, value, high)}")


AnyEntry = Run | Row
E = TypeVar("E", Run, Row)


class History(msgspec.Struct, frozen=True, kw_only=True):
    """Hold all lines, in their order."""

    entries: tuple[AnyEntry, ...] = ()

    def of(self, kind: type[E]) -> tuple[E, ...]:
        """Return lines of one kind."""
        return tuple(entry for entry in self.entries if isinstance(entry, kind))
