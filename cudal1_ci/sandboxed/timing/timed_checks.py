"""Compare outputs of timed batches: a candidate that is right only until it is timed is wrong.

Outputs, gradients of inputs and the inputs themselves are compared after every round. Gradients of
parameters and the state are compared after one unpredictable round of a repetition. The truth is
the reference of the same repetition, on the same inputs with the same seeds.
"""

from __future__ import annotations

from typing import Protocol

import torch

from ..memory.committed import WrittenSegment
from ..memory.segment import place
from ..runner.batches import GRADIENT
from ..runner.value_shapes import MOST_DIMENSIONS
from ..verifier.cases import Case, Limits, Rejected
from ..verifier.changed_settings import is_refused, process_changes
from ..verifier.compare import Tolerance, tolerance
from ..verifier.correctness import shown_changes
from ..verifier.magnitude import pieces, widen
from ..verifier.near_inputs import Strays, are_jumps, each_near, strays_of
from ..verifier.output_aliasing import left_to_the_reader
from ..verifier.signs import aligned
from ..verifier.value_shapes import most_elements, places_of
from ..wire.runner import Aftermath, AskLeft, Collect
from .timed_rounds import Lane, Round


class Repeats(Protocol):
    """Repeat a round on inputs that differ by rounding."""

    def __call__(self, num_left: int, /) -> None: ...
    def are_due(self, share: float, /) -> bool: ...
    def note_explained(self) -> None: ...


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
            local=twice_the_largest(
                [None if leaf in case.bounds else budgets[leaf].local for budgets in drawn]
            ),
        )
        for leaf, _ in places_of(count - len(case.bounds), case.bounds)
    ]


def twice_the_largest(found: list[torch.Tensor | None]) -> torch.Tensor | None:
    """Return twice the allowance of each element where that of some trials is its own; None where
    none is, or where trials have other shapes."""
    known = [one for one in found if one is not None]
    if not known or len({one.shape for one in known}) != 1:
        return None
    return 2 * torch.stack(known).amax(0)


def check_outputs(
    reference: Lane, candidate: Lane, tolerances: list[Tolerance], nearby: Repeats
) -> None:
    """Compare every output of every timed call of the last round with the reference's. `nearby`
    repeats the round for both on inputs that differ by rounding (near_inputs.py)."""
    strays: dict[int, Strays] = {}
    largest = 0.0
    for number, budget in enumerate(tolerances):
        expected, got = reference.all_calls(number), candidate.all_calls(number)
        leaf, is_shape = reference.places[number]
        if is_shape:
            compare_shapes(leaf, got, expected, reference.bounds[leaf])
            continue
        if is_close(got, expected, budget):
            continue
        if reference.signs and leaf in reference.signs:
            got = aligned_calls(reference, candidate)[leaf]
            if is_close(got, expected, budget):
                continue
        gap = max(
            float((widen(one) - widen(other)).abs().nan_to_num(float("inf")).max())
            for one, other in zip(pieces(got), pieces(expected), strict=True)
        )
        largest = max(largest, gap)
        found = strays_of(got, expected, budget) if leaf not in reference.bounds else None
        if found is None:
            raise off_by(leaf, gap)
        strays[number] = found
    if not strays or not nearby.are_due(share_off(strays, reference)):
        return
    if not are_jumps(strays, nearby, reference.all_calls):
        raise off_by(reference.places[min(strays)][0], largest)
    nearby.note_explained()


def share_off(strays: dict[int, Strays], lane: Lane) -> float:
    """Return the largest share of elements of an output that are off."""
    return max(len(some.got) / lane.all_calls(number).numel() for number, some in strays.items())


def aligned_calls(reference: Lane, candidate: Lane) -> list[torch.Tensor]:
    """Return all outputs of the candidate's calls with the reference's signs where these are
    free."""
    numbers = [one for one, (_, is_shape) in enumerate(reference.places) if not is_shape]
    ours, theirs = ([lane.all_calls(one) for one in numbers] for lane in (reference, candidate))
    return aligned(reference.signs, theirs, ours, first=1)


def compare_shapes(leaf: int, got: torch.Tensor, expected: torch.Tensor, most: int) -> None:
    """Compare the shapes of an output of timed calls, where they depend on values. Raises
    Rejected."""
    if not torch.equal(got, expected):
        number = int((got != expected).any(1).nonzero()[0])
        ours, theirs = (
            one[number, 1 : 1 + int(one[number, 0].clamp(0, MOST_DIMENSIONS))].tolist()
            for one in (expected, got)
        )
        message = (
            f"output {leaf} of a timed call has the shape {theirs}, expected {ours}, while "
            "separate trials were right: what is returned does not follow from the inputs"
        )
        raise Rejected("incorrect_shape", "values.timed", message)
    if most_elements(expected) > most:
        message = (
            f"output {leaf} of a timed call has {most_elements(expected):,} elements, where the "
            f"trials let expect {most:,} at most; declare a workload with a range of values"
        )
        raise Rejected("inconclusive", "reference.dynamic_shape", message)


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
    if budget.local is not None:
        return all(bool(is_near.all()) for is_near in each_near(got, expected, budget))
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
    outputs = candidate.outputs
    if isinstance(outputs, WrittenSegment) and outputs.was_opened():
        message = "timed calls open the memory to which their outputs are written"
        raise Rejected("reward_hack", "state.global", message)
    ours, theirs = (lane.runner.ask(AskLeft(), limits.call_s) for lane in (reference, candidate))
    if shared := sorted(set(theirs.aliases) - set(ours.aliases)):
        message = f"output {shared[0]} of a timed call shares the memory of an input"
        raise Rejected("mutates_input", "output.aliases_input", message)
    if lazy := sorted(set(theirs.lazy) - set(ours.lazy)):
        raise left_to_the_reader(lazy[0], "when it is timed")
    if overlapping := sorted(set(theirs.overlapping) - set(ours.overlapping)):
        message = (
            f"several elements of output {overlapping[0]} of a timed call are one place in memory "
            "(`expand`), while those of separate trials were not"
        )
        raise Rejected("reward_hack", "output.overlaps", message)
    if in_state := sorted(set(theirs.in_state) - set(ours.in_state)):
        message = f"output {in_state[0]} of a timed call is memory of a parameter or a buffer"
        raise Rejected("mutates_input", "output.aliases_state", message)
    if forms := sorted(set(theirs.forms) - set(ours.forms)):
        message = f"a timed call returned {forms[0][:300]}, the reference {ours.forms[0][:300]}"
        raise Rejected("reward_hack", "output.type", message)
    own = process_changes(ours.process, theirs.process)
    if refused := {name: own[name] for name in own if is_refused(name, is_patch=False)}:
        message = f"timed calls change settings of the process ({shown_changes(refused)[:1500]})"
        raise Rejected("reward_hack", "state.global", message)
    if replaced := sorted(set(theirs.patched) - set(ours.patched)):
        message = (
            "timed calls replace functions of the whole process, or leave what sees them called "
            f"({', '.join(replaced)})"
        )
        raise Rejected("reward_hack", "state.global", message)


def check_aftermath(
    case: Case, reference: Lane, candidate: Lane, limits: Limits, nearby: Repeats
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
        known = known_left(case, number - len(names))
        found = case.difference(other, one, known, noise)
        if found.excess > 1:
            if name.startswith(GRADIENT):
                device = case.accelerator.device
                budget = tolerance(one, None, case.given, device, known, noise, cast=case.cast)
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


def known_left(case: Case, number: int) -> float:
    """Return the known error of a tensor that a batch leaves, as a share of its magnitude, under
    autocast: float32 that comes from shorter floats has more of it than its dtype."""
    if not case.train or case.cast is None or len(case.known) < -number:
        return 0.0
    return case.known[number]


def aftermath(case: Case, lane: Lane, limits: Limits) -> tuple[list[str], list[torch.Tensor]]:
    """Return names and values of what a lane's calls left behind."""
    remains = lane.runner.ask(Aftermath(), limits.call_s)
    slots, size = place(remains.slots)
    segment = lane.runner.share("aftermath", case.accelerator, size, limits.call_s)
    lane.runner.ask(Collect(slots=(tuple(slots),), segment="aftermath"), limits.call_s)
    return list(remains.names), [segment.tensor(slot).clone() for slot in slots]
