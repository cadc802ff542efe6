"""Say what became of the candidates of a target without a proposal, with the numbers behind it.

For candidates that passed, the measured speedup is shown with the condition that it does not meet
(`score.is_gain`): a lower bound above 1 is no proposal yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cudal1_ci.records import Evaluation, Measurement
from cudal1_ci.render.wording import (
    STATUS_WORDS,
    at_most_text,
    device_text,
    line_text,
    percent_text,
    speedup_text,
)
from cudal1_ci.stats.speedups import ABSOLUTE_FLOOR_US, RELATIVE_FLOOR, SLOWER


@dataclass(frozen=True, kw_only=True)
class Measured:
    """`1.20x [1.12, 1.40]`, and where: ` on base` of several workloads, or empty."""

    speedup: str
    where: str


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Hold candidates with the same end, and the best measurement of one of them."""

    count: int
    said: str
    """`passed`, `wrong values`."""
    why: str = ""
    """What one that passed does not meet."""
    measured: tuple[Measured, ...] = ()
    """The one nearest to a gain; with it the slowest, where that is what is wrong."""

    @property
    def rows(self) -> tuple[tuple[str, str], ...]:
        """Return the numbers, each with its words; a missing number is empty."""
        first, *others = self.measured or (Measured(speedup="", where=""),)
        why = f", {self.why}" if self.why else ""
        words = f"{self.count} {self.said}{first.where}{why}"
        return ((first.speedup, words), *((one.speedup, one.where.strip()) for one in others))

    @property
    def text(self) -> str:
        """Return everything in one sentence."""
        if not self.measured:
            return self.rows[0][1]
        numbers = " and ".join(one.speedup + one.where for one in self.measured)
        best = " at best" if self.count > 1 else ""
        return f"{self.count} {self.said} with {numbers}{best}, {self.why}"


def outcomes(evaluations: Iterable[Evaluation], several_devices: bool = False) -> list[Outcome]:
    """Return outcomes: measured ones first, the fastest leading; the rest by frequency. With
    `several_devices` each measurement names its own.
    """
    groups: dict[tuple[str, str], list[Evaluation]] = {}
    for evaluation in evaluations:
        kind = obstacle(evaluation) if evaluation.status == "passed" else ""
        groups.setdefault((evaluation.status, kind), []).append(evaluation)
    ordered = sorted(groups.values(), key=lambda group: (-max(map(_low, group)), -len(group)))
    return [_outcome(group, several_devices) for group in ordered]


def outcomes_text(evaluations: Iterable[Evaluation], several_devices: bool = False) -> str:
    """Format `2 passed with 1.01x [0.98, 1.04] at best, not proven faster; 1 wrong values`."""
    return "; ".join(outcome.text for outcome in outcomes(evaluations, several_devices))


def obstacle(evaluation: Evaluation) -> str:
    """Return which condition a candidate that passed does not meet."""
    fastest = decisive(evaluation.measurements)
    if fastest is None:
        return "unmeasured"
    if evaluation.acceptance is not None and evaluation.acceptance.broken:
        return "refused"
    if evaluation.phase == "screened":
        return "screened"
    low = _low_of(fastest)
    if low <= 1.0:
        return "unproven"
    if min(map(_high_of, evaluation.measurements)) < SLOWER:
        return "mixed"
    if low <= 1.0 + max(fastest.control_spread or 0.0, RELATIVE_FLOOR):
        return "ratio"
    if (fastest.reference_us or 0.0) * (1 - 1 / low) <= ABSOLUTE_FLOOR_US:
        return "time"
    return "broken" if evaluation.broken else "elsewhere"


def decisive(measurements: Sequence[Measurement]) -> Measurement | None:
    """Return the measurement closest to a gain: the one with the highest lower bound."""
    return max((m for m in measurements if m.speedup is not None), key=_low_of, default=None)


def _outcome(group: Sequence[Evaluation], several_devices: bool) -> Outcome:
    """Return the outcome of evaluations with the same status and obstacle."""
    best = max(group, key=_low)
    said = STATUS_WORDS[best.status]
    if best.status != "passed":
        return Outcome(count=len(group), said=said)
    fastest = decisive(best.measurements)
    if fastest is None:
        return Outcome(count=len(group), said=said, why="not measured")
    kind = obstacle(best)
    why = f"not proposed: contract broken, {best.broken[0].aspect}" if kind == "broken" else None
    if kind == "refused" and best.acceptance is not None:
        why = f"not proposed: {line_text(best.acceptance.broken[0])}"
    told = [fastest]
    if kind == "mixed":
        told.append(min(best.measurements, key=_high_of))
    several_workloads = len({one.workload for one in best.measurements}) > 1
    measured = tuple(
        Measured(speedup=speedup_text(one), where=_where(one, several_workloads, several_devices))
        for one in told
    )
    return Outcome(count=len(group), said=said, why=why or _why(kind, fastest), measured=measured)


def _why(kind: str, fastest: Measurement) -> str:
    spread = fastest.control_spread or 0.0
    if kind == "ratio" and spread > RELATIVE_FLOOR:
        return (
            f"not proposed: the lower bound must be above {at_most_text(1.0 + spread)}, as the "
            f"reference against itself (A/A) differs by up to {percent_text(spread)}"
        )
    return {
        "screened": "screened in one repetition, not confirmed",
        "unproven": "not proven faster",
        "mixed": "not proposed: faster on one, slower on another",
        "ratio": "not proposed: the lower bound must be above "
        f"{at_most_text(1.0 + RELATIVE_FLOOR)}",
        "time": "not proposed: by its lower bound it must save more than "
        f"{ABSOLUTE_FLOOR_US} us a call",
        "elsewhere": "not proposed: it did not pass everywhere",
    }[kind]


def _where(measurement: Measurement, several_workloads: bool, several_devices: bool) -> str:
    names = [measurement.workload] if several_workloads else []
    if several_devices:
        names.append(device_text(measurement.device))
    return f" on {', '.join(names)}" if names else ""


def _low(evaluation: Evaluation) -> float:
    """Return the highest lower bound; 0 where nothing was measured."""
    return max(map(_low_of, evaluation.measurements), default=0.0)


def _low_of(measurement: Measurement) -> float:
    return measurement.speedup_low or 0.0


def _high_of(measurement: Measurement) -> float:
    """Return the upper bound; an unknown one counts as not slower."""
    return measurement.speedup_high or 1.0
