"""Run the rounds of one repetition, and check what they return.

    found = timed(case, runners, answer_slots, limits, config, rng, generator, num_calls)

Between the rounds that count come close, secret and chained ones, which do not.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from ..forkserver.handles import RunnerFailure, RunnerHandle
from ..verifier.cases import Case, Limits, Rejected
from ..verifier.compare import Tolerance
from ..verifier.inputs import Room
from ..wire.runner import Batch, Exchange
from ..wire.tensors import OutputSlot
from .batch_length import ClockConfig, more_calls, reference_slots_of, room_of, wanted_us
from .chained import Chains
from .nearby import KnownJumps, Nearby
from .new_inputs import Stock
from .round_times import is_plain, is_steady, reconcile, times
from .secret_rounds import SecretRounds
from .strided_copy import copying_us
from .timed_checks import check_aftermath, check_inputs, check_left, check_outputs, timed_tolerances
from .timed_rounds import (
    Lane,
    Round,
    fill_in,
    new_round,
    open_lanes,
    span_of,
    warm_up,
)

NUM_EXCHANGES, FEWEST_EXCHANGES = 9, 4
EXCHANGE_SHARE = 0.5
"""Share of the rounds after which an exchange is measured, where batches are short."""
SHORT_BATCH_US = 5000.0
"""In a longer batch it matters little what is in the caches when it begins."""
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
SPOILED_SHARE = 0.125
"""The same for rounds that do not count and whose inputs are gone before outputs are taken. What
takes them is not timed, so a program could compute them there."""


@dataclass(frozen=True)
class Timed:
    """Rounds of runners that alternate: microseconds a call of each, by name."""

    times_us: dict[str, tuple[float, ...]]
    num_calls: int
    contradiction: Rejected | None
    """The verdict on a candidate whose times contradict each other."""
    phases_s: dict[str, float]


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
    jumps: KnownJumps = field(default_factory=KnownJumps)
    exchanges_us: list[float] = field(default_factory=list)
    """What exchanges between rounds took, by runners of the reference's text."""
    unknown_us: float = 0.0
    """By how much the cost of an exchange may be off. The calls of a batch that seem to take less
    are not known to: where other work delays exchanges and not a batch, little would be left."""

    @property
    def reference(self) -> Lane:
        return self.lanes["reference"]

    @property
    def candidate(self) -> Lane:
        """Return the candidate, or the reference where the control alone is timed."""
        return self.lanes.get("candidate", self.reference)

    @property
    def both(self) -> tuple[Lane, Lane]:
        return self.reference, self.candidate

    def new(self, last: Round | None = None) -> Round:
        """Draw a round, or one that is nearly the last one."""
        return new_round(self.case, self.room, self.stock, self.rng, last=last)

    def new_chain(self, num_calls: int) -> Round:
        """Draw a round of which only so many calls have values."""
        return new_round(self.case, self.room, self.stock, self.rng, num_calls=num_calls)

    def complete(self, one: Round, num_calls: int) -> None:
        """Give the calls of such a round after the first ones values too."""
        fill_in(one, self.stock, start=num_calls)

    def repeat(
        self, one: Round, keeps: bool = False, rounding: int | None = None, spoils: bool = False
    ) -> None:
        """Play a round that does not count. With a seed of `rounding` the reference rounds at
        random."""
        play(
            self.case,
            self.both,
            one,
            self.rng,
            self.limits,
            counts=False,
            keeps=keeps,
            rounding=rounding,
            spoils=spoils,
        )

    def nearby(self, one: Round) -> Nearby:
        """Return what repeats a round on inputs that differ by rounding."""
        return Nearby(self.repeat, self.stock, self.rng, one, self.jumps)

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

    def play_spoiled(self) -> None:
        """Play and check a round whose inputs are gone before its outputs are taken. Committed ones
        are taken before, and some are inputs themselves. Raises Rejected."""
        assert self.case.expected is not None
        is_input = any(any(map(any, call.aliases)) for call in self.case.expected.calls)
        if not (self.reference.commits or is_input):
            one = self.new()
            self.repeat(one, spoils=True)
            self.check(one)

    def exchange(self) -> None:
        """Make all lanes exchange a batch that calls nothing, where they keep their last rounds.
        What it takes depends on what ran before, as a batch does: other processes leave nothing of
        a runner in the caches. The inputs are those that the programs have had already. All lanes
        take part, as an exchange warms a runner up for its next batch."""
        for lane in self.rng.sample(list(self.lanes.values()), len(self.lanes)):
            if lane.last_round is not None:
                took_us = exchange_us(self.case, lane, lane.last_round, self.limits)
                if lane.name != "candidate":
                    self.exchanges_us.append(took_us)

    def measure_exchange(self) -> None:
        """Take the cost of an exchange from those between rounds, with what the first calls of a
        batch take more than usual ones: a program's loop has both once, and not in every
        millisecond. Where there are none, measure it again: other work can only have added to its
        cost before."""
        if len(self.exchanges_us) >= FEWEST_EXCHANGES:
            trusted = [lane for name, lane in self.lanes.items() if name != "candidate"]
            colds_us = [one for lane in trusted for one in lane.colds_us]
            parts = self.exchanges_us, colds_us
            self.cost_us = sum(map(first_quartile, parts))
            self.unknown_us = sum(map(statistics.median, parts)) - self.cost_us
            return
        one = self.new()
        # With inputs and outputs of the same batch.
        play(self.case, [self.reference], one, self.rng, self.limits, counts=False)
        found_us = measured_exchanges(self.case, self.reference, one, self.limits)
        self.cost_us = min(self.cost_us, first_quartile(found_us))
        self.unknown_us = statistics.median(found_us) - self.cost_us


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
    found_us = times(rounds.lanes, rounds.cost_us, rounds.num_calls, rounds.unknown_us)
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
    if case.cast is not None and case.state_slots:
        state = case.timed_state()
        for runner in runners.values():
            case.load_state(runner, state, limits)
            runner.pause()
        del state
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
        rounds.cost_us = first_quartile(measured_exchanges(case, rounds.reference, first, limits))
        del first  # a round holds as much as the inputs of a runner
        more = more_calls(case, num_calls, rounds.shortest_us - rounds.cost_us, config)
        if is_last or more == num_calls:
            break
        num_calls = more
    return rounds


def numbers_of_rounds(rounds: Rounds, config: ClockConfig) -> tuple[int, int]:
    """Return the usual and the largest number of rounds. On a GPU there are more where batches are
    too short."""
    if rounds.case.accelerator.kind == "cpu":
        return config.num_rounds, config.num_rounds
    short_by = wanted_us(rounds.case, config) / max(rounds.shortest_us - rounds.cost_us, 1.0)
    usual = math.ceil(config.num_rounds * min(max(short_by, 1.0), MORE_ROUNDS))
    return usual, usual if config.most_error is None else config.num_rounds * MORE_ROUNDS


def run_rounds(rounds: Rounds, config: ClockConfig, started_s: float) -> Rejected | None:
    """Run rounds until they suffice, with secret and chained ones between them. Return the verdict
    on times that contradict each other. Raises Rejected."""
    case, rng, limits = rounds.case, rounds.rng, rounds.limits
    reference, candidate = rounds.both
    num_rounds, most_rounds = numbers_of_rounds(rounds, config)
    early = min(EARLY_ROUNDS, config.num_rounds)
    checked, close, spoiled = (rng.randrange(early) for _ in range(3))
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
        rounds.new_chain,
        rounds.complete,
        rounds.repeat,
        rounds.check_again,
        config.num_rounds,
    )
    case.counts = True
    for lane in rounds.lanes.values():
        lane.keeps_round = case.accelerator.kind == "cpu" and rounds.shortest_us < SHORT_BATCH_US
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
        if ends or rng.random() < EXCHANGE_SHARE:
            rounds.exchange()
        del last
        if ends or number == spoiled or (number > spoiled and rng.random() < SPOILED_SHARE):
            rounds.play_spoiled()
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
    found_us = times(rounds.lanes, rounds.cost_us, rounds.num_calls, rounds.unknown_us)
    return chains.contradiction(found_us["reference"], found_us["candidate"])


def play(
    case: Case,
    lanes: Sequence[Lane],
    one: Round,
    rng: random.Random,
    limits: Limits,
    *,
    counts: bool,
    keeps: bool = False,
    rounding: int | None = None,
    spoils: bool = False,
) -> None:
    """Run one batch in every lane. Keep its times where the round `counts`. Where it `keeps`,
    outputs that are committed are held until the batch ends. Where it `spoils`, inputs are gone
    before outputs are taken. With a seed of `rounding` the first lane, the reference, rounds at
    random.

    Raises:
        RunnerFailure: Of a lane that failed. An input may be one that the reference rejects too,
            such as a matrix that is no longer positive. Then the failure is the reference's, even
            if the candidate ran first.
    """
    for lane in lanes:
        lane.runner.pause()
    order = rng.sample(lanes, len(lanes))
    for number, lane in enumerate(order, 1):
        seed = rounding if lane is lanes[0] else None
        request = Batch(seed=one.seed, keeps=keeps, rounding=seed)
        try:
            span_us, said = span_of(case, lane, one, request, limits, spoils=spoils)
        except RunnerFailure as failure:
            if failure.kind == "raised" and not failure.is_trusted:
                for other in order[number:]:
                    span_of(case, other, one, request, limits)
            raise
        if counts:
            lane.spans_us.append(span_us)
            lane.claims_us.append(said.claim_us)
            lane.colds_us.append(said.cold_us)


def measured_exchanges(case: Case, lane: Lane, one: Round, limits: Limits) -> list[float]:
    """Return what a few exchanges take. Their first quartile is what a batch costs beyond its
    calls."""
    return [exchange_us(case, lane, one, limits) for _ in range(NUM_EXCHANGES)]


def exchange_us(case: Case, lane: Lane, one: Round, limits: Limits) -> float:
    """Return what a batch that calls nothing takes: a message and a copy of the outputs of the last
    batch, the work around each call, and on a GPU a copy of the inputs and the turn of its process.
    Outputs to commit have to be written first; that time is not part of it."""
    lane.runner.pause()
    span_us, said = span_of(case, lane, one, Exchange(seed=one.seed), limits)
    return max(span_us - said.claim_us, 0.0)


def first_quartile(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=4, method="inclusive")[0]
