"""Whom gradients reach through a patch that was judged for inference alone.

A workload of inference says nothing of training, and a patch is for code that somebody may train: a
graph that is recorded, a result that is kept, a kernel without a backward pass are right where they
were judged, and cut off the gradients of all that lies before them, silently. So the reference is
called once with gradients enabled, and so is a patch that is right. Which tensors get a gradient is
compared, not its values: those are what workloads of training are for. It is shown and decides
nothing, as code that is never trained may well be replaced so. A reference for which such a call
fails, here or anywhere, says nothing of its patches.
"""

from __future__ import annotations

from ..forkserver.client import Template
from ..forkserver.handles import RunnerFailure, RunnerHandle
from ..wire.programs import Program, TextProgram
from ..wire.runner import Reach
from ..wire.verdicts import Finding
from .cases import Case, Limits
from .failures import is_out_of_memory

LOST, UNSEEN = "gradients.lost", "gradients.unseen"
MAX_NAMED = 4


def compare_reach(
    case: Case, template: Template, runner: RunnerHandle, program: Program, limits: Limits
) -> list[Finding]:
    """What a patch that is right has lost; something wherever a call of its runner has failed."""
    if isinstance(program, TextProgram) or case.train:
        return []
    if case.reached is None:
        case.reached = frozenset()
        try:
            with case.runner(template, case.program, limits) as reference:
                case.reached = frozenset(asked(case, reference, limits))
        except RunnerFailure:
            return []
    if not case.reached:
        return []
    try:
        missing = case.reached - asked(case, runner, limits)
    except RunnerFailure as failure:
        said = f"with gradients enabled a call fails, unlike the reference's: {failure.message}"
        rule = UNSEEN if is_out_of_memory(failure) else LOST
        return [Finding(rule=rule, message=said[:500])]
    return [Finding(rule=LOST, message=told(missing))] if missing else []


def asked(case: Case, runner: RunnerHandle, limits: Limits) -> set[str]:
    """Names that a runner says are reached on the first trial. Raises RunnerFailure."""
    case.prepare(runner, limits, [case.trials[0][1]])
    return set(runner.ask(Reach(number=0), limits.call_s).names)


def told(missing: frozenset[str]) -> str:
    named = ", ".join(f"`{name}`" for name in sorted(missing)[:MAX_NAMED])
    more = f" and {len(missing) - MAX_NAMED} more" if len(missing) > MAX_NAMED else ""
    return (
        f"no gradient reaches {named}{more} through it, as it does through the reference: it is "
        'for inference alone (of workloads with mode = "train" gradients are compared)'
    )
