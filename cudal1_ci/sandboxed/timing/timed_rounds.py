"""Run one runner of a repetition, and the rounds that are equal for all of them.

Nothing can be done ahead of `go`. On the CPU a runner is stopped by a signal while others are timed
and while its inputs are written, among them the initial gradients of backward passes. On a GPU a
running kernel cannot be stopped. There the inputs are written after the clock starts, which costs
the reference as much.
Each input set has two places, and every round draws which one is used. The place of the outputs is
sent after the calls, or can be written only by a copy. So no address, object or version counter
shows what an input holds, and nothing can be computed right into the place of an output.
(Where memory is short there is one place: memory_plan.py. On the CPU, and where a batch is short,
calls on inputs of the batch before come ahead of it, outside the clock: `Batches.rehearse`.)

The figure is that of a program's own loop. So on the CPU the inputs of a batch fit into a core's
cache and are written on the runners' core just before, and large outputs are dropped as soon as
they are committed (memory/committed.py), so that the allocator does what it does in a loop.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from ..forkserver.handles import RunnerHandle
from ..memory.accelerators import AnySegment, Cpu
from ..memory.committed import COMMITTED, WrittenSegment
from ..memory.segment import (
    ALIGNMENT_BYTES,
    Segment,
    dtype_of,
    place,
    size_bytes,
    span,
    stacked,
    view_of,
)
from ..runner.batches import OUTPUTS
from ..runner.cotangents import fill
from ..verifier.cases import Case, Limits
from ..verifier.failures import side_by_side
from ..verifier.inputs import InputSet, Room
from ..verifier.near_inputs import nudge
from ..verifier.signs import Vectors
from ..verifier.value_shapes import in_shape, places_of, without_rest
from ..wire.codec import encode
from ..wire.runner import (
    Batch,
    Claim,
    Deliver,
    Exchange,
    GetReady,
    LayOut,
    Prepare,
)
from ..wire.tensors import OutputSlot
from .new_inputs import Stock
from .quiescence import quiet_others

SETTLE_S = 30.0
SHORT_S = 0.3
DOZE_SHARE = 0.8
DOZE_LESS_US = 500.0
"""Subtracted from the duration of its last batch. Until then the verifier does not wait busily
for a runner's answer, because a busy wait slows down what runs on the same core."""
LEAD_CALLS, LEAD_US = 8, 5000.0
"""Most calls ahead of a batch, and their length in microseconds. After another process's turn
code, data and allocator of a program are cold."""
COMMITTED_BYTES = 2**14
"""Size of a call's outputs from which they are committed. Outputs below cost more to write one by
one than to keep; above, keeping them changes where an allocator takes the next ones from."""
NUM_REGIONS = 8
"""For the outputs, a cache line apart. A program that writes to one of them before the draw is
right in one round of eight. Neither a first quartile nor a median shows such a round."""


@dataclass
class Lane:
    """One runner with its own copy of the inputs and room for its outputs."""

    name: str
    runner: RunnerHandle
    inputs: AnySegment
    outputs: AnySegment
    slots: list[list[OutputSlot]]
    """Places in a region for the outputs of each call of a batch."""
    snapshot: torch.Tensor
    """The bytes of `outputs` at the end of the last batch, out of the runner's reach."""
    region: int = 0
    """Region of the last batch's outputs."""
    spans_us: list[float] = field(default_factory=list)
    claims_us: list[float] = field(default_factory=list)
    colds_us: list[float] = field(default_factory=list)
    """What the first calls of its batches took more than usual ones."""
    last_us: float = 0.0
    """Duration of its last batch."""
    rehearses: int = 0
    """Number of untimed calls before each batch."""
    keeps_round: bool = False
    """Whether to keep the round of its last batch,"""
    last_round: Round | None = None
    """which its inputs hold. It is as large as they are."""
    commits: bool = False
    """Whether each output is written out of the runner's reach as soon as it is returned."""
    signs: dict[int, Vectors] | None = None
    """Outputs that are vectors without a definite sign (verifier/signs.py)."""
    bounds: dict[int, int] = field(default_factory=dict)
    """Outputs whose shape depends on values (verifier/value_shapes.py)."""

    @property
    def places(self) -> list[tuple[int, bool]]:
        """Return, for each place of a call, the number of its output, and whether it holds a
        shape."""
        return places_of(len(self.slots[0]) - len(self.bounds), self.bounds)

    def all_calls(self, number: int) -> torch.Tensor:
        """Return what one place of every call of the last batch holds, stacked: shape
        [num_calls, ...]."""
        found = self.stacked(number)
        leaf, is_shape = self.places[number]
        if leaf in self.bounds and not is_shape:
            found = without_rest(found, self.stacked(number - 1))
        return found

    def outputs_at(self, position: int) -> list[torch.Tensor]:
        """Return the outputs of one call of the last batch, in their own shapes."""
        values = [self.stacked(number)[position] for number in range(len(self.slots[0]))]
        return in_shape(values, self.bounds)

    def stacked(self, number: int) -> torch.Tensor:
        """Return the memory of one place of every call."""
        slots = [one[number] for one in self.slots]
        step_bytes = slots[1].offset - slots[0].offset if len(slots) > 1 else 0
        offset = slots[0].offset + self.region * ALIGNMENT_BYTES
        return stacked(self.snapshot, replace(slots[0], offset=offset), len(slots), step_bytes)


@dataclass
class Round:
    """The common part of a round for all lanes: the place of each set, the order of the calls,
    the values, and the place of the outputs."""

    room: Room
    where: dict[int, int]
    """The place of each set by its number, in the order of the calls."""
    staged: torch.Tensor
    """The bytes that the inputs of every lane must hold."""
    seed: int
    """Seed of the noise that calls draw, sent with `go`."""
    region: int

    @property
    def places(self) -> list[int]:
        """Return the places in the order of the calls."""
        return list(self.where.values())

    def write(self, segment: AnySegment) -> None:
        """Write the new values from outside the runner."""
        for start, end in self.room.ranges(self.places):
            segment.flat()[start:end].copy_(self.staged[start:end])

    def spoil(self, segment: AnySegment) -> None:
        """Write zeros over the values."""
        for start, end in self.room.ranges(self.places, inputs_alone=True):
            segment.flat()[start:end].zero_()

    def is_as_written(self, segment: AnySegment) -> bool:
        """Return whether the inputs still hold the values. Gradients of outputs may change.
        Where one is also a parameter's gradient, further calls may add to it."""
        return all(
            torch.equal(segment.flat()[start:end], self.staged[start:end])
            for start, end in self.room.ranges(self.places, inputs_alone=True)
        )


def new_round(
    case: Case,
    room: Room,
    stock: Stock,
    rng: random.Random,
    last: Round | None = None,
    num_calls: int | None = None,
) -> Round:
    """Make a round with other values, another order and other places. After a `last` one,
    keep its values except for a few. With `num_calls` only the first so many calls have values."""
    count = len(stock.base)
    order = rng.sample(range(count), count)
    num_places = len(room.layout) // count
    where = {number: number + count * rng.randrange(num_places) for number in order}
    staged = torch.zeros(room.num_bytes, dtype=torch.uint8, device=case.accelerator.device)
    one = Round(room, where, staged, rng.randrange(2**31), rng.randrange(NUM_REGIONS))
    fill_in(one, stock, last=last, end=num_calls)
    return one


def fill_in(
    one: Round,
    stock: Stock,
    last: Round | None = None,
    start: int = 0,
    end: int | None = None,
) -> None:
    """Give a round's calls from `start` to before `end` their values; see `new_round`."""
    room = one.room
    for number, place_number in list(one.where.items())[start:end]:
        views = [view_of(one.staged, slot) for slot in room.layout[place_number]]
        for slot in room.cotangents[place_number] if room.cotangents else ():
            fill(view_of(one.staged, slot), stock.generator)
        if last is None:
            stock.renew(number, views)
            continue
        for view, slot in zip(views, room.layout[last.where[number]], strict=True):
            view.copy_(view_of(last.staged, slot))
        stock.change_few(views)


def nearby_round(one: Round, stock: Stock) -> Round:
    """Return the same round with inputs that differ by rounding."""
    staged, source = one.staged.clone(), stock.source
    for place_number in one.where.values():
        for slot in one.room.layout[place_number]:
            view = view_of(staged, slot)
            nudge(view, stock.generator, is_rigid=source.is_rigid, dtype=source.cast)
    return replace(one, staged=staged)


def open_lane(
    case: Case,
    name: str,
    runner: RunnerHandle,
    room: Room,
    base: Sequence[InputSet],
    slots: Sequence[OutputSlot],
    limits: Limits,
) -> Lane:
    """Give a runner its inputs and the room for the outputs of one batch."""
    accelerator = case.accelerator
    inputs = runner.share("inputs", accelerator, room.num_bytes, limits.call_s)
    for number in range(len(room.layout)):
        room.write_one(inputs.tensor, number, base[number % len(base)])
    accelerator.synchronize()
    runner.ask(Prepare(sets=room.describe(), call=case.call), limits.call_s)
    layout, end = [], 0
    for _ in base:
        placed, end = place(slots, end)
        layout.append(placed)
    commits = are_committed(case, slots)
    outputs: AnySegment
    if commits:
        outputs = runner.share(COMMITTED, Writing(), end, limits.call_s)
    else:
        end += NUM_REGIONS * ALIGNMENT_BYTES
        outputs = runner.share(OUTPUTS, accelerator, end, limits.call_s)
    request = LayOut(
        slots=tuple(map(tuple, layout)),
        step_bytes=ALIGNMENT_BYTES,
        num_regions=0 if commits else NUM_REGIONS,
        seeded=case.uses_rng,
        gathers_early=case.is_device_bound,
        bounded=tuple(sorted(case.bounds)),
    )
    runner.ask(request, limits.call_s)
    # A stopped runner changes nothing, so its outputs can be read in place.
    snapshot = outputs.flat()
    if accelerator.kind != "cpu":
        snapshot = torch.empty(end, dtype=torch.uint8, device=accelerator.device)
    return Lane(
        name,
        runner,
        inputs,
        outputs,
        layout,
        snapshot,
        commits=commits,
        signs=case.signs,
        bounds=case.bounds,
    )


def are_committed(case: Case, slots: Sequence[OutputSlot]) -> bool:
    """Return whether outputs of a call are committed one by one: those that are large compared with
    what a write costs. In train mode gradients add up over a batch, and the size of some outputs
    is known after the batch only."""
    if case.accelerator.kind != "cpu" or case.train or case.bounds:
        return False
    dtypes = [dtype_of(slot.dtype) for slot in slots]
    sizes = [math.prod(slot.shape) for slot in slots]
    is_plain = all(
        slot.device == "cpu" and not dtype.is_complex and span(slot.shape, slot.stride) == size
        for slot, dtype, size in zip(slots, dtypes, sizes, strict=True)
    )
    return is_plain and sum(map(size_bytes, slots)) >= COMMITTED_BYTES


def open_lanes(
    case: Case,
    runners: dict[str, RunnerHandle],
    room: Room,
    base: Sequence[InputSet],
    layouts: dict[str, Sequence[OutputSlot]],
    limits: Limits,
) -> dict[str, Lane]:
    """Open all lanes of a repetition in parallel."""

    def open_one(name: str) -> Lane:
        return open_lane(case, name, runners[name], room, base, layouts[name], limits)

    return dict(zip(runners, side_by_side(open_one, runners), strict=True))


def span_of(
    case: Case,
    lane: Lane,
    one: Round,
    request: Batch | Exchange,
    limits: Limits,
    *,
    spoils: bool = False,
) -> tuple[float, Claim]:
    """Run one batch (or an exchange, which calls nothing) under the verifier's clock. Return
    microseconds here, and the runner's own claim. Before, outside of the clock, the runner drops
    its last batch, learns the order of the next, and makes calls on what it holds. The request is
    encoded before the clock starts, and the answers are decoded after it stopped. In a batch that
    `spoils`, the inputs are zeros between the two."""
    accelerator = case.accelerator
    wanted = Deliver(region=one.region)
    body, wanted_body = encode(request), encode(wanted)
    is_batch = isinstance(request, Batch)
    is_on_cpu = accelerator.kind == "cpu"
    quiet_others(lane.runner)
    # Calls that one runner alone makes would leave another state in it.
    rehearses = is_batch or (is_on_cpu and not case.leaves_traces)
    ready = GetReady(
        settles=is_batch,
        sets=tuple(one.places) if is_batch else None,
        num_calls=lane.rehearses if rehearses else 0,
        spin_s=accelerator.spin_s,
    )
    if ready != GetReady():
        lane.runner.ask(ready, SETTLE_S + limits.call_s)
    if is_on_cpu:
        lane.runner.pause()
        one.write(lane.inputs)
    lane.runner.spin_s = accelerator.spin_s
    # A GPU also takes a while to change from the runner, which was last, to this process.
    accelerator.settle()
    start_s = time.perf_counter()
    if not is_on_cpu:
        one.write(lane.inputs)
        accelerator.flush()
        accelerator.synchronize()
    if is_batch:
        lane.runner.doze_s = max(0.0, DOZE_SHARE * lane.last_us - DOZE_LESS_US) / 1e6
    claim = lane.runner.send(request, body, limits.call_s)
    lane.runner.doze_s = 0.0
    delivered = None
    if not lane.commits:
        spoils = spoils and one.is_as_written(lane.inputs)
        if spoils:
            one.spoil(lane.inputs)
            accelerator.synchronize()
        delivered = lane.runner.send(wanted, wanted_body, limits.call_s)
        if spoils:
            one.write(lane.inputs)
    take_out(case, lane)
    span_us = (time.perf_counter() - start_s) * 1e6
    if is_batch:
        lane.last_us = span_us
        lane.last_round = one if lane.keeps_round else None
    lane.region = 0 if lane.commits else one.region
    said = claim.read()
    if delivered is not None:
        delivered.read()
    return span_us, said


def take_out(case: Case, lane: Lane) -> None:
    """Move delivered outputs out of the runner's reach."""
    lane.runner.spin_s = 0.0
    lane.runner.pause()
    if case.accelerator.kind != "cpu":
        lane.snapshot.copy_(lane.outputs.flat()[: lane.snapshot.numel()])
        case.accelerator.synchronize()


def lead_in(lane: Lane, batch_us: float) -> int:
    """Return the number of calls ahead of each batch, by the length of a batch."""
    most = int(LEAD_US * len(lane.slots) / max(batch_us, 1.0))
    return min(len(lane.slots), max(1, min(most, LEAD_CALLS)))


class Writing(Cpu):
    """The processor, with memory for outputs that are committed."""

    def segment(self, num_bytes: int) -> Segment:
        return WrittenSegment.create(num_bytes)


def warm_up(
    case: Case,
    lanes: Sequence[Lane],
    one: Round,
    limits: Limits,
    cores: Sequence[int] | None,
) -> float:
    """Run rounds that do not count. In the first, which all lanes make at the same time,
    libraries are initialized (a second or more for a backward pass on a GPU). A second one
    follows where that was short, as the allocator needs two to have enough memory. Return the
    shortest span of the last round in microseconds."""

    def first(lane: Lane) -> None:
        ready = GetReady(settles=True, sets=tuple(one.places))
        lane.runner.ask(ready, SETTLE_S + limits.call_s)
        lane.runner.pause()
        one.write(lane.inputs)
        case.accelerator.synchronize()
        lane.runner.ask(Batch(seed=one.seed), limits.call_s)
        if not lane.commits:
            lane.runner.ask(Deliver(region=one.region), limits.call_s)
        take_out(case, lane)
        lane.region = 0 if lane.commits else one.region

    started_s = time.monotonic()
    side_by_side(first, lanes)
    elapsed_s = time.monotonic() - started_s
    if case.accelerator.kind == "cpu" and elapsed_s > SHORT_S:
        return elapsed_s * 1e6 / len(lanes)
    spans_us = []
    for lane in lanes:
        if cores is not None:
            lane.runner.pin(cores)
        if case.accelerator.kind == "cpu":
            lane.rehearses = lead_in(lane, elapsed_s * 1e6 / len(lanes))
        spans_us.append(span_of(case, lane, one, Batch(seed=one.seed), limits)[0])
    if case.accelerator.kind != "cpu":  # the first batch loaded libraries
        for lane in lanes:  # equally many calls, as they may change the state
            lane.rehearses = lead_in(lane, max(spans_us))
    return min(spans_us)
