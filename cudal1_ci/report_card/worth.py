"""Compute what a column is worth on a task.

Of its candidates that passed, the one with the highest lower bound counts, with its estimate, also
where that is below 1. A column that failed or was given nothing counts 1.00, and as failed. `best`
is what we would propose: of our own columns, and of what it put together of their finds, the gain
(as in score.is_gain) with the highest lower bound; where there is none, the reference stays, 1.00.

By CUDA-L1's rules the largest counted speedup counts, 1.00 where its rules throw all times away.
Verdicts are the same: only the counting differs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from cudal1_ci.records import Measurement
from cudal1_ci.report_card.columns import BEST, OWN
from cudal1_ci.report_card.shape import Policy, ResultDocument, TaskDocument, TrialDocument
from cudal1_ci.stats import speedups

FILL = 1.0


@dataclass(frozen=True, kw_only=True)
class Worth:
    """Hold the worth of one column on one task."""

    solver: str
    """The column, or the one that `best` is from."""
    speedup: float
    low: float | None = None
    high: float | None = None
    is_success: bool = False
    is_given: bool = False
    is_thrown_away: bool = False
    """Whether CUDA-L1's rules count none of its times."""
    trial: TrialDocument | None = None
    """The candidate that counts; None where the reference does."""


def worth(task: TaskDocument, solver: str, policy: Policy = "strict") -> Worth:
    """Return the worth of a column on a verified task."""
    return best_of(task, policy) if solver == BEST else own_worth(task, solver, policy)


def own_worth(task: TaskDocument, solver: str, policy: Policy) -> Worth:
    """Return the worth of what a column proposed itself."""
    result = result_of(task, solver)
    if result is None:
        return Worth(solver=solver, speedup=FILL)
    floor = Worth(solver=solver, speedup=FILL, is_given=bool(result.trials))
    found = _right(result, policy)
    return max(found, key=lambda one: (not one.is_thrown_away, certain(one, policy)), default=floor)


def best_of(task: TaskDocument, policy: Policy) -> Worth:
    """Return the best of our own columns, with the reference as floor."""
    floor = Worth(solver="reference", speedup=FILL, is_success=True, is_given=True)
    found = gains(task, OWN, policy)
    return max(found, key=lambda one: certain(one, policy), default=floor)


def gains(task: TaskDocument, solvers: Sequence[str], policy: Policy) -> list[Worth]:
    """Return everything in some columns that would be proposed. This may exclude what counts in a
    column: the less certain of two candidates may be the one that clears the noise.
    """
    results = [result for result in task.results if result.solver in solvers]
    right = [one for result in results for one in _right(result, policy)]
    return [one for one in right if is_gain(one, policy)]


def is_gain(one: Worth, policy: Policy) -> bool:
    """Return whether a candidate would be proposed: not only screened, on no workload slower beyond
    doubt, on at least one faster by more than the floors and than the reference against itself. By
    the paper's rules: above 1.
    """
    if one.trial is None or one.trial.phase == "screened":
        return False
    if policy == "cuda-l1":
        return one.speedup > FILL
    measured = one.trial.measurements
    is_slower = any((m.speedup_high or 1.0) < speedups.SLOWER for m in measured)
    return not is_slower and any(map(is_faster, measured))


def is_faster(measured: Measurement) -> bool:
    """Apply score.is_gain to what was published."""
    low, reference_us = measured.speedup_low, measured.reference_us
    if low is None or reference_us is None or low <= 1 + speedups.RELATIVE_FLOOR:
        return False
    if reference_us * (1 - 1 / low) <= speedups.ABSOLUTE_FLOOR_US:
        return False
    return measured.control_spread is None or low > 1 + measured.control_spread


def result_of(task: TaskDocument, solver: str) -> ResultDocument | None:
    return next((one for one in task.results if one.solver == solver), None)


def certain(one: Worth, policy: Policy) -> float:
    """Return the value that the choice among candidates uses."""
    return one.speedup if policy == "cuda-l1" else one.low or 0.0


def _right(result: ResultDocument, policy: Policy) -> list[Worth]:
    """Return the candidates of a column that passed."""
    passed = [one for one in result.trials if one.status == "passed" and one.measurements]
    return [_worth_of(result.solver, one, policy) for one in passed]


def _worth_of(solver: str, trial: TrialDocument, policy: Policy) -> Worth:
    """Return the worth of a candidate that passed, over all its workloads."""
    measured = trial.measurements
    if policy == "cuda-l1":
        found = [m.speedup_cuda_l1 for m in measured]
        speedup = _mean(found) if trial.doubted is None else None
        return Worth(
            solver=solver,
            speedup=speedup or FILL,
            is_success=True,
            is_given=True,
            is_thrown_away=speedup is None,
            trial=trial,
        )
    return Worth(
        solver=solver,
        speedup=_mean([m.speedup for m in measured]) or FILL,
        low=_mean([m.speedup_low for m in measured]),
        high=_mean([m.speedup_high for m in measured]),
        is_success=True,
        is_given=True,
        trial=trial,
    )


def _mean(ratios: Sequence[float | None]) -> float | None:
    """Return the geometric mean; None where one value is not known."""
    known = [math.log(one) for one in ratios if one]
    return math.exp(statistics.fmean(known)) if known and len(known) == len(ratios) else None
