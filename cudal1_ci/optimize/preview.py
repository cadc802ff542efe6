"""Say what a scan would try first, without verifying it."""

from __future__ import annotations

from collections.abc import Iterator

from cudal1_ci.discover.plan import Plan, Planned, how
from cudal1_ci.errors import WorkerError
from cudal1_ci.optimize.context import RunContext
from cudal1_ci.optimize.reasons import NOT_RECORDED
from cudal1_ci.optimize.target import TargetSearch
from cudal1_ci.processes.device_wait import GaveUp, patient_until
from cudal1_ci.records import Problem

LATER = "what gains is tried together"


def preview(plan: Plan, context: RunContext) -> Iterator[str]:
    """Yield lines for every target: what would be tried, what not and why, or why nothing would
    be. One call of each is recorded, as a scan does first."""
    num_posed = sum(one.problem is not None for one in plan.targets)
    context.progress.start(num_posed, len(plan.targets) - num_posed)
    for one in plan.targets:
        name = f"{one.target.path}:{one.target.first_line} {one.target.qualname}"
        if one.problem is None:
            yield f"skip  {name}: {one.reason}"
            continue
        context.progress.target_started(one.target)
        calls = ", ".join(f"{w.name} ({how(w)})" for w in one.problem.workloads)
        said, *more = foretold(one, one.problem, context)
        yield f"try   {name} on {calls}: {said}"
        yield from (f"      {line}" for line in more)
        context.progress.target_ended(one.target)


def foretold(planned: Planned, problem: Problem, context: RunContext) -> list[str]:
    """Return what would be tried on one target, then what would not be."""
    search = TargetSearch(planned.target, problem, context.strategies, context)
    try:
        with patient_until(context.is_over):
            first, floor = search.look()
    except WorkerError as error:
        return [f"the verifier failed: {error}"]
    except GaveUp:
        return ["the device is in use"]
    tried = [] if floor else [one.proposer for one in search.in_order(first)]
    nothing = "a model, where one is given" if planned.target.is_kernel else "no rewrite matches"
    later = f"; {LATER}" if len(tried) > 1 else ""
    lines = [floor or (", ".join(tried) or nothing) + later]
    left_out = search.not_tried(floor, () if floor else first)
    lines += [f"not tried: {one.proposer}, {one.reason}" for one in left_out]
    if search.no_recording is not None:
        lines.append(NOT_RECORDED.format(reason=" ".join(search.no_recording.split())))
    return [*lines, *search.warnings()]
