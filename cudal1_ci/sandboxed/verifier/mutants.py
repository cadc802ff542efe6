"""Test the check itself: it must refuse answers that have no relation to the inputs.

Where one number is right on all inputs (the mean of a softmax), the reference is degenerate. A
candidate that returns it is correct, and no speedup of it means anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from ..wire.verdicts import Finding
from .cases import Case, Rejected
from .compare import Tolerance, difference
from .inputs import same_bits

MOST_ELEMENTS = 2**24
"""Most elements of an output that are compared."""


def try_mutants(case: Case) -> None:
    """Test whether the check would refuse answers that have no relation to the inputs. Where it
    would not, no verdict on this workload means much, and the report says so."""
    assert case.expected is not None
    device = case.accelerator.device  # a large output may be in the host's memory
    outputs = [[some_of(output).to(device) for output in one] for one in case.expected.outputs]
    tolerances = [[for_some(budget) for budget in budgets] for budgets in case.tolerances]
    for kind, mutant in MUTANTS.items():
        if all(
            difference(mutant(outputs, number, leaf), output, None, budget).excess <= 1
            for number, leaves in enumerate(outputs)
            for leaf, (output, budget) in enumerate(zip(leaves, tolerances[number], strict=True))
        ):
            message = f"an answer of {kind} would pass: the workload is too weak to tell"
            case.findings.append(Finding(rule="workload.weak", message=message))


def check_constancy(case: Case) -> None:
    """Check that the reference's first answer is wrong on some other inputs, by the reference's own
    precision. A user's tolerance may be wider than all that a workload returns. What remains after
    a step of training is not checked.

    Raises:
        Rejected: It is right on all of them.
    """
    assert case.expected is not None
    if case.train or case.given is not None:
        return
    start = case.trials[0][1].tensors
    others = [
        number
        for number, (_, inputs) in enumerate(case.trials)
        if not all(same_bits(*pair) for pair in zip(start, inputs.tensors, strict=True))
    ]
    if others and all(is_answered_by_the_first(case, number) for number in others):
        message = "the output is the same for all inputs that were tried, but for rounding"
        raise Rejected("degenerate", "reference.constant", message)


def is_answered_by_the_first(case: Case, number: int) -> bool:
    """Return whether what the reference returns on the first trial would be right on another."""
    assert case.expected is not None
    answers = case.expected.outputs[0], case.expected.outputs[number]
    if [one.shape for one in answers[0]] != [one.shape for one in answers[1]]:
        return False
    device = case.accelerator.device
    return all(
        difference(one, other, exact, budget, device).excess <= 1
        for one, other, exact, budget in zip(
            *answers, case.truth(number), case.tolerances[number], strict=True
        )
    )


def some_of(output: torch.Tensor) -> torch.Tensor:
    """Return all elements, or enough of them."""
    return output if output.numel() <= MOST_ELEMENTS else output.reshape(-1)[:MOST_ELEMENTS]


def for_some(budget: Tolerance) -> Tolerance:
    """Return the budget of those elements."""
    return budget if budget.local is None else replace(budget, local=some_of(budget.local))


def mean_of(outputs: list[list[torch.Tensor]], number: int, leaf: int) -> torch.Tensor:
    """Fill the output with its mean. A single number, which is its own mean, becomes the mean of
    all calls."""
    output = outputs[number][leaf]
    return (
        mean_in(numbers_of(outputs, leaf))[0].reshape(output.shape)
        if output.numel() == 1
        else mean_in(output)
    )


def mean_in(output: torch.Tensor) -> torch.Tensor:
    """Fill a tensor with its mean."""
    if not output.is_floating_point() or output.numel() == 0:
        return output[:1].expand_as(output) if output.dim() else torch.zeros_like(output)
    return torch.full_like(output, float(output.double().nanmean()))


def noise_like(outputs: list[list[torch.Tensor]], number: int, leaf: int) -> torch.Tensor:
    """Return noise of the output's spread around its mean; for a single number, of the spread
    over calls."""
    output = outputs[number][leaf]
    if output.numel() == 1:
        noise = noise_in(numbers_of(outputs, leaf))
        return noise[number % len(noise)].reshape(output.shape)
    return noise_in(output)


def numbers_of(outputs: list[list[torch.Tensor]], leaf: int) -> torch.Tensor:
    """Return the numbers of all calls whose output is a single number there."""
    found = [one[leaf] for one in outputs if leaf < len(one) and one[leaf].numel() == 1]
    return torch.stack([one.reshape(()) for one in found])


def noise_in(output: torch.Tensor) -> torch.Tensor:
    """Return noise of a tensor's spread around its mean."""
    if not output.is_floating_point() or output.numel() == 0:
        return torch.zeros_like(output)
    values = output.double()
    spread = float(values[torch.isfinite(values)].std(correction=0).nan_to_num(0.0))
    generator = torch.Generator(output.device).manual_seed(output.numel())
    noise = torch.randn(output.shape, generator=generator, device=output.device) * spread + float(
        values.nanmean()
    )
    return noise.to(output.dtype)


def previous(outputs: list[list[torch.Tensor]], number: int, leaf: int) -> torch.Tensor:
    """Return what the call before returned, where it has the same form."""
    before = outputs[number - 1]
    here = outputs[number][leaf]
    same = leaf < len(before) and before[leaf].shape == here.shape
    return before[leaf] if same and len(outputs) > 1 else torch.zeros_like(here)


MUTANTS: dict[str, Callable[[list[list[torch.Tensor]], int, int], torch.Tensor]] = {
    "zeros": lambda outputs, number, leaf: torch.zeros_like(outputs[number][leaf]),
    "a constant": mean_of,
    "noise": noise_like,
    "the previous call": previous,
}
"""Wrong answers that a check must refuse."""
