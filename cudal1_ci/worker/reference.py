"""What the judge learns of the trusted reference before any candidate is seen.

Its state (randomized, so that zero biases and unit scales are not special), the input sets that it
can take, the expected outputs, and the same in float64 where it can be run so.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from .accelerators import Accelerator, Cpu
from .arguments import tensor_specs
from .cases import Answer, Case, Limits, Rejected
from .compare import LOOSE, Tolerance, difference, tolerance
from .failures import is_out_of_memory, rejection_of_reference, twice
from .inputs import InputSet, Source, draw, same_bits
from .memory_plan import num_together
from .mutants import try_mutants
from .processes import RunnerFailure, Template
from .segment import place, slot_of
from .variations import FEWEST_TRIALS, another_batch, variations

SLOW_S = 5.0
"""Of an answer on all sets: beyond it fewer are tried, as each candidate and the oracle take as
long again."""
NUM_MADE_SETS = 4
"""Calls of the user's `get_inputs`; more sets come from these by scaling."""
TRIALS_SHARE = 32
"""Of the device's memory, for the inputs of the trials: outputs, the oracle in twice the precision
and a runner's own copy of them come on top."""
LARGE_BYTES = 256 * 2**20
"""Of one such set: beyond it two are made."""


def make_case(
    template: Template,
    accelerator: Accelerator,
    problem: dict[str, Any],
    workload: dict[str, Any],
    limits: Limits,
    seed: int,
    *,
    draws_weights: bool = False,
) -> Case:
    """Learn from runners of the reference what is expected, with randomized weights that every
    candidate loads, or with those that a constructor draws under the seed.

    Raises:
        Rejected: The reference cannot be judged under this workload, and why.
    """
    generator = torch.Generator(accelerator.device).manual_seed(seed)
    program = problem["reference"]
    try:
        case = call_of(template, accelerator, program, workload, limits, seed, generator)
        if not draws_weights:
            learn_state(case, template, limits, generator)
        learn_answers(case, template, limits, generator)
    except RunnerFailure as failure:
        raise rejection_of_reference(failure) from failure
    learn_oracle(case, template, limits)
    settle_tolerances(case)
    try_mutants(case)
    return case


def call_of(
    template: Template,
    accelerator: Accelerator,
    program: dict[str, Any],
    workload: dict[str, Any],
    limits: Limits,
    seed: int,
    generator: torch.Generator,
) -> Case:
    """Arguments of the constructor and of the calls, from specs or from the user's functions."""
    call, init = workload["call"], workload.get("init")
    made = {"call": call} if call["type"] == "made" else {}
    if init is not None and init["type"] == "made":
        made["init"] = init
    answers = {}
    if made:
        answers = twice(
            lambda _: make_arguments(template, accelerator, program, made, limits, seed)
        )
    source = Source(call={"type": "pickled"}, made=answers.get("call", []))
    if "call" not in made:
        rest, specs = tensor_specs(call)
        source = Source(call=rest, specs=specs)
        source.grads = [spec.get("requires_grad", False) for spec in specs]
    else:
        source.grads = [t.is_floating_point() for t in source.made[0].tensors]
    case = Case(
        name=workload["name"],
        accelerator=accelerator,
        program=program,
        train=workload.get("mode", "infer") == "train",
        call=source.call,
        init=None,
        init_slots=[],
        init_tensors=[],
        source=source,
        given=given_tolerance(workload),
        seed=seed,
    )
    if "init" in made:
        one = answers["init"][0]
        case.init, tensors = {"type": "pickled", "data": one.data}, one.tensors
    elif init is not None:
        case.init, specs = tensor_specs(init)
        tensors = [draw(spec, generator) for spec in specs]
    else:
        tensors = []
    case.init_slots, _ = place([slot_of(t) for t in tensors])
    case.init_tensors = tensors
    return case


def given_tolerance(workload: dict[str, Any]) -> tuple[float, float] | None:
    """The user's own tolerances, which replace the oracle's budget."""
    atol, rtol = workload.get("atol"), workload.get("rtol")
    return None if atol is None and rtol is None else (atol or 0.0, rtol or 0.0)


def make_arguments(
    template: Template,
    accelerator: Accelerator,
    program: dict[str, Any],
    made: dict[str, dict[str, Any]],
    limits: Limits,
    seed: int,
) -> dict[str, list[InputSet]]:
    """Run `get_inputs` and `get_init_inputs` in a runner of their own, so that no user code is
    ever in the judge."""
    answers: dict[str, list[InputSet]] = {}
    with template.runner(program) as runner:
        for what, function in made.items():
            sets: list[InputSet] = []
            for number in range(NUM_MADE_SETS if what == "call" else 1):
                reply = runner.ask(
                    "make",
                    limits.load_s,
                    program=program,
                    functions=[function],
                    seed=seed + number,
                )
                (one,) = reply["calls"]
                slots, size = place(one["slots"])
                # Made on the CPU, whatever they are for: this runner needs no GPU.
                segment = runner.share("made", Cpu(), size, limits.call_s)
                runner.ask("collect", limits.call_s, slots=[slots], segment="made")
                tensors = [
                    accelerator.keep(segment.tensor(slot).to(accelerator.device)) for slot in slots
                ]
                sets.append(InputSet(tensors, one["data"]))
                if size > LARGE_BYTES and number:
                    break
            answers[what] = sets
    return answers


def learn_state(case: Case, template: Template, limits: Limits, generator: torch.Generator) -> None:
    """The reference's own initial state, randomized around its values."""
    slots, case.state = twice(lambda _: initial_state(case, template, limits))
    for slot, tensor in zip(slots, case.state, strict=True):
        randomize(slot, tensor, generator)
    case.state_slots = slots


def initial_state(
    case: Case, template: Template, limits: Limits
) -> tuple[list[dict[str, Any]], list[torch.Tensor]]:
    """Slots and tensors of the state that a fresh process has."""
    with case.runner(template, case.program, limits) as runner:
        template.warm(runner.facts["imported"])
        slots, size = place(runner.facts["state"])
        if not slots:
            return [], []
        state = runner.share("state", case.accelerator, size, limits.call_s)
        runner.ask("state_out", limits.call_s, slots=slots)
        return slots, [state.tensor(slot).clone() for slot in slots]


def randomize(slot: dict[str, Any], tensor: torch.Tensor, generator: torch.Generator) -> None:
    """Perturb a state tensor in place by a tenth of its spread, or of one where it is constant.

    Integers, masks and buffers that hold infinities keep their values; a variance stays positive.
    Buffers that are not statistics (frequency tables, windows) are constants of the algorithm.
    """
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return
    name = slot["key"].rsplit(".", 1)[-1]
    if name == "running_var":
        noise = torch.empty(tensor.shape, device=generator.device)
        noise.uniform_(0.5, 1.5, generator=generator)
        tensor.mul_(noise.to(tensor.dtype))
        return
    if not (slot["parameter"] or name == "running_mean"):
        return
    values = tensor.float()
    if not bool(torch.isfinite(values).all()):
        # torch.empty leaves anything behind, and a parameter has to be something.
        values = torch.zeros_like(values)
    spread = float(values.std()) if values.numel() > 1 else 0.0
    noise = torch.randn(tensor.shape, generator=generator, device=generator.device)
    tensor.copy_(values + noise * (spread or 1.0) * 0.1)


def learn_answers(
    case: Case, template: Template, limits: Limits, generator: torch.Generator
) -> None:
    """Expected outputs, on the trial sets that the reference itself can take, twice."""
    for one, requires in enumerate(case.source.grads):
        case.source.grads[one] = requires and case.train
    memory_bytes = case.accelerator.memory_bytes()
    found = variations(case.source, generator, memory_bytes // TRIALS_SHARE)
    case.trials = [(name, case.kept(one)) for name, one in found]
    set_bytes = max(one.num_bytes for _, one in case.trials)
    case.num_together = num_together(set_bytes, memory_bytes)
    started_s = time.monotonic()
    try:
        case.expected = answer_of(case, template, limits)
    except RunnerFailure as failure:
        if is_out_of_memory(failure):
            case.num_together = 1
        case.trials = usable_trials(case, template, limits)
        started_s = time.monotonic()
        case.expected = answer_of(case, template, limits)
    elapsed_s = time.monotonic() - started_s
    defined = finite_trials(case, case.expected)
    if len(defined) < len(case.trials):
        case.trials = defined
        case.expected = answer_of(case, template, limits)
    if elapsed_s > SLOW_S and len(case.trials) > FEWEST_TRIALS:
        message = (
            f"the reference takes {elapsed_s:.0f} s for {len(case.trials)} sets of inputs: "
            f"{FEWEST_TRIALS} are tried"
        )
        case.findings.append({"rule": "trials.few", "message": message})
        case.trials = case.trials[:FEWEST_TRIALS]
        case.expected = case.expected.first(FEWEST_TRIALS)
    other = [tensor.clone() for tensor in case.state]
    for slot, tensor in zip(case.state_slots, other, strict=True):
        randomize(slot, tensor, generator)
    again = twice(lambda is_last: learn_more(case, template, limits, other, is_last))
    if not any(call["slots"] for call in case.expected.calls):
        raise Rejected(
            "invalid_reference",
            "reference.no_tensor",
            f"the output holds no tensor: {case.expected.calls[0]['structure'][:200]}",
        )
    check_determinism(case, again)
    check_dependence(case)


def learn_more(
    case: Case, template: Template, limits: Limits, other: list[torch.Tensor], is_last: bool
) -> Answer:
    """What a second process answers; and what it says after that once it has another state, and on
    fewer rows, which it may refuse."""
    with case.runner(template, case.program, limits) as runner:
        again = case.answer(runner, limits)
        if case.state_slots:
            case.load_state(runner, other, limits)
            case.other_state = (other, case.answer(runner, limits, sets=[case.trials[0][1]]))
        fewer = another_batch(case.trials[0][1])
        if fewer is not None:
            try:
                case.fewer_rows = (fewer, case.answer(runner, limits, sets=[fewer]))
            except RunnerFailure as failure:
                if failure.kind == "died" and not is_last:
                    raise
    return again


def answer_of(case: Case, template: Template, limits: Limits, dtype: str | None = None) -> Answer:
    """What a fresh process of the reference answers."""

    def attempt(_: bool) -> Answer:
        with case.runner(template, case.program, limits, dtype) as runner:
            return case.answer(runner, limits, dtype)

    return twice(attempt)


def finite_trials(case: Case, answer: Answer) -> list[tuple[str, InputSet]]:
    """Without those variations that take the reference out of its range: where it is finite on
    what the workload states, infinities elsewhere are overflows that nobody asked for."""

    def is_finite(outputs: list[torch.Tensor]) -> bool:
        return all(bool(torch.isfinite(t).all()) for t in outputs if t.is_floating_point())

    finite = [is_finite(outputs) for outputs in answer.outputs]
    stated = [name.startswith("drawn") for name, _ in case.trials]
    if not all(fine for fine, is_stated in zip(finite, stated, strict=True) if is_stated):
        return case.trials
    return [trial for trial, fine in zip(case.trials, finite, strict=True) if fine]


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


def check_determinism(case: Case, again: Answer) -> None:
    """Two processes of the reference must agree, or nothing can be said of a candidate."""
    assert case.expected is not None
    for number, (first, second) in enumerate(
        zip(case.expected.outputs, again.outputs, strict=True)
    ):
        if len(first) != len(second) or any(
            a.shape != b.shape for a, b in zip(first, second, strict=True)
        ):
            raise Rejected(
                "invalid_reference",
                "reference.nondeterministic",
                "two processes of the reference return outputs of different shapes",
            )
        for one, other in zip(first, second, strict=True):
            found = case.difference(other, one)
            if found.excess > 1:
                raise Rejected(
                    "invalid_reference",
                    "reference.nondeterministic",
                    "two processes of the reference with the same seeds differ by "
                    f"{found.max_abs:.3g} on the inputs `{case.trials[number][0]}`: it draws from "
                    "a generator of its own, the clock, or uninitialized memory",
                    max_abs_error=found.max_abs,
                )


def check_dependence(case: Case) -> None:
    """A reference whose output is the same for all inputs is degenerate: a constant is an honest
    answer to it, and no speedup of it means anything."""
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


def learn_oracle(case: Case, template: Template, limits: Limits) -> None:
    """The reference in float64, where it runs so and agrees with itself."""
    assert case.expected is not None
    reason = None
    if case.uses_rng:
        reason = "it draws random numbers, which differ between precisions"
    else:
        try:
            answer = answer_of(case, template, limits, "float64")
            reason = oracle_mismatch(case, answer)
            case.oracle = answer.outputs if reason is None else None
        except (RunnerFailure, Rejected) as failure:
            reason = str(failure)
    if reason is not None:
        message = f"the reference was not run in float64 ({reason[:300]}): the dtype's tolerance"
        case.findings.append({"rule": "oracle.absent", "message": message})


def oracle_mismatch(case: Case, oracle: Answer) -> str | None:
    """Why an oracle's answer cannot be the truth of the expected one; None when it can."""
    assert case.expected is not None
    for ours, theirs in zip(case.expected.outputs, oracle.outputs, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            if one.shape != other.shape or one.is_floating_point() != other.is_floating_point():
                return "its outputs have other shapes in float64"
            budget = Tolerance(0.0, LOOSE) if one.is_floating_point() else Tolerance(0.0, 0.0)
            found = difference(one, other, None, budget, case.accelerator.device)
            if not one.is_floating_point() and found.excess > 1:
                return "its integer outputs differ in float64"
            if one.is_floating_point() and not found.is_loose and found.max_abs:
                return f"its outputs differ by {found.max_abs:.3g} in float64"
    return None


def settle_tolerances(case: Case) -> None:
    """The budget of every output of every trial."""
    assert case.expected is not None
    for number, outputs in enumerate(case.expected.outputs):
        truth = case.oracle[number] if case.oracle else [None] * len(outputs)
        case.tolerances.append(
            [
                tolerance(ours, exact, case.given, case.accelerator.device)
                for ours, exact in zip(outputs, truth, strict=True)
            ]
        )
