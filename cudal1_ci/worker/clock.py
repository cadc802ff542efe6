"""The clock that counts: paired batches in fresh processes, timed from outside, outputs checked.

A launch forks three runners: the reference, the candidate, and the reference again (the A/A
control), which nobody tells apart. In every round each of them, in random order, makes `num_calls`
calls on the same new inputs and copies all outputs out; the judge's own clock runs from `go` to
`done`. What is counted is that span less the cost of the exchange, which is measured on the trusted
reference by copying the same outputs once more. So work that a candidate puts off until it is
asked for its outputs is inside of its own time. The runner's claim of its time is only compared.
"""

from __future__ import annotations

import random
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch

from .cases import Case, Limits, Rejected
from .compare import Tolerance
from .correctness import rejection_of_candidate
from .inputs import InputSet, Room, scaled
from .processes import RunnerFailure, RunnerHandle, Template
from .segment import Segment, place, size_bytes

RECONCILIATION_RELATIVE = 0.10
RECONCILIATION_US = 500.0
RECONCILIATION_COST = 1.5
"""How far the judge's time may exceed a claim and the cost of the exchange, in every round of a
launch, before it is called a hack. It names cheats, it does not bound them: what counts is the
judge's time either way. In every round, because on a busy CPU a batch is preempted for milliseconds
now and then; and with room for the cost, which the reference shows: copying outputs of any size."""
SETTLE_S = 30.0
SHORT_S = 0.3


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
    inputs: Segment
    outputs: Segment
    slots: list[list[dict[str, Any]]]
    spans_us: list[float]
    claims_us: list[float]


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
    generator = torch.Generator().manual_seed(rng.randrange(2**62))
    programs = {"reference": case.program, "candidate": program, "control": case.program}
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
    reference_slots = timed_slots(case, case.expected.calls[0] if case.expected else {})
    if case.num_calls is None:
        case.num_calls = choose_num_calls(
            case, runners["reference"], reference_slots, limits, config, generator
        )
    num_calls = case.num_calls
    base = [case.source.draw(i, generator) for i in range(num_calls)]
    room = Room(base, case.source.grads)
    layouts = {
        "reference": reference_slots,
        "candidate": answer_slots,
        "control": reference_slots,
    }
    lanes = [
        open_lane(name, runner, room, base, layouts[name], num_calls, limits, case)
        for name, runner in runners.items()
    ]
    tolerances = timed_tolerances(case, len(reference_slots))
    seed = rng.randrange(2**31)
    warm_up(lanes, seed, limits)
    check_outputs(lanes[0], lanes[1], tolerances)
    cost_us = exchange_cost_us(lanes[0], limits)
    started_s = time.monotonic()
    for number in range(config.num_rounds):
        fresh = refreshed(case, base, generator)
        for lane in lanes:
            room.write(lane.inputs, fresh)
            lane.runner.ask("settle", SETTLE_S)
        seed = rng.randrange(2**31)
        for lane in rng.sample(lanes, len(lanes)):
            round_of(lane, seed, limits)
        check_outputs(lanes[0], lanes[1], tolerances)
        if number >= 2 and time.monotonic() - started_s > config.launch_s:
            break
    reconcile(lanes[0], lanes[1], cost_us)
    for lane in lanes:
        lane.inputs.close()
        lane.outputs.close()
    return times(lanes, cost_us, num_calls)


def warm_up(lanes: list[Lane], seed: int, limits: Limits) -> None:
    """Rounds that do not count: first touch of memory, lazy initialization; a second one where
    the first was short, as the allocator needs two to have what it will need."""
    started_s = time.monotonic()
    for _ in range(2):
        for lane in lanes:
            round_of(lane, seed, limits, counted=False)
        if time.monotonic() - started_s > SHORT_S:
            return


def times(lanes: list[Lane], cost_us: float, num_calls: int) -> dict[str, Any]:
    """Microseconds a call, of the judge's clock less the exchange."""
    # A call cannot take less than nothing: where the exchange is all of a span, the claim of the
    # reference would be noise, and the floor keeps ratios finite.
    per_call = [
        [max(span - cost_us, span * 0.02) / num_calls for span in lane.spans_us] for lane in lanes
    ]
    return {
        "reference_us": per_call[0],
        "candidate_us": per_call[1],
        "control_us": per_call[2],
        "num_calls": num_calls,
    }


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
    slots: list[dict[str, Any]],
    limits: Limits,
    config: ClockConfig,
    generator: torch.Generator,
) -> int:
    """Calls that make a batch long enough, as far as the memory for their outputs allows."""
    one = [case.source.draw(0, generator)]
    per_set_bytes = Room(one, case.source.grads).num_bytes
    per_call_bytes = 3 * (per_set_bytes + sum(size_bytes(slot) for slot in slots)) + 1
    most = max(1, min(config.max_calls, config.memory_bytes // (2 * per_call_bytes)))
    num_calls = 1
    for _ in range(2):  # one call, then as many as that one says: a moment of noise misleads less
        sets = [case.source.draw(i, generator) for i in range(num_calls)]
        room = Room(sets, case.source.grads)
        lane = open_lane("probe", runner, room, sets, slots, num_calls, limits, case)
        for _ in range(4):
            round_of(lane, 0, limits)
        lane.inputs.close()
        lane.outputs.close()
        call_us = max(min(lane.claims_us[1:]) / num_calls, 0.5)
        num_calls = max(1, min(int(config.batch_us / call_us) + 1, most))
        if num_calls == 1:
            break
    return num_calls


def open_lane(
    name: str,
    runner: RunnerHandle,
    room: Room,
    sets: list[InputSet],
    slots: list[dict[str, Any]],
    num_calls: int,
    limits: Limits,
    case: Case,
) -> Lane:
    """Give a runner its inputs and the room for its outputs."""
    inputs = Segment.create(room.num_bytes)
    room.write(inputs, sets)
    runner.give("inputs", inputs, limits.call_s)
    runner.ask("prepare", limits.call_s, sets=room.describe(), call=case.call)
    layout, end = [], 0
    for _ in range(num_calls):
        placed, end = place(slots, end)
        layout.append(placed)
    outputs = Segment.create(end)
    runner.give("outputs", outputs, limits.call_s)
    order = list(range(num_calls))
    runner.ask("arrange", limits.call_s, sets=order, slots=layout, seeded=case.uses_rng)
    return Lane(name, runner, inputs, outputs, layout, [], [])


def round_of(lane: Lane, seed: int, limits: Limits, counted: bool = True) -> None:
    """One batch under the judge's clock."""
    start_s = time.perf_counter()
    reply = lane.runner.ask("batch", limits.call_s, seed=seed)
    span_us = (time.perf_counter() - start_s) * 1e6
    if counted:
        lane.spans_us.append(span_us)
        lane.claims_us.append(float(reply["claim_us"]))


def exchange_cost_us(lane: Lane, limits: Limits) -> float:
    """What a batch costs beyond its calls, by the reference: a message and a copy of all outputs.
    The smallest of a few: what is more is preemption, and too small a cost only makes both sides
    look slower."""
    costs = []
    for _ in range(5):
        start_s = time.perf_counter()
        lane.runner.ask("exchange", limits.call_s, seed=0)
        costs.append((time.perf_counter() - start_s) * 1e6)
    return min(costs)


def refreshed(case: Case, base: list[InputSet], generator: torch.Generator) -> list[InputSet]:
    """New values for every set: floats scaled, drawn integers drawn again, made integers (whose
    meaning is unknown) in another order of the batch."""
    if case.source.specs and not any(t.is_floating_point() for t in base[0].tensors):
        return [case.source.draw(i, generator) for i in range(len(base))]
    if case.source.made and not case.source.can_refresh:
        return [rolled(one, generator) for one in base]
    factors = torch.empty(len(base)).uniform_(0.75, 1.25, generator=generator).tolist()
    return [scaled(one, factor) for one, factor in zip(base, factors, strict=True)]


def rolled(one: InputSet, generator: torch.Generator) -> InputSet:
    """All tensors with the batch in another order, where they share a batch dimension."""
    sizes = {t.shape[0] for t in one.tensors if t.dim()}
    if len(sizes) != 1 or min(sizes) < 2:
        return one
    size = sizes.pop()
    order = torch.randperm(size, generator=generator)
    return InputSet([t[order] if t.dim() else t for t in one.tensors], one.data)


def check_outputs(reference: Lane, candidate: Lane, tolerances: list[Tolerance]) -> None:
    """Every output of every timed call of the last round against the reference's."""
    for ours, theirs in zip(reference.slots, candidate.slots, strict=True):
        for leaf, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            expected, got = reference.outputs.tensor(a), candidate.outputs.tensor(b)
            if not is_close(got, expected, tolerances[leaf]):
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


def reconcile(reference: Lane, lane: Lane, cost_us: float) -> None:
    """The judge's time against what the runner says of its own, as far as the trusted reference
    shows that the two may lie apart: it copies outputs of the same size."""
    apart_us = [s - c for s, c in zip(reference.spans_us, reference.claims_us, strict=True)]
    allowed_us = RECONCILIATION_COST * max(cost_us, statistics.median(apart_us))
    over = [
        span - allowed_us - claim * (1 + RECONCILIATION_RELATIVE)
        for span, claim in zip(lane.spans_us, lane.claims_us, strict=True)
    ]
    if min(over) > RECONCILIATION_US:
        claim = statistics.median(lane.claims_us)
        span = statistics.median(lane.spans_us) - cost_us
        raise Rejected(
            "reward_hack",
            "timing.reconciliation",
            f"it claims {claim:.0f} us for a batch that took {span:.0f} us until its outputs were "
            "there: work is put off until after its own clock stopped",
        )
