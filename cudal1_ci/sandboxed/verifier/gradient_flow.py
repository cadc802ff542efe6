"""Compare which tensors gradients reach through a patch that was verified only for inference.

A workload of inference does not show training, and a patch is for code that users may train. A
recorded graph, a kept result and a kernel without a backward pass are right for inference. They
silently cut off the gradients of all that comes before them. So the reference is called once with
gradients enabled, and so is a patch that is right.
The comparison is of which tensors get a gradient, not of its values: workloads of training compare
those. The result is shown and decides nothing, as code that is never trained may be replaced so.
Where such a call of the reference fails, nothing is reported of its patches. Nor is a patch called
so that compiles, where a workload of training compares its gradients: the third graph would take
half a minute.
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
    """Return the gradients that a patch, right otherwise, loses. A failed call of its runner is
    reported too."""
    if isinstance(program, TextProgram) or case.train:
        return []
    if case.reached is None:
        case.reached = frozenset()
        try:
            with case.runner(template, case.program, limits) as reference:
                case.reached = frozenset(reached_names(case, reference, limits))
        except RunnerFailure:
            return []
    if not case.reached:
        return []
    try:
        missing = case.reached - reached_names(case, runner, limits)
    except RunnerFailure as failure:
        said = f"with gradients enabled a call fails, unlike the reference's: {failure.message}"
        rule = UNSEEN if is_out_of_memory(failure) else LOST
        return [Finding(rule=rule, message=said[:500])]
    return [Finding(rule=LOST, message=message_on(missing))] if missing else []


def reached_names(case: Case, runner: RunnerHandle, limits: Limits) -> set[str]:
    """Return names that are reached on the first trial, by a runner. Raises RunnerFailure."""
    case.prepare(runner, limits, [case.trials[0][1]])
    names = set(runner.ask(Reach(number=0), limits.call_s).names)
    if case.keys is None:
        return names
    return {name for name in names if name in case.keys or name.startswith("input ")}


def message_on(missing: frozenset[str]) -> str:
    named = ", ".join(f"`{name}`" for name in sorted(missing)[:MAX_NAMED])
    more = f" and {len(missing) - MAX_NAMED} more" if len(missing) > MAX_NAMED else ""
    return (
        f"no gradient reaches {named}{more} through it, as it does through the reference: it is "
        'for inference alone (of workloads with mode = "train" gradients are compared)'
    )
