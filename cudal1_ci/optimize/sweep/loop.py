"""Run one sweep: report known targets, and try the rest until the budget is spent.

    course = course_of(plan, context, means)
    report = sweep(course, context)

The report has every target. An unchanged target that was not reached is reported as the archive
knows it, so that a short run loses none of what an earlier one has proven.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from cudal1_ci.discover.plan import Plan, Planned
from cudal1_ci.optimize.context import RunContext
from cudal1_ci.optimize.reasons import SPENT, untried
from cudal1_ci.optimize.run import optimize_one, review
from cudal1_ci.optimize.sweep.memory import (
    LOOK,
    Look,
    is_settled,
    note_look,
    recalled,
    with_earlier,
)
from cudal1_ci.optimize.sweep.order import Looks, Standing
from cudal1_ci.records import Entry, Report, Target


@dataclass(frozen=True, kw_only=True)
class Course:
    """A plan, apart: what has a turn, in order, and what needs none."""

    open: Plan
    settled: tuple[Entry, ...]
    earlier: dict[Target, Entry]
    """Of those that have a turn and are unchanged, what is known if it does not come to them."""
    means: str

    def told(self) -> str:
        """Format the plan of the sweep for the log."""
        num_open = sum(planned.problem is not None for planned in self.open.targets)
        return f"{num_open} to look at, {len(self.settled)} known and unchanged"


def course_of(plan: Plan, context: RunContext, means: str) -> Course:
    """Return what there is to do. Requests the device, and measures nothing."""
    if all(planned.problem is None for planned in plan.targets):
        return Course(open=plan, settled=(), earlier={}, means=means)
    known = context.archive.all_noted(LOOK, Look).values() if context.may_reuse else ()
    looks = Looks(sorted(known, key=lambda look: look.at), context.session.device(), means)
    settled: list[Entry] = []
    earlier: dict[Target, Entry] = {}
    forgotten: list[Planned] = []
    for planned in plan.targets:
        standing, look = looks.standing(planned), looks.of(planned)
        if look is None or not looks.is_as_it_was(planned):
            continue
        if standing is Standing.CHANGED and look.skipped is not None:
            continue  # other means may find what to try
        entry = recalled(planned, look, context)
        if standing is Standing.SETTLED and entry is not None:
            settled.append(entry)
        elif standing is Standing.SETTLED:
            forgotten.append(planned)  # the archive was pruned, or is of another version
        elif entry is not None:
            earlier[planned.target] = entry
    turns = (*forgotten, *looks.turns(plan.targets))
    return Course(
        open=replace(plan, targets=turns), settled=tuple(settled), earlier=earlier, means=means
    )


def sweep(course: Course, context: RunContext) -> Report:
    """Look at what has a turn; see `optimize.run.review` for how it ends."""
    reached: set[Target] = set()

    def look(planned: Planned, context: RunContext) -> Entry:
        entry = optimize_one(planned, context)
        is_done = not context.ending.is_early
        if not is_done and not entry.evaluations and entry.skipped is None:
            entry = untried(planned, SPENT)
        target = planned.target
        if is_done or entry.best is not None:
            reached.add(target)
        if planned.problem is not None and is_done:
            has_fallen, known = target in context.fallen, course.earlier.get(target)
            settled = not has_fallen and is_settled(planned.problem, entry, context)
            # That the verifier died tonight takes back nothing that was proven.
            if known is not None and known.evaluations:
                if has_fallen:
                    entry = with_earlier(entry, known)
                elif entry.skipped is not None and not settled:
                    entry = known
            note_look(planned, entry, context, course.means, is_settled=settled)
        return entry

    context.progress.notice(f"sweep: {course.told()}")
    report = review(course.open, context, order=tuple, look=look)
    entries = [
        course.earlier.get(entry.target, entry) if entry.target not in reached else entry
        for entry in report.entries
    ]
    has_device = report.device is not None or course.settled
    return msgspec.structs.replace(
        report,
        entries=(*entries, *course.settled),
        device=context.session.device() if has_device else None,
    )
