"""Whom gradients reach through a patch that was judged for inference alone.

A workload of inference says nothing of training, and a patch is for code that somebody may train: a
graph that is recorded, a result that is kept, a kernel without a backward pass are right where they
were judged, and cut off the gradients of all that lies before them, silently. So the reference is
called once with gradients enabled, and so is a patch that is right. Which tensors get a gradient is
compared, not its values: those are what workloads of training are for. It is shown and decides
nothing, as code that is never trained may well be replaced so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .arguments import flatten

if TYPE_CHECKING:
    from .cases import Case, Limits
    from .processes import RunnerHandle, Template
    from .subject import Subject

LOST = "gradients.lost"
MAX_NAMED = 4


def reached(subject: Subject, number: int) -> dict[str, Any]:
    """In a runner: names of the inputs and parameters that a gradient reaches from the outputs of a
    call on an input set."""
    inputs = [one for one in subject.inputs[number] if one.is_floating_point()]
    sources = {f"input {place}": one for place, one in enumerate(inputs)}
    if subject.module is not None:
        named = subject.module.named_parameters()
        sources |= {name: one for name, one in named if one.requires_grad}
    for one in inputs:
        one.requires_grad_(True)
    try:
        with torch.enable_grad():
            leaves = [one for one in flatten(subject.run(number))[0] if one.requires_grad]
        wanted = list(sources.values())
        found: tuple[torch.Tensor | None, ...] = (None,) * len(wanted)
        if leaves and wanted:
            weights = [torch.ones_like(one) for one in leaves]
            found = torch.autograd.grad(leaves, wanted, weights, allow_unused=True)
    finally:
        for one in inputs:
            one.requires_grad_(False)
    pairs = zip(sources, found, strict=True)
    return {"names": [name for name, gradient in pairs if gradient is not None]}


def compare_reach(
    case: Case, template: Template, runner: RunnerHandle, program: dict[str, Any], limits: Limits
) -> list[dict[str, Any]]:
    """What a patch that is right has lost. The runner may not be asked anything else afterwards."""
    from .processes import RunnerFailure  # here, as runners have no processes of their own

    if program["type"] != "tree" or case.train:
        return []
    if case.reached is None:
        case.reached = frozenset()
        try:
            with case.runner(template, case.program, limits) as reference:
                case.reached = frozenset(asked(case, reference, limits))
        except RunnerFailure:
            return []  # it cannot be trained either
    if not case.reached:
        return []
    try:
        missing = case.reached - asked(case, runner, limits)
    except RunnerFailure as failure:
        if "out of memory" in failure.message:
            return []
        message = f"with gradients enabled a call fails, unlike the reference's: {failure.message}"
        return [{"rule": LOST, "message": message[:500]}]
    if not missing:
        return []
    return [{"rule": LOST, "message": said(missing)}]


def asked(case: Case, runner: RunnerHandle, limits: Limits) -> set[str]:
    """Names that a runner says are reached on the first trial. Raises RunnerFailure."""
    case.prepare(runner, limits, [case.trials[0][1]])
    return set(runner.ask("reached", limits.call_s, number=0)["names"])


def said(missing: frozenset[str]) -> str:
    named = ", ".join(f"`{name}`" for name in sorted(missing)[:MAX_NAMED])
    more = f" and {len(missing) - MAX_NAMED} more" if len(missing) > MAX_NAMED else ""
    return (
        f"no gradient reaches {named}{more} through it, as it does through the reference: it is "
        'for inference alone (of workloads with mode = "train" gradients are compared)'
    )
