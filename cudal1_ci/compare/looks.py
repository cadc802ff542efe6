"""Hold what was measured of a pair so far, and say what it comes to. Pure.

one = Looks(pair)
found = entry(one, wanted, config)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from cudal1_ci.compare.config import CompareConfig
from cudal1_ci.compare.pairs import Pair
from cudal1_ci.records import (
    ComparedWorkload,
    Comparison,
    ContractCheck,
    Entry,
    Evaluation,
    Measurement,
    Problem,
    Workload,
)
from cudal1_ci.records.comparison import Cause
from cudal1_ci.stats.regression import Alarm, alarm, verdict_of, worst

UNCONFIRMED = "a difference was seen and not measured again: "
NO_BUDGET = "the budget was spent"
GUESSED = "a difference, under a guess of how it is called: declare a workload to be sure"


@dataclass
class Looks:
    """Hold what was measured of a pair so far."""

    pair: Pair
    measurements: dict[str, list[Measurement]] = field(default_factory=dict)
    output_change: str | None = None
    passed: Evaluation | None = None
    """The first look's, where the outputs are the same."""
    contract: tuple[ContractCheck, ...] | None = None
    contract_s: float | None = None
    refused: Comparison | None = None
    """What is said of it where there are no times."""
    took_s: float = 0.0
    """For its last look."""
    unconfirmed: str = NO_BUDGET
    """Why an alarm was not measured as often as it must be, where it was not."""
    unconfirmed_cause: Cause | None = "over_budget"

    @property
    def problem(self) -> Problem:
        """Return the problem to measure: it ignores values where the outputs of the two trees
        differ.
        """
        return indulgent(self.pair.problem) if self.output_change else self.pair.problem

    def alarms(self, config: CompareConfig) -> set[Alarm | None]:
        """Return what workloads show that differ in all of their measurements."""
        return {
            alarm(looks[0], config.thresholds)
            for workload in self.pair.problem.workloads
            if (looks := self.measurements.get(workload.name))
            and is_alarming(looks, config)
            and not workload.is_guess
        }


def indulgent(problem: Problem) -> Problem:
    """Return the same calls with any output values accepted, where shape and type agree."""

    def any_value(workload: Workload) -> Workload:
        return msgspec.structs.replace(workload, atol=math.inf, rtol=0.0)

    workloads = tuple(map(any_value, problem.workloads))
    return msgspec.structs.replace(problem, workloads=workloads)


def is_alarming(looks: Sequence[Measurement], config: CompareConfig) -> bool:
    """Return whether all looks indicate the same difference."""
    found = {alarm(one, config.thresholds) for one in looks}
    return len(found) == 1 and found != {None}


def entry(one: Looks, wanted: int, config: CompareConfig) -> Entry:
    """Return the entry of a pair."""
    target, workloads = one.pair.target, one.pair.problem.workloads
    if one.refused is not None:
        return Entry(
            target=target,
            skipped=one.refused.reason,
            workloads=workloads,
            comparison=msgspec.structs.replace(
                one.refused, output_change=one.output_change, previous=one.pair.previous
            ),
        )
    rows = tuple(
        row(workload, one, wanted, config)
        for workload in workloads
        if workload.name in one.measurements
    )
    return Entry(
        target=target,
        workloads=workloads,
        comparison=Comparison(
            verdict=worst(each.verdict for each in rows),
            rows=rows,
            cause=one.unconfirmed_cause if is_unconfirmed(one, wanted, config) else None,
            previous=one.pair.previous,
            output_change=one.output_change,
            contract=one.contract,
            contract_s=one.contract_s,
        ),
    )


def is_unconfirmed(one: Looks, wanted: int, config: CompareConfig) -> bool:
    """Return whether an alarm that counts was not measured as often as it must be."""
    return bool(one.alarms(config)) and any(
        is_alarming(looks, config) and len(looks) < wanted for looks in one.measurements.values()
    )


def row(workload: Workload, one: Looks, wanted: int, config: CompareConfig) -> ComparedWorkload:
    """Return the verdict on one workload."""
    looks = one.measurements[workload.name]
    verdict, reason = verdict_of(looks, config.thresholds, wanted)
    if is_alarming(looks, config):
        if workload.is_guess:
            verdict, reason = "inconclusive", GUESSED
        elif len(looks) < wanted:
            reason = UNCONFIRMED + one.unconfirmed
    return ComparedWorkload(
        workload=workload.name, verdict=verdict, measurements=tuple(looks), reason=reason
    )
