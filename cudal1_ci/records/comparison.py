"""Record whether a target got slower between two commits."""

from __future__ import annotations

from typing import Literal

from cudal1_ci.records.evaluation import ContractCheck, Device, Measurement
from cudal1_ci.records.record import (
    Count,
    Name,
    NotNegative,
    Positive,
    Published,
    Text,
    refuse_disorder,
)

ComparisonVerdict = Literal[
    "regression", "improvement", "same", "inconclusive", "new", "removed", "skipped"
]

Cause = Literal[
    "noisy", "renamed", "moved", "lost", "skipped", "crashed", "unmeasured", "over_budget"
]
"""Why a target of the base has no times that count, or lacks them on one of several machines."""


class Acknowledgement(Published, frozen=True, kw_only=True):
    """A slowdown that somebody has agreed to, written into the repository's configuration."""

    target: Name
    """Glob over `path:qualname`."""
    max_slowdown: Positive
    """What is agreed to: 1.2 is a fifth slower."""
    reason: Text
    owner: Name
    expires: Name
    """The last day on which it holds, `2026-12-31`."""


class ComparedWorkload(Published, frozen=True, kw_only=True):
    """Compare one workload on both trees. In its measurements the base is the reference and the
    head the candidate. The later measurements, in new processes, check what the first one found.

    The numbers are those of the last measurement, None until a report is made
    (`stats/figures.py`). A slowdown above 1 is slower.
    """

    workload: Name
    verdict: ComparisonVerdict
    measurements: tuple[Measurement, ...] = ()
    """Left out of a report."""
    reason: Text | None = None
    """Why nothing is known of it, or why it is inconclusive."""
    device: Device | None = None
    slowdown: Positive | None = None
    slowdown_low: Positive | None = None
    slowdown_high: Positive | None = None
    base_us: Positive | None = None
    head_us: Positive | None = None
    control_spread: NotNegative | None = None
    """Of the base against itself."""
    num_measurements: Count = 0
    """1, or more where an alarm had to be found again."""

    def __post_init__(self) -> None:
        refuse_disorder(self, "slowdown")


class Comparison(Published, frozen=True, kw_only=True):
    """A target before and after a change. The numbers are those of the worst workload, None until
    a report is made."""

    verdict: ComparisonVerdict
    """That of the worst workload (`slowdown.worst`)."""
    slowdown: Positive | None = None
    slowdown_low: Positive | None = None
    slowdown_high: Positive | None = None
    rows: tuple[ComparedWorkload, ...] = ()
    reason: Text | None = None
    """Why it was not compared: it is new, was removed, or could not be called."""
    cause: Cause | None = None
    """What kind of reason that is; None where all was measured, or there was nothing to measure."""
    within: tuple[Text, ...] = ()
    """`path:qualname` of targets that were measured, in whose calls it ran, where it has no call of
    its own."""
    previous: Text | None = None
    """`path:qualname` in the base, where it was renamed or moved and is compared all the same."""
    output_change: Text | None = None
    """How the outputs of the two differ, where they do: it is noted, and no verdict on time."""
    acknowledged: Acknowledgement | None = None
    contract: tuple[ContractCheck, ...] | None = None
    """Other uses than the workload's, each tried on the base first, where the outputs of the
    workload are the same; None where that was left out. A line that is broken is stated, and is no
    verdict on time."""
    contract_s: NotNegative | None = None
    """Seconds that these took, in this run or in the one that tried them."""

    @property
    def broken(self) -> tuple[ContractCheck, ...]:
        """Return the lines of the contract that the base keeps and the head breaks."""
        return tuple(one for one in self.contract or () if one.result == "broken")

    def __post_init__(self) -> None:
        refuse_disorder(self, "slowdown")
