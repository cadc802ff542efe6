"""Choose how many calls a batch has, and lay out what they need."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..forkserver.handles import RunnerHandle
from ..memory.segment import size_bytes
from ..runner.cotangents import slots_like
from ..verifier.cases import Case, Limits
from ..verifier.inputs import InputSet, Room
from ..verifier.value_shapes import bounded
from ..wire.runner import Batch, Called
from ..wire.tensors import OutputSlot
from ..wire.verifier import Clock
from .new_inputs import Stock
from .timed_rounds import (
    are_committed,
    lead_in,
    new_round,
    open_lane,
    span_of,
)

NEAR_BYTES, FEWEST_NEAR = 2**20, 4
"""Size of the inputs and kept outputs of a batch on a CPU, half of the cache of a core; and the
calls that a batch may have in any case."""
SHORTEST_SHARE = {"cpu": 1.0, "cuda": 0.5}
"""Least length of the shortest batch, as a share of the wanted one. A faster candidate gets more
calls, as does its reference: the cost of a batch is not known to some ten microseconds."""
MOST_TIMES = 8.0
"""Most multiple of calls, since the reference takes as many times as long."""
GATHER_US = 4.0
"""More than a runner takes to check one output. Where the device works longer than that after
the last call returned, the check happens during that work."""


@dataclass(frozen=True, kw_only=True)
class ClockConfig(Clock):
    """Wanted length of a batch and a repetition, and where they run."""

    memory_bytes: int
    is_least: bool = False
    """Whether to take as little memory as possible."""
    cores: list[int] | None = None
    """Cores that runners of a GPU use, one runner at a time. Cores differ in what else runs on
    the same piece of silicon. With a core of its own each runner would be a different machine
    for calls that the processor limits."""


def more_calls(case: Case, num_calls: int, shortest_us: float, config: ClockConfig) -> int:
    """Return more calls in a batch for a candidate whose batch would be too short to time."""
    if shortest_us >= wanted_us(case, config):
        return num_calls
    assert case.plan is not None
    wanted = int(num_calls * wanted_us(case, config) / max(shortest_us, 1.0)) + 1
    most = int((case.num_calls or 1) * MOST_TIMES) + 1
    return max(num_calls, min(case.plan.most_calls, most_near(case), most, wanted))


def most_near(case: Case) -> int:
    """Return the most calls whose inputs and outputs stay near a processor core. A batch of more
    would take its inputs from memory, while a program's loop has just written them."""
    if case.accelerator.kind != "cpu":
        return sys.maxsize
    outputs = reference_slots_of(case)
    kept_bytes = 0 if are_committed(case, outputs) else sum(map(size_bytes, outputs))
    set_bytes = room_of(case, [case.trials[0][1]]).num_bytes
    return max(FEWEST_NEAR, NEAR_BYTES // max(1, set_bytes + kept_bytes))


def wanted_us(case: Case, config: ClockConfig) -> float:
    """Return the wanted length of the shortest batch of a repetition."""
    kind = "cpu" if case.accelerator.kind == "cpu" else "cuda"
    return config.batch_us * SHORTEST_SHARE[kind]


def reference_slots_of(case: Case) -> Sequence[OutputSlot]:
    """Return slots of a timed call of the reference."""
    assert case.expected is not None
    return timed_slots(case, case.expected.calls[0])


def timed_slots(case: Case, call: Called) -> Sequence[OutputSlot]:
    """Return slots of what a timed call copies out: outputs and, in train mode, gradients of
    inputs."""
    num_gradients = sum(case.source.grads) if case.train else 0
    return bounded(call.slots[: call.num_leaves + num_gradients], case.bounds)


def room_of(case: Case, sets: Sequence[InputSet]) -> Room:
    """Make room for the sets of timed calls, and in train mode for the initial gradients of
    their backward passes."""
    assert case.expected is not None
    call = case.expected.calls[0]
    outputs = call.slots[: call.num_leaves] if case.train else ()
    return Room(sets, case.source.grads, cotangents=slots_like(outputs, case.bounds))


def choose_num_calls(
    case: Case,
    runner: RunnerHandle,
    limits: Limits,
    config: ClockConfig,
    rng: random.Random,
    generator: torch.Generator,
) -> int:
    """Choose the calls that make a batch long enough, by a reference that runs without others.
    The memory for their tensors limits the number; a later repetition may have more memory."""
    assert case.plan is not None
    slots = reference_slots_of(case)
    wanted = num_calls = 1
    for _ in range(
        2
    ):  # one call, then as many as that one suggests: a moment of noise misleads less
        base = [case.kept(case.source.draw_alike(i, generator)) for i in range(num_calls)]
        room = room_of(case, base * case.plan.num_places)
        stock = Stock(case.source, base, rng, generator)
        lane = open_lane(case, "probe", runner, room, base, slots, limits)
        said = []
        for _ in range(4):
            probe = new_round(case, room, stock, rng)
            said.append(span_of(case, lane, probe, Batch(seed=probe.seed), limits)[1])
            if case.accelerator.kind == "cpu":
                lane.rehearses = lead_in(lane, said[-1].claim_us)
            del probe
        claims_us = [one.claim_us for one in said[1:]]
        waits_us = [one.claim_us - one.issue_us for one in said[1:]]
        case.is_device_bound = case.accelerator.kind != "cpu" and min(
            waits_us
        ) > GATHER_US * num_calls * max(1, len(slots))
        call_us = max(min(claims_us) / num_calls, 0.5)
        wanted = min(int(config.batch_us / call_us) + 1, config.max_calls, most_near(case))
        num_calls = min(wanted, case.plan.most_calls)
        if num_calls == 1:
            break
    return wanted
