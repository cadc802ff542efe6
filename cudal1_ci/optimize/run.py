"""Run the loop over targets: their order, their verifiers, and the end of the budget.

`survey` reads a tree and says for every target how it can be called, or why not; `review` spends
the budget on the targets that can be. Knows the order of things and nothing else: what becomes of
one target is target.py's.

    plan = survey(Path("."), DiscoveryConfig(), evidence=Evidence(), repository="mine")
    report = review(plan, context)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from math import ceil
from typing import Literal

from cudal1_ci.discover.plan import Plan, Planned
from cudal1_ci.optimize.context import RunContext
from cudal1_ci.optimize.target import FELL, INTERRUPTED, optimize_target, untried
from cudal1_ci.records import Entry, Notice, Report, Target
from cudal1_ci.stats import speedups
from cudal1_ci.verification.protocol import Judge

Look = Callable[[Planned, RunContext], Entry]


def review(
    plan: Plan,
    context: RunContext,
    *,
    order: Callable[[Sequence[Planned]], Sequence[Planned]] | None = None,
    look: Look | None = None,
) -> Report:
    """Verify proposals for every planned target, most promising first. `order` and `look` are what
    a sweep does otherwise than `by_promise` and `optimize_one`.

    An interrupt (Ctrl-C) or a spent budget ends the review early: the report then holds what was
    finished and is not `complete`. Every evaluation is in the archive before the next one starts.
    """
    # Fails at once where nothing can be verified, and not at all where there is nothing to verify.
    num_posed = sum(planned.problem is not None for planned in plan.targets)
    if num_posed:
        context.progress.waiting("importing torch ...")
    device = context.session.device() if num_posed else None
    context.progress.start(num_posed, len(plan.targets) - num_posed)
    order = order or partial(by_promise, min_share=context.config.min_share)
    targets = order(plan.targets)
    if context.pool:
        reached = side_by_side(targets, context, look or optimize_one, takes_turns=look is None)
    else:
        # A sweep has an order of its own for what is not done yet.
        reached = one_by_one(targets, context, look or optimize_one, takes_turns=look is None)
    ended: Literal["done", "budget", "interrupted"] = "done"
    if context.ending.was_interrupted:
        ended = "interrupted"
        context.progress.notice("interrupted: finished evaluations are kept")
    elif context.ending.was_cut:
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
        warnings=(*plan.notices, *falls(targets, context)),
        elapsed_s=time.monotonic() - context.started_s,
        generated_at=datetime.now(UTC).replace(microsecond=0),
        ended=ended,
    )
    context.progress.finish(report)
    return report


def optimize_one(planned: Planned, context: RunContext) -> Entry:
    """Return what the run's strategies come to for one target."""
    return optimize_target(planned, context.strategies, context)


def one_by_one(
    targets: Sequence[Planned], context: RunContext, look: Look, *, takes_turns: bool
) -> list[Entry | None]:
    """Return the entry of each target from one verifier; None for targets that were not reached.
    With turns, each target has an equal share of the remaining budget, beyond its first candidate.
    The next targets get what one does not use. A target that needs more time comes again after all
    others.
    """
    entries: list[Entry | None] = [None] * len(targets)
    again: list[int] = []
    number = 0
    num_waiting = sum(planned.problem is not None for planned in targets)
    try:
        for number, planned in enumerate(targets):
            if planned.problem is not None:
                if context.is_over():
                    break
                context.turn_ends_s = end_of_turn(context, num_waiting) if takes_turns else None
                num_waiting -= 1
            context.was_deferred = False
            entries[number] = look(planned, context)
            if context.was_deferred:
                again.append(number)
            if context.ending.was_interrupted:
                break
        context.turn_ends_s = None
        for number in again:
            if context.is_over():
                break
            known, found = entries[number], look(targets[number], context)
            if known is None or len(found.evaluations) >= len(known.evaluations):
                entries[number] = found
    except KeyboardInterrupt:
        context.ending.was_interrupted = True
        entries[number] = entries[number] or untried(targets[number], INTERRUPTED)
    return entries


def falls(targets: Sequence[Planned], context: RunContext) -> list[Notice]:
    """Return notices for targets whose candidates were not all tried, though there was time."""
    found = [(one.target, context.fallen.get(one.target)) for one in targets]
    return [
        Notice(path=target.path, message=f"{target.qualname}: {FELL.format(reason=reason)}")
        for target, reason in found
        if reason is not None
    ]


def end_of_turn(context: RunContext, num_waiting: int) -> float | None:
    """Return until when the first of so many targets may begin candidates. None for a single
    target, without a budget, and with a model, which continues its own rounds.
    """
    budget_s = context.config.budget_s
    if budget_s is None or num_waiting < 2 or context.optimizer is not None:
        return None
    now_s = time.monotonic()
    return now_s + max(0.0, context.started_s + budget_s - now_s) / num_waiting


def side_by_side(
    targets: Sequence[Planned], context: RunContext, look: Look, *, takes_turns: bool
) -> list[Entry | None]:
    """Return entries from several verifiers, a target each, with turns as `one_by_one` has them."""
    pool = context.pool
    assert pool is not None
    entries: list[Entry | None] = [None] * len(targets)

    def look_at(numbers: Sequence[int], num_waiting: Iterator[int]) -> list[int]:
        """Fill in entries; return the targets that need more time."""
        deferred: set[Target] = set()

        def turn(planned: Planned, judge: Judge) -> Entry:
            own = context.with_judge(judge)
            share = ceil(next(num_waiting, 0) / pool.backend.num_slots)
            own.turn_ends_s = end_of_turn(own, share)
            entry = look(planned, own)
            if own.was_deferred and own.turn_ends_s is not None:
                deferred.add(planned.target)
            elif not context.ending.is_early:
                context.progress.target_ended(planned.target)
            return entry

        chosen = [targets[number] for number in numbers]
        outcomes = pool.map(chosen, turn, is_over=context.is_over, run_status=context.ending)
        for number, planned, outcome in zip(numbers, chosen, outcomes, strict=True):
            known, found = entries[number], outcome.result
            if known is None or (found and len(found.evaluations) >= len(known.evaluations)):
                entries[number] = found
            if outcome.reason is not None and known is None:
                entries[number] = untried(planned, outcome.reason)
                context.progress.target_skipped(planned.target, outcome.reason)
            elif outcome.reason is not None:
                context.fallen[planned.target] = outcome.reason
        return [number for number in numbers if targets[number].target in deferred]

    posed = [number for number, planned in enumerate(targets) if planned.problem is not None]
    deferred = look_at(posed, iter(range(len(posed), 0, -1) if takes_turns else ()))
    if deferred and not context.is_over():
        look_at(deferred, iter(()))
    if not context.ending.is_early:
        for number, planned in enumerate(targets):
            if planned.problem is None:
                entries[number] = look(planned, context)
    return entries


def by_promise(targets: Sequence[Planned], min_share: float = 0.0) -> list[Planned]:
    """Sort targets: those that can be verified come first.

    Changed targets come before those that use them, then larger shares of the traced time. Targets
    below `min_share` come after untraced ones.
    """

    def promise(planned: Planned) -> tuple[bool, bool, bool, float]:
        share = sum(w.share or 0.0 for w in planned.workloads)
        problem, uses_change = planned.problem, planned.target.only_uses_change
        is_last = problem is not None and speedups.is_negligible(problem, min_share)
        return problem is None, uses_change, is_last, -share

    return sorted(targets, key=promise)
