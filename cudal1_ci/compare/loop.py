"""Measure pairs, and measure alarms again.

Every pair is measured once, the most important ones first. Pairs that raised an alarm are measured
again later in new processes, until the alarm was found `regression.num_looks` times or was not
found again. For slowdowns up to half of the budget is reserved for that: a certain regression is
worth more than one more target. What got faster is measured again in the time that is left.

Values decide nothing here: a difference between the outputs of the two trees is noted, and the
times are still compared. A guessed call raises no alarm that counts: its verdict is inconclusive at
most. With several devices of one kind a pair is measured on one of them, and again on any.

Other uses than those of the workloads are tried after all times (contracts.py).

    entries, ended = compare(pairs, bench)
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from cudal1_ci.compare.bench import Bench, each, policy_of
from cudal1_ci.compare.contracts import examine_contracts
from cudal1_ci.compare.helpers import helpers_within
from cudal1_ci.compare.looks import NO_BUDGET, Looks, entry
from cudal1_ci.compare.messages import refusal, said
from cudal1_ci.compare.pairs import Pairs, in_order
from cudal1_ci.errors import WorkerError
from cudal1_ci.processes.device_wait import GaveUp
from cudal1_ci.records import Candidate, Comparison, Entry, Evaluation, Problem
from cudal1_ci.stats.regression import num_looks
from cudal1_ci.verification.protocol import Verifier

DIFFERING = ("incorrect_values", "precision")
"""Verdicts on values, beyond which times can be compared."""
SPENT = "not reached: the budget was spent"


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
    others = helpers_within(pairs.others, looks, bench)
    return [*entries, *others], "budget" if bench.was_cut else "done"


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
    with bench.patient(lambda: not bench.has_time()):
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
    # An alarm that noise did not let repeat is open: the gate must not pass it as unclear.
    cause = "unmeasured" if why.cause == "noisy" else why.cause
    one.unconfirmed, one.unconfirmed_cause = why.reason or "", cause
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
