"""The clock that counts: paired batches in fresh processes, timed from outside, outputs checked.

A launch forks three runners: the reference, the candidate, and the reference again (the A/A
control), which nobody tells apart. In every round each of them, in random order, makes `num_calls`
calls on the same new inputs and copies all outputs out; the judge's own clock runs from `go` until
the outputs are where the runner cannot change them. What is counted is that span less the cost of
the exchange, which is measured on the trusted reference by copying the same outputs once more. So
work that a candidate puts off until it is asked for its outputs is inside of its own time. The
runner's claim of its time is only compared.

Nothing can be done ahead of `go`: on the CPU a runner is stopped by a signal while its inputs are
written and while others are timed; on a GPU, where a kernel that is under way cannot be stopped,
the inputs are written after the clock was started, which costs the reference as much. Each input
set has two places, and which one is used is drawn anew in every round, so neither an address nor
an object nor a version counter tells what an input holds.
Not covered: a candidate that finds all inputs of a batch in its memory may compute them together.
"""

from __future__ import annotations

import random
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch

from .accelerators import AnySegment
from .cases import Case, Limits, Rejected
from .compare import Tolerance
from .correctness import rejection_of_candidate
from .inputs import InputSet, Room, factor_between, scaled
from .processes import RunnerFailure, RunnerHandle, Template
from .segment import place, size_bytes, stacked, view_of

RECONCILIATION = {"cpu": (0.10, 500.0), "cuda": (0.02, 200.0)}
"""A fraction of the claim, and microseconds."""
RECONCILIATION_COST = 1.5
"""How far the judge's time may exceed a claim and the cost of the exchange, in every round of a
launch, before it is called a hack. It names cheats, it does not bound them: what counts is the
judge's time either way. In every round, because on a busy CPU a batch is preempted for milliseconds
now and then; and with room for the cost, which the reference shows: copying outputs of any size."""
SETTLE_S = 30.0
SHORT_S = 0.3
NUM_EXCHANGES = 9
NUM_PLACES = 2
"""Of each input set."""


@dataclass(frozen=True)
class ClockConfig:
    """How long a batch and a launch should last."""

    batch_us: float
    """A batch is at least this long, so that the exchange (about 50 us) is small beside it."""
    max_calls: int
    num_rounds: int
    launch_s: float
    memory_bytes: int


@dataclass
class Lane:
    """One runner of a launch with its own copy of the inputs and room for its outputs."""

    name: str
    runner: RunnerHandle
    inputs: AnySegment
    outputs: AnySegment
    slots: list[list[dict[str, Any]]]
    """Where in `outputs` those of each call of a batch go."""
    snapshot: torch.Tensor
    """The bytes of `outputs` at the end of the last batch, out of the runner's reach."""
    spans_us: list[float] = field(default_factory=list)
    claims_us: list[float] = field(default_factory=list)

    def all_calls(self, leaf: int) -> torch.Tensor:
        """One output of every call of the last batch, stacked: shape [num_calls, ...]."""
        slots = [one[leaf] for one in self.slots]
        step_bytes = slots[1]["offset"] - slots[0]["offset"] if len(slots) > 1 else 0
        return stacked(self.snapshot, slots[0], len(slots), step_bytes)


@dataclass
class Round:
    """What is the same for all lanes in one round: which set goes to which place, in which order
    they are called, with what values."""

    room: Room
    places: list[int]
    sets: list[InputSet]
    seed: int
    staged: torch.Tensor | None = None
    """On a GPU: the bytes that the inputs of every lane are to hold."""

    def write(self, segment: AnySegment) -> None:
        """The new values, from outside of the runner."""
        if self.staged is not None:
            for start, end in self.room.ranges(self.places):
                segment.flat()[start:end].copy_(self.staged[start:end])
            return
        for number, one in zip(self.places, self.sets, strict=True):
            self.room.write_one(segment.tensor, number, one)


def launch(
    case: Case,
    template: Template,
    program: dict[str, Any],
    answer_slots: list[dict[str, Any]],
    limits: Limits,
    config: ClockConfig,
    rng: random.Random,
) -> dict[str, Any]:
    """Paired times from three fresh processes, as the record Launch, and the control's.

    Raises:
        Rejected: A timed output is wrong, a claim does not reconcile, the candidate failed.
    """
    generator = torch.Generator(case.accelerator.device).manual_seed(rng.randrange(2**62))
    if case.num_calls is None:
        with case.runner(template, case.program, limits) as alone:
            case.num_calls = choose_num_calls(case, alone, limits, config, generator)
    roles = [("reference", case.program), ("candidate", program), ("control", case.program)]
    # Which of three equal processes is opened first, and warmed up first, is seen in its times.
    programs = dict(rng.sample(roles, len(roles)))
    with ExitStack() as stack:
        with ThreadPoolExecutor(len(programs)) as pool:  # importing takes longer than measuring
            opened = pool.map(
                lambda one: stack.enter_context(case.runner(template, one, limits)),
                programs.values(),
            )
            runners = dict(zip(programs, opened, strict=True))
        try:
            return timed(case, runners, answer_slots, limits, config, rng, generator)
        except RunnerFailure as failure:
            raise rejection_of_candidate(failure) from failure


def timed(
    case: Case,
    runners: dict[str, RunnerHandle],
    answer_slots: list[dict[str, Any]],
    limits: Limits,
    config: ClockConfig,
    rng: random.Random,
    generator: torch.Generator,
) -> dict[str, Any]:
    """The rounds of a launch."""
    reference_slots = reference_slots_of(case)
    num_calls = case.num_calls or 1
    base = [case.source.draw(i, generator) for i in range(num_calls)]
    room = Room(base * NUM_PLACES, case.source.grads)
    layouts = {
        "reference": reference_slots,
        "candidate": answer_slots,
        "control": reference_slots,
    }
    opened = {
        name: open_lane(case, name, runner, room, base, layouts[name], limits)
        for name, runner in runners.items()
    }
    lanes = list(opened.values())
    reference, candidate = opened["reference"], opened["candidate"]
    tolerances = timed_tolerances(case, len(reference_slots))
    warm_up(case, lanes, new_round(case, room, base, rng, generator), limits)
    check_outputs(reference, candidate, tolerances)
    cost_us = exchange_cost_us(case, reference, new_round(case, room, base, rng, generator), limits)
    started_s = time.monotonic()
    for number in range(config.num_rounds):
        one = new_round(case, room, base, rng, generator)
        for lane in lanes:
            ready(case, lane, one, limits)
        for lane in rng.sample(lanes, len(lanes)):
            count(lane, *span_of(case, lane, one, "batch", limits))
        check_outputs(reference, candidate, tolerances)
        if number >= 2 and time.monotonic() - started_s > config.launch_s:
            break
    reconcile(case, reference, candidate, cost_us)
    return times(opened, cost_us, num_calls)


def new_round(
    case: Case,
    room: Room,
    base: list[InputSet],
    rng: random.Random,
    generator: torch.Generator,
) -> Round:
    """Other values, another order, other places."""
    fresh = refreshed(case, base, generator)
    order = rng.sample(range(len(base)), len(base))
    one = Round(
        room,
        places=[number + len(base) * rng.randrange(NUM_PLACES) for number in order],
        sets=[fresh[number] for number in order],
        seed=rng.randrange(2**31),
    )
    if case.accelerator.kind != "cpu":
        one.staged = staged(case, one)
    return one


def staged(case: Case, one: Round) -> torch.Tensor:
    """The inputs of a round laid out as the lanes have them, so that one copy brings them there."""
    flat = torch.zeros(one.room.num_bytes, dtype=torch.uint8, device=case.accelerator.device)
    for number, values in zip(one.places, one.sets, strict=True):
        one.room.write_one(lambda slot: view_of(flat, slot), number, values)
    return flat


def ready(case: Case, lane: Lane, one: Round, limits: Limits) -> None:
    """Outside of any clock: the runner forgets the last batch, learns the order of the next, and
    on the CPU is stopped before its inputs are written."""
    lane.runner.ask("settle", SETTLE_S)
    lane.runner.ask("arrange", limits.call_s, sets=one.places)
    lane.runner.pause()
    if case.accelerator.kind == "cpu":
        one.write(lane.inputs)


def span_of(case: Case, lane: Lane, one: Round, op: str, limits: Limits) -> tuple[float, float]:
    """One batch (or only the exchange that belongs to it) under the judge's clock: microseconds
    here, and those that the runner claims."""
    accelerator = case.accelerator
    accelerator.synchronize()
    start_s = time.perf_counter()
    if accelerator.kind != "cpu":
        one.write(lane.inputs)
        accelerator.flush()
        accelerator.synchronize()
    reply = lane.runner.ask(op, limits.call_s, seed=one.seed)
    if accelerator.kind == "cpu":
        lane.runner.pause()
    else:
        lane.snapshot.copy_(lane.outputs.flat()[: lane.snapshot.numel()])
        accelerator.synchronize()
    span_us = (time.perf_counter() - start_s) * 1e6
    lane.runner.pause()
    return span_us, float(reply["claim_us"])


def count(lane: Lane, span_us: float, claim_us: float) -> None:
    lane.spans_us.append(span_us)
    lane.claims_us.append(claim_us)


def warm_up(case: Case, lanes: list[Lane], one: Round, limits: Limits) -> None:
    """Rounds that do not count. In the first, which all lanes make at the same time, libraries are
    initialized (a second and more for a backward pass on a GPU); a second one where that was
    short, as the allocator needs two to have what it will need."""

    def first(lane: Lane) -> None:
        ready(case, lane, one, limits)
        one.write(lane.inputs)
        lane.runner.ask("batch", limits.call_s, seed=one.seed)

    started_s = time.monotonic()
    with ThreadPoolExecutor(len(lanes)) as pool:
        list(pool.map(first, lanes))
    if case.accelerator.kind == "cpu" and time.monotonic() - started_s > SHORT_S:
        return
    for lane in lanes:
        ready(case, lane, one, limits)
        span_of(case, lane, one, "batch", limits)


def times(lanes: dict[str, Lane], cost_us: float, num_calls: int) -> dict[str, Any]:
    """Microseconds a call, of the judge's clock less the exchange."""
    # A call cannot take less than nothing: where the exchange is all of a span, the claim of the
    # reference would be noise, and the floor keeps ratios finite.
    per_call = {
        f"{name}_us": [max(span - cost_us, span * 0.02) / num_calls for span in lane.spans_us]
        for name, lane in lanes.items()
    }
    return {**per_call, "num_calls": num_calls}


def reference_slots_of(case: Case) -> list[dict[str, Any]]:
    """Slots of a timed call of the reference."""
    assert case.expected is not None
    return timed_slots(case, case.expected.calls[0])


def timed_slots(case: Case, call: dict[str, Any]) -> list[dict[str, Any]]:
    """Slots of what a timed call copies out: outputs and, in train mode, gradients of inputs."""
    num_gradients = sum(case.source.grads) if case.train else 0
    slots: list[dict[str, Any]] = call["slots"][: call["num_leaves"] + num_gradients]
    return slots


def timed_tolerances(case: Case, count: int) -> list[Tolerance]:
    """Budgets for outputs of timed calls: those of the drawn trials, doubled, since the reference
    and not the oracle stands for the truth and inputs are scaled by up to a quarter."""
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
        )
        for leaf in range(count)
    ]


def choose_num_calls(
    case: Case,
    runner: RunnerHandle,
    limits: Limits,
    config: ClockConfig,
    generator: torch.Generator,
) -> int:
    """Calls that make a batch long enough, as far as the memory for their tensors allows, by a
    runner of the reference that is alone."""
    slots = reference_slots_of(case)
    one = [case.source.draw(0, generator)]
    set_bytes = Room(one, case.source.grads).num_bytes
    outputs_bytes = sum(size_bytes(slot) for slot in slots)
    # Three runners with two places, outputs, their copy and a snapshot; here the values of this
    # round and the last, laid out once more.
    call_bytes = 3 * (NUM_PLACES * set_bytes + 3 * outputs_bytes) + 4 * set_bytes + 1
    most = max(1, min(config.max_calls, config.memory_bytes // call_bytes))
    num_calls = 1
    for _ in range(2):  # one call, then as many as that one says: a moment of noise misleads less
        base = [case.source.draw(i, generator) for i in range(num_calls)]
        room = Room(base, case.source.grads)
        lane = open_lane(case, "probe", runner, room, base, slots, limits)
        probe = Round(room, list(range(num_calls)), base, 0)
        claims_us = []
        for _ in range(4):
            ready(case, lane, probe, limits)
            claims_us.append(span_of(case, lane, probe, "batch", limits)[1])
        call_us = max(min(claims_us[1:]) / num_calls, 0.5)
        num_calls = max(1, min(int(config.batch_us / call_us) + 1, most))
        if num_calls == 1:
            break
    return num_calls


def open_lane(
    case: Case,
    name: str,
    runner: RunnerHandle,
    room: Room,
    base: list[InputSet],
    slots: list[dict[str, Any]],
    limits: Limits,
) -> Lane:
    """Give a runner its inputs and the room for the outputs of one batch."""
    accelerator = case.accelerator
    inputs = runner.share("inputs", accelerator, room.num_bytes, limits.call_s)
    for number in range(len(room.layout)):
        room.write_one(inputs.tensor, number, base[number % len(base)])
    accelerator.synchronize()
    runner.ask("prepare", limits.call_s, sets=room.describe(), call=case.call)
    layout, end = [], 0
    for _ in base:
        placed, end = place(slots, end)
        layout.append(placed)
    outputs = runner.share("outputs", accelerator, end, limits.call_s)
    runner.ask("lay_out", limits.call_s, slots=layout, seeded=case.uses_rng)
    # A stopped runner changes nothing: what it left can be read where it is.
    snapshot = outputs.flat()
    if accelerator.kind != "cpu":
        snapshot = torch.empty(end, dtype=torch.uint8, device=accelerator.device)
    return Lane(name, runner, inputs, outputs, layout, snapshot)


def exchange_cost_us(case: Case, lane: Lane, one: Round, limits: Limits) -> float:
    """What a batch costs beyond its calls, by the reference: a message, a copy of all outputs, and
    on a GPU that of the inputs. The first quartile of a few, as of the times it is taken from."""
    costs_us = []
    for _ in range(NUM_EXCHANGES):
        lane.runner.pause()
        costs_us.append(span_of(case, lane, one, "exchange", limits)[0])
    return statistics.quantiles(costs_us, n=4, method="inclusive")[0]


def refreshed(case: Case, base: list[InputSet], generator: torch.Generator) -> list[InputSet]:
    """New values for every set: floats scaled, drawn integers drawn again, made integers (whose
    meaning is unknown) in another order of the batch."""
    if case.source.specs and not any(t.is_floating_point() for t in base[0].tensors):
        return [case.source.draw(i, generator) for i in range(len(base))]
    if case.source.made and not case.source.can_refresh:
        return [rolled(one, generator) for one in base]
    return [scaled(one, factor_between(0.75, 1.25, generator)) for one in base]


def rolled(one: InputSet, generator: torch.Generator) -> InputSet:
    """All tensors with the batch in another order, where they share a batch dimension."""
    sizes = {t.shape[0] for t in one.tensors if t.dim()}
    if len(sizes) != 1 or min(sizes) < 2:
        return one
    size = sizes.pop()
    order = torch.randperm(size, generator=generator, device=generator.device)
    return InputSet([t[order] if t.dim() else t for t in one.tensors], one.data)


def check_outputs(reference: Lane, candidate: Lane, tolerances: list[Tolerance]) -> None:
    """Every output of every timed call of the last round against the reference's."""
    for leaf, budget in enumerate(tolerances):
        expected, got = reference.all_calls(leaf), candidate.all_calls(leaf)
        if not is_close(got, expected, budget):
            gap = (got.double() - expected.double()).abs().nan_to_num(float("inf")).max()
            raise Rejected(
                "incorrect_values",
                "values.timed",
                f"output {leaf} of a timed call is off by {float(gap):.3g}, while separate "
                "trials were right: what is returned does not follow from the inputs",
                max_abs_error=float(gap),
            )


def is_close(got: torch.Tensor, expected: torch.Tensor, budget: Tolerance) -> bool:
    """Within the budget; what is not finite must be so in the same way."""
    if not (got.is_floating_point() or got.is_complex()):
        return torch.equal(got, expected)
    return torch.allclose(got, expected, rtol=budget.relative, atol=budget.absolute, equal_nan=True)


def reconcile(case: Case, reference: Lane, lane: Lane, cost_us: float) -> None:
    """The judge's time against what the runner says of its own, as far as the trusted reference
    shows that the two may lie apart: it copies outputs of the same size."""
    apart_us = [s - c for s, c in zip(reference.spans_us, reference.claims_us, strict=True)]
    relative, absolute_us = RECONCILIATION[case.accelerator.kind]
    allowed_us = RECONCILIATION_COST * max(cost_us, statistics.median(apart_us))
    over = [
        span - allowed_us - claim * (1 + relative)
        for span, claim in zip(lane.spans_us, lane.claims_us, strict=True)
    ]
    if min(over) > absolute_us:
        claim = statistics.median(lane.claims_us)
        span = statistics.median(lane.spans_us) - cost_us
        raise Rejected(
            "reward_hack",
            "timing.reconciliation",
            f"it claims {claim:.0f} us for a batch that took {span:.0f} us until its outputs were "
            "there: work is put off until after its own clock stopped",
        )
