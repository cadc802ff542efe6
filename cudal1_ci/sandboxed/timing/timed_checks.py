"""Compare outputs of timed batches: a candidate that is right only until it is timed is wrong.

Outputs, gradients of inputs and the inputs themselves are compared after every round. Gradients of
parameters and the state are compared after one unpredictable round of a repetition. The truth is
the reference of the same repetition, on the same inputs with the same seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..memory.committed import WrittenSegment
from ..memory.segment import place
from ..runner.batches import GRADIENT
from ..verifier.cases import Case, Limits, Rejected
from ..verifier.compare import Tolerance, tolerance
from ..verifier.magnitude import pieces, widen
from ..verifier.near_inputs import Strays, are_jumps, strays_of
from ..wire.runner import Aftermath, AskLeft, Collect
from .timed_rounds import Lane, Round


def timed_tolerances(case: Case, count: int) -> list[Tolerance]:
    """Return budgets for outputs of timed calls: those of the drawn trials, doubled. The truth
    is the reference and not the oracle, and inputs are changed by up to a quarter."""
    drawn = [
        budgets
        for (name, _), budgets in zip(case.trials, case.tolerances, strict=True)
        if name.startswith("drawn")
    ]
    if case.given is not None:
        return [Tolerance(*case.given)] * count
    return [
        Tolerance(
            2 * max(budgets[leaf].absolute for budgets in drawn),
            2 * max(budgets[leaf].relative for budgets in drawn),
        )
        for leaf in range(count)
    ]


def check_outputs(
    reference: Lane, candidate: Lane, tolerances: list[Tolerance], nearby: Callable[[], Any]
) -> None:
    """Compare every output of every timed call of the last round with the reference's. `nearby`
    repeats the round for both on inputs that differ by rounding (near_inputs.py)."""
    strays: dict[int, Strays] = {}
    largest = 0.0
    for leaf, budget in enumerate(tolerances):
        expected, got = reference.all_calls(leaf), candidate.all_calls(leaf)
        if is_close(got, expected, budget):
            continue
        gap = max(
            float((widen(one) - widen(other)).abs().nan_to_num(float("inf")).max())
            for one, other in zip(pieces(got), pieces(expected), strict=True)
        )
        largest = max(largest, gap)
        found = strays_of(got, expected, budget)
        if found is None:
            raise off_by(leaf, gap)
        strays[leaf] = found
    if strays and not are_jumps(strays, nearby, reference.all_calls):
        raise off_by(min(strays), largest)


def off_by(leaf: int, gap: float) -> Rejected:
    """Return the rejection of a wrong timed call."""
    return Rejected(
        "incorrect_values",
        "values.timed",
        f"output {leaf} of a timed call is off by {gap:.3g}, while separate "
        "trials were right: what is returned does not follow from the inputs",
        max_abs_error=gap,
    )


def is_close(got: torch.Tensor, expected: torch.Tensor, budget: Tolerance) -> bool:
    """Return whether it is within the budget. Non-finite values must be equally non-finite."""
    if not (got.is_floating_point() or got.is_complex()):
        return torch.equal(got, expected)
    return all(
        torch.allclose(one, other, rtol=budget.relative, atol=budget.absolute, equal_nan=True)
        for one, other in zip(pieces(got), pieces(expected), strict=True)
    )


def check_inputs(case: Case, reference: Lane, candidate: Lane, one: Round) -> None:
    """Check that the inputs of the last round hold what was written, or what the reference left
    there."""
    assert case.expected is not None
    if not case.expected.mutated:
        if not one.is_as_written(candidate.inputs):
            message = "a timed call changed its inputs; the reference does not, nor did the trials"
            raise Rejected("mutates_input", "input.mutated", message)
        return
    for number in one.places:
        for slot in one.room.layout[number]:
            ours, theirs = reference.inputs.tensor(slot), candidate.inputs.tensor(slot)
            found = case.difference(theirs, ours)
            if found.excess > 1:
                message = f"a timed call left an input that is off by {found.max_abs:.3g}"
                raise Rejected("incorrect_values", "input.values", message)


def check_left(reference: Lane, candidate: Lane, limits: Limits) -> None:
    """Check that outputs share memory with inputs only where the reference's do. Check that no
    function was replaced that the reference leaves unchanged."""
    outputs, process = candidate.outputs, candidate.runner.process
    pid = 0 if process is None else process.group
    if isinstance(outputs, WrittenSegment) and not outputs.is_out_of_reach(pid):
        message = "timed calls open the memory to which their outputs are written"
        raise Rejected("reward_hack", "state.global", message)
    ours, theirs = (lane.runner.ask(AskLeft(), limits.call_s) for lane in (reference, candidate))
    if shared := sorted(set(theirs.aliases) - set(ours.aliases)):
        message = f"output {shared[0]} of a timed call shares the memory of an input"
        raise Rejected("mutates_input", "output.aliases_input", message)
    if replaced := sorted(set(theirs.patched) - set(ours.patched)):
        message = f"timed calls replace functions of the whole process ({', '.join(replaced)})"
        raise Rejected("reward_hack", "state.global", message)


def check_aftermath(
    case: Case, reference: Lane, candidate: Lane, limits: Limits, nearby: Callable[[], Any]
) -> None:
    """Compare gradients of parameters (summed over the batch) and the state after the last
    round. `nearby` is as for outputs, for gradients only, as a state depends on all calls before
    too."""
    if not case.leaves_traces:
        return
    names, ours = aftermath(case, reference, limits)
    other_names, theirs = aftermath(case, candidate, limits)

    def left(one: int) -> torch.Tensor:
        return aftermath(case, reference, limits)[1][one]

    if names != other_names:
        message = f"timed calls leave {other_names}, the reference {names}"
        raise Rejected("incorrect_values", "state.timed", message)
    for number, (name, one, other) in enumerate(zip(names, ours, theirs, strict=True)):
        if one.shape != other.shape or one.dtype != other.dtype:
            raise Rejected("incorrect_values", "state.timed", f"{name} has another form")
        noise = noise_left(case, number - len(names), reference)
        found = case.difference(other, one, noise=noise)
        if found.excess > 1:
            if name.startswith(GRADIENT):
                budget = tolerance(one, None, case.given, case.accelerator.device, noise=noise)
                strays = strays_of(other, one, budget)
                if strays is not None and are_jumps({number: strays}, nearby, left):
                    continue
            message = (
                f"{name} is off by {found.max_abs:.3g} after timed calls, while separate trials "
                "were right"
            )
            raise Rejected("incorrect_values", "state.timed", message, max_abs_error=found.max_abs)


def noise_left(case: Case, number: int, lane: Lane) -> float:
    """Return the tolerance of a tensor that a batch leaves and that is only rounding: gradients
    of all calls are summed. These tensors are the last outputs of a trial, counted from the end."""
    assert case.expected is not None
    leaf = len(case.expected.outputs[0]) + number
    return case.noise.get(leaf, 0.0) * len(lane.slots) if case.train else 0.0


def aftermath(case: Case, lane: Lane, limits: Limits) -> tuple[list[str], list[torch.Tensor]]:
    """Return names and values of what a lane's calls left behind."""
    remains = lane.runner.ask(Aftermath(), limits.call_s)
    slots, size = place(remains.slots)
    segment = lane.runner.share("aftermath", case.accelerator, size, limits.call_s)
    lane.runner.ask(Collect(slots=(tuple(slots),), segment="aftermath"), limits.call_s)
    return list(remains.names), [segment.tensor(slot).clone() for slot in slots]
