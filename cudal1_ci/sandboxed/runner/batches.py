"""Run timed batches in a runner: one call after another, and what they leave."""

from __future__ import annotations

import contextlib
import gc
import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch

from ..memory.committed import COMMITTED, CommittedSegment
from ..memory.layouts import is_ordinary
from ..memory.segment import Segment, dtype_of, slot_of
from ..wire.runner import Claim, Done, Left, Remains
from ..wire.tensors import OutputSlot
from .arguments import flatten
from .autocast import Autocast
from .exact_types import is_lazy, need_exact, type_of
from .module_state import forget_gradients
from .settings import hidden, hooks, patched
from .sharing import state_storages, storage_of
from .subject import Subject, forget, gradients_of, overlaps, plain
from .value_shapes import fitted, in_rows

GRADIENT = "the gradient"
MAX_FORMS = 16
OUTPUTS = "outputs"
"""Shared memory of outputs that are kept until they are delivered."""
MADV_POPULATE_WRITE = 23
MOST_COLD = 4
"""First calls of a batch that may be slower, as other processes have filled the caches."""
WARM_UPS = 2
"""Most batches of a repetition in which a program imports and compiles."""


def nothing(*args: Any, **kwargs: Any) -> None:
    """Do nothing, called as a program is."""


def cold_s(calls_s: Sequence[float]) -> float:
    """Return what the first calls of a batch took more than as many usual ones."""
    num_first = min(MOST_COLD, len(calls_s) // 2)
    if not num_first:
        return 0.0
    usual_s = statistics.median_low(calls_s)
    return max(sum(calls_s[:num_first]) - num_first * usual_s, 0.0)


class Batches:
    """The verifier's requests to a program that is timed."""

    def __init__(self, subject: Subject):
        self.subject = subject
        self.timed: list[Any] = []
        """Return values of the calls of the last batch."""
        self.order: list[int] = []
        self.filled: list[int] = []
        """Sets that hold what the verifier wrote for the last batch, or at first. Other sets hold
        no valid values where small ones are written all at once."""
        self.regions: list[list[torch.Tensor]] = [[]]
        """The places of all outputs of a batch, one call after another."""
        self.shapes: list[list[torch.Size]] = []
        """Shape of each output of each call."""
        self.bounded: frozenset[int] = frozenset()
        """Outputs whose shape depends on values, by number,"""
        self.is_row: list[bool] = []
        """and which places of a call hold their elements (value_shapes.py)."""
        self.devices: list[torch.device] = []
        """Device of each output of a call when it is returned."""
        self.seeded = False
        self.gathered: list[torch.Tensor] | None = None
        """The outputs as the plain tensors that they must be."""
        self.gathers_early = False
        """Gather while the device still computes. It takes host time, and on a GPU none is
        counted then."""
        self.kept: list[torch.Tensor] = []
        """Outputs of earlier batches."""
        self.spin_s = 0.0
        """How long the runner waits busily for the next request."""
        self.num_settled = 0
        """Times since the outputs were laid out."""
        self.committed: CommittedSegment | None = None
        """Where each output is written as soon as its call returned it, and then dropped, as a
        program's loop drops it. None where outputs are kept until they are delivered."""
        self.places: Sequence[Sequence[OutputSlot]] = ()
        """The places there of the outputs of each call."""
        self.samples: list[torch.Tensor] = []
        """Tensors like the outputs of a call."""
        self.fill_s = 0.0
        """How long it took to write them in the last exchange."""
        self.calls_s: list[float] = []
        """How long each call of the last batch took."""
        self.addresses: list[int] = []
        """Of all outputs of the last batch that were dropped."""
        self.hooks: set[str] = set()
        """What calls have left that sees other code of the process (settings.py)."""
        self.value: torch.Tensor | None = None
        """A value on a GPU, for `exchange`."""

    def lay_out(
        self,
        slots: Sequence[Sequence[OutputSlot]],
        step_bytes: int,
        num_regions: int,
        seeded: bool,
        gathers_early: bool,
        bounded: Sequence[int],
    ) -> Done:
        """Prepare the places for the outputs of the calls of a batch. With no region they are
        committed."""
        self.gathers_early = gathers_early
        segment = self.subject.segments[OUTPUTS if num_regions else COMMITTED]
        self.committed, self.places, self.samples = None, slots, []
        if isinstance(segment, CommittedSegment):
            self.committed = segment
            self.samples = [
                torch.empty_strided(s.shape, s.stride, dtype=dtype_of(s.dtype)) for s in slots[0]
            ]
        self.regions = [
            [
                segment.tensor(replace(s, offset=s.offset + r * step_bytes))
                for places in slots
                for s in places
            ]
            for r in range(num_regions)
        ] or [[]]
        populate(self.subject.segments.values())
        self.shapes = [[torch.Size(s.shape) for s in places] for places in slots]
        self.bounded = frozenset(bounded)
        starts = {leaf + number + 1 for number, leaf in enumerate(sorted(bounded))}
        self.is_row = [number in starts for number in range(len(slots[0]))]
        own = self.subject.device
        types = [slot.device for slot in slots[0]]
        self.devices = [own if own.type == one else torch.device(one) for one in types]
        self.value = torch.zeros(1, device=own) if own.type != "cpu" else None
        self.seeded = seeded
        self.num_settled = 0
        self.order, self.filled, self.kept = [], [], []
        return Done()

    def let_go(self, segments: Sequence[str]) -> Done:
        """Release shared memory and all that was returned; see Subject."""
        self.timed, self.gathered, self.regions, self.kept = [], None, [[]], []
        self.forget_gradients()
        return self.subject.let_go(segments)

    def get_ready(
        self, settles: bool, sets: Sequence[int] | None, num_calls: int, spin_s: float
    ) -> Done:
        """Prepare for the next batch. What it will call is set here, so that its own message stays
        small."""
        self.spin_s = spin_s
        if settles:
            self.settle()
        if sets is not None:
            self.order = list(sets)
            self.filled = self.filled or self.order
        self.subject.renew([*self.order, *self.filled])
        if num_calls:
            self.rehearse(num_calls)
            self.subject.renew(self.filled[:num_calls])
        if self.subject.device.type == "cuda" and (settles or num_calls):
            self.poison()
        return Done()

    def batch(self, seed: int, keeps: bool = False) -> Claim:
        """Run timed calls, one after another, and keep their outputs or commit each. `claim_us` is
        this process's measure of its own time, `issue_us` of the time until the last call
        returned, and `cold_us` of what the first calls took more than others. A candidate's claims
        do not count without the verifier's clock."""
        self.gathered = None
        self.filled = self.order
        grads = torch.set_grad_enabled(self.subject.train)
        with self.subject.without_collections(), grads:
            start_s = time.perf_counter()
            self.timed = self.loop(self.subject.run, self.order, seed, keeps)
            self.hooks |= {*hooks()}
            self.subject.read_own_state()
            issue_us = (time.perf_counter() - start_s) * 1e6
            if self.gathers_early:
                self.gathered = self.gather()
            self.subject.synchronize()
            claim_us = (time.perf_counter() - start_s) * 1e6
        return Claim(
            claim_us=claim_us,
            issue_us=issue_us,
            cold_us=cold_s(self.calls_s) * 1e6,
            num_threads=torch.get_num_threads(),
        )

    def timed_call(self, call: Callable[[int], Any], number: int) -> Any:
        """Make a call, and note how long it takes."""
        start_s = time.perf_counter()
        output = call(number)
        self.calls_s.append(time.perf_counter() - start_s)
        return output

    def loop(
        self, call: Callable[[int], Any], order: Sequence[int], seed: int, keeps: bool = False
    ) -> list[Any]:
        """Call one set after another. Return the outputs, or of committed ones the last."""
        outputs: list[Any] = []
        self.addresses, self.calls_s = [], []
        if self.committed is None or keeps:
            for position, number in enumerate(order):
                if self.seeded:
                    self.subject.seed_all(seed + position)
                outputs.append(self.timed_call(call, number))
            if self.committed is not None:
                for position, output in enumerate(outputs):
                    self.commit(position, output, None)
            return outputs
        for position, number in enumerate(order):
            if self.seeded:
                self.subject.seed_all(seed + position)
            # No name holds it while the next call runs.
            kept = outputs if position + 1 == len(order) else None
            self.commit(position, self.timed_call(call, number), kept)
        return outputs

    def commit(self, position: int, output: Any, kept: list[Any] | None) -> None:
        """Write what a call returned to where no program can read or write it in another way.

        Raises:
            TypeError, ValueError: It does not have the form of the first calls' outputs.
        """
        assert self.committed is not None
        is_one = type(output) is torch.Tensor and is_ordinary(output)
        leaves = [output] if is_one else flatten(output)[0]
        for tensor, place in zip(leaves, self.places[position], strict=True):
            self.refuse_another_form(tensor, place.shape, self.subject.device)
            need_exact(tensor, "an output of a timed call")
            self.addresses.append(tensor.data_ptr())
            self.committed.write(tensor, place)
        if kept is not None:
            kept.append(output)

    def idle(self, number: int) -> Any:
        """Make a call that does nothing, or only writes outputs where they are committed."""
        if self.subject.train:
            return None
        return self.subject.run(number, program=nothing if self.committed is None else self.fill)

    def fill(self, *_: Any, **__: Any) -> Any:
        """Write tensors like the outputs of a call, and add up how long that takes."""
        start_s = time.perf_counter()
        for one in self.samples:
            one.fill_(1)
        self.fill_s += time.perf_counter() - start_s
        return self.samples if len(self.samples) > 1 else self.samples[0]

    def deliver(self, region: int) -> Done:
        """Copy the outputs of the last batch (and in train mode the inputs' gradients) to the
        given places. Committed ones are there already."""
        if self.committed is not None:
            return Done()
        tensors = self.gather() if self.gathered is None else self.gathered
        places = self.regions[region][: len(tensors)]
        if self.bounded:
            places, tensors = fitted(places, tensors)
        # One kernel for many small outputs, where a copy of each would cost as much as the call.
        with torch.no_grad():
            torch._foreach_copy_(places, tensors)
        self.subject.synchronize()
        return Done()

    def gather(self) -> list[torch.Tensor]:
        """Gather the outputs of the last batch in a row, with as little work for each as possible.
        The speed of a process at this would look like a difference between the timed programs.

        Raises:
            TypeError, ValueError: The outputs do not have the form of the first calls'.
        """
        tensors: list[torch.Tensor] = []
        shapes_of_calls = self.shapes[: len(self.order)]
        for output, number, shapes in zip(self.timed, self.order, shapes_of_calls, strict=True):
            is_one = type(output) is torch.Tensor and is_ordinary(output)
            leaves = [output] if is_one else flatten(output)[0]
            if self.subject.train:
                leaves += gradients_of(self.subject.inputs[number])
            leaves = in_rows(leaves, self.bounded) if self.bounded else leaves
            places = zip(leaves, shapes, self.devices, self.is_row, strict=True)
            for tensor, shape, device, is_row in places:
                self.refuse_another_form(tensor, None if is_row else shape, device)
                tensors.append(need_exact(tensor, "an output of a timed call"))
        return tensors

    def refuse_another_form(
        self, tensor: torch.Tensor, shape: Sequence[int] | None, device: torch.device
    ) -> None:
        """Raise ValueError for an output that is not like the first calls'; None is any shape."""
        shape = tensor.shape if shape is None else shape
        if tensor.shape != shape or tensor.device != device:
            raise ValueError(
                f"a timed call returned the shape {list(tensor.shape)} on "
                f"{tensor.device}, expected {list(shape)} on {device}"
            )

    def rehearse(self, num_calls: int) -> None:
        """Make untimed calls on what input sets hold from before, as a batch makes them. They
        bring code and data of the program into the processor's caches, and its allocator into a
        steady state."""
        with torch.set_grad_enabled(self.subject.train):
            self.loop(self.subject.run, self.filled[:num_calls], 0)
        self.forget_gradients()
        self.subject.synchronize()

    def exchange(self, seed: int) -> Claim:
        """Run a batch of a program that does nothing, with the work around each call where that is
        counted. On a GPU one value is written and waited for: the device turns from another process
        to this one, as before the first call of a batch. With a delivery after it, this measures a
        batch's cost beyond its calls. The claim is the time in which outputs to commit were
        written."""
        self.fill_s = 0.0
        if not self.gathers_early:
            self.loop(self.idle, self.order, seed)
        if self.value is not None:
            self.value.zero_()
            self.subject.synchronize()
        fill_us, num_threads = self.fill_s * 1e6, torch.get_num_threads()
        return Claim(claim_us=fill_us, issue_us=0.0, cold_us=0.0, num_threads=num_threads)

    def aftermath(self) -> Remains:
        """Return what the calls of the last batch left: gradients of parameters, and the state.
        The tensors stay here until `collect`."""
        parameters = self.subject.compared_parameters() if self.subject.train else []
        gradients = gradients_of(parameters)
        state = {
            key: t.detach()
            for key, t in self.subject.state_tensors().items()
            if self.subject.train or not isinstance(t, torch.nn.Parameter)
        }
        left = [*gradients, *state.values()]
        self.subject.kept = [left]
        names = [f"{GRADIENT} of parameter {i}" for i in range(len(gradients))]
        names += [f"the state `{key}`" for key in state]
        return Remains(names=tuple(names), slots=tuple(slot_of(t) for t in left))

    def keep(self, position: int) -> Done:
        """Keep the outputs of one call of the last batch for later rounds. Of committed outputs
        only the last call's are there."""
        self.kept += flatten(self.timed[position - len(self.order)])[0]
        return Done()

    def kept_outputs(self) -> Remains:
        """Return the outputs that were kept. The tensors stay here until `collect`."""
        self.subject.kept, self.kept = [[plain(one) for one in self.kept]], []
        kept = self.subject.kept[0]
        names = tuple(f"output {number}" for number in range(len(kept)))
        return Remains(names=names, slots=tuple(map(slot_of, kept)))

    def left(self) -> Left:
        """Return, outside any clock, which outputs of the last batch share memory with an input
        of their call, overlap themselves or are lazy, and what of the process was changed."""
        calls = [flatten(output) for output in self.timed]
        forms = {
            f"{structure} {[(type_of(one), str(one.dtype)) for one in leaves]}"[:500]
            for leaves, structure in calls
        }
        every = [pair for leaves, _ in calls for pair in enumerate(leaves)]
        plain_ones = [(leaf, one) for leaf, one in every if type(one) is torch.Tensor]
        state = state_storages(self.subject.module)
        aliases = {
            leaf
            for (leaves, _), number in zip(calls, self.order[-len(calls) :], strict=True)
            for leaf, one in enumerate(leaves)
            if self.subject.aliases(one, number)
        }
        if self.committed is not None:
            aliases |= self.dropped_aliases()
        return Left(
            aliases=tuple(sorted(aliases)),
            patched=(
                *patched(self.subject.attributes),
                *hidden(self.own_objects()),
                *sorted(self.hooks),
            ),
            overlapping=tuple(sorted({leaf for leaf, one in plain_ones if overlaps(one)})),
            lazy=tuple(sorted({leaf for leaf, one in plain_ones if is_lazy(one)})),
            in_state=tuple(sorted({leaf for leaf, one in every if storage_of(one) in state})),
            forms=tuple(sorted(forms))[:MAX_FORMS],
            process=self.subject.changed_settings(),
        )

    def own_objects(self) -> dict[type, Any]:
        """Return the objects that time a program, by their classes."""
        own = {
            Batches: self,
            Subject: self.subject,
            Autocast: self.subject.autocast,
            CommittedSegment: self.committed,
        }
        return {kind: one for kind, one in own.items() if one is not None}

    def dropped_aliases(self) -> set[int]:
        """Return which committed outputs lay in the memory of an input of their call."""
        width = len(self.places[0])
        found = set()
        for position, number in enumerate(self.order):
            storages = [view.untyped_storage() for view in self.subject.inputs[number]]
            where = [(one.data_ptr(), one.data_ptr() + one.nbytes()) for one in storages]
            for leaf, address in enumerate(self.addresses[position * width :][:width]):
                if any(start <= address < end for start, end in where):
                    found.add(leaf)
        return found

    def settle(self) -> None:
        """Drop outputs and gradients and collect garbage, between batches and outside any clock.
        Objects that exist after the first ones are frozen. torch.compile leaves so many that
        each collection would take longer than many a batch."""
        self.timed = []
        self.gathered = None
        self.forget_gradients()
        gc.collect()
        if self.num_settled < WARM_UPS:
            gc.freeze()
        self.num_settled += 1

    def forget_gradients(self) -> None:
        """Drop gradients of inputs and parameters."""
        for views in self.subject.inputs.values():
            forget(views)
        forget_gradients(self.subject.module)

    def poison(self) -> None:
        """Leave NaN in the blocks that the allocator will return for the outputs of the next
        batch. Unwritten memory then does not look like an answer."""
        blocks = [
            torch.empty(max(1, place.nbytes // 4), device=self.subject.device)
            for place in self.regions[0][: len(self.order) * len(self.is_row)]
        ]
        torch._foreach_mul_(blocks, math.nan)
        del blocks
        self.subject.synchronize()


def populate(segments: Iterable[object]) -> None:
    """Map the pages of shared memory now. Memory that an operation before has written is mapped
    where a program's loop reads it."""
    for one in segments:
        if type(one) is Segment:
            with contextlib.suppress(OSError):  # of a kernel before 5.14: the first rounds do it
                one.memory.madvise(MADV_POPULATE_WRITE)
