"""A case: one workload of a problem, with everything that the judge knows of the reference in it.

Made once a problem, from runners of the trusted reference: its state (randomized, so that zero
biases and unit scales are not special), the input sets of the trials, the expected outputs, and
the same in float64 where the reference can be run so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from .arguments import tensor_specs
from .compare import LOOSE, Tolerance, difference, tolerance
from .inputs import FEWEST_TRIALS, InputSet, Room, Source, draw, same_bits, variations
from .processes import RunnerFailure, RunnerHandle, Template
from .segment import ALIGNMENT_BYTES, Segment, place, size_bytes, slot_of

SLOW_S = 5.0
"""Of an answer on all sets: beyond it fewer are tried, as each candidate and the oracle take as
long again."""
NUM_MADE_SETS = 4
"""Calls of the user's `get_inputs`; more sets come from these by scaling."""


class Rejected(Exception):
    """A verdict other than passed, on its way out of the judge."""

    def __init__(
        self,
        status: str,
        rule: str,
        message: str,
        *,
        log: str = "",
        evidence: str | None = None,
        max_abs_error: float | None = None,
        max_rel_error: float | None = None,
    ):
        super().__init__(message)
        self.status = status
        self.finding = {"rule": rule, "message": message, "evidence": evidence}
        self.log = log
        self.max_abs_error = max_abs_error
        self.max_rel_error = max_rel_error


@dataclass(frozen=True)
class Limits:
    """Seconds and bytes that a trial may take."""

    load_s: float
    call_s: float
    memory_bytes: int


@dataclass
class Answer:
    """What calls of one program on the trial sets returned."""

    calls: list[dict[str, Any]]
    outputs: list[list[torch.Tensor]]
    mutated: list[int]
    """Numbers of the sets that the calls wrote to."""
    flags: dict[str, Any]
    state: list[torch.Tensor] = field(default_factory=list)
    """After all calls, in the order of the case's slots."""

    def first(self, num_trials: int) -> Answer:
        """What it returned on the first sets."""
        return Answer(
            self.calls[:num_trials],
            self.outputs[:num_trials],
            [number for number in self.mutated if number < num_trials],
            self.flags,
            self.state,
        )


@dataclass
class Case:
    """One workload of the problem, ready to be put to candidates."""

    name: str
    program: dict[str, Any]
    train: bool
    call: dict[str, Any]
    init: dict[str, Any] | None
    init_slots: list[dict[str, Any]]
    init_tensors: list[torch.Tensor]
    source: Source
    given: tuple[float, float] | None
    seed: int
    state_slots: list[dict[str, Any]] = field(default_factory=list)
    state: list[torch.Tensor] = field(default_factory=list)
    trials: list[tuple[str, InputSet]] = field(default_factory=list)
    expected: Answer | None = None
    oracle: list[list[torch.Tensor]] | None = None
    tolerances: list[list[Tolerance]] = field(default_factory=list)
    findings: list[dict[str, Any]] = field(default_factory=list)
    num_calls: int | None = None
    """Calls in a timed batch, settled at the first launch."""

    @property
    def uses_rng(self) -> bool:
        """Whether the reference draws random numbers when called."""
        assert self.expected is not None
        return any(call["used_rng"] for call in self.expected.calls)

    @contextmanager
    def runner(
        self, template: Template, program: dict[str, Any], limits: Limits, dtype: str | None = None
    ) -> Iterator[RunnerHandle]:
        """A fresh runner with the program constructed and, once it is known, the state loaded."""
        with template.runner() as runner:
            if self.init_tensors:
                lend(runner, "init", self.init_slots, self.init_tensors, limits)
            runner.facts = runner.ask(
                "load",
                limits.load_s,
                program=program,
                init=self.init,
                init_slots=self.init_slots,
                seed=self.seed,
                train=self.train,
                dtype=dtype,
            )
            if self.state_slots:
                compare_state(self.state_slots, runner.facts["state"])
                lend(runner, "state", self.state_slots, self.state, limits)
                runner.ask("state_in", limits.call_s, slots=self.state_slots)
            yield runner

    def answer(self, runner: RunnerHandle, limits: Limits, dtype: str | None = None) -> Answer:
        """Call a runner on all trial sets, keep every output until the last call, then copy."""
        sets = [one for _, one in self.trials]
        room = Room(sets, self.source.grads, dtype)
        segment = Segment.create(room.num_bytes)
        room.write(segment, sets)
        runner.give("inputs", segment, limits.call_s)
        runner.ask("prepare", limits.call_s, sets=room.describe(), call=self.call)
        seeds = [self.seed + 1 + i for i in range(len(sets))]
        reply = runner.ask("call", limits.call_s, sets=list(range(len(sets))), seeds=seeds)
        layout, end = [], 0
        for call in reply["calls"]:
            placed, end = place(call["slots"], end)
            layout.append(placed)
        outputs = Segment.create(end)
        runner.give("outputs", outputs, limits.call_s)
        runner.ask("collect", limits.call_s, slots=layout, segment="outputs")
        values = [[outputs.tensor(slot).clone() for slot in places] for places in layout]
        mutated = room.changed(segment, sets)
        segment.close()
        outputs.close()
        state = self.state_after(runner, limits)
        return Answer(reply["calls"], values, mutated, reply["flags"], state)

    def state_after(self, runner: RunnerHandle, limits: Limits) -> list[torch.Tensor]:
        """What the runner's state_dict holds now."""
        if not self.state_slots:
            return []
        segment = Segment.create(
            sum(map(size_bytes, self.state_slots)) + ALIGNMENT_BYTES * len(self.state_slots)
        )
        runner.give("state", segment, limits.call_s)
        runner.ask("state_out", limits.call_s, slots=self.state_slots)
        state = [segment.tensor(slot).clone() for slot in self.state_slots]
        segment.close()
        return state


def lend(
    runner: RunnerHandle,
    name: str,
    slots: list[dict[str, Any]],
    tensors: list[torch.Tensor],
    limits: Limits,
) -> None:
    """Tensors in a segment of the runner's own: what one runner writes no other one reads."""
    segment = Segment.create(sum(map(size_bytes, slots)) + ALIGNMENT_BYTES * len(slots))
    for slot, tensor in zip(slots, tensors, strict=True):
        segment.tensor(slot).copy_(tensor)
    runner.give(name, segment, limits.call_s)
    segment.close()


def compare_state(expected: list[dict[str, Any]], got: list[dict[str, Any]]) -> None:
    """A drop-in replacement has the same state_dict: checkpoints must go on loading."""
    want = {slot["key"]: (slot["shape"], slot["parameter"]) for slot in expected}
    have = {slot["key"]: (slot["shape"], slot["parameter"]) for slot in got}
    if want == have:
        return
    missing = sorted(want.keys() - have.keys())
    extra = sorted(have.keys() - want.keys())
    changed = sorted(key for key in want.keys() & have.keys() if want[key] != have[key])
    parts = [
        f"{word}: {', '.join(keys[:6])}"
        for word, keys in (("missing", missing), ("unexpected", extra), ("changed", changed))
        if keys
    ]
    raise Rejected(
        "runtime_error",
        "state.keys",
        f"the state_dict differs from the reference's ({'; '.join(parts)}); "
        "keep the keys, or register new buffers with persistent=False",
    )


# --- making a case -------------------------------------------------------------------------------


def make_case(
    template: Template,
    problem: dict[str, Any],
    workload: dict[str, Any],
    limits: Limits,
    seed: int,
) -> Case:
    """Learn from runners of the reference what is expected.

    Raises:
        Rejected: The reference cannot be judged under this workload, and why.
    """
    generator = torch.Generator().manual_seed(seed)
    program = problem["reference"]
    try:
        case = call_of(template, program, workload, limits, seed, generator)
        learn_state(case, template, limits, generator)
        learn_answers(case, template, limits, generator)
    except RunnerFailure as failure:
        raise rejection_of_reference(failure) from failure
    learn_oracle(case, template, limits)
    settle_tolerances(case)
    try_mutants(case)
    return case


def rejection_of_reference(failure: RunnerFailure) -> Rejected:
    """The user's own code failed: say where."""
    what = {
        "import": "importing the reference failed",
        None: "calling the reference failed",
    }.get(failure.error.get("stage"), "the reference failed")
    kinds = {"timeout": "reference.timeout", "died": "reference.died"}
    rule = kinds.get(failure.kind, "reference.raised")
    return Rejected("invalid_reference", rule, f"{what}: {failure.message}", log=failure.log)


def call_of(
    template: Template,
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
    answers = make_arguments(template, program, made, limits, seed) if made else {}
    source = Source(call={"type": "pickled"}, made=answers.get("call", []))
    if "call" not in made:
        rest, specs = tensor_specs(call)
        source = Source(call=rest, specs=specs)
        source.grads = [spec.get("requires_grad", False) for spec in specs]
    else:
        source.grads = [t.is_floating_point() for t in source.made[0].tensors]
    case = Case(
        name=workload["name"],
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
    program: dict[str, Any],
    made: dict[str, dict[str, Any]],
    limits: Limits,
    seed: int,
) -> dict[str, list[InputSet]]:
    """Run `get_inputs` and `get_init_inputs` in a runner of their own, so that no user code is
    ever in the judge."""
    answers: dict[str, list[InputSet]] = {}
    with template.runner() as runner:
        for what, function in made.items():
            sets = []
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
                segment = Segment.create(size)
                runner.give("made", segment, limits.call_s)
                runner.ask("collect", limits.call_s, slots=[slots], segment="made")
                sets.append(InputSet([segment.tensor(s).clone() for s in slots], one["data"]))
                segment.close()
            answers[what] = sets
    return answers


def learn_state(case: Case, template: Template, limits: Limits, generator: torch.Generator) -> None:
    """The reference's own initial state, randomized around its values."""
    with case.runner(template, case.program, limits) as runner:
        template.warm(runner.facts["imported"])
        slots, size = place(runner.facts["state"])
        if not slots:
            return
        state = Segment.create(size)
        runner.give("state", state, limits.call_s)
        runner.ask("state_out", limits.call_s, slots=slots)
    case.state = [state.tensor(slot).clone() for slot in slots]
    state.close()
    for slot, tensor in zip(slots, case.state, strict=True):
        randomize(slot, tensor, generator)
    case.state_slots = slots


def randomize(slot: dict[str, Any], tensor: torch.Tensor, generator: torch.Generator) -> None:
    """Perturb a state tensor in place by a tenth of its spread, or of one where it is constant.

    Integers, masks and buffers that hold infinities keep their values; a variance stays positive.
    Buffers that are not statistics (frequency tables, windows) are constants of the algorithm.
    """
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return
    name = slot["key"].rsplit(".", 1)[-1]
    if name == "running_var":
        noise = torch.empty(tensor.shape).uniform_(0.5, 1.5, generator=generator)
        tensor.mul_(noise.to(tensor.dtype))
        return
    if not (slot["parameter"] or name == "running_mean"):
        return
    values = tensor.float()
    if not bool(torch.isfinite(values).all()):
        # torch.empty leaves anything behind, and a parameter has to be something.
        values = torch.zeros_like(values)
    spread = float(values.std()) if values.numel() > 1 else 0.0
    noise = torch.randn(tensor.shape, generator=generator)
    tensor.copy_(values + noise * (spread or 1.0) * 0.1)


def learn_answers(
    case: Case, template: Template, limits: Limits, generator: torch.Generator
) -> None:
    """Expected outputs, on the trial sets that the reference itself can take, twice."""
    for one, requires in enumerate(case.source.grads):
        case.source.grads[one] = requires and case.train
    case.trials = variations(case.source, generator)
    started_s = time.monotonic()
    try:
        case.expected = answer_of(case, template, limits)
    except RunnerFailure:
        case.trials = usable_trials(case, template, limits)
        started_s = time.monotonic()
        case.expected = answer_of(case, template, limits)
    elapsed_s = time.monotonic() - started_s
    if elapsed_s > SLOW_S and len(case.trials) > FEWEST_TRIALS:
        message = (
            f"the reference takes {elapsed_s:.0f} s for {len(case.trials)} sets of inputs: "
            f"{FEWEST_TRIALS} are tried"
        )
        case.findings.append({"rule": "trials.few", "message": message})
        case.trials = case.trials[:FEWEST_TRIALS]
        case.expected = case.expected.first(FEWEST_TRIALS)
    again = answer_of(case, template, limits)
    if not any(call["slots"] for call in case.expected.calls):
        raise Rejected(
            "invalid_reference",
            "reference.no_tensor",
            f"the output holds no tensor: {case.expected.calls[0]['structure'][:200]}",
        )
    check_determinism(case, again)
    check_dependence(case)


def answer_of(case: Case, template: Template, limits: Limits) -> Answer:
    """What a fresh process of the reference answers."""
    with case.runner(template, case.program, limits) as runner:
        return case.answer(runner, limits)


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
            found = difference(other, one, None, tolerance(one, None, case.given))
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
            with case.runner(template, case.program, limits, "float64") as runner:
                answer = case.answer(runner, limits, "float64")
            reason = oracle_mismatch(case.expected, answer)
            case.oracle = answer.outputs if reason is None else None
        except (RunnerFailure, Rejected) as failure:
            reason = str(failure)
    if reason is not None:
        message = f"the reference was not run in float64 ({reason[:300]}): the dtype's tolerance"
        case.findings.append({"rule": "oracle.absent", "message": message})


def oracle_mismatch(expected: Answer, oracle: Answer) -> str | None:
    """Why an oracle's answer cannot be the truth of the expected one; None when it can."""
    for ours, theirs in zip(expected.outputs, oracle.outputs, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            if one.shape != other.shape or one.is_floating_point() != other.is_floating_point():
                return "its outputs have other shapes in float64"
            budget = Tolerance(0.0, LOOSE) if one.is_floating_point() else Tolerance(0.0, 0.0)
            found = difference(one, other, None, budget)
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
            [tolerance(r, o, case.given) for r, o in zip(outputs, truth, strict=True)]
        )


def try_mutants(case: Case) -> None:
    """Whether the check would refuse answers that have nothing to do with the inputs. Where it
    would not, no verdict on this workload means much, and the report says so."""
    assert case.expected is not None
    outputs = case.expected.outputs
    for kind, mutant in MUTANTS.items():
        if all(
            difference(mutant(outputs, number, leaf), output, None, budget).excess <= 1
            for number, leaves in enumerate(outputs)
            for leaf, (output, budget) in enumerate(
                zip(leaves, case.tolerances[number], strict=True)
            )
        ):
            message = f"an answer of {kind} would pass: the workload is too weak to tell"
            case.findings.append({"rule": "workload.weak", "message": message})


def mean_of(output: torch.Tensor) -> torch.Tensor:
    """The output's mean everywhere."""
    if not output.is_floating_point() or output.numel() == 0:
        return output[:1].expand_as(output) if output.dim() else torch.zeros_like(output)
    return torch.full_like(output, float(output.double().nanmean()))


def noise_like(output: torch.Tensor) -> torch.Tensor:
    """Noise of the output's spread around its mean."""
    if not output.is_floating_point() or output.numel() == 0:
        return torch.zeros_like(output)
    values = output.double()
    spread = float(values[torch.isfinite(values)].std(correction=0).nan_to_num(0.0))
    generator = torch.Generator().manual_seed(output.numel())
    noise = torch.randn(output.shape, generator=generator) * spread + float(values.nanmean())
    return noise.to(output.dtype)


def previous(outputs: list[list[torch.Tensor]], number: int, leaf: int) -> torch.Tensor:
    """What the call before returned, where it has the same form."""
    before = outputs[number - 1]
    here = outputs[number][leaf]
    same = leaf < len(before) and before[leaf].shape == here.shape
    return before[leaf] if same and len(outputs) > 1 else torch.zeros_like(here)


MUTANTS: dict[str, Callable[[list[list[torch.Tensor]], int, int], torch.Tensor]] = {
    "zeros": lambda outputs, number, leaf: torch.zeros_like(outputs[number][leaf]),
    "a constant": lambda outputs, number, leaf: mean_of(outputs[number][leaf]),
    "noise": lambda outputs, number, leaf: noise_like(outputs[number][leaf]),
    "the previous call": previous,
}
"""Wrong answers that a check must refuse."""
