"""The clock that counts: paired batches in fresh processes, timed from outside, outputs checked.

A launch forks three runners: the reference, the candidate, and the reference again (the A/A
control), which nobody tells apart. In every round each of them, in random order, makes `num_calls`
calls on the same new inputs and copies all outputs out; the judge's own clock runs from `go` until
the outputs are where the runner cannot change them. What is counted is that span less the cost of
the exchange, which is measured on the trusted reference by copying the same outputs once more. So
work that a candidate puts off until it is asked for its outputs is inside of its own time. The
runner's claim of its time is only compared.

What a round is, and why nothing can be done ahead of it: lanes.py.
Not covered: a candidate that finds all inputs of a batch in its memory may compute them together.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..forkserver.handles import RunnerFailure, RunnerHandle
from ..memory.segment import size_bytes
from ..runner.cotangents import slots_like
from ..verifier.cases import Case, Limits, Rejected, size_of
from ..verifier.compare import Tolerance
from ..verifier.failures import is_out_of_memory, rejection_of_candidate
from ..verifier.inputs import InputSet, Room
from ..verifier.memory_plan import CPU_SHARE, GPU_SHARE, Plan, least_bytes, plan
from .new_inputs import Stock
from .reuse_runners import Kept
from .runner_groups import Crews, most_crews
from .strided_copy import copying_us
from .timed_checks import check_aftermath, check_inputs, check_left, check_outputs, timed_tolerances
from .timed_rounds import (
    Lane,
    Round,
    nearby_round,
    new_round,
    open_lane,
    open_lanes,
    ready,
    span_of,
    warm_up,
)

RECONCILIATION = {"cpu": (0.10, 500.0), "cuda": (0.02, 200.0)}
"""A fraction of the claim, and microseconds."""
RECONCILIATION_COST = 1.5
"""How far the judge's time may exceed a claim and the cost of the exchange, in every round of a
launch, before the two contradict each other. It names cheats, it does not bound them: what counts
is the judge's time either way. In every round, because on a busy CPU a batch is preempted for
milliseconds now and then; and with room for the cost, which the reference shows: copying outputs of
any size."""
GATHER_US = 4.0
"""More than it takes a runner to look at one output: where the device works for longer than that
after the last call returned, it is looked at meanwhile."""
NUM_EXCHANGES = 9
SHORTEST_SHARE = 0.5
"""Of the length wanted of a batch: a faster candidate gets more calls, as does its reference."""
MOST_TIMES = 8.0
"""As many calls at the most, since the reference takes as many times as long."""
MORE_ROUNDS = 4
"""As many times the rounds at the most, where batches are shorter than they should be, or rounds
say different things."""
OF_MEDIAN = 1.2533 * 1.4826
"""Standard error of the median of many normal values, as a multiple of their median distance from
it, over the root of their number."""
EARLY_ROUNDS = 3
"""After one of the first, drawn at random, gradients of parameters and the state are compared,"""
CHECKED_SHARE = 0.25
"""after so many of the others, and after the last: the time is that of no few rounds."""
CLOSE_SHARE = 0.125
"""After one of the first rounds, so many of the others and the last comes one that does not count,
of the same inputs but for a few elements: who keeps answers by less than all of an input is wrong
there, and saves nothing in what counts. After the last, as who begins with it after so many calls
may have made few before, where one call is a batch."""


@dataclass(frozen=True)
class ClockConfig:
    """How long a batch and a launch should last."""

    batch_us: float
    """A batch is at least this long, so that the exchange (about 50 us) is small beside it."""
    max_calls: int
    num_rounds: int
    launch_s: float
    memory_bytes: int
    fewest_rounds: int | None = None
    """After so many a launch ends in which every round says that the two differ by more than
    `plain_effect`, a log ratio, and the same way; None is never."""
    plain_effect: float = math.inf
    most_error: float | None = None
    """A launch on a GPU has more rounds until the standard error of the log ratios, the
    candidate's and the control's, is no more than that; None is never."""
    is_least: bool = False
    """Whether as little memory is taken as there can be."""
    num_ahead: int = 1
    """Launches whose processes may be started together, this one among them."""
    cores: list[int] | None = None
    """Where runners have their turns on a GPU. Cores differ in what else runs on the same piece of
    silicon: on one of its own each runner would be another machine for calls that the processor
    holds up."""


def launch(
    case: Case,
    crews: Crews | Kept,
    program: dict[str, Any],
    answer_slots: list[dict[str, Any]],
    limits: Limits,
    config: ClockConfig,
    rng: random.Random,
    num_calls: int | None = None,
) -> dict[str, Any]:
    """Paired times from three fresh processes, as the record Repetition, and the control's; where
    memory is short from two, and two more for the control. `num_calls` is what a batch of an
    earlier launch held: that of a fast candidate holds more than its reference needs.

    Raises:
        Rejected: A timed output is wrong, the candidate failed.
        RunnerFailure: The reference failed, which says nothing of the candidate.
    """
    case.counts = False
    generator = torch.Generator(case.accelerator.device).manual_seed(rng.randrange(2**62))
    if case.num_calls is None:
        case.plan = plan_of(case, config)
        case.num_calls = alone(case, crews, limits, config, rng, generator)
    if case.plan is None or num_calls is None or config.is_least:
        # What others leave of the device's memory is not the same for each candidate.
        case.plan = plan_of(case, config)
    plan = case.plan

    def together(number: int, *names: str) -> dict[str, Any]:
        programs = {name: program if name == "candidate" else case.program for name in names}
        return open_and_time(
            case,
            crews,
            programs,
            number,
            answer_slots,
            limits,
            config,
            rng,
            generator,
            min(plan.most_calls, max(case.num_calls or 1, num_calls or 1)),
        )

    if plan.num_lanes == 3:
        number = min(config.num_ahead, most_crews(case, 3, config.memory_bytes))
        return together(number, "reference", "candidate", "control")
    found = together(1, "reference", "candidate")
    control = together(1, "reference", "control")
    return found | {
        "control_us": control["control_us"],
        "control_reference_us": control["reference_us"],
    }


def plan_of(case: Case, config: ClockConfig) -> Plan:
    """How the tensors of a batch fit into memory. Raises Rejected when they do not."""
    set_bytes = room_of(case, [case.trials[0][1]]).num_bytes
    outputs_bytes = sum(size_bytes(slot) for slot in reference_slots_of(case))
    sizes = (set_bytes, outputs_bytes, size_of(case.state_slots))
    found = plan(
        *sizes,
        config.memory_bytes,
        config.max_calls,
        wanted_calls=case.num_calls,
        share=CPU_SHARE if case.accelerator.kind == "cpu" else GPU_SHARE,
        is_least=config.is_least,
    )
    if found is None:
        message = (
            f"timing `{case.name}` needs {least_bytes(*sizes) / 2**30:.1f} GiB of the device's "
            f"memory, of which {config.memory_bytes / 2**30:.1f} GiB are free"
        )
        raise Rejected("inconclusive", "memory.device", message)
    return found


def open_and_time(
    case: Case,
    crews: Crews | Kept,
    programs: dict[str, dict[str, Any]],
    number: int,
    answer_slots: list[dict[str, Any]],
    limits: Limits,
    config: ClockConfig,
    rng: random.Random,
    generator: torch.Generator,
    num_calls: int,
) -> dict[str, Any]:
    """Times of fresh processes that take turns; where none waits, `number` crews of them are
    started. Raises as `launch` does."""
    names = list(programs)
    try:
        crew = crews.take(case, programs, limits, number, rng)
        try:
            # Which of equal processes is warmed up first is seen in its times.
            runners = {name: crew.runners[name] for name in rng.sample(names, len(names))}
            found = timed(case, runners, answer_slots, limits, config, rng, generator, num_calls)
        finally:
            crew.end()
        found["phases_s"] = {"open": crews.open_s, **found["phases_s"]}
        return found
    except RunnerFailure as failure:
        if failure.is_trusted:
            if failure.kind == "raised" and not is_out_of_memory(failure):
                case.source.is_rigid = True  # when the launch is made again
            raise
        raise rejection_of_candidate(failure, programs["candidate"]) from failure


def alone(
    case: Case,
    crews: Crews | Kept,
    limits: Limits,
    config: ClockConfig,
    rng: random.Random,
    generator: torch.Generator,
) -> int:
    """Calls in a batch, from a reference that nobody disturbs. Where it does not take inputs that
    are changed element by element (a matrix that must stay symmetric), they are scaled."""
    try:
        with crews.reference(case, limits) as runner:
            return choose_num_calls(case, runner, limits, config, rng, generator)
    except RunnerFailure as failure:
        if failure.kind != "raised" or case.source.is_rigid:
            raise
    case.source.is_rigid = True
    return alone(case, crews, limits, config, rng, generator)


def timed(
    case: Case,
    runners: dict[str, RunnerHandle],
    answer_slots: list[dict[str, Any]],
    limits: Limits,
    config: ClockConfig,
    rng: random.Random,
    generator: torch.Generator,
    num_calls: int,
) -> dict[str, Any]:
    """The rounds of a launch."""
    reference_slots = reference_slots_of(case)
    layouts = {
        "reference": reference_slots,
        "candidate": answer_slots,
        "control": reference_slots,
    }
    tolerances = timed_tolerances(case, len(reference_slots))
    assert case.plan is not None
    opened_s = time.monotonic()
    for is_last in (False, True):
        base = [case.kept(case.source.draw_alike(i, generator)) for i in range(num_calls)]
        stock = Stock(case.source, base, rng, generator)
        room = room_of(case, base * case.plan.num_places)
        opened = open_lanes(case, runners, room, base, layouts, limits)
        lanes = list(opened.values())
        reference = opened["reference"]
        candidate = opened.get("candidate", reference)
        first = new_round(case, room, stock, rng)
        shortest_us = warm_up(case, lanes, first, limits, config.cores)
        nearby = Nearby(case, [reference, candidate], stock, rng, limits, first)
        check_outputs(reference, candidate, tolerances, nearby)
        del nearby
        cost_us = exchange_cost_us(case, reference, first, limits)
        del first  # a round holds as much as the inputs of a runner
        more = more_calls(case, num_calls, shortest_us - cost_us, config)
        if is_last or more == num_calls:
            break
        num_calls = more
    num_rounds = most_rounds = config.num_rounds
    if case.accelerator.kind != "cpu":
        short_by = wanted_us(config) / max(shortest_us - cost_us, 1.0)
        num_rounds = math.ceil(num_rounds * min(max(short_by, 1.0), MORE_ROUNDS))
        most_rounds = num_rounds if config.most_error is None else most_rounds * MORE_ROUNDS
        for lane in lanes:
            lane.rehearses = short_by > 1
    checked, close = (rng.randrange(min(EARLY_ROUNDS, config.num_rounds)) for _ in range(2))
    started_s = time.monotonic()
    case.counts = True
    for number in range(most_rounds):
        one = new_round(case, room, stock, rng)
        play(case, lanes, one, rng, limits, counts=True)
        nearby = check_round(case, reference, candidate, one, stock, rng, tolerances, limits)
        is_late = number >= 2 and time.monotonic() - started_s > config.launch_s
        is_enough = number + 1 >= num_rounds and is_steady(opened, cost_us, config)
        is_most = number + 1 == most_rounds
        ends = is_late or is_enough or is_most or is_plain(opened, cost_us, config)
        if ends or number == checked or (number > checked and rng.random() < CHECKED_SHARE):
            check_aftermath(case, reference, candidate, limits, nearby)
        if ends or number == close or (number > close and rng.random() < CLOSE_SHARE):
            one = new_round(case, room, stock, rng, last=nearby.one)
            play(case, [reference, candidate], one, rng, limits, counts=False)
            check_round(case, reference, candidate, one, stock, rng, tolerances, limits)
        del one, nearby
        if ends:
            break
    # Whatever else ran when it was looked at before the rounds has only added to it.
    last = new_round(case, room, stock, rng)
    cost_us = min(cost_us, exchange_cost_us(case, reference, last, limits))
    trusted = [lane for name, lane in opened.items() if name != "candidate"]
    alone_us = copying_us(case.accelerator, candidate.slots[0], num_calls)
    contradiction = reconcile(case, trusted, candidate, cost_us, alone_us)
    phases_s = {"warm_up": started_s - opened_s, "rounds": time.monotonic() - started_s}
    return {
        **times(opened, cost_us, num_calls),
        "contradiction": contradiction,
        "phases_s": phases_s,
    }


def is_plain(lanes: dict[str, Lane], cost_us: float, config: ClockConfig) -> bool:
    """Whether more rounds would say nothing new: the candidate is far from the reference in each,
    and the control is not."""
    if "candidate" not in lanes or len(lanes["reference"].spans_us) < (
        config.fewest_rounds or math.inf
    ):
        return False
    logs = logs_of(lanes, cost_us)
    ratios, most = logs["candidate"], config.plain_effect
    is_far = min(ratios) > most or max(ratios) < -most
    return is_far and ("control" not in lanes or max(map(abs, logs["control"])) < most)


def is_steady(lanes: dict[str, Lane], cost_us: float, config: ClockConfig) -> bool:
    """Whether rounds differ by so little that they say how fast the candidate is, and how far the
    control strays. By their spread alone: what they say has no part in how many there are."""
    if config.most_error is None:
        return True
    return all(error(logs) <= config.most_error for logs in logs_of(lanes, cost_us).values())


def error(logs: Sequence[float]) -> float:
    """Standard error of the median. (That of score.py is corrected for few values; this package
    imports none of the others.)"""
    middle = statistics.median(logs)
    distance = statistics.median(abs(one - middle) for one in logs)
    return OF_MEDIAN * distance / math.sqrt(len(logs))


def logs_of(lanes: dict[str, Lane], cost_us: float) -> dict[str, list[float]]:
    """Of the rounds' ratios, for each lane beside the reference's own."""
    found = times(lanes, cost_us, 1)
    return {
        name: [
            math.log(ours / theirs)
            for ours, theirs in zip(found["reference_us"], found[f"{name}_us"], strict=True)
        ]
        for name in lanes
        if name != "reference"
    }


def play(
    case: Case,
    lanes: Sequence[Lane],
    one: Round,
    rng: random.Random,
    limits: Limits,
    *,
    counts: bool,
) -> None:
    """Every lane has its turn; where the round `counts`, its times are kept.

    Raises:
        RunnerFailure: Of a lane that failed. What the reference does not take either (a matrix that
            is positive no more) is its failure, though the candidate's turn was before.
    """
    for lane in lanes:
        ready(case, lane, one, limits)
    order = rng.sample(lanes, len(lanes))
    for number, lane in enumerate(order, 1):
        try:
            span_us, said = span_of(case, lane, one, "batch", limits)
        except RunnerFailure as failure:
            if failure.kind == "raised" and not failure.is_trusted:
                for other in order[number:]:
                    span_of(case, other, one, "batch", limits)
            raise
        if counts:
            lane.spans_us.append(span_us)
            lane.claims_us.append(float(said["claim_us"]))


@dataclass
class Nearby:
    """Lets lanes make a round again that does not count, on inputs that differ by rounding."""

    case: Case
    lanes: Sequence[Lane]
    stock: Stock
    rng: random.Random
    limits: Limits
    one: Round
    """That was played last."""

    def __post_init__(self) -> None:
        self.first = self.one

    def __call__(self) -> None:
        self.one = nearby_round(self.first, self.stock)
        play(self.case, self.lanes, self.one, self.rng, self.limits, counts=False)


def check_round(
    case: Case,
    reference: Lane,
    candidate: Lane,
    one: Round,
    stock: Stock,
    rng: random.Random,
    tolerances: list[Tolerance],
    limits: Limits,
) -> Nearby:
    """What calls returned and left; the means to look at it further. Raises Rejected."""
    nearby = Nearby(case, [reference, candidate], stock, rng, limits, one)
    check_outputs(reference, candidate, tolerances, nearby)
    check_inputs(case, reference, candidate, nearby.one)
    check_left(reference, candidate, limits)
    return nearby


def more_calls(case: Case, num_calls: int, shortest_us: float, config: ClockConfig) -> int:
    """Calls in a batch for a candidate so fast that its batch would be too short to be timed."""
    if shortest_us >= wanted_us(config):
        return num_calls
    assert case.plan is not None
    wanted = int(num_calls * wanted_us(config) / max(shortest_us, 1.0)) + 1
    most = int((case.num_calls or 1) * MOST_TIMES) + 1
    return max(num_calls, min(case.plan.most_calls, most, wanted))


def wanted_us(config: ClockConfig) -> float:
    """What the shortest batch of a launch should last."""
    return config.batch_us * SHORTEST_SHARE


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


def room_of(case: Case, sets: Sequence[InputSet]) -> Room:
    """For the sets of timed calls, and in train mode what their backward passes start from."""
    assert case.expected is not None
    call = case.expected.calls[0]
    outputs = call["slots"][: call["num_leaves"]] if case.train else []
    return Room(sets, case.source.grads, cotangents=slots_like(outputs))


def choose_num_calls(
    case: Case,
    runner: RunnerHandle,
    limits: Limits,
    config: ClockConfig,
    rng: random.Random,
    generator: torch.Generator,
) -> int:
    """Calls that make a batch long enough, by a runner of the reference that is alone: as far as
    the memory for their tensors allows here, which a later launch may have more of."""
    assert case.plan is not None
    slots = reference_slots_of(case)
    wanted = num_calls = 1
    for _ in range(2):  # one call, then as many as that one says: a moment of noise misleads less
        base = [case.kept(case.source.draw_alike(i, generator)) for i in range(num_calls)]
        room = room_of(case, base * case.plan.num_places)
        stock = Stock(case.source, base, rng, generator)
        lane = open_lane(case, "probe", runner, room, base, slots, limits)
        said = []
        for _ in range(4):
            probe = new_round(case, room, stock, rng)
            ready(case, lane, probe, limits)
            said.append(span_of(case, lane, probe, "batch", limits)[1])
            del probe
        claims_us = [float(one["claim_us"]) for one in said[1:]]
        waits_us = [float(one["claim_us"]) - float(one["issue_us"]) for one in said[1:]]
        case.is_device_bound = min(waits_us) > GATHER_US * num_calls * max(1, len(slots))
        call_us = max(min(claims_us) / num_calls, 0.5)
        wanted = min(int(config.batch_us / call_us) + 1, config.max_calls)
        num_calls = min(wanted, case.plan.most_calls)
        if num_calls == 1:
            break
    return wanted


def exchange_cost_us(case: Case, lane: Lane, one: Round, limits: Limits) -> float:
    """What a batch costs beyond its calls, by the reference: a message, a copy of the outputs of
    its last batch, and on a GPU that of the inputs. The first quartile of a few."""
    costs_us = []
    for _ in range(NUM_EXCHANGES):
        lane.runner.pause()
        costs_us.append(span_of(case, lane, one, "exchange", limits)[0])
    return statistics.quantiles(costs_us, n=4, method="inclusive")[0]


def reconcile(
    case: Case, trusted: Sequence[Lane], lane: Lane, cost_us: float, alone_us: float
) -> dict[str, float] | None:
    """The judge's time against what the runner says of its own, as far as the trusted reference
    shows that the two may lie apart in this launch: it copies outputs of the same size on the same
    busy machine, and the other one may take `alone_us` more for them, if each is copied alone.
    Returns both times of a batch in microseconds where they contradict each other."""
    apart_us = [
        span - claim
        for one in trusted
        for span, claim in zip(one.spans_us, one.claims_us, strict=True)
    ]
    relative, absolute_us = RECONCILIATION[case.accelerator.kind]
    allowed_us = RECONCILIATION_COST * max(cost_us, *apart_us) + alone_us
    over = [
        span - allowed_us - claim * (1 + relative)
        for span, claim in zip(lane.spans_us, lane.claims_us, strict=True)
    ]
    if min(over) <= absolute_us:
        return None
    span_us = statistics.median(lane.spans_us) - cost_us
    return {"claim_us": statistics.median(lane.claims_us), "span_us": span_us}
