"""Time paired batches in fresh processes, from outside, and check their outputs.

A repetition forks three runners: the reference, the candidate, and the reference again (the A/A
control). None of them knows its role. In every round each of them, in random order, makes
`num_calls` calls on the same new inputs and copies all outputs out. The verifier's own clock runs
from `go` until the runner cannot change the outputs any more. The cost of the exchange is
subtracted. It is measured on the trusted reference by copying the same outputs once more. So work
that a candidate postpones until its outputs are requested counts as its own time. The runner's own
claim of its time is only compared.

timed_rounds.py defines a round, and why nothing can be done ahead of it. All inputs of a batch are
in a runner's memory, so some batches are chained (chained.py): there each input comes after the
answer before it.
"""

from __future__ import annotations

import math
import os
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

import torch

from ..forkserver.handles import RunnerFailure, RunnerHandle
from ..memory.segment import size_bytes
from ..runner.cotangents import slots_like
from ..verifier.cases import Case, Limits, Rejected, size_of
from ..verifier.compare import Tolerance
from ..verifier.failures import is_out_of_memory, rejection_of_candidate
from ..verifier.inputs import InputSet, Room
from ..verifier.memory_plan import CPU_SHARE, GPU_SHARE, Plan, least_bytes, plan
from ..verifier.value_shapes import bounded
from ..wire.programs import Program
from ..wire.runner import Batch, Called, Exchange
from ..wire.tensors import OutputSlot
from ..wire.verifier import Clock, Times
from .chained import Chains
from .new_inputs import Stock
from .reuse_runners import Kept
from .round_times import is_plain, is_steady, reconcile, times
from .runner_groups import Crews, most_crews
from .secret_rounds import SecretRounds
from .strided_copy import copying_us
from .timed_checks import check_aftermath, check_inputs, check_left, check_outputs, timed_tolerances
from .timed_rounds import (
    Lane,
    Round,
    are_committed,
    lead_in,
    nearby_round,
    new_round,
    open_lane,
    open_lanes,
    ready,
    span_of,
    warm_up,
)

GATHER_US = 4.0
"""More than a runner takes to check one output. Where the device works longer than that after
the last call returned, the check happens during that work."""
NUM_EXCHANGES = 9
NEAR_BYTES, FEWEST_NEAR = 2**20, 4
"""Size of the inputs and kept outputs of a batch on a CPU, half of the cache of a core; and the
calls that a batch may have in any case."""
SHORTEST_SHARE = 0.5
"""Least share of the wanted length of a batch. A faster candidate gets more calls, as does its
reference."""
MOST_TIMES = 8.0
"""Most multiple of calls, since the reference takes as many times as long."""
MORE_ROUNDS = 4
"""Most multiple of rounds, where batches are too short or rounds disagree."""
EARLY_ROUNDS = 3
"""After one of the first rounds, drawn at random, gradients of parameters and the state are
compared,"""
CHECKED_SHARE = 0.25
"""after this share of the others, and after the last. A time is then not that of a few rounds
only."""
CLOSE_SHARE = 0.125
"""After one of the first rounds, this share of the others and the last comes a round that does
not count. Its inputs are the same except for a few elements. A program that keeps answers by a
part of the input is wrong there, and saves nothing in rounds that count. All outputs are held
until its end, so one that is written again after it was returned is wrong too. It comes after the
last round too. A program could start to keep answers only after many calls, and there are few calls
before where one call is a batch."""


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


@dataclass(frozen=True)
class Timed:
    """Rounds of runners that alternate: microseconds a call of each, by name."""

    times_us: dict[str, tuple[float, ...]]
    num_calls: int
    contradiction: Rejected | None
    """The verdict on a candidate whose times contradict each other."""
    phases_s: dict[str, float]


def launch(
    case: Case,
    crews: Crews | Kept,
    program: Program,
    answer_slots: Sequence[OutputSlot],
    limits: Limits,
    config: ClockConfig,
    rng: random.Random,
    num_calls: int | None = None,
) -> tuple[Times, Rejected | None]:
    """Return paired times from three fresh processes, and the control's. Where memory is short, two
    processes are timed, then two more for the control.

    The result includes the verdict on a candidate whose times contradict each other. `num_calls`
    is the size of a batch in an earlier repetition: a fast candidate's batch holds more than its
    reference needs.

    Raises:
        Rejected: A timed output is wrong, or the candidate failed.
        RunnerFailure: The reference failed, which gives no information on the candidate.
    """
    case.counts = False
    if num_calls is None:  # another candidate
        case.chained, case.has_endured, case.secret_trials = [], False, []
    generator = torch.Generator(case.accelerator.device).manual_seed(rng.randrange(2**62))
    if case.num_calls is None:
        case.plan = plan_of(case, config)
        case.num_calls = alone(case, crews, limits, config, rng, generator)
    if case.plan is None or num_calls is None or config.is_least:
        # What others leave of the device's memory is not the same for each candidate.
        case.plan = plan_of(case, config)
    plan = case.plan

    def together(number: int, *names: str) -> Timed:
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
        found = together(number, "reference", "candidate", "control")
        return all_times(found, found.times_us["control"]), found.contradiction
    found = together(1, "reference", "candidate")
    control = together(1, "reference", "control").times_us
    return all_times(found, control["control"], control["reference"]), found.contradiction


def all_times(
    found: Timed, control_us: tuple[float, ...], its_reference_us: tuple[float, ...] | None = None
) -> Times:
    """Return the times of reference and candidate with the control's."""
    return Times(
        reference_us=found.times_us["reference"],
        candidate_us=found.times_us["candidate"],
        control_us=control_us,
        control_reference_us=its_reference_us,
        num_calls=found.num_calls,
        phases_s=found.phases_s,
    )


def plan_of(case: Case, config: ClockConfig) -> Plan:
    """Plan the memory of a batch's tensors. Raises Rejected when they do not fit."""
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
    programs: dict[str, Program],
    number: int,
    answer_slots: Sequence[OutputSlot],
    limits: Limits,
    config: ClockConfig,
    rng: random.Random,
    generator: torch.Generator,
    num_calls: int,
) -> Timed:
    """Time fresh processes that alternate. Where none waits, `number` groups of them are
    started. Raises as `launch` does."""
    names = list(programs)
    try:
        crew = crews.take(case, programs, limits, number, rng)
        try:
            # The order in which equal processes are warmed up affects their times.
            runners = {name: crew.runners[name] for name in rng.sample(names, len(names))}
            with beside(case, runners["reference"]):
                found = timed(
                    case, runners, answer_slots, limits, config, rng, generator, num_calls
                )
        finally:
            crew.end()
        return replace(found, phases_s={"open": crews.open_s, **found.phases_s})
    except RunnerFailure as failure:
        if failure.is_trusted:
            if failure.kind == "raised" and not is_out_of_memory(failure):
                case.source.is_rigid = True  # when the repetition is made again
            raise
        raise rejection_of_candidate(failure, programs["candidate"]) from failure


@contextmanager
def beside(case: Case, runner: RunnerHandle) -> Iterator[None]:
    """Write inputs on a core of the runners where programs run on the CPU. They then lie in its
    cache, as what the operation before has written in a program's loop. The verifier sleeps while
    a runner works."""
    before = os.sched_getaffinity(0)
    cores = runner.cores() if case.accelerator.kind == "cpu" else set()
    if not cores or cores == before:
        yield
        return
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def alone(
    case: Case,
    crews: Crews | Kept,
    limits: Limits,
    config: ClockConfig,
    rng: random.Random,
    generator: torch.Generator,
) -> int:
    """Choose the calls in a batch, by a reference that runs without others. Where it rejects
    inputs that are changed element by element (a matrix that must stay symmetric), they are
    scaled."""
    try:
        with crews.reference(case, limits) as runner:
            return choose_num_calls(case, runner, limits, config, rng, generator)
    except RunnerFailure as failure:
        if failure.kind != "raised" or case.source.is_rigid:
            raise
    case.source.is_rigid = True
    return alone(case, crews, limits, config, rng, generator)


@dataclass
class Rounds:
    """Hold what the rounds of a repetition share."""

    case: Case
    lanes: dict[str, Lane]
    room: Room
    stock: Stock
    rng: random.Random
    limits: Limits
    tolerances: list[Tolerance]
    num_calls: int
    shortest_us: float
    """Length of the shortest batch of the warm-up."""
    cost_us: float
    """What the exchange around a batch takes."""

    @property
    def reference(self) -> Lane:
        return self.lanes["reference"]

    @property
    def candidate(self) -> Lane:
        """The candidate, or the reference where the control alone is timed."""
        return self.lanes.get("candidate", self.reference)

    @property
    def both(self) -> tuple[Lane, Lane]:
        return self.reference, self.candidate

    def new(self, last: Round | None = None) -> Round:
        """Draw a round, or one that is nearly the last one."""
        return new_round(self.case, self.room, self.stock, self.rng, last=last)

    def repeat(self, one: Round, keeps: bool = False) -> None:
        """Play a round that does not count."""
        play(self.case, self.both, one, self.rng, self.limits, counts=False, keeps=keeps)

    def nearby(self, one: Round) -> Nearby:
        """Return what repeats a round on inputs that differ by rounding."""
        return Nearby(self.case, self.both, self.stock, self.rng, self.limits, one)

    def check_again(self, one: Round) -> None:
        """Play a round that does not count, and compare its outputs. Raises Rejected."""
        self.repeat(one)
        check_outputs(*self.both, self.tolerances, self.nearby(one))

    def check(self, one: Round) -> Nearby:
        """Check what calls returned and left. Return the means to check it further. Raises
        Rejected."""
        nearby = self.nearby(one)
        check_outputs(*self.both, self.tolerances, nearby)
        check_inputs(self.case, *self.both, nearby.one)
        check_left(*self.both, self.limits)
        return nearby

    def play_close(self, last: Round) -> None:
        """Play and check a round that is nearly the last one. Raises Rejected."""
        one = self.new(last)
        self.repeat(one, keeps=True)
        self.check(one)

    def measure_exchange(self) -> None:
        """Measure the exchange again. Other work can only have added to its cost before."""
        one = self.new()
        # With inputs and outputs of the same batch.
        play(self.case, [self.reference], one, self.rng, self.limits, counts=False)
        cost_us = exchange_cost_us(self.case, self.reference, one, self.limits)
        self.cost_us = min(self.cost_us, cost_us)


def timed(
    case: Case,
    runners: dict[str, RunnerHandle],
    answer_slots: Sequence[OutputSlot],
    limits: Limits,
    config: ClockConfig,
    rng: random.Random,
    generator: torch.Generator,
    num_calls: int,
) -> Timed:
    """Run the rounds of a repetition."""
    opened_s = time.monotonic()
    rounds = open_rounds(case, runners, answer_slots, limits, config, rng, generator, num_calls)
    started_s = time.monotonic()
    contradiction = run_rounds(rounds, config, started_s)
    found_us = times(rounds.lanes, rounds.cost_us, rounds.num_calls)
    phases_s = {"warm_up": started_s - opened_s, "rounds": time.monotonic() - started_s}
    return Timed(found_us, rounds.num_calls, contradiction, phases_s)


def open_rounds(
    case: Case,
    runners: dict[str, RunnerHandle],
    answer_slots: Sequence[OutputSlot],
    limits: Limits,
    config: ClockConfig,
    rng: random.Random,
    generator: torch.Generator,
    num_calls: int,
) -> Rounds:
    """Open the lanes and warm them up, again with more calls where a batch is too short."""
    reference_slots = reference_slots_of(case)
    layouts = {
        "reference": reference_slots,
        "candidate": answer_slots,
        "control": reference_slots,
    }
    tolerances = timed_tolerances(case, len(reference_slots))
    assert case.plan is not None
    for is_last in (False, True):
        base = [case.kept(case.source.draw_alike(i, generator)) for i in range(num_calls)]
        stock = Stock(case.source, base, rng, generator)
        room = room_of(case, base * case.plan.num_places)
        lanes = open_lanes(case, runners, room, base, layouts, limits)
        rounds = Rounds(case, lanes, room, stock, rng, limits, tolerances, num_calls, 0.0, 0.0)
        first = rounds.new()
        rounds.shortest_us = warm_up(case, list(lanes.values()), first, limits, config.cores)
        check_outputs(*rounds.both, tolerances, rounds.nearby(first))
        rounds.cost_us = exchange_cost_us(case, rounds.reference, first, limits)
        del first  # a round holds as much as the inputs of a runner
        more = more_calls(case, num_calls, rounds.shortest_us - rounds.cost_us, config)
        if is_last or more == num_calls:
            break
        num_calls = more
    return rounds


def numbers_of_rounds(rounds: Rounds, config: ClockConfig) -> tuple[int, int]:
    """Return the usual and the largest number of rounds. On a GPU there are more where batches are
    too short, and a call comes before each."""
    if rounds.case.accelerator.kind == "cpu":
        return config.num_rounds, config.num_rounds
    short_by = wanted_us(config) / max(rounds.shortest_us - rounds.cost_us, 1.0)
    for lane in rounds.lanes.values():
        lane.rehearses = int(short_by > 1)
    usual = math.ceil(config.num_rounds * min(max(short_by, 1.0), MORE_ROUNDS))
    return usual, usual if config.most_error is None else config.num_rounds * MORE_ROUNDS


def run_rounds(rounds: Rounds, config: ClockConfig, started_s: float) -> Rejected | None:
    """Run rounds until they suffice, with secret and chained ones between them. Return the verdict
    on times that contradict each other. Raises Rejected."""
    case, rng, limits = rounds.case, rounds.rng, rounds.limits
    reference, candidate = rounds.both
    num_rounds, most_rounds = numbers_of_rounds(rounds, config)
    checked, close = (rng.randrange(min(EARLY_ROUNDS, config.num_rounds)) for _ in range(2))
    secret = SecretRounds(
        case,
        reference,
        candidate,
        rounds.room,
        rounds.stock,
        rng,
        limits,
        rounds.tolerances,
        rounds.repeat,
        rounds.nearby,
        config.num_rounds,
    )
    chains = Chains(
        case,
        reference,
        candidate,
        rng,
        limits,
        rounds.tolerances,
        rounds.new,
        rounds.repeat,
        rounds.check_again,
        config.num_rounds,
    )
    case.counts = True
    for number in range(most_rounds):
        one = rounds.new()
        play(case, list(rounds.lanes.values()), one, rng, limits, counts=True)
        nearby = rounds.check(one)
        is_late = number >= 2 and time.monotonic() - started_s > config.repetition_s
        is_enough = number + 1 >= num_rounds and is_steady(rounds.lanes, rounds.cost_us, config)
        is_most = number + 1 == most_rounds
        ends = is_late or is_enough or is_most or is_plain(rounds.lanes, rounds.cost_us, config)
        if ends or number == checked or (number > checked and rng.random() < CHECKED_SHARE):
            check_aftermath(case, reference, candidate, limits, nearby)
        last = nearby.one
        del one, nearby
        if ends or number == close or (number > close and rng.random() < CLOSE_SHARE):
            rounds.play_close(last)
        del last
        if candidate is not reference:
            secret.after(number, ends)
            chains.after(number, ends)
        if ends:
            break
    rounds.measure_exchange()
    return contradiction_of(rounds, chains)


def contradiction_of(rounds: Rounds, chains: Chains) -> Rejected | None:
    """Return the verdict where the runner's claim, or chained batches, contradict the times of
    rounds. Raises Rejected."""
    reference, candidate = rounds.both
    trusted = [lane for name, lane in rounds.lanes.items() if name != "candidate"]
    alone_us = copying_us(rounds.case.accelerator, candidate.slots[0], rounds.num_calls)
    found = reconcile(rounds.case, trusted, candidate, rounds.cost_us, alone_us)
    if candidate is reference or found is not None:
        return found
    found_us = times(rounds.lanes, rounds.cost_us, rounds.num_calls)
    medians = (statistics.median(found_us[name]) for name in ("reference", "candidate"))
    return chains.contradiction(*medians)


def play(
    case: Case,
    lanes: Sequence[Lane],
    one: Round,
    rng: random.Random,
    limits: Limits,
    *,
    counts: bool,
    keeps: bool = False,
) -> None:
    """Run one batch in every lane. Keep its times where the round `counts`. Where it `keeps`,
    outputs that are committed are held until the batch ends.

    Raises:
        RunnerFailure: Of a lane that failed. An input may be one that the reference rejects too,
            such as a matrix that is no longer positive. Then the failure is the reference's, even
            if the candidate ran first.
    """
    for lane in lanes:
        ready(lane, one, limits)
    order = rng.sample(lanes, len(lanes))
    request = Batch(seed=one.seed, keeps=keeps)
    for number, lane in enumerate(order, 1):
        try:
            span_us, said = span_of(case, lane, one, request, limits)
        except RunnerFailure as failure:
            if failure.kind == "raised" and not failure.is_trusted:
                for other in order[number:]:
                    span_of(case, other, one, request, limits)
            raise
        if counts:
            lane.spans_us.append(span_us)
            lane.claims_us.append(said.claim_us)


@dataclass
class Nearby:
    """Let lanes repeat a round that does not count, on inputs that differ by rounding."""

    case: Case
    lanes: Sequence[Lane]
    stock: Stock
    rng: random.Random
    limits: Limits
    one: Round
    """The last round that ran."""

    def __post_init__(self) -> None:
        self.first = self.one

    def __call__(self) -> None:
        self.one = nearby_round(self.first, self.stock)
        play(self.case, self.lanes, self.one, self.rng, self.limits, counts=False)


def more_calls(case: Case, num_calls: int, shortest_us: float, config: ClockConfig) -> int:
    """Return more calls in a batch for a candidate whose batch would be too short to time."""
    if shortest_us >= wanted_us(config):
        return num_calls
    assert case.plan is not None
    wanted = int(num_calls * wanted_us(config) / max(shortest_us, 1.0)) + 1
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


def wanted_us(config: ClockConfig) -> float:
    """Return the wanted length of the shortest batch of a repetition."""
    return config.batch_us * SHORTEST_SHARE


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
            ready(lane, probe, limits)
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


def exchange_cost_us(case: Case, lane: Lane, one: Round, limits: Limits) -> float:
    """Return what a batch costs beyond its calls, by the reference: a message and a copy of the
    outputs of its last batch, the work around each call, and on a GPU a copy of the inputs. It is
    the first quartile of a few. What committing costs is the difference of batches that fill and
    commit outputs, and that fill them alone."""
    kinds: tuple[Literal["calls", "fills", "message"], ...] = ("calls",)
    if lane.commits:
        kinds = ("calls", "fills", "message")
    costs_us: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(NUM_EXCHANGES):
        for kind in kinds:
            lane.runner.pause()
            request = Exchange(seed=one.seed, kind=kind)
            costs_us[kind].append(span_of(case, lane, one, request, limits)[0])
    typical = {
        kind: statistics.quantiles(found, n=4, method="inclusive")[0]
        for kind, found in costs_us.items()
    }
    if not lane.commits:
        return typical["calls"]
    return typical["message"] + max(typical["calls"] - typical["fills"], 0.0)
