"""The loop over targets: in which order, by which judges, until when.

`survey` reads a tree and says for every target how it can be called, or why not; `review` spends
the budget on the targets that can be. Knows the order of things and nothing else: what becomes of
one target is attempt.py's.

    plan = survey(Path("."), DiscoveryConfig(), evidence=Evidence(), repository="mine")
    report = review(plan, bench)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Literal

from cudal1_ci.discover.plan import Plan, Planned
from cudal1_ci.optimize.target import FELL, INTERRUPTED, Bench, improve, untried
from cudal1_ci.records import Entry, Notice, Report
from cudal1_ci.stats import speedups
from cudal1_ci.verification.protocol import Judge

Look = Callable[[Planned, Bench], Entry]


def review(
    plan: Plan,
    bench: Bench,
    *,
    order: Callable[[Sequence[Planned]], Sequence[Planned]] | None = None,
    look: Look | None = None,
) -> Report:
    """Judge proposals for every planned target, most promising first. `order` and `look` are what a
    sweep does otherwise than `by_promise` and `improve`.

    An interrupt (Ctrl-C) or a spent budget ends the review early: the report then holds what was
    finished and is not `complete`. Every evaluation is in the archive before the next one starts.
    """
    # Fails at once where nothing can be judged, and not at all where there is nothing to judge.
    num_posed = sum(planned.problem is not None for planned in plan.targets)
    device = bench.session.device() if num_posed else None
    bench.progress.start(num_posed, len(plan.targets) - num_posed)
    order = order or partial(by_promise, min_share=bench.config.min_share)
    targets = order(plan.targets)
    if bench.pool:
        reached = side_by_side(targets, bench, look or improve)
    else:
        # A sweep has an order of its own for what is not done yet.
        reached = one_by_one(targets, bench, look or improve, takes_turns=look is None)
    ended: Literal["done", "budget", "interrupted"] = "done"
    if bench.ending.was_interrupted:
        ended = "interrupted"
        bench.progress.notice("interrupted: finished evaluations are kept")
    elif bench.ending.was_cut:
        ended = "budget"
    reason = f"not reached: {'interrupted' if ended == 'interrupted' else 'the budget was spent'}"
    entries = [
        untried(planned, reason) if entry is None else entry
        for planned, entry in zip(targets, reached, strict=True)
    ]
    report = Report(
        repository=plan.repository,
        folder=plan.folder,
        base_sha=plan.base_sha,
        head_sha=plan.head_sha,
        device=device,
        entries=tuple(entries),
        warnings=(*plan.notices, *falls(targets, bench)),
        elapsed_s=time.monotonic() - bench.started_s,
        generated_at=datetime.now(UTC).replace(microsecond=0),
        ended=ended,
    )
    bench.progress.finish(report)
    return report


def one_by_one(
    targets: Sequence[Planned], bench: Bench, look: Look, *, takes_turns: bool
) -> list[Entry | None]:
    """The entry of each target, by one judge; None of those that were not reached. Where they take
    turns each has an equal share of what is left of a budget, beyond its first candidate; what one
    does not use the next ones have, and what did not fit comes again when all had their turn."""
    entries: list[Entry | None] = [None] * len(targets)
    again: list[int] = []
    number = 0
    num_waiting = sum(planned.problem is not None for planned in targets)
    try:
        for number, planned in enumerate(targets):
            if planned.problem is not None:
                if bench.is_over():
                    break
                bench.turn_ends_s = end_of_turn(bench, num_waiting) if takes_turns else None
                num_waiting -= 1
            bench.was_deferred = False
            entries[number] = look(planned, bench)
            if bench.was_deferred:
                again.append(number)
            if bench.ending.was_interrupted:
                break
        bench.turn_ends_s = None
        for number in again:
            if bench.is_over():
                break
            known, found = entries[number], look(targets[number], bench)
            if known is None or len(found.evaluations) >= len(known.evaluations):
                entries[number] = found
    except KeyboardInterrupt:
        bench.ending.was_interrupted = True
        entries[number] = entries[number] or untried(targets[number], INTERRUPTED)
    return entries


def falls(targets: Sequence[Planned], bench: Bench) -> list[Notice]:
    """Why of some targets not everything was tried, though there was time."""
    found = [(one.target, bench.fallen.get(one.target)) for one in targets]
    return [
        Notice(path=target.path, message=f"{target.qualname}: {FELL.format(reason=reason)}")
        for target, reason in found
        if reason is not None
    ]


def end_of_turn(bench: Bench, num_waiting: int) -> float | None:
    """Until when the first of so many targets may begin candidates; None where it is the only one,
    where there is no budget, and where a model is asked, which goes on from what it was told."""
    budget_s = bench.config.budget_s
    if budget_s is None or num_waiting < 2 or bench.optimizer is not None:
        return None
    now_s = time.monotonic()
    return now_s + max(0.0, bench.started_s + budget_s - now_s) / num_waiting


def side_by_side(targets: Sequence[Planned], bench: Bench, look: Look) -> list[Entry | None]:
    """The same by several judges, a target each."""
    assert bench.pool is not None

    def turn(planned: Planned, judge: Judge) -> Entry:
        entry = look(planned, bench.with_judge(judge))
        if not bench.ending.is_early:
            bench.progress.target_ended(planned.target)
        return entry

    posed = [number for number, planned in enumerate(targets) if planned.problem is not None]
    outcomes = bench.pool.map(
        [targets[number] for number in posed], turn, is_over=bench.is_over, run_status=bench.ending
    )
    entries: list[Entry | None] = [None] * len(targets)
    for number, outcome in zip(posed, outcomes, strict=True):
        entries[number] = outcome.result
        if outcome.reason is not None:
            entries[number] = untried(targets[number], outcome.reason)
            bench.progress.target_skipped(targets[number].target, outcome.reason)
    if not bench.ending.is_early:
        for number, planned in enumerate(targets):
            if planned.problem is None:
                entries[number] = look(planned, bench)
    return entries


def by_promise(targets: Sequence[Planned], min_share: float = 0.0) -> list[Planned]:
    """Targets that can be judged first, what was changed itself before what uses it, and those
    that take most of the traced time before others; what takes less than `min_share` of it comes
    after what was not traced."""

    def promise(planned: Planned) -> tuple[bool, bool, bool, float]:
        share = sum(w.share or 0.0 for w in planned.workloads)
        problem, uses_change = planned.problem, planned.target.only_uses_change
        is_last = problem is not None and speedups.is_negligible(problem, min_share)
        return problem is None, uses_change, is_last, -share

    return sorted(targets, key=promise)
