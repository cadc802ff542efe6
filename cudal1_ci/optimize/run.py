"""Run the loop over targets: their order, their verifiers, and the end of the budget.

`survey` reads a tree and says for every target how it can be called, or why not; `review` spends
the budget on the targets that can be. Knows the order of things and nothing else: what becomes of
one target is target.py's.

    plan = survey(Path("."), DiscoveryConfig(), evidence=Evidence(), repository="mine")
    report = review(plan, context)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Literal

from cudal1_ci.discover.plan import Plan, Planned
from cudal1_ci.optimize.context import RunContext
from cudal1_ci.optimize.reasons import FELL, INTERRUPTED, untried
from cudal1_ci.optimize.target import optimize_target
from cudal1_ci.optimize.turns import Turns, share_of
from cudal1_ci.records import Entry, Notice, Report
from cudal1_ci.stats import speedups
from cudal1_ci.verification.protocol import Verifier

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
    if look is None:
        reached = Turns(targets, context).taken()
    elif context.pool:
        reached = side_by_side(targets, context, look)
    else:
        # A sweep has an order of its own for what is not done yet.
        reached = one_by_one(targets, context, look)
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


def one_by_one(targets: Sequence[Planned], context: RunContext, look: Look) -> list[Entry | None]:
    """Return the entry of each target from one verifier; None for targets that were not reached."""
    entries: list[Entry | None] = [None] * len(targets)
    number = 0
    try:
        for number, planned in enumerate(targets):
            if planned.problem is not None and context.is_over():
                break
            entries[number] = look(planned, context)
            if context.ending.was_interrupted:
                break
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


def side_by_side(targets: Sequence[Planned], context: RunContext, look: Look) -> list[Entry | None]:
    """Return entries from several verifiers, a target each."""
    pool = context.pool
    assert pool is not None
    entries: list[Entry | None] = [None] * len(targets)

    def turn(planned: Planned, verifier: Verifier) -> Entry:
        entry = look(planned, context.with_verifier(verifier))
        if not context.ending.is_early:
            context.progress.target_ended(planned.target)
        return entry

    posed = [number for number, planned in enumerate(targets) if planned.problem is not None]
    chosen = [targets[number] for number in posed]
    outcomes = pool.map(chosen, turn, is_over=context.is_over, run_status=context.ending)
    for number, planned, outcome in zip(posed, chosen, outcomes, strict=True):
        entries[number] = outcome.result
        if outcome.reason is not None:
            entries[number] = untried(planned, outcome.reason)
            context.progress.target_skipped(planned.target, outcome.reason)
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
        problem, uses_change = planned.problem, planned.target.only_uses_change
        is_last = problem is not None and speedups.is_negligible(problem, min_share)
        return problem is None, uses_change, is_last, -share_of(planned)

    return sorted(targets, key=promise)
