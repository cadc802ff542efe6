"""Record whether a target got slower between two commits."""

from __future__ import annotations

from typing import Literal

from cudal1_ci.records.evaluation import Measurement
from cudal1_ci.records.record import Record

ComparisonVerdict = Literal[
    "regression", "improvement", "same", "inconclusive", "new", "removed", "skipped"
]


class Acknowledgement(Record, frozen=True, kw_only=True):
    """A slowdown that somebody has agreed to, written into the repository's configuration."""

    target: str
    """Glob over `path:qualname`."""
    max_slowdown: float
    """What is agreed to: 1.2 is a fifth slower."""
    reason: str
    owner: str
    expires: str
    """The last day on which it holds, `2026-12-31`."""


class ComparedWorkload(Record, frozen=True, kw_only=True):
    """One workload on both trees. In its measurements the base is the reference and the head the
    candidate; the first one found what the others, in new processes, were to find again."""

    workload: str
    verdict: ComparisonVerdict
    measurements: tuple[Measurement, ...] = ()
    reason: str | None = None
    """Why nothing is known of it, or why it is inconclusive."""


class Comparison(Record, frozen=True, kw_only=True):
    """A target before and after a change."""

    verdict: ComparisonVerdict
    """That of the worst workload (`slowdown.worst`)."""
    rows: tuple[ComparedWorkload, ...] = ()
    reason: str | None = None
    """Why it was not compared: it is new, was removed, or could not be called."""
    output_change: str | None = None
    """How the outputs of the two differ, where they do: it is noted, and no verdict on time."""
    acknowledged: Acknowledgement | None = None
