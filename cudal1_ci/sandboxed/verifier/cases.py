"""Hold a case: one workload of a problem, with all that the verifier knows of the reference in it.

A case is learned once for each problem (reference.py) and applied to every candidate. It opens
runners of a program under the workload and collects their answers on the trial sets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from ..forkserver.client import Template
from ..forkserver.handles import RunnerHandle
from ..memory.accelerators import Accelerator, AnySegment, place_for
from ..memory.segment import ALIGNMENT_BYTES, dtype_of, place, size_bytes
from ..timing.energy import EnergyCounter
from ..wire.arguments import GivenCall
from ..wire.programs import Autocast, Floats, Program
from ..wire.recording import Recording
from ..wire.runner import (
    Called,
    CallSets,
    Collect,
    CountDemand,
    Fill,
    Load,
    Prepare,
    PriceCall,
    Profile,
    RecordCall,
    Settings,
    Spin,
    StateIn,
    StateOut,
    Wider,
)
from ..wire.tensors import Slot, StateSlot, bare
from ..wire.verdicts import CallCost, Demand, Finding, KernelTime, Status, Verdict
from ..wire.verifier import Limits as Limits
from .compare import (
    Difference,
    Tolerance,
    difference,
    is_inexact,
    loose,
    rounded,
    tolerance,
)
from .glance import Glance
from .inputs import InputSet, Room, Source
from .memory_plan import Plan, num_together
from .states import not_held_by

if TYPE_CHECKING:
    from .signs import Vectors
    from .ties import Ties

BY_READING = (
    "its code could run when the state is read, outside of the clock; the reference's is of "
    "torch's own type"
)


class Rejected(Exception):
    """Carries a verdict other than passed out of the verifier."""

    def __init__(
        self,
        status: Status,
        rule: str,
        message: str,
        *,
        log: str = "",
        evidence: str | None = None,
        line: int | None = None,
        max_abs_error: float | None = None,
        max_rel_error: float | None = None,
    ):
        super().__init__(message)
        self.status = status
        self.finding = Finding(rule=rule, message=message, evidence=evidence, line=line)
        self.log = log
        self.max_abs_error = max_abs_error
        self.max_rel_error = max_rel_error


def verdict_of(rejected: Rejected) -> Verdict:
    """Return the verdict that is reported."""
    return Verdict(
        status=rejected.status,
        findings=(rejected.finding,),
        max_abs_error=rejected.max_abs_error,
        max_rel_error=rejected.max_rel_error,
        log=rejected.log,
    )


class OtherState(Rejected):
    """Carries which part of the reference's state a candidate with another state shares."""

    def __init__(self, message: str, shared: tuple[str, ...]):
        super().__init__("runtime_error", "state.keys", message)
        self.shared = shared


@dataclass
class Answer:
    """Results of one program's calls on the trial sets."""

    calls: list[Called]
    outputs: list[list[torch.Tensor]]
    mutated: dict[tuple[int, int], torch.Tensor]
    """Values that the calls left in inputs that they wrote to, by number of the set and of the
    tensor."""
    flags: Settings | None
    state: list[torch.Tensor] = field(default_factory=list)
    """State after all calls on the sets of the trials, in the order of the case's slots."""

    def first(self, num_trials: int) -> Answer:
        """Return what it returned on the first sets."""
        return Answer(
            self.calls[:num_trials],
            self.outputs[:num_trials],
            {which: left for which, left in self.mutated.items() if which[0] < num_trials},
            self.flags,
            self.state,
        )


@dataclass
class ChainedSteps:
    """Times of one repetition in chained and unchained batches: reference and candidate, pair by
    pair, in microseconds."""

    chains_us: list[tuple[list[float], list[float]]]
    """Steps of chained batches."""
    rounds_us: list[tuple[float, float]]
    """A call of each unchained round."""
    exchange_us: float
    """A step that calls nothing."""
    is_missing: bool = False
    """Whether this repetition and those before it show that a gain is missing."""


@dataclass
class Case:
    """A workload of the problem, ready to be applied to candidates."""

    name: str
    accelerator: Accelerator
    program: Program
    train: bool
    call: GivenCall
    init: GivenCall | None
    init_slots: list[Slot]
    init_tensors: list[torch.Tensor]
    source: Source
    given: tuple[float, float] | None
    seed: int
    floats: Floats | None = None
    """What the module's floats are converted to after its constructor."""
    default_dtype: Floats | None = None
    autocast: Autocast | None = None
    keys: tuple[str, ...] | None = None
    """The part of the state that the reference shares with the candidate, where they differ; the
    rest is as both constructors make it under one seed. None for all of it."""
    state_slots: list[StateSlot] = field(default_factory=list)
    state: list[torch.Tensor] = field(default_factory=list)
    trials: list[tuple[str, InputSet]] = field(default_factory=list)
    expected: Answer | None = None
    oracle: list[list[torch.Tensor] | None] = field(default_factory=list)
    """Outputs in float64, by trial: None where they are not the truth of the reference's."""
    lost: dict[int, list[torch.Tensor]] = field(default_factory=dict)
    """Outputs in float64 of trials on inputs that the workload does not state, where the reference
    is far from them: a square that float16 does not hold. These are right too (oracle.py)."""
    glances: dict[tuple[int, int], Glance] = field(default_factory=dict)
    """What was seen at once of outputs and their oracle, by trial and number (glance.py)."""
    tolerances: list[list[Tolerance]] = field(default_factory=list)
    explained: set[int] = field(default_factory=set)
    """Trials whose budgets include all that rounding may do (spread.py)."""
    precision: str = "strict"
    """Allowance beyond the reference's own precision (precision.py),"""
    strict: list[list[Tolerance]] = field(default_factory=list)
    """and the budgets without that, where there are others."""
    known: list[float] = field(default_factory=list)
    """The allowed error of every output as a share of its magnitude (oracle.py),"""
    noise: dict[int, float] = field(default_factory=dict)
    """and by its number the allowed error of one that is only rounding (rounding_noise.py)."""
    usual: list[float] = field(default_factory=list)
    """The reference's error of every output on inputs that a training workload states."""
    findings: list[Finding] = field(default_factory=list)
    bounds: dict[int, int] = field(default_factory=dict)
    """By number: outputs whose shape depends on values, and their most elements
    (value_shapes.py)."""
    ties: dict[int, dict[int, Ties]] = field(default_factory=dict)
    """By the number of a trial in which a candidate was off: ties of outputs (ties.py)."""
    remembers: bool = False
    """Whether calls depend on what earlier ones left outside of the state_dict."""
    num_shaken: int = 0
    """Calls of the reference on inputs that differ by rounding, for these."""
    signs: dict[int, Vectors] | None = None
    """By number: outputs that are vectors without a definite sign; None before a candidate was
    off (signs.py)."""
    unsettled: frozenset[int] = frozenset()
    """Trials whose vectors are not definite, or whose outputs follow from rounding alone."""
    jumps: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict)
    """Shares of elements that rounding alone moves beyond what counts as precision, and the longest
    of these moves, by trial and number of the output, where these are more than a few (spread.py).
    """
    fewer_rows: tuple[InputSet, Answer] | None = None
    """A smaller batch, where the reference accepts one, and its answer after those on the
    trials."""
    other_state: tuple[list[torch.Tensor], Answer] | None = None
    """Another state, and the answer on the first trial once it is loaded after the trials."""
    inexact: frozenset[str] | None = None
    """What of the reference's state has types of its own; None before it was loaded."""
    changes_environment: bool = False
    """Whether loading the reference changes environment variables."""
    reached: frozenset[str] | None = None
    """Inputs and parameters that the reference's gradients reach, once a patch was right."""
    contract: Any = None
    """What is known of its contract (contract/), once a candidate was examined by it."""
    num_together: int | None = None
    """Trial sets that a runner gets at a time; None before the size of a call's outputs is
    known."""
    plan: Plan | None = None
    """Memory plan of a batch's tensors, for the current candidate."""
    chained: list[ChainedSteps] = field(default_factory=list)
    """What chained batches of the current candidate took (timing/chained.py)."""
    secret_trials: list[int] = field(default_factory=list)
    """Trials whose inputs no secret round of the current candidate has had yet."""
    has_endured: bool = False
    """Whether a repetition of the current candidate has ended with many more calls."""
    counts: bool = False
    """Whether rounds that count have begun in the current repetition."""
    num_calls: int | None = None
    """Calls wanted in a timed batch, settled at the first repetition,"""
    is_device_bound: bool = False
    """and whether the device is still computing when the reference's last call has returned."""

    def truth(self, number: int) -> Sequence[torch.Tensor | None]:
        """Return the oracle's outputs of a trial, None for each where there are none."""
        assert self.expected is not None
        found = self.oracle[number] if self.oracle else None
        return [None] * len(self.expected.outputs[number]) if found is None else found

    @property
    def leaves_traces(self) -> bool:
        """Return whether calls may change more than their outputs: gradients, buffers, or what no
        state_dict holds."""
        is_buffered = any(not slot.is_parameter for slot in self.state_slots)
        return self.train or self.remembers or is_buffered

    @property
    def uses_rng(self) -> bool:
        """Return whether the reference draws random numbers when called."""
        assert self.expected is not None
        return any(call.used_rng for call in self.expected.calls)

    @contextmanager
    def runner(
        self,
        template: Template,
        program: Program,
        limits: Limits,
        dtype: Wider | None = None,
        is_trusted: bool = False,
        is_new: bool = False,
    ) -> Iterator[RunnerHandle]:
        """Yield a fresh runner with the program constructed and, once it is known, the state
        loaded."""
        with template.runner(program, is_trusted, is_new) as runner:
            if self.init_tensors:
                self.lend(runner, "init", self.init_slots, self.init_tensors, limits)
            request = Load(
                program=program,
                init=self.init,
                init_slots=tuple(self.init_slots),
                seed=self.seed,
                train=self.train,
                dtype=dtype,
                device=self.accelerator.kind,
                keys=self.keys,
                floats=self.floats,
                default_dtype=self.default_dtype,
                autocast=self.autocast,
            )
            runner.facts = runner.ask(request, limits.load_s)
            if runner.facts.is_lazy:
                generator = torch.Generator(self.accelerator.device).manual_seed(self.seed)
                self.prepare(runner, limits, [self.source.draw(0, generator)], dtype)
                runner.facts = runner.ask(Fill(number=0), limits.load_s)
            if self.inexact is None:
                self.inexact = frozenset(runner.facts.inexact)
            elif own := sorted(set(runner.facts.inexact) - self.inexact):
                raise Rejected("reward_hack", "state.type", f"{'; '.join(own)}: {BY_READING}")
            if self.state_slots:
                compare_state(self.state_slots, runner.facts.state)
                self.load_state(runner, self.state, limits)
            yield runner

    def timed_state(self) -> list[torch.Tensor]:
        """Return the state in timed calls. Under autocast no parameter is a number that a cast
        leaves as it is, as none of a user's is."""
        generator = torch.Generator(self.accelerator.device).manual_seed(self.seed)
        return [
            not_held_by(tensor, self.cast, generator) if slot.is_parameter else tensor
            for slot, tensor in zip(self.state_slots, self.state, strict=True)
        ]

    def timed_inputs(self, one: InputSet, generator: torch.Generator) -> InputSet:
        """Return a set of inputs as timed calls have them: under autocast with numbers that its
        dtype does not hold, but for values that keep to something."""
        pairs = zip(one.tensors, self.source.invariants, strict=True)
        tensors = [t if names else not_held_by(t, self.cast, generator) for t, names in pairs]
        return replace(one, tensors=tensors)

    def usual_inputs(self) -> InputSet:
        """Return inputs as the workload states and timed calls have them, the same each time."""
        generator = torch.Generator(self.accelerator.device).manual_seed(self.seed)
        return self.timed_inputs(self.trials[0][1], generator)

    def load_state(self, runner: RunnerHandle, state: list[torch.Tensor], limits: Limits) -> None:
        """Load a state, as a checkpoint is loaded or an optimizer steps."""
        self.lend(runner, "state", self.state_slots, state, limits)
        runner.ask(StateIn(slots=tuple(self.state_slots)), limits.call_s)

    def answer(
        self,
        runner: RunnerHandle,
        limits: Limits,
        dtype: Wider | None = None,
        sets: list[InputSet] | None = None,
        before_copy: Callable[[Sequence[Called], int], None] | None = None,
        is_between: bool = False,
        rounding: int | None = None,
        num_units: int = 1,
    ) -> Answer:
        """Call a runner on sets of inputs, by default those of the trials.

        Sets go to the runner together, all of them unless they are large. It keeps every output
        until the last call was made, then the outputs are copied. `before_copy` gets the outputs'
        descriptions and the number of the first set, before there is memory for them. runner.py
        explains `is_between`, and wire/runner.py `rounding` with its units.
        """
        leaves_state = sets is None and dtype is None
        sets = [one for _, one in self.trials] if sets is None else sets
        answer = Answer([], [], {}, None)
        first = 0
        while first < len(sets):
            some = sets[first : first + (self.num_together or 1)]
            asked = CallSets(
                sets=tuple(range(len(some))),
                seeds=tuple(self.seed + 1 + first + i for i in range(len(some))),
                is_between=is_between,
                rounding=rounding,
                num_units=num_units,
            )
            self.answer_some(runner, limits, some, asked, first, answer, dtype, before_copy)
            first += len(some)
        if leaves_state and not self.train:  # there it is among the outputs of each call
            answer.state = self.state_after(runner, limits)
        return answer

    def answer_some(
        self,
        runner: RunnerHandle,
        limits: Limits,
        sets: list[InputSet],
        asked: CallSets,
        first: int,
        answer: Answer,
        dtype: Wider | None,
        before_copy: Callable[[Sequence[Called], int], None] | None,
    ) -> None:
        """Add a runner's answers on some sets, whose first one has that number."""
        room, segment = self.prepare(runner, limits, sets, dtype)
        reply = runner.ask(asked, limits.call_s)
        if len(reply.calls) != len(sets):
            raise runner.failure("malformed", "its answer to `call` is not one for each set")
        if before_copy is not None:
            before_copy(reply.calls, first)
        layout, end = [], 0
        for call in reply.calls:
            placed, end = place(call.slots, end)
            layout.append(placed)
        memory_bytes = self.accelerator.memory_bytes()
        if end > memory_bytes:
            # In torch's words: other processes may have taken a GPU's memory
            # (verification/session.py).
            said = f"out of memory: it returns tensors of {end:,} bytes"
            raise runner.failure("raised", f"{self.accelerator.kind.upper()} {said}")
        if self.num_together is None:
            most_bytes = max(one.num_bytes for _, one in self.trials)
            self.num_together = num_together(most_bytes, end, memory_bytes)
        outputs = runner.share("outputs", self.accelerator, end, limits.call_s)
        places = tuple(tuple(map(bare, one)) for one in layout)
        runner.ask(Collect(slots=places, segment="outputs"), limits.call_s)
        keep = self.keep
        answer.calls += reply.calls
        answer.outputs += [[keep(outputs.tensor(slot)) for slot in one] for one in layout]
        for number, index in room.changed(segment, sets):
            left = keep(segment.tensor(room.layout[number][index]))
            answer.mutated[first + number, index] = left
        answer.flags = reply.flags

    @property
    def cast(self) -> torch.dtype | None:
        """Return the dtype that autocast casts to."""
        return None if self.autocast is None else dtype_of(self.autocast)

    def keep(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy of one of a trial's tensors, in the place where the verifier keeps large
        ones."""
        return tensor.to(place_for(self.accelerator, tensor, len(self.trials)), copy=True)

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """Move a tensor that has no other user to that place; it stays where it is already
        there."""
        return tensor.to(place_for(self.accelerator, tensor, len(self.trials)))

    def kept(self, one: InputSet) -> InputSet:
        """Return a copy of a set of inputs in that place."""
        return InputSet([self.put(tensor) for tensor in one.tensors], one.data)

    def leaf_difference(
        self,
        number: int,
        leaf: int,
        got: torch.Tensor,
        budget: Tolerance,
        other: torch.Tensor | None = None,
    ) -> Difference:
        """Compare one output of a trial with reference and oracle, or with an `other` answer of the
        reference. A true value of zero has no relative error. Where many elements jump by rounding
        alone, as many may be off, by no more than twice the longest jump. Where the reference lost
        what float64 holds, that is right too."""
        assert self.expected is not None
        expected, truth = self.expected.outputs[number][leaf], self.truth(number)[leaf]
        if other is not None:
            expected, truth = other, None
        device = self.accelerator.device
        found = difference(got, expected, truth, budget, device)
        share, longest = self.jumps.get((number, leaf), (0.0, 0.0))
        if 1 < found.excess < math.inf and found.max_abs <= 2 * longest:
            near = loose(expected.dtype, self.cast)
            far = difference(got, expected, truth, budget, device, near)
            if far.num_far <= share * got.numel():
                return Difference(0.0, 0.0, 1.0, 0)
        if found.excess > 1 and other is None and number in self.lost and is_inexact(expected):
            exact = self.lost[number][leaf]
            own = tolerance(rounded(exact, expected.dtype, self.cast), exact, None, device)
            if difference(got, exact, None, own, device).excess <= 1:
                return Difference(0.0, 0.0, 1.0, 0)
        return replace(found, max_rel=0.0) if leaf in self.noise else found

    def difference(
        self, got: torch.Tensor, expected: torch.Tensor, known: float = 0.0, noise: float = 0.0
    ) -> Difference:
        """Compare without an oracle, by the user's tolerance or the dtype's. What is `known`, or
        `noise`, counts where that is more."""
        device = self.accelerator.device
        budget = tolerance(expected, None, self.given, device, known, noise, cast=self.cast)
        return difference(got, expected, None, budget, device)

    def differences(
        self, got: list[torch.Tensor], expected: list[torch.Tensor]
    ) -> list[Difference]:
        """Compare the outputs of a call for which there is no oracle. A call may return another
        number of outputs, as some do for other inputs; these cannot be compared."""
        pairs = list(zip(got, expected, strict=True))
        if len(self.known) != len(expected):
            return [self.difference(*pair) for pair in pairs]
        return [
            self.difference(*pair, self.known[leaf], self.noise.get(leaf, 0.0))
            for leaf, pair in enumerate(pairs)
        ]

    def prepare(
        self,
        runner: RunnerHandle,
        limits: Limits,
        sets: list[InputSet],
        dtype: Wider | None = None,
    ) -> tuple[Room, AnySegment]:
        """Give a runner sets of inputs."""
        room = Room(sets, self.source.grads, dtype)
        segment = runner.share("inputs", self.accelerator, room.num_bytes, limits.call_s)
        room.write(segment, sets)
        self.accelerator.synchronize()
        runner.ask(Prepare(sets=room.describe(), call=self.call), limits.call_s)
        return room, segment

    def profile(
        self, template: Template, program: Program, limits: Limits
    ) -> tuple[KernelTime, ...]:
        """Return a program's profile of a call (profiling.py), from a separate runner.

        Raises:
            RunnerFailure: The call could not be profiled.
        """
        with self.runner(template, program, limits) as runner:
            return self.profiled(runner, limits)

    def profiled(self, runner: RunnerHandle, limits: Limits) -> tuple[KernelTime, ...]:
        """Return the profile from an existing runner. Raises as `profile` does."""
        self.prepare(runner, limits, [self.trials[0][1]])
        return runner.ask(Profile(sets=(0,)), limits.load_s).rows

    def demand(self, template: Template, limits: Limits) -> Demand:
        """Return what a call of the reference demands of the device (flops.py). Raises
        RunnerFailure."""
        with self.runner(template, self.program, limits, is_trusted=True) as runner:
            self.prepare(runner, limits, [self.trials[0][1]])
            return runner.ask(CountDemand(number=0), limits.load_s).demand

    def recorded(self, template: Template, limits: Limits, generator: torch.Generator) -> Recording:
        """Return the operations of a call of the reference on drawn inputs (recorder/). Raises
        RunnerFailure."""
        with self.runner(template, self.program, limits, is_trusted=True) as runner:
            self.prepare(runner, limits, [self.source.draw(0, generator)])
            request = RecordCall(number=0)
            return runner.ask(request, limits.load_s + 3 * limits.call_s).recording

    def priced(
        self,
        template: Template,
        limits: Limits,
        generator: torch.Generator,
        uuid: str | None,
        energy_s: float,
    ) -> CallCost:
        """Return what a call of the program takes besides its time, on drawn inputs. Energy is
        that of the GPU `uuid` while nothing but calls is made. Raises RunnerFailure."""
        with self.runner(template, self.program, limits) as runner:
            self.prepare(runner, limits, [self.source.draw(0, generator)])
            cost = runner.ask(PriceCall(number=0), limits.load_s + 3 * limits.call_s).cost
            counter = EnergyCounter.of(uuid) if energy_s else None
            if counter is None:
                return cost
            before_j = counter.read_j()
            spin = Spin(number=0, seconds=energy_s)
            spun = runner.ask(spin, limits.load_s + limits.call_s + energy_s)
            return replace(cost, energy_j=counter.per_call_j(before_j, spun.num_calls))

    def state_after(self, runner: RunnerHandle, limits: Limits) -> list[torch.Tensor]:
        """Return what the runner's state_dict holds now."""
        if not self.state_slots:
            return []
        size = size_of(self.state_slots)
        segment = runner.share("state", self.accelerator, size, limits.call_s)
        runner.ask(StateOut(slots=tuple(self.state_slots)), limits.call_s)
        return [segment.tensor(slot).clone() for slot in self.state_slots]

    def lend(
        self,
        runner: RunnerHandle,
        name: str,
        slots: Sequence[Slot],
        tensors: list[torch.Tensor],
        limits: Limits,
    ) -> None:
        """Write tensors to a segment of this runner only, so that no other runner reads what it
        writes."""
        segment = runner.share(name, self.accelerator, size_of(slots), limits.call_s)
        for slot, tensor in zip(slots, tensors, strict=True):
            segment.tensor(slot).copy_(tensor)
        self.accelerator.synchronize()


def describe_leaf(case: Case, number: int, leaf: int) -> str:
    """Return `output 0`, or which gradient or state tensor a compared leaf is."""
    assert case.expected is not None
    num_leaves = case.expected.calls[number].num_leaves
    if leaf < num_leaves:
        return f"output {leaf}"
    num_states = len(case.state_slots)
    num_compared = len(case.expected.outputs[number])
    if leaf >= num_compared - num_states:
        return f"state `{case.state_slots[leaf - num_compared + num_states].key}` after the call"
    return f"gradient {leaf - num_leaves}"


def size_of(slots: Sequence[Slot]) -> int:
    """Return the bytes of a segment that holds the slots."""
    return sum(map(size_bytes, slots)) + ALIGNMENT_BYTES * len(slots)


def compare_state(expected: Sequence[StateSlot], got: Sequence[StateSlot]) -> None:
    """Check that a replacement has the same state_dict: checkpoints must still load."""
    want = {slot.key: (slot.shape, slot.is_parameter) for slot in expected}
    have = {slot.key: (slot.shape, slot.is_parameter) for slot in got}
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
    raise OtherState(
        f"the state_dict differs from the reference's ({'; '.join(parts)}); "
        "keep the keys, or register new buffers with persistent=False",
        tuple(key for key in want if want[key] == have.get(key)),
    )
