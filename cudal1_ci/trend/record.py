"""One line of the history. Published and append-only: docs/history.md describes every field.

A report becomes a `Run` for each of its devices, a `Row` for each target, workload and device, and
a `Proposal` for each faster version that was proven. A `Fate` says that a proposal was found in the
code of a later commit, or that the code which it replaces is gone. A proposal is a line of its own
and not part of its rows, as it holds for all workloads and carries its evidence.

Lines hold what the commit and the report say and nothing of when they were written, so the same
report makes the same lines, and a line that is there already is not written again. Absent values
are left out. Unknown fields are ignored, and so are lines of kinds that are unknown here.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, TypeVar

import msgspec

from cudal1_ci.records import ComparisonVerdict
from cudal1_ci.records.record import Count, Line, Name, NotNegative, Positive

SCHEMA_VERSION: Literal[1] = 1

Sha = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{7,64}\Z")]
Key = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{16}\Z")]
Moment = Annotated[datetime, msgspec.Meta(tz=True)]
FateWord = Literal["accepted", "outdated", "open"]


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="record"):
    """Base of every line."""


class Machine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was measured on: hardware, and the software with which times may change."""

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
    """One workload of one target on one device at one commit. Without a time it says that there
    is none (`verdict`: new, removed, skipped, ...); without a workload it speaks of all of them."""

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


class Gain(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a proposal saves in one workload on the device of its line."""

    workload: Name
    speedup: Positive
    speedup_low: Positive
    speedup_high: Positive
    reference_us: Positive
    candidate_us: Positive
    calls_per_step: NotNegative | None = None


class Block(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Neighboring lines of a file, by their hash (evidence.py)."""

    path: Name
    num_lines: Line
    digest: Key


class Proposal(Entry, frozen=True, kw_only=True, tag="proposal"):
    """A faster version that was proven at a commit."""

    id: Key
    """Of what it changes: the same patch found again after other changes is the same proposal."""
    commit: Sha
    device: Key
    target: Name
    technique: Name = ""
    gains: Annotated[tuple[Gain, ...], msgspec.Meta(min_length=1)]
    before: tuple[Block, ...] = ()
    after: tuple[Block, ...] = ()


class Fate(Entry, frozen=True, kw_only=True, tag="fate"):
    """What became of a proposal, as the code of a commit says."""

    proposal: Key
    commit: Sha
    fate: FateWord


AnyEntry = Run | Row | Proposal | Fate
E = TypeVar("E", Run, Row, Proposal, Fate)


class History(msgspec.Struct, frozen=True, kw_only=True):
    """All lines, in their order."""

    entries: tuple[AnyEntry, ...] = ()

    def of(self, kind: type[E]) -> tuple[E, ...]:
        """Lines of one kind."""
        return tuple(entry for entry in self.entries if isinstance(entry, kind))
