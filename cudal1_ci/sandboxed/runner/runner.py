"""Run one program, the reference or a candidate, without knowing which.

The runner gets tensors and never a seed of them. It keeps its outputs until a request to copy them,
and holds no expected answer. The program can forge all of its replies. verifier/verifier.py
documents what the verifier believes; wire/runner.py defines the form of an answer.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..memory.segment import slot_of
from ..wire.channel import Channel, ChannelClosed
from ..wire.codec import decode
from ..wire.runner import (
    REQUEST,
    WIDE_UNITS,
    Aftermath,
    Answer,
    AskCached,
    AskKept,
    AskLeft,
    Batch,
    Build,
    Called,
    CalledAll,
    CallSets,
    Collect,
    CountDemand,
    Counted,
    Deliver,
    Done,
    Exchange,
    Fill,
    GetReady,
    KeepOutputs,
    LayOut,
    LetGo,
    ListImported,
    Load,
    MakeCalls,
    Map,
    Prepare,
    PriceCall,
    Priced,
    Profile,
    Profiled,
    Raised,
    Reach,
    Reached,
    RecordCall,
    RecordedCall,
    Request,
    SettleIn,
    Spin,
    Spun,
    StateIn,
    StateOut,
    Survey,
    Try,
    TurnSigns,
    Wake,
)
from ..wire.tensors import OutputSlot, Slot
from .arguments import flatten
from .batches import Batches
from .contract import surveyed, tried
from .exact_types import TENSORS, is_lazy, type_of
from .gradients import reached
from .process_settings import refuse_audit_hooks
from .profiling import profiled
from .programs import MODULE_NAME
from .settings import settings
from .sharing import joined_gradients, shares
from .subject import Subject, describe, plain

if TYPE_CHECKING:
    from ..recorder.rounding import RandomRounding


def main(channel: Channel, scratch: Path) -> None:
    """Answer until the verifier hangs up."""
    refuse_audit_hooks()
    subject = Subject(scratch)
    runner = Runner(subject, Trials(subject), Batches(subject))
    while True:
        try:
            body, fds = channel.receive_body(spin_s=runner.batches.spin_s)
        except ChannelClosed:
            return
        reply: Answer | Raised
        try:
            reply = runner.answer(decode(REQUEST, body), fds)
        except BaseException as error:  # noqa: BLE001 - SystemExit of user code is its failure too
            reply = describe(error, scratch, subject.root)
        try:
            channel.send(reply)
        except ChannelClosed:
            return


@dataclass(frozen=True)
class Runner:
    """Pass each request to the object that handles it."""

    subject: Subject
    trials: Trials
    batches: Batches

    def answer(self, request: Request, fds: Sequence[int]) -> Answer | Raised:
        """Answer a request. Requests during a clock are checked first."""
        subject, trials, batches = self.subject, self.trials, self.batches
        match request:
            case Batch():
                if request.rounding is None:
                    return batches.batch(request.seed, request.keeps)
                with rounded(request.rounding, WIDE_UNITS):
                    return batches.batch(request.seed, request.keeps)
            case Deliver():
                return batches.deliver(request.region)
            case Exchange():
                return batches.exchange(request.seed)
            case GetReady():
                return batches.get_ready(
                    request.settles, request.sets, request.num_calls, request.spin_s
                )
            case LayOut():
                return batches.lay_out(
                    request.slots,
                    request.step_bytes,
                    request.num_regions,
                    request.seeded,
                    request.gathers_early,
                    request.bounded,
                )
            case Aftermath():
                return batches.aftermath()
            case KeepOutputs():
                return batches.keep(request.position)
            case AskKept():
                return batches.kept_outputs()
            case AskLeft():
                return batches.left()
            case LetGo():
                return batches.let_go(request.segments)
            case CallSets():
                return trials.batch(request)
            case Collect():
                return trials.collect(request.slots, request.segment)
            case Profile():
                return trials.profile(request.sets)
            case PriceCall():
                return trials.priced(request.number)
            case Spin():
                return trials.spun(request.number, request.seconds)
            case CountDemand():
                return trials.demand(request.number)
            case RecordCall():
                return trials.recorded(request.number)
            case Reach():
                return trials.reached(request.number)
            case Wake():
                return subject.wake(request.device)
            case SettleIn():
                return subject.settle_in(request.cache)
            case Load():
                return subject.load(request)
            case Fill():
                return subject.fill(request.number)
            case Build():
                return subject.build(request.program)
            case MakeCalls():
                return subject.make(request.program, request.function, request.seeds)
            case Map():
                fd = fds[0] if fds else None
                return subject.map(request.segment, request.num_bytes, fd, request.handle)
            case Prepare():
                return subject.prepare(request.sets, request.call)
            case ListImported():
                return subject.imported()
            case StateOut():
                return subject.state_out(request.slots)
            case StateIn():
                return subject.state_in(request.slots)
            case TurnSigns():
                return subject.turn_signs(request.seed)
            case AskCached():
                return subject.cached()
            case Survey():
                return surveyed(subject, request)
            case Try():
                with rounding_of(request):
                    return tried(subject, request)


def rounded(seed: int, num_units: int = 1) -> RandomRounding:
    """Return a mode of random rounding. Only references get this request."""
    from ..recorder.rounding import RandomRounding  # few runners need it

    return RandomRounding(seed, num_units)


def rounding_of(request: CallSets | Try) -> AbstractContextManager[object]:
    """Return the mode of random rounding that a request asks for."""
    if request.rounding is None:
        return nullcontext()
    return rounded(request.rounding, request.num_units)


class Trials:
    """The verifier's requests to a program whose correctness is tested."""

    def __init__(self, subject: Subject):
        self.subject = subject

    def batch(self, request: CallSets) -> CalledAll:
        """Make calls, keep all outputs and describe them. The name is that of timed calls, as a
        program may read those of the frames above it. For a call between other work of the
        caller's stream, that stream writes the inputs and copies the outputs. The host waits for
        neither."""
        mode = rounding_of(request)
        sizes = [(t.shape, t.dtype) for tensors in self.subject.kept for t in tensors]
        self.subject.kept = []
        answers, containers = [], []
        with self.subject.without_collections():
            for number, seed in zip(request.sets, request.seeds, strict=True):
                self.subject.seed_all(seed)
                before, seed_before = self.subject.rng_state(), self.subject.seeds()
                self.subject.clear_gradients(number)
                if request.is_between:
                    self.subject.write_inputs_late(number, sizes)
                with torch.set_grad_enabled(self.subject.train), mode:
                    output = self.subject.run(number, seed)
                leaves, structure = flatten(output)
                containers.append((output, leaves))
                aliases = tuple(tuple(self.subject.aliases(t, number)) for t in leaves)
                shared = shares(leaves, self.subject.module, self.subject.kept)
                state = self.subject.state_tensors() if self.subject.train else {}
                used_rng = not torch.equal(before, self.subject.rng_state())
                seeded = seed_before != self.subject.seeds()
                # The very tensors, so that one that changes after it was returned is seen.
                returned = [plain(t).clone() if request.is_between else plain(t) for t in leaves]
                self.subject.kept.append([*returned, *self.subject.gradients(number, state)])
                answers.append(
                    Called(
                        structure=structure,
                        types=tuple(map(type_of, leaves)),
                        lazy=tuple(i for i, t in enumerate(leaves) if is_exact_and_lazy(t)),
                        aliases=aliases,
                        shares=tuple(map(tuple, shared)),
                        joined=tuple(joined_gradients(state)),
                        used_rng=used_rng,
                        seeded=seeded,
                        slots=tuple(map(output_slot, self.subject.kept[-1])),
                        num_leaves=len(leaves),
                        is_rewritten=False,
                    )
                )
        answers = [
            replace(answer, is_rewritten=is_rewritten(*one))
            for answer, one in zip(answers, containers, strict=True)
        ]
        flags = settings(self.subject.attributes, self.subject.changed_settings())
        return CalledAll(calls=tuple(answers), flags=flags)

    def collect(self, slots: Sequence[Sequence[Slot]], segment: str) -> Done:
        """Copy what the last calls returned."""
        for tensors, places in zip(self.subject.kept, slots, strict=True):
            for tensor, slot in zip(tensors, places, strict=True):
                self.subject.segments[segment].tensor(slot).copy_(tensor.detach())
        self.subject.synchronize()
        return Done()

    def profile(self, sets: Sequence[int]) -> Profiled:
        """Profile calls on the input sets, after calls that are not profiled."""

        def calls() -> None:
            for number in sets:
                self.subject.run(number)

        with torch.set_grad_enabled(self.subject.train):
            for number in sets:
                self.subject.give_cotangents(number)
            self.subject.synchronize()
            return Profiled(rows=profiled(calls, self.subject.device))

    def priced(self, number: int) -> Priced:
        """Profile one call on an input set, after calls that are not profiled."""
        from .timeline import cost_of  # few runners draw one

        subject = self.subject
        with torch.set_grad_enabled(subject.train):
            subject.give_cotangents(number)
            subject.clear_gradients(number)
            return Priced(cost=cost_of(lambda: subject.run(number), subject.device))

    def spun(self, number: int, seconds: float) -> Spun:
        """Make calls on an input set for some seconds."""
        subject, num_calls = self.subject, 0
        with torch.set_grad_enabled(subject.train):
            started_s = time.monotonic()
            while time.monotonic() - started_s < seconds:
                subject.run(number)
                num_calls += 1
                if num_calls % 8 == 0:  # no more calls wait than the host has issued just now
                    subject.synchronize()
            subject.synchronize()
        return Spun(num_calls=num_calls)

    def reached(self, number: int) -> Reached:
        """Return what gradients reach from a call on an input set."""
        return reached(self.subject, number)

    def demand(self, number: int) -> Counted:
        """Return what a call on an input set demands of the device. Only references get this
        request."""
        from .flops import demand_of  # few runners count

        subject = self.subject
        module = subject.module
        state = [] if module is None else [*module.parameters(), *module.buffers()]
        with torch.set_grad_enabled(subject.train):
            held = [*subject.inputs[number], *state]
            return Counted(demand=demand_of(lambda: subject.run(number), held))

    def recorded(self, number: int) -> RecordedCall:
        """Return the operations of a forward call on an input set. Only references get this
        request."""
        from ..recorder.recording import recorded  # few runners record

        subject = self.subject
        args, kwargs = subject.calls[number]

        def call() -> Any:
            with subject.autocast:
                return subject.program(*args, **kwargs)

        with torch.set_grad_enabled(subject.train):
            return RecordedCall(
                recording=recorded(
                    call,
                    subject.module,
                    subject.inputs[number],
                    subject.root,
                    subject.scratch / f"{MODULE_NAME}.py",
                )
            )


def is_exact_and_lazy(tensor: torch.Tensor) -> bool:
    return type(tensor) in TENSORS and tensor.layout == torch.strided and is_lazy(tensor)


def is_rewritten(output: object, leaves: Sequence[torch.Tensor]) -> bool:
    """Return whether a returned container holds other tensors now than when it was returned."""
    if isinstance(output, torch.Tensor):
        return False
    now = flatten(output)[0]
    return len(now) != len(leaves) or any(
        one is not other for one, other in zip(now, leaves, strict=True) if one.dim()
    )


def output_slot(tensor: torch.Tensor) -> OutputSlot:
    """Return the place for a returned tensor, and the tensor's own layout."""
    own_stride = tuple(tensor.stride())
    return OutputSlot(**vars(slot_of(tensor)), device=tensor.device.type, own_stride=own_stride)
