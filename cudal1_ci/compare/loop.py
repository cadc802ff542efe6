"""Measure pairs, and measure alarms again.

Every pair is measured once, the most important ones first. Pairs that raised an alarm are measured
again later in new processes, until the alarm was found `regression.num_looks` times or was not
found again. For slowdowns up to half of the budget is reserved for that: a certain regression is
worth more than one more target. What got faster is measured again in the time that is left.

Values decide nothing here: a difference between the outputs of the two trees is noted, and the
times are still compared. A guessed call raises no alarm that counts: its verdict is inconclusive at
most. With several devices of one kind a pair is measured on one of them, and again on any.

Where the outputs are the same, the head is then used in other ways than its workload shows, each
tried on the base first, once for each pair. Times come before that, and no verdict depends on it.

    entries, ended = compare(pairs, bench)
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from cudal1_ci.compare.config import CompareConfig
from cudal1_ci.compare.messages import refusal, said
from cudal1_ci.compare.pairs import Pair, Pairs, in_order
from cudal1_ci.errors import WorkerError
from cudal1_ci.pool import Pool
from cudal1_ci.processes.device_wait import GaveUp, patient_until
from cudal1_ci.records import (
    Candidate,
    ComparedWorkload,
    Comparison,
    ContractCheck,
    Entry,
    Evaluation,
    Measurement,
    Problem,
    Workload,
)
from cudal1_ci.records.archive import Archive
from cudal1_ci.records.comparison import Cause
from cudal1_ci.records.run_status import Ending
from cudal1_ci.render.progress import Progress
from cudal1_ci.stats.regression import Alarm, alarm, num_looks, verdict_of, worst
from cudal1_ci.verification.protocol import Verifier

DIFFERING = ("incorrect_values", "precision")
"""Verdicts on values, beyond which times can be compared."""
SPENT = "not reached: the budget was spent"
UNCONFIRMED = "a difference was seen and not measured again: "
NO_BUDGET = "the budget was spent"
OTHER_OUTPUTS = "outputs changed at the workload: contract not examined"
GUESSED = "a difference, under a guess of how it is called: declare a workload to be sure"


@dataclass
class Bench:
    """Hold what a comparison works with."""

    session: Verifier
    archive: Archive
    progress: Progress
    config: CompareConfig
    policy: str
    """Hash of the verifier's settings."""
    budget_s: float | None = None
    may_reuse: bool = True
    examines: bool = True
    """Whether other uses than the workloads' are tried."""
    pool: Pool | None = None
    """Several slots; `session` is the first one's verifier. None where that is all."""
    clock: Callable[[], float] = time.monotonic
    started_s: float = field(init=False)
    was_cut: bool = False
    """Whether something was left out for want of time."""

    def __post_init__(self) -> None:
        self.started_s = self.clock()

    def is_over(self, reserved_s: float = 0.0) -> bool:
        """Return whether no more than this is left of the budget."""
        if self.budget_s is None:
            return False
        return self.clock() - self.started_s + reserved_s > self.budget_s

    def has_time(self, reserved_s: float = 0.0) -> bool:
        """Return whether more than this is left. Where it is not, something was left out."""
        has = not self.is_over(reserved_s)
        self.was_cut = self.was_cut or not has
        return has


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


def compare(pairs: Pairs, bench: Bench) -> tuple[list[Entry], Literal["done", "budget"]]:
    """Return entries with their comparison; entries that could not be compared come last."""
    order = in_order(pairs.pairs)
    bench.progress.start(len(order) + len(pairs.others))
    for other in pairs.others:
        bench.progress.target_skipped(other.target, other.skipped or "")
    count = sum(one.num_comparisons for one in order) * bench.config.num_devices
    wanted = num_looks(count, bench.session.device().kind) if order else 1
    looks = [Looks(pair) for pair in order]
    num_slots = bench.pool.backend.num_slots if bench.pool else 1
    unreached = look_at_each(
        looks,
        1,
        bench,
        lambda: not bench.has_time(reserved_s(looks, wanted, bench, num_slots)),
    )
    for one in unreached:
        one.refused = Comparison(verdict="skipped", reason=SPENT, cause="over_budget")
        bench.progress.target_skipped(one.pair.target, SPENT)
    for number in range(2, wanted + 1):
        alarming = [one for one in looks if one.alarms(bench.config)]
        alarming.sort(key=lambda one: "regression" not in one.alarms(bench.config))
        look_at_each(alarming, number, bench, lambda: not bench.has_time())
    if bench.examines:
        examine_contracts(looks, bench)
    entries = [entry(one, wanted, bench.config) for one in looks]
    return [*entries, *pairs.others], "budget" if bench.was_cut else "done"


def look_at_each(
    looks: Sequence[Looks], number: int, bench: Bench, is_over: Callable[[], bool]
) -> list[Looks]:
    """Measure pairs once more; return those that were not reached. Raises KeyboardInterrupt."""

    def work(one: Looks, verifier: Verifier) -> None:
        if number == 1:
            bench.progress.target_started(one.pair.target)
        else:
            bench.progress.notice(
                f"{one.pair.target.qualname}: a difference, measured again in new processes"
            )
        look(one, number, bench, verifier)
        if bench.pool:
            bench.progress.target_ended(one.pair.target)

    def lost(one: Looks, reason: str) -> None:
        lack = Comparison(verdict="inconclusive", reason=reason, cause="unmeasured")
        refuse(one, lack, bench)

    return each(looks, work, lost, bench, is_over)


def each(
    looks: Sequence[Looks],
    work: Callable[[Looks, Verifier], None],
    lost: Callable[[Looks, str], None],
    bench: Bench,
    is_over: Callable[[], bool],
) -> list[Looks]:
    """Do something to each pair, on one slot each; return those that were not reached. `lost` gets
    the reason where a slot was lost.

    Raises:
        KeyboardInterrupt: Also where it came while several slots were at work.
    """
    if bench.pool is None:
        for place, one in enumerate(looks):
            if is_over():
                return list(looks[place:])
            work(one, bench.session)
        return []
    run_status = Ending()

    def done(one: Looks, verifier: Verifier) -> bool:
        work(one, verifier)
        return True

    outcomes = bench.pool.map(looks, done, is_over=is_over, run_status=run_status)
    if run_status.was_interrupted:
        raise KeyboardInterrupt
    unreached = []
    for one, outcome in zip(looks, outcomes, strict=True):
        if outcome.reason is not None:
            lost(one, outcome.reason)
        elif outcome.result is None:
            unreached.append(one)
    return unreached


def reserved_s(looks: Sequence[Looks], wanted: int, bench: Bench, num_slots: int = 1) -> float:
    """Return what it takes to measure all slowdowns again after one more target, by what looks took
    so far, at most half of the budget; nothing where there is none."""
    alarming = [one.took_s for one in looks if "regression" in one.alarms(bench.config)]
    alarming_s = sum(alarming) / max(1, min(num_slots, len(alarming)))
    if not alarming_s:
        return 0.0
    needed_s = alarming_s * (wanted - 1) + statistics.fmean(
        one.took_s for one in looks if one.took_s
    )
    return needed_s if bench.budget_s is None else min(needed_s, bench.budget_s / 2)


def look(one: Looks, number: int, bench: Bench, verifier: Verifier) -> None:
    """Measure a pair once more."""
    began_s = bench.clock()
    one.refused = None  # of a look whose slot was lost
    with patient_until(lambda: not bench.has_time()):
        measure(one, number, bench, verifier)
    one.took_s = bench.clock() - began_s


def measure(one: Looks, number: int, bench: Bench, verifier: Verifier) -> None:
    """Add one look's measurements to a pair, or its refusal."""
    try:
        found = evaluation(one.problem, one.pair.head, number, bench, verifier)
        if number == 1 and found.verdict.status in DIFFERING:
            one.output_change = said(found) or "they differ"
            found = evaluation(one.problem, one.pair.head, number, bench, verifier)
    except GaveUp:  # another process had the device for the rest of the budget
        reason = NO_BUDGET if one.measurements else SPENT
        lack = Comparison(verdict="skipped", reason=reason, cause="over_budget")
        refuse(one, lack, bench)
        return
    except WorkerError as error:
        reason = f"the verifier failed: {error}"
        lack = Comparison(verdict="inconclusive", reason=reason, cause="unmeasured")
        refuse(one, lack, bench)
        return
    if found.verdict.status != "passed":
        refuse(one, refusal(found), bench)
        return
    if number == 1 and one.output_change is None:
        one.passed = found
    for measurement in found.measurements:
        one.measurements.setdefault(measurement.workload, []).append(measurement)
        bench.progress.compared(one.pair.target, measurement)


def refuse(one: Looks, why: Comparison, bench: Bench) -> None:
    """Note that there are no times, or no more of them."""
    one.unconfirmed, one.unconfirmed_cause = why.reason or "", why.cause
    if not one.measurements:
        one.refused = why
        bench.progress.target_skipped(one.pair.target, one.unconfirmed)


def evaluation(
    problem: Problem, head: Candidate, number: int, bench: Bench, verifier: Verifier
) -> Evaluation:
    """Return the archive's evaluation for this look, or run a new trial."""
    head = msgspec.structs.replace(head, problem_id=problem.id)
    policy = policy_of(number, bench)
    if bench.may_reuse:
        key = verifier.device().key
        known = bench.archive.lookup(problem.id, head.id, key, policy)
        if known is not None:
            return msgspec.structs.replace(known, candidate=head)
    found = verifier.evaluate(problem, head)
    bench.archive.record(found, policy)
    return found


def policy_of(number: int, bench: Bench) -> str:
    """Return the policy under which a look is kept."""
    return f"{bench.policy} look {number}"


def examine_contracts(looks: Sequence[Looks], bench: Bench) -> None:
    """Try the uses that no workload shows on each pair that was measured, in the time that is left.
    Where the outputs differ already, a difference elsewhere would prove nothing."""
    measured = [one for one in looks if one.measurements]
    for one in measured:
        if one.passed is None:
            not_examined(one, OTHER_OUTPUTS)
        else:
            one.contract, one.contract_s = one.passed.contract, one.passed.contract_s
    waiting = [one for one in measured if one.contract is None]

    def work(one: Looks, verifier: Verifier) -> None:
        examine_contract(one, bench, verifier)

    for one in each(waiting, work, not_examined, bench, bench.is_over):
        not_examined(one, NO_BUDGET)


def examine_contract(one: Looks, bench: Bench, verifier: Verifier) -> None:
    """Try the other uses of a pair. What is found is kept with its first look."""
    assert one.passed is not None
    try:
        with patient_until(bench.is_over):
            found = verifier.examine_contract(one.pair.problem, one.passed)
    except GaveUp:
        not_examined(one, NO_BUDGET)
        return
    except WorkerError as error:
        not_examined(one, f"the verifier failed: {error}")
        return
    one.contract, one.contract_s = found.contract, found.contract_s
    if found.contract is not None:
        bench.archive.record(found, policy_of(1, bench))
        bench.progress.contract_tried(one.pair.target, found.contract)


def not_examined(one: Looks, reason: str) -> None:
    """Note why the other uses of a pair were not tried."""
    one.contract = (ContractCheck(aspect="contract", result="not_tried", detail=reason),)


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
