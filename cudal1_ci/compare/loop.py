"""Measures pairs, and alarms again.

First every pair once, the most important ones first; then those that raised an alarm again, in new
processes and some time later, until an alarm was found as often as `slowdown.num_looks` asks, or
not found again. Of a budget so much is kept as that takes: a regression that is sure is worth more
than one more target of which little is known. Values decide nothing here: where the outputs of the
two trees differ, that is noted, and times are compared all the same. A guess of how something is
called raises no alarm that counts: the verdict on it is inconclusive at most.

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
from cudal1_ci.compare.pairs import Pair, Pairs, in_order, is_guess
from cudal1_ci.errors import WorkerError
from cudal1_ci.processes.device_wait import GaveUp, patient_until
from cudal1_ci.records import (
    Candidate,
    ComparedWorkload,
    Comparison,
    Entry,
    Evaluation,
    Measurement,
    Problem,
    Workload,
)
from cudal1_ci.records.archive import Archive
from cudal1_ci.render.progress import Progress
from cudal1_ci.stats.regression import alarm, num_looks, verdict_of, worst
from cudal1_ci.verification import Session

DIFFERING = ("incorrect_values", "precision")
"""Verdicts on values, beyond which times can be compared."""
SPENT = "not reached: the budget was spent"
UNCONFIRMED = "a difference was seen and not measured again: "
NO_BUDGET = "the budget was spent"
GUESSED = "a difference, under a guess of how it is called: declare a workload to be sure"


@dataclass
class Bench:
    """What a comparison works with."""

    session: Session
    archive: Archive
    progress: Progress
    config: CompareConfig
    policy: str
    """Hash of the judge's settings."""
    budget_s: float | None = None
    may_reuse: bool = True
    clock: Callable[[], float] = time.monotonic
    started_s: float = field(init=False)
    was_cut: bool = False
    """Whether something was left out for want of time."""

    def __post_init__(self) -> None:
        self.started_s = self.clock()

    def has_time(self, reserved_s: float = 0.0) -> bool:
        """Whether there is more than this left of the budget."""
        if self.budget_s is None:
            return True
        has = self.clock() - self.started_s + reserved_s <= self.budget_s
        self.was_cut = self.was_cut or not has
        return has


@dataclass
class Looks:
    """What was measured of a pair so far."""

    pair: Pair
    measurements: dict[str, list[Measurement]] = field(default_factory=dict)
    output_change: str | None = None
    refused: Comparison | None = None
    """What is said of it where there are no times."""
    took_s: float = 0.0
    """For its last look."""
    unconfirmed: str = NO_BUDGET
    """Why an alarm was not measured as often as it must be, where it was not."""

    @property
    def problem(self) -> Problem:
        """Under which it is measured: without regard to values where those differ."""
        return indulgent(self.pair.problem) if self.output_change else self.pair.problem

    def raises_alarm(self, config: CompareConfig) -> bool:
        """Whether a workload differs in all that was measured of it."""
        return any(
            is_alarming(looks, config) and not is_guess(workload)
            for workload in self.pair.problem.workloads
            if (looks := self.measurements.get(workload.name))
        )


def compare(pairs: Pairs, bench: Bench) -> tuple[list[Entry], Literal["done", "budget"]]:
    """Entries with their comparison, those of what could not be compared at the end."""
    order = in_order(pairs.pairs)
    bench.progress.start(len(order) + len(pairs.others))
    for other in pairs.others:
        bench.progress.target_skipped(other.target, other.skipped or "")
    count = sum(one.num_comparisons for one in order) * bench.config.num_devices
    wanted = num_looks(count, bench.session.device().kind) if order else 1
    looks = [Looks(pair) for pair in order]
    for one in looks:
        if not bench.has_time(reserved_s(looks, wanted, bench.config)):
            one.refused = Comparison(verdict="skipped", reason=SPENT)
            bench.progress.target_skipped(one.pair.target, SPENT)
        else:
            bench.progress.target_started(one.pair.target)
            look(one, 1, bench)
    for number in range(2, wanted + 1):
        for one in looks:
            if one.raises_alarm(bench.config) and bench.has_time():
                bench.progress.notice(
                    f"{one.pair.target.qualname}: a difference, measured again in new processes"
                )
                look(one, number, bench)
    entries = [entry(one, wanted, bench.config) for one in looks]
    return [*entries, *pairs.others], "budget" if bench.was_cut else "done"


def reserved_s(looks: Sequence[Looks], wanted: int, config: CompareConfig) -> float:
    """What it takes to measure all alarms again after one more target, by what looks took so
    far; nothing where there is no alarm."""
    alarming_s = sum(one.took_s for one in looks if one.raises_alarm(config))
    if not alarming_s:
        return 0.0
    return alarming_s * (wanted - 1) + statistics.fmean(one.took_s for one in looks if one.took_s)


def look(one: Looks, number: int, bench: Bench) -> None:
    """Measure a pair once more."""
    began_s = bench.clock()
    with patient_until(lambda: not bench.has_time()):
        measure(one, number, bench)
    one.took_s = bench.clock() - began_s


def measure(one: Looks, number: int, bench: Bench) -> None:
    """What a look finds."""
    try:
        found = evaluation(one.problem, one.pair.head, number, bench)
        if number == 1 and found.verdict.status in DIFFERING:
            one.output_change = said(found) or "they differ"
            found = evaluation(one.problem, one.pair.head, number, bench)
    except GaveUp:  # another process had the device for the rest of the budget
        reason = NO_BUDGET if one.measurements else SPENT
        refuse(one, Comparison(verdict="skipped", reason=reason), bench)
        return
    except WorkerError as error:
        refuse(one, Comparison(verdict="inconclusive", reason=f"the judge failed: {error}"), bench)
        return
    if found.verdict.status != "passed":
        refuse(one, refusal(found), bench)
        return
    for measurement in found.measurements:
        one.measurements.setdefault(measurement.workload, []).append(measurement)
        bench.progress.compared(one.pair.target, measurement)


def refuse(one: Looks, why: Comparison, bench: Bench) -> None:
    """There are no times, or no more of them."""
    one.unconfirmed = why.reason or ""
    if not one.measurements:
        one.refused = why
        bench.progress.target_skipped(one.pair.target, one.unconfirmed)


def evaluation(problem: Problem, head: Candidate, number: int, bench: Bench) -> Evaluation:
    """What the archive knows of this look, or a new trial."""
    head = msgspec.structs.replace(head, problem_id=problem.id)
    policy = f"{bench.policy} look {number}"
    if bench.may_reuse:
        key = bench.session.device().key
        known = bench.archive.lookup(problem.id, head.id, key, policy)
        if known is not None:
            return msgspec.structs.replace(known, candidate=head)
    found = bench.session.evaluate(problem, head)
    bench.archive.record(found, policy)
    return found


def indulgent(problem: Problem) -> Problem:
    """The same calls, whatever they return, as long as it has the same form."""

    def any_value(workload: Workload) -> Workload:
        return msgspec.structs.replace(workload, atol=math.inf, rtol=0.0)

    workloads = tuple(map(any_value, problem.workloads))
    return msgspec.structs.replace(problem, workloads=workloads)


def refusal(found: Evaluation) -> Comparison:
    """What is said where there are no times."""
    message = said(found) or "it could not be run"
    if found.verdict.status in ("invalid_reference", "degenerate"):
        return Comparison(verdict="skipped", reason=f"the base: {message}")
    if found.verdict.status == "inconclusive":
        return Comparison(verdict="inconclusive", reason=message)
    return Comparison(verdict="inconclusive", reason=f"the head: {message}")


def said(found: Evaluation) -> str:
    messages = [finding.message for finding in found.verdict.findings]
    return messages[0] if messages else ""


def is_alarming(looks: Sequence[Measurement], config: CompareConfig) -> bool:
    """Whether all of them speak for the same difference."""
    found = {alarm(one, config.thresholds) for one in looks}
    return len(found) == 1 and found != {None}


def entry(one: Looks, wanted: int, config: CompareConfig) -> Entry:
    """What was found of a pair."""
    target, workloads = one.pair.target, one.pair.problem.workloads
    if one.refused is not None:
        return Entry(
            target=target,
            skipped=one.refused.reason,
            workloads=workloads,
            comparison=msgspec.structs.replace(one.refused, output_change=one.output_change),
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
            output_change=one.output_change,
        ),
    )


def row(workload: Workload, one: Looks, wanted: int, config: CompareConfig) -> ComparedWorkload:
    """The verdict on one workload."""
    looks = one.measurements[workload.name]
    verdict, reason = verdict_of(looks, config.thresholds, wanted)
    if is_alarming(looks, config):
        if is_guess(workload):
            verdict, reason = "inconclusive", GUESSED
        elif len(looks) < wanted:
            reason = UNCONFIRMED + one.unconfirmed
    return ComparedWorkload(
        workload=workload.name, verdict=verdict, measurements=tuple(looks), reason=reason
    )
