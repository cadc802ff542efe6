"""Learn the trusted reference before any candidate is seen.

The verifier learns its state (randomized, so that zero biases and unit scales are not special) and
the input sets that it accepts. It learns the expected outputs, and the same in float64 where the
reference runs so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import attrgetter

import torch

from ..forkserver.client import Template
from ..forkserver.handles import RunnerFailure, RunnerHandle
from ..memory.accelerators import Accelerator
from ..memory.segment import dtype_of, place
from ..wire.programs import Problem, TextProgram, Workload
from ..wire.runner import ListImported, StateOut
from ..wire.tensors import StateSlot
from ..wire.verdicts import Finding
from .calls import answer_of, call_of
from .cases import Answer, Case, Limits, Rejected
from .compare import as_bools, tolerance
from .failures import is_out_of_memory, rejection_of_reference, twice
from .inputs import InputSet, each_same_bits, same_bits
from .mutants import check_constancy, try_mutants
from .oracle import known_errors, learn_oracle, report_unknown, settle_tolerances
from .precision import allow
from .rounding_noise import is_stated, rounding_at
from .spread import learn_missing
from .states import held_by, other_states, randomize
from .value_shapes import learn_bounds
from .variations import EXCHANGED, FEWEST_TRIALS, MOVED, ON_NAN, another_batch, variations

QUOTED, UNSEEN = re.compile(r"'[^']*'|\"[^\"]*\""), re.compile(r"<\w+>")
"""Texts in an output's structure, and what has no form in it (runner/arguments.py)."""
SLOW_S = 5.0
"""Most seconds of an answer on all sets. Beyond it fewer sets are tried, as each candidate and
the oracle take as long again."""
Hold = Callable[[Case, str, RunnerHandle, ExitStack], None]
"""Takes over a process that was learned from, as `control` or as `reference`, and what ends it."""
APART_MULTIPLE = 4
"""Most by which two calls of a process may differ, in multiples of what two processes do."""
TRIALS_SHARE, OUTPUTS_SHARE = 32, 8
"""Divisors of the device's memory, for the inputs and for the outputs of the trials. The oracle
in twice the precision and a runner's own copy of them are additional."""


@dataclass(frozen=True)
class Apart:
    """Hold an output of a second process that is not the first one's."""

    trial: int
    leaf: int
    output: torch.Tensor


def make_case(
    template: Template,
    accelerator: Accelerator,
    problem: Problem,
    workload: Workload,
    limits: Limits,
    seed: int,
    *,
    draws_weights: bool = False,
    keys: tuple[str, ...] | None = None,
    hold: Hold | None = None,
    precision: str = "strict",
) -> Case:
    """Learn from runners of the reference what is expected. Its weights are randomized, and every
    candidate loads them; or a constructor draws them under the seed, all or those that are not
    among the `keys`. `hold` takes over two of the
    runners instead of their end, where no call of theirs has failed.

    Raises:
        Rejected: The reference cannot be verified against under this workload, with the reason.
    """
    generator = torch.Generator(accelerator.device).manual_seed(seed)
    program = problem.reference
    try:
        case = call_of(template, accelerator, program, workload, limits, seed, generator)
        refuse_unknown_dtypes(case)
        case.keys = keys
        with ExitStack() as stack:
            first = None
            if not draws_weights:
                first = learn_state(case, template, limits, generator, stack)
            apart = learn_answers(case, template, limits, generator, first, hold)
            is_held = first is not None and not first.ended and not case.remembers
            if hold is not None and first is not None and is_held:
                hold(case, "control", first, stack.pop_all())
    except RunnerFailure as failure:
        raise rejection_of_reference(failure) from failure
    reason = learn_oracle(case, template, limits)
    settle_tolerances(case)
    check_determinism(case, apart)
    learn_missing(case, template, limits)
    report_unknown(case, reason)
    check_constancy(case)
    case.precision = precision
    allow(case, template, limits)
    case.known = known_errors(case)
    try_mutants(case)
    return case


def refuse_unknown_dtypes(case: Case, tensors: Iterable[torch.Tensor] = ()) -> None:
    """Refuse floats of a byte or less in inputs or some outputs: torch neither scales nor
    compares them. Raises Rejected."""
    found = {tensor.dtype for one in case.source.made for tensor in one.tensors}
    found |= {dtype_of(one.dtype) for one in case.source.specs}
    found |= {tensor.dtype for tensor in tensors}
    unknown = sorted(str(one) for one in found if one.is_floating_point and one.itemsize < 2)
    if unknown:
        message = f"inputs and outputs of {', '.join(unknown)} cannot be verified yet (weights can)"
        raise Rejected("invalid_reference", "reference.dtype", message)


def learn_state(
    case: Case,
    template: Template,
    limits: Limits,
    generator: torch.Generator,
    stack: ExitStack,
) -> RunnerHandle:
    """Learn the reference's own initial state, randomized around its values. Return the process
    that reported it, which ends with the stack."""
    runner, slots, case.state = twice(lambda _: initial_state(case, template, limits, stack))
    for slot, tensor in zip(slots, case.state, strict=True):
        randomize(slot, tensor, generator, case.cast)
    case.state_slots = slots
    return runner


def initial_state(
    case: Case, template: Template, limits: Limits, stack: ExitStack
) -> tuple[RunnerHandle, list[StateSlot], list[torch.Tensor]]:
    """Return a fresh process, and slots and tensors of its state."""
    with ExitStack() as own:
        runner = own.enter_context(case.runner(template, case.program, limits))
        template.warm(runner.facts.imported)
        case.changes_environment = runner.facts.changes_environment
        slots, size = place(runner.facts.state)
        tensors = []
        if slots:
            state = runner.share("state", case.accelerator, size, limits.call_s)
            runner.ask(StateOut(slots=tuple(slots)), limits.call_s)
            tensors = [state.tensor(slot).clone() for slot in slots]
        stack.push(own.pop_all())
        return runner, slots, tensors


def learn_answers(
    case: Case,
    template: Template,
    limits: Limits,
    generator: torch.Generator,
    first: RunnerHandle | None = None,
    hold: Hold | None = None,
) -> list[Apart]:
    """Learn expected outputs twice, on the trial sets that the reference itself accepts. They
    come from the `first` process, where one has its state, and from another one. Return where the
    two differ."""
    for one, requires in enumerate(case.source.grads):
        case.source.grads[one] = requires and case.train
    memory_bytes = case.accelerator.memory_bytes()
    text = case.program.source if isinstance(case.program, TextProgram) else ""
    has_nan = ON_NAN.search(text) is not None
    budget_bytes = memory_bytes // TRIALS_SHARE
    case.trials = variations(case.source, generator, budget_bytes, case.train, has_nan)
    # Their number determines what is large, and must not stay on the device.
    case.trials = [(name, case.kept(cast_exactly(case, one))) for name, one in case.trials]
    started_s = template.awake_s()
    try:
        case.expected = first_answer(case, template, limits, first, stays=hold is not None)
    except RunnerFailure as failure:
        if is_out_of_memory(failure):
            case.num_together = 1
        case.trials = usable_trials(case, template, limits)
        started_s = template.awake_s()
        case.expected = answer_of(case, template, limits)
    elapsed_s = template.awake_s() - started_s
    refuse_unknown_dtypes(case, (tensor for some in case.expected.outputs for tensor in some))
    learn_bounds(case)
    defined = finite_trials(case, case.expected)
    if len(defined) < len(case.trials):
        case.trials = defined
        case.expected = answer_of(case, template, limits)
    if elapsed_s > SLOW_S:
        try_first(case, FEWEST_TRIALS, f"the reference takes {elapsed_s:.0f} s")
    sizes = [sum(tensor.nbytes for tensor in some) for some in case.expected.outputs]
    num_small = sum(total <= memory_bytes // OUTPUTS_SHARE for total in accumulate(sizes))
    try_first(case, num_small, f"it returns {sum(sizes):,} bytes")
    if not {EXCHANGED, MOVED}.issubset(name for name, _ in case.trials):
        case.source.moves = [False] * len(case.source.moves)
    others = other_states(case.state_slots, case.state, generator)
    again = twice(lambda is_last: learn_more(case, template, limits, others, is_last, hold))
    if not any(call.slots for call in case.expected.calls):
        raise Rejected(
            "invalid_reference",
            "reference.no_tensor",
            f"the output holds no tensor: {case.expected.calls[0].structure[:200]}",
        )
    apart = where_apart(case, again)
    check_dependence(case)
    report_unseen(case)
    return apart


def cast_exactly(case: Case, one: InputSet) -> InputSet:
    """Return a set of inputs that autocast casts without a loss, but for values that keep to
    something. Timed calls have others."""
    if case.cast is None:
        return one
    pairs = zip(one.tensors, case.source.invariants, strict=True)
    return replace(one, tensors=[t if names else held_by(t, case.cast) for t, names in pairs])


def try_first(case: Case, count: int, reason: str) -> None:
    """Leave out all trials beyond a number, but none of those that are always made."""
    assert case.expected is not None
    count = max(FEWEST_TRIALS, count)
    if count >= len(case.trials):
        return
    message = f"{reason} for {len(case.trials)} sets of inputs: {count} are tried"
    case.findings.append(Finding(rule="trials.few", message=message))
    case.trials = case.trials[:count]
    case.expected = case.expected.first(count)
    case.expected.outputs = [
        [case.put(tensor) for tensor in some] for some in case.expected.outputs
    ]


def first_answer(
    case: Case,
    template: Template,
    limits: Limits,
    first: RunnerHandle | None,
    *,
    stays: bool,
) -> Answer:
    """Return the answer of the first process, or of a fresh one where there is none or it dies.
    The process then ends, unless it `stays`, so that its memory is for the next one. It also
    ends where a call fails."""
    if first is None:
        return answer_of(case, template, limits)
    try:
        if case.state_slots:
            case.load_state(first, case.state, limits)
        answer = case.answer(first, limits)
    except RunnerFailure as failure:
        first.end()
        if failure.kind != "died":
            raise
        return answer_of(case, template, limits)
    if not stays:
        first.end()
    return answer


def learn_more(
    case: Case,
    template: Template,
    limits: Limits,
    others: list[list[torch.Tensor]],
    is_last: bool,
    hold: Hold | None,
) -> Answer:
    """Return the answer of a second process. Then return its answer with another state, the
    first of the `others` that it accepts, and on fewer rows, which it may refuse."""
    with ExitStack() as stack:
        runner = stack.enter_context(case.runner(template, case.program, limits))
        again = case.answer(runner, limits)
        template.warm(runner.ask(ListImported(), limits.call_s).names)
        if case.state_slots:
            case.other_state = answer_in_another_state(case, runner, limits, others)
        case.remembers = is_other_again(case, runner, limits, again)
        fewer = another_batch(case.trials[0][1])
        if fewer is not None and not case.remembers:
            try:
                case.fewer_rows = (fewer, case.answer(runner, limits, sets=[fewer]))
            except RunnerFailure as failure:
                if failure.kind == "died" and not is_last:
                    raise
                return again
        if hold is not None and not case.remembers:
            hold(case, "reference", runner, stack.pop_all())
    return again


def is_other_again(case: Case, runner: RunnerHandle, limits: Limits, second: Answer) -> bool:
    """Return whether a call has another answer once others were made, with the same state: by more
    than the first calls of two processes differ."""
    assert case.expected is not None
    ours = case.expected.outputs[0]
    if [one.shape for one in second.outputs[0]] != [one.shape for one in ours]:
        return False  # no reference: where_apart refuses it
    apart = [case.difference(*pair) for pair in zip(second.outputs[0], ours, strict=True)]
    if case.other_state is not None:
        state, answer = case.other_state
        ours = answer.outputs[0]
        case.load_state(runner, state, limits)
    again = case.answer(runner, limits, sets=[case.trials[0][1]]).outputs[0]
    if [one.shape for one in ours] != [one.shape for one in again]:
        return True
    found = [case.difference(*pair) for pair in zip(again, ours, strict=True)]
    return any(
        one.excess > 1 and one.max_abs > APART_MULTIPLE * usual.max_abs
        for one, usual in zip(found, apart, strict=True)
    )


def answer_in_another_state(
    case: Case, runner: RunnerHandle, limits: Limits, others: list[list[torch.Tensor]]
) -> tuple[list[torch.Tensor], Answer]:
    """Return the first state that the reference accepts, and its answer there. It must not fail.
    Its floats must stay in range, if they do in the last state."""
    for state in others[:-1]:
        try:
            case.load_state(runner, state, limits)
            answer = case.answer(runner, limits, sets=[case.trials[0][1]])
        except RunnerFailure as failure:
            if failure.kind != "raised":
                raise
            continue
        if all(each_finite(answer.outputs)):
            return state, answer
    case.load_state(runner, others[-1], limits)
    return others[-1], case.answer(runner, limits, sets=[case.trials[0][1]])


def finite_trials(case: Case, answer: Answer) -> list[tuple[str, InputSet]]:
    """Drop variations that take the reference out of its range. Where it is finite on what the
    workload states, infinities elsewhere are overflows without relevance."""

    finite = each_finite(answer.outputs)
    stated = [name.startswith("drawn") for name, _ in case.trials]
    if not all(fine for fine, is_stated in zip(finite, stated, strict=True) if is_stated):
        return case.trials
    return [trial for trial, fine in zip(case.trials, finite, strict=True) if fine]


def each_finite(outputs: list[list[torch.Tensor]]) -> list[bool]:
    """Return whether all floats of each call are finite, with one wait for the device."""
    floats = [
        (number, tensor)
        for number, some in enumerate(outputs)
        for tensor in some
        if tensor.is_floating_point()
    ]
    finite = [True] * len(outputs)
    flags = as_bools([torch.isfinite(tensor).all() for _, tensor in floats])
    for (number, _), is_finite in zip(floats, flags, strict=True):
        finite[number] &= is_finite
    return finite


def usable_trials(case: Case, template: Template, limits: Limits) -> list[tuple[str, InputSet]]:
    """Drop the variations on which the reference raises; what the workload states must work."""
    usable = []
    trials = case.trials
    for trial in trials:
        case.trials = [trial]
        try:
            answer_of(case, template, limits)
            usable.append(trial)
        except RunnerFailure:
            if trial[0].startswith("drawn"):
                raise
    return usable


def where_apart(case: Case, again: Answer) -> list[Apart]:
    """Return the outputs in which two processes of the reference differ by more than their dtype's
    tolerance.

    Raises:
        Rejected: Their shapes differ, so that no candidate can be verified.
    """
    assert case.expected is not None
    places: list[tuple[int, int]] = []
    pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
    for number, both in enumerate(zip(case.expected.outputs, again.outputs, strict=True)):
        if [t.shape for t in both[0]] != [t.shape for t in both[1]]:
            raise Rejected(
                "invalid_reference",
                "reference.nondeterministic",
                "two processes of the reference return outputs of different shapes",
            )
        pairs += zip(*both, strict=True)
        places += [(number, leaf) for leaf in range(len(both[0]))]
    return [
        Apart(*place, other)
        for place, (one, other), is_same in zip(places, pairs, each_same_bits(pairs), strict=True)
        if not is_same and case.difference(other, one).excess > 1
    ]


def check_determinism(case: Case, apart: Sequence[Apart]) -> None:
    """Check that two processes of the reference agree. Kernels that add in no fixed order may
    differ in what is zero in truth. On inputs that the workload does not state they may also differ
    elsewhere: there the less exact process decides the error budget.

    Raises:
        Rejected: They do not, so that no candidate can be verified.
    """
    assert case.expected is not None
    device = case.accelerator.device
    for one in apart:
        ours = case.expected.outputs[one.trial][one.leaf]
        truth = case.truth(one.trial)[one.leaf]
        noise = rounding_at(case, one.trial, one.leaf, ours, truth)
        if truth is not None and not is_stated(case, one.trial):
            budgets = case.tolerances[one.trial]
            wider = tolerance(one.output, truth, case.given, device, noise=noise, cast=case.cast)
            budgets[one.leaf] = max(budgets[one.leaf], wider, key=attrgetter("absolute"))
            continue
        found = case.difference(one.output, ours, noise=noise)
        if found.excess > 1:
            raise undetermined(case, one.trial, found.max_abs)


def undetermined(case: Case, trial: int, max_abs: float) -> Rejected:
    """Return what is said of a reference whose processes differ."""
    return Rejected(
        "invalid_reference",
        "reference.nondeterministic",
        f"two processes of the reference with the same seeds differ by {max_abs:.3g} on the inputs "
        f"`{case.trials[trial][0]}`: it draws from a generator of its own, the clock or "
        "uninitialized memory, or keeps the memory of its inputs, in which the caller writes the "
        "next ones",
        max_abs_error=max_abs,
    )


def report_unseen(case: Case) -> None:
    """Report parts of the output that cannot be compared, and state that cannot be loaded."""
    assert case.expected is not None
    if case.remembers:
        message = "calls depend on what earlier ones left, which no state_dict holds"
        case.findings.append(Finding(rule="state.hidden", message=message))
    structure = QUOTED.sub("", case.expected.calls[0].structure)
    if unseen := sorted(set(UNSEEN.findall(structure))):
        message = f"the output holds what is not compared: {', '.join(unseen)}"
        case.findings.append(Finding(rule="output.unseen", message=message[:300]))


def check_dependence(case: Case) -> None:
    """Refuse a reference whose output is the same for all inputs: a constant is an honest answer
    to it, and no speedup of it means anything. Where outputs differ only by rounding, mutants.py
    detects it."""
    assert case.expected is not None
    if case.train or len(case.trials) < 2:
        return
    first, second = case.trials[0][1], case.trials[1][1]
    inputs_differ = any(
        not same_bits(a, b) for a, b in zip(first.tensors, second.tensors, strict=True)
    )
    outputs = case.expected.outputs
    if inputs_differ and all(
        a.shape == b.shape and same_bits(a, b) for a, b in zip(outputs[0], outputs[1], strict=True)
    ):
        raise Rejected(
            "degenerate",
            "reference.constant",
            "the output is the same for different random inputs",
        )
