"""One runner of a launch, and the rounds that all of them make alike.

Nothing can be done ahead of `go`: on the CPU a runner is stopped by a signal while its inputs are
written, the gradients that backward passes start from among them, and while others are timed; on a
GPU, where a kernel that is under way cannot be stopped, they are written after the clock was
started, which costs the reference as much. Each input set has two places, and which one is used is
drawn anew in every round; where the outputs go is said when the calls are over. So neither an
address nor an object nor a version counter tells what an input holds, and nothing can be computed
right into the place of an output.
(Where memory is short there is one place: memory_plan.py. Where a batch is short, a call on inputs
of the batch before comes ahead of it, outside of the clock: `Batches.rehearse`.)
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from ..forkserver.handles import RunnerHandle
from ..memory.accelerators import AnySegment
from ..memory.segment import ALIGNMENT_BYTES, place, stacked, view_of
from ..runner.cotangents import fill
from ..verifier.cases import Case, Limits
from ..verifier.failures import side_by_side
from ..verifier.inputs import InputSet, Room
from ..verifier.near_inputs import nudge
from ..wire.codec import encode
from ..wire.runner import (
    Arrange,
    Batch,
    Claim,
    Deliver,
    Exchange,
    LayOut,
    Prepare,
    Rehearse,
    Settle,
    StandBy,
)
from ..wire.tensors import OutputSlot
from .new_inputs import Stock

SETTLE_S = 30.0
SHORT_S = 0.3
DOZE_SHARE = 0.8
DOZE_LESS_US = 500.0
"""Of what its last batch took, before the judge looks for a runner's answer without a pause: who
does not rest slows down what runs on the same core."""
NUM_REGIONS = 8
"""For the outputs, a cache line apart. Who writes to one of them before it is drawn is right in one
round of eight, which neither a first quartile nor a median shows."""


@dataclass
class Lane:
    """One runner with its own copy of the inputs and room for its outputs."""

    name: str
    runner: RunnerHandle
    inputs: AnySegment
    outputs: AnySegment
    slots: list[list[OutputSlot]]
    """Where in a region those of each call of a batch go."""
    snapshot: torch.Tensor
    """The bytes of `outputs` at the end of the last batch, out of the runner's reach."""
    region: int = 0
    """Where the last batch's are."""
    spans_us: list[float] = field(default_factory=list)
    claims_us: list[float] = field(default_factory=list)
    last_us: float = 0.0
    """What its last batch took."""
    rehearses: bool = False
    """Whether a call that does not count comes before each batch."""

    def all_calls(self, leaf: int) -> torch.Tensor:
        """One output of every call of the last batch, stacked: shape [num_calls, ...]."""
        slots = [one[leaf] for one in self.slots]
        step_bytes = slots[1].offset - slots[0].offset if len(slots) > 1 else 0
        offset = slots[0].offset + self.region * ALIGNMENT_BYTES
        return stacked(self.snapshot, replace(slots[0], offset=offset), len(slots), step_bytes)


@dataclass
class Round:
    """What is the same for all lanes: which set goes to which place, in which order they are
    called, with what values, and where the outputs are wanted."""

    room: Room
    where: dict[int, int]
    """The place of each set by its number, in the order of the calls."""
    staged: torch.Tensor
    """The bytes that the inputs of every lane are to hold."""
    seed: int
    """Of the noise that calls draw, told with `go`."""
    region: int

    @property
    def places(self) -> list[int]:
        """In the order of the calls."""
        return list(self.where.values())

    def write(self, segment: AnySegment) -> None:
        """The new values, from outside of the runner."""
        for start, end in self.room.ranges(self.places):
            segment.flat()[start:end].copy_(self.staged[start:end])

    def is_as_written(self, segment: AnySegment) -> bool:
        """Whether the inputs still hold the values. Gradients of outputs need not: where one is
        that of a parameter as well, what further calls add to it may be written there."""
        return all(
            torch.equal(segment.flat()[start:end], self.staged[start:end])
            for start, end in self.room.ranges(self.places, inputs_alone=True)
        )


def new_round(
    case: Case, room: Room, stock: Stock, rng: random.Random, last: Round | None = None
) -> Round:
    """Other values, another order, other places; after a `last` one its values but for a few."""
    count = len(stock.base)
    order = rng.sample(range(count), count)
    num_places = len(room.layout) // count
    where = {number: number + count * rng.randrange(num_places) for number in order}
    staged = torch.zeros(room.num_bytes, dtype=torch.uint8, device=case.accelerator.device)
    for number, place_number in where.items():
        views = [view_of(staged, slot) for slot in room.layout[place_number]]
        for slot in room.cotangents[place_number] if room.cotangents else ():
            fill(view_of(staged, slot), stock.generator)
        if last is None:
            stock.renew(number, views)
            continue
        for view, slot in zip(views, room.layout[last.where[number]], strict=True):
            view.copy_(view_of(last.staged, slot))
        stock.change_few(views)
    return Round(room, where, staged, rng.randrange(2**31), rng.randrange(NUM_REGIONS))


def nearby_round(one: Round, stock: Stock) -> Round:
    """The same with inputs that differ by rounding."""
    staged = one.staged.clone()
    for place_number in one.where.values():
        for slot in one.room.layout[place_number]:
            nudge(view_of(staged, slot), stock.generator, is_rigid=stock.source.is_rigid)
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
    end += NUM_REGIONS * ALIGNMENT_BYTES
    outputs = runner.share("outputs", accelerator, end, limits.call_s)
    request = LayOut(
        slots=tuple(map(tuple, layout)),
        step_bytes=ALIGNMENT_BYTES,
        num_regions=NUM_REGIONS,
        seeded=case.uses_rng,
        gathers_early=case.is_device_bound,
    )
    runner.ask(request, limits.call_s)
    # A stopped runner changes nothing: what it left can be read where it is.
    snapshot = outputs.flat()
    if accelerator.kind != "cpu":
        snapshot = torch.empty(end, dtype=torch.uint8, device=accelerator.device)
    return Lane(name, runner, inputs, outputs, layout, snapshot)


def open_lanes(
    case: Case,
    runners: dict[str, RunnerHandle],
    room: Room,
    base: Sequence[InputSet],
    layouts: dict[str, Sequence[OutputSlot]],
    limits: Limits,
) -> dict[str, Lane]:
    """All of a launch, side by side."""

    def open_one(name: str) -> Lane:
        return open_lane(case, name, runners[name], room, base, layouts[name], limits)

    return dict(zip(runners, side_by_side(open_one, runners), strict=True))


def ready(case: Case, lane: Lane, one: Round, limits: Limits) -> None:
    """Outside of any clock: the runner forgets the last batch, learns the order of the next, and
    on the CPU is stopped before its inputs are written."""
    lane.runner.ask(Settle(), SETTLE_S)
    lane.runner.ask(Arrange(sets=tuple(one.places)), limits.call_s)
    lane.runner.pause()
    if case.accelerator.kind == "cpu":
        one.write(lane.inputs)


def span_of(
    case: Case, lane: Lane, one: Round, kind: type[Batch | Exchange], limits: Limits
) -> tuple[float, Claim]:
    """One batch (or an exchange, which calls nothing) under the judge's clock: microseconds here,
    and what the runner says of its own. What is said to the runner is encoded before the clock
    starts, and its answers are decoded after it was stopped."""
    accelerator = case.accelerator
    request, wanted = kind(seed=one.seed), Deliver(region=one.region)
    body, wanted_body = encode(request), encode(wanted)
    is_batch = kind is Batch
    if is_batch and lane.rehearses:
        lane.runner.ask(Rehearse(), limits.call_s)
    lane.runner.spin_s = accelerator.spin_s
    if accelerator.spin_s:
        lane.runner.ask(StandBy(spin_s=accelerator.spin_s), SETTLE_S)
    # A GPU also takes a while to change from the runner, which was last, to this process.
    accelerator.settle()
    start_s = time.perf_counter()
    if accelerator.kind != "cpu":
        one.write(lane.inputs)
        accelerator.flush()
        accelerator.synchronize()
    if is_batch:
        lane.runner.doze_s = max(0.0, DOZE_SHARE * lane.last_us - DOZE_LESS_US) / 1e6
    claim = lane.runner.send(request, body, limits.call_s)
    lane.runner.doze_s = 0.0
    delivered = lane.runner.send(wanted, wanted_body, limits.call_s)
    take_out(case, lane)
    span_us = (time.perf_counter() - start_s) * 1e6
    if is_batch:
        lane.last_us = span_us
    lane.region = one.region
    said = claim.read()
    delivered.read()
    return span_us, said


def take_out(case: Case, lane: Lane) -> None:
    """Outputs that were delivered are out of the runner's reach when this returns."""
    lane.runner.spin_s = 0.0
    lane.runner.pause()
    if case.accelerator.kind != "cpu":
        lane.snapshot.copy_(lane.outputs.flat()[: lane.snapshot.numel()])
        case.accelerator.synchronize()


def warm_up(
    case: Case,
    lanes: Sequence[Lane],
    one: Round,
    limits: Limits,
    cores: Sequence[int] | None,
) -> float:
    """Rounds that do not count. In the first, which all lanes make at the same time, libraries are
    initialized (a second and more for a backward pass on a GPU); a second one where that was
    short, as the allocator needs two to have what it will need. Returns the shortest span of the
    last round in microseconds."""

    def first(lane: Lane) -> None:
        ready(case, lane, one, limits)
        one.write(lane.inputs)
        case.accelerator.synchronize()
        lane.runner.ask(Batch(seed=one.seed), limits.call_s)
        lane.runner.ask(Deliver(region=one.region), limits.call_s)
        take_out(case, lane)
        lane.region = one.region

    started_s = time.monotonic()
    side_by_side(first, lanes)
    elapsed_s = time.monotonic() - started_s
    if case.accelerator.kind == "cpu" and elapsed_s > SHORT_S:
        return elapsed_s * 1e6 / len(lanes)
    spans_us = []
    for lane in lanes:
        if cores is not None:
            lane.runner.pin(cores)
        ready(case, lane, one, limits)
        spans_us.append(span_of(case, lane, one, Batch, limits)[0])
    return min(spans_us)
