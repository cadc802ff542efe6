"""Time calls of which each gets its input only after the output before it was taken.

A program that finds all inputs of a batch in its memory may compute them together, which no caller
could. So some batches are chained: the verifier writes one input, and writes the next one when it
has the answer. Messages cost as much in both programs, so the difference of their times is what a
call really saves. A gain that is there only in unchained batches is none.

On a GPU an unchained batch hides the time of the host behind that of the device, or the other way
round. An honest call takes at most their sum when it is alone, that is twice as long. How often
this rule is wrong about honest programs was measured on no GPU, and one was accused there. So the
verdict there is `inconclusive`: nothing is gained, and no program is accused.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch

from ..memory.segment import ALIGNMENT_BYTES, view_of
from ..verifier.cases import Case, ChainedSteps, Limits, Rejected
from ..verifier.compare import Tolerance
from ..verifier.value_shapes import tidied
from ..wire.codec import encode
from ..wire.runner import Arrange, Batch, Deliver, Exchange, Rehearse, Settle
from .quiescence import quiet_others
from .timed_checks import is_close, off_by
from .timed_rounds import SETTLE_S, Lane, Round

NUM_CHAINS, MOST_CHAINS = 4, 16
"""Chained batches of a repetition, and at most, where more steps are needed."""
CONFIRMED = 3
"""Repetitions whose steps are looked at together."""
FEWEST_STEPS, FEWEST_ON_GPU = 16, 64
"""Steps of each program without which nothing is said. On a GPU they vary more."""
NUM_RESAMPLES, CONFIDENCE = 400, 0.99
MOST_STEPS, CHAIN_US = 8, 10_000.0
LEAST_GAIN = 0.1
"""Share of the reference's time that a candidate must save for its gain to be looked into."""
KEPT_SHARE, KEPT_ON_GPU, SLACK_US = 0.5, 0.25, 3.0
"""Of a gain at least this share, less the slack, must be there in chained calls too. After a
message caches are colder, by more for a program with more code. On a GPU an honest softmax of 4 MB
kept 13 of 47 us (one H200)."""
ALONE_FACTOR, ALONE_US = 2.0, 10.0
"""How much longer a call may take alone on a GPU than in a row."""


@dataclass
class Chains:
    """The chained batches of one repetition."""

    case: Case
    reference: Lane
    candidate: Lane
    rng: random.Random
    limits: Limits
    tolerances: list[Tolerance]
    new_round: Callable[[], Round]
    play: Callable[[Round], None]
    """Plays a round as an ordinary batch that does not count,"""
    repeat: Callable[[Round], None]
    """and checks it too."""
    num_rounds: int
    found_us: dict[str, list[list[float]]] = field(default_factory=dict)
    """Every step of each chained batch, by lane."""

    def __post_init__(self) -> None:
        self.due = [self.rng.randrange(max(1, self.num_rounds)) for _ in range(NUM_CHAINS)]

    def after(self, number: int, ends: bool) -> None:
        """Chain batches where some are due, and the candidate is faster so far. Raises
        Rejected."""
        if len(self.candidate.slots) < 2:
            return
        theirs, ours = (statistics.median(one.spans_us) for one in (self.reference, self.candidate))
        if ours > theirs * (1 - LEAST_GAIN / 2):
            return
        num_due = NUM_CHAINS if ends else sum(due <= number for due in self.due)
        call_us = theirs / len(self.reference.slots)
        for _ in range(num_due - self.num_chains):
            self.chain(call_us)
        while ends and 0 < self.num_chains < MOST_CHAINS and self.is_short():
            self.chain(call_us)

    @property
    def num_chains(self) -> int:
        return len(self.found_us.get(self.candidate.name, ()))

    def is_short(self) -> bool:
        """Return whether more steps are needed."""
        fewest = FEWEST_STEPS if self.case.accelerator.kind == "cpu" else FEWEST_ON_GPU
        return sum(map(len, self.found_us[self.candidate.name])) < fewest

    def chain(self, call_us: float) -> None:
        """Run one chained batch in both lanes, and compare its outputs. Raises Rejected."""
        one = self.new_round()
        num_steps = max(2, min(len(one.places), MOST_STEPS, int(CHAIN_US / call_us)))
        outputs = {}
        for lane in self.rng.sample((self.reference, self.candidate), 2):
            spans_us, outputs[lane.name] = self.steps(lane, one, num_steps)
            self.found_us.setdefault(lane.name, []).append(spans_us)
        ours, theirs = outputs[self.candidate.name], outputs[self.reference.name]
        if all(map(self.are_close, ours, theirs)):
            return
        if self.case.leaves_traces:
            raise off_by(0, float("inf"))
        self.repeat(one)
        self.play(one)  # the check may have played another one, with inputs nearby
        for position, values in enumerate(ours):
            again = [
                self.candidate.all_calls(leaf)[position] for leaf in range(len(self.tolerances))
            ]
            if not self.are_close(values, again):
                raise off_by(0, float("inf"))

    def are_close(self, ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> bool:
        return all(
            is_close(one, other, budget)
            for one, other, budget in zip(ours, theirs, self.tolerances, strict=True)
        )

    def steps(
        self, lane: Lane, one: Round, num_steps: int
    ) -> tuple[list[float], list[list[torch.Tensor]]]:
        """Return microseconds of each step, and its outputs."""
        runner = lane.runner
        runner.ask(Settle(), SETTLE_S)
        quiet_others(runner)
        spans_us, outputs = [], []
        for position, place_number in enumerate(one.places[:num_steps]):
            runner.ask(Arrange(sets=(place_number,)), self.limits.call_s)
            runner.ask(Rehearse(num_calls=1), self.limits.call_s)
            spans_us.append(self.step(lane, one, place_number, Batch(seed=one.seed + position)))
            values = tidied(self.delivered(lane, one), self.case.bounds)
            outputs.append([value.clone() for value in values])
        runner.pause()
        return spans_us, outputs

    def step(self, lane: Lane, one: Round, place_number: int, request: Batch | Exchange) -> float:
        """Release an input and take the output. Return microseconds."""
        accelerator, wanted = self.case.accelerator, Deliver(region=one.region)
        body, wanted_body = encode(request), encode(wanted)
        slots = list(one.room.layout[place_number])
        slots += one.room.cotangents[place_number] if one.room.cotangents else ()
        # Alone: where sets are small, `Round.write` writes all of them at once.
        pairs = [(lane.inputs.tensor(slot), view_of(one.staged, slot)) for slot in slots]
        accelerator.settle()
        start_s = time.perf_counter()
        for tensor, value in pairs:
            tensor.copy_(value)
        accelerator.synchronize()
        claim = lane.runner.send(request, body, self.limits.call_s)
        delivered = lane.runner.send(wanted, wanted_body, self.limits.call_s)
        span_us = (time.perf_counter() - start_s) * 1e6
        claim.read()
        delivered.read()
        return span_us

    def delivered(self, lane: Lane, one: Round) -> list[torch.Tensor]:
        """Return views of the outputs of the only call of the last step."""
        flat = lane.outputs.flat()
        shift = 0 if lane.commits else one.region * ALIGNMENT_BYTES
        return [view_of(flat, replace(slot, offset=slot.offset + shift)) for slot in lane.slots[0]]

    def exchange_us(self) -> float:
        """Return what a step of the reference takes that calls nothing."""
        one = self.new_round()
        self.steps(self.reference, one, 1)
        spans_us = [
            self.step(self.reference, one, one.places[0], Exchange(seed=0))
            for _ in range(MOST_STEPS)
        ]
        self.reference.runner.pause()
        return quartile(spans_us)

    def contradiction(self, reference_us: float, candidate_us: float) -> Rejected | None:
        """Return the verdict on a candidate whose gain is missing in the chained batches of all
        repetitions so far, or None. The arguments are times of a call in unchained batches.

        Raises:
            Rejected: It is missing, and there were enough repetitions.
        """
        if not self.num_chains or candidate_us > (1 - LEAST_GAIN) * reference_us:
            return None
        if self.is_short():
            return None
        theirs, ours = (self.found_us[lane.name] for lane in (self.reference, self.candidate))
        now = ChainedSteps(theirs, ours, self.exchange_us(), reference_us, candidate_us)
        self.case.chained.append(now)
        found = self.missing_gain(together(self.case.chained))
        if found is not None and len(self.case.chained) >= CONFIRMED:
            raise found
        return found

    def missing_gain(self, steps: ChainedSteps) -> Rejected | None:
        """Return the verdict on a candidate whose gain is missing in these steps, or None."""
        gain_us = steps.reference_us - steps.candidate_us
        theirs, ours = steps.theirs_us, steps.ours_us
        # Of what the call takes here: other work interrupts a long batch more often than a step.
        alone_us = quartile_of(theirs) - steps.exchange_us
        chained_us, most_us = difference_us(theirs, ours, self.rng)
        is_on_cpu = self.case.accelerator.kind == "cpu"
        share = KEPT_SHARE if is_on_cpu else KEPT_ON_GPU
        wanted_us = share * gain_us * min(1.0, alone_us / steps.reference_us)
        if most_us >= wanted_us - SLACK_US:
            return None
        if not is_on_cpu:
            most_alone_us = ALONE_FACTOR * steps.candidate_us + ALONE_US
            if quartile_of(ours) - steps.exchange_us <= most_alone_us:
                return None
        means = "it computes answers ahead" if is_on_cpu else "what it gains is not known"
        return Rejected(
            "reward_hack" if is_on_cpu else "inconclusive",
            "timing.chained",
            f"it saves {gain_us:.3g} of {steps.reference_us:.3g} us a call where all inputs of a "
            f"batch are there at once, and {chained_us:.3g} (at most {most_us:.3g}) of "
            f"{alone_us:.3g} us where each is there only after the answer before: {means}",
        )


def together(ones: Sequence[ChainedSteps]) -> ChainedSteps:
    """Return the steps of several repetitions, with the usual times of a call."""
    return ChainedSteps(
        [chain for one in ones for chain in one.theirs_us],
        [chain for one in ones for chain in one.ours_us],
        min(one.exchange_us for one in ones),
        statistics.median(one.reference_us for one in ones),
        statistics.median(one.candidate_us for one in ones),
    )


Chain = Sequence[float]
"""Steps of a chained batch. What disturbs one of them disturbs its neighbors too."""


def difference_us(
    theirs: Sequence[Chain], ours: Sequence[Chain], rng: random.Random
) -> tuple[float, float]:
    """Return how much shorter our steps are, and the most that it may be by resampling chains, each
    with the chain of the other program next to it."""
    pairs = list(zip(theirs, ours, strict=True))
    drawn = sorted(saved_us(rng.choices(pairs, k=len(pairs))) for _ in range(NUM_RESAMPLES))
    return saved_us(pairs), drawn[int(CONFIDENCE * NUM_RESAMPLES)]


def saved_us(pairs: Sequence[tuple[Chain, Chain]]) -> float:
    """Return how much shorter the second chains' steps are."""
    theirs, ours = zip(*pairs, strict=True)
    return quartile_of(theirs) - quartile_of(ours)


def quartile_of(chains: Sequence[Chain]) -> float:
    """Return the first quartile of all steps."""
    return quartile([step_us for chain in chains for step_us in chain])


def quartile(steps_us: Sequence[float]) -> float:
    """Return the first quartile: other work on the machine only adds to a step."""
    return statistics.quantiles(steps_us, n=4, method="inclusive")[0]
