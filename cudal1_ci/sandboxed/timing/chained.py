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
from ..wire.runner import Batch, Deliver, Exchange, GetReady
from .quiescence import quiet_others
from .timed_checks import is_close, off_by
from .timed_rounds import SETTLE_S, Lane, Round

NUM_CHAINS, MOST_CHAINS = 4, 16
"""Chained batches of a repetition, and at most, where more steps are needed."""
CONFIRMED = 3
"""Repetitions in a row after each of which all steps so far must show that a gain is missing."""
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
    new_round: Callable[[int], Round]
    """Draws a round of which only the first so many calls have values."""
    complete: Callable[[Round, int], None]
    """Gives the others values too."""
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
        num_steps = max(2, min(len(self.reference.slots), MOST_STEPS, int(CHAIN_US / call_us)))
        one = self.new_round(num_steps)
        outputs = {}
        for lane in self.rng.sample((self.reference, self.candidate), 2):
            spans_us, outputs[lane.name] = self.steps(lane, one, num_steps)
            self.found_us.setdefault(lane.name, []).append(spans_us)
        ours, theirs = outputs[self.candidate.name], outputs[self.reference.name]
        if all(map(self.are_close, ours, theirs)):
            return
        if self.case.leaves_traces:
            raise off_by(0, float("inf"))
        self.complete(one, num_steps)
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
        quiet_others(runner)
        spans_us, outputs = [], []
        for position, place_number in enumerate(one.places[:num_steps]):
            ready = GetReady(settles=not position, sets=(place_number,), num_calls=1)
            runner.ask(ready, SETTLE_S + self.limits.call_s)
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
        one = self.new_round(1)
        self.steps(self.reference, one, 1)
        spans_us = [
            self.step(self.reference, one, one.places[0], Exchange(seed=0))
            for _ in range(MOST_STEPS)
        ]
        self.reference.runner.pause()
        return quartile(spans_us)

    def contradiction(
        self, reference_us: Sequence[float], candidate_us: Sequence[float]
    ) -> Rejected | None:
        """Return the verdict on a candidate whose gain is missing in the chained batches of all
        repetitions so far, or None. The arguments are times of a call in unchained batches, round
        by round.

        Raises:
            Rejected: It is missing, and there were enough repetitions.
        """
        usual_us, its_us = statistics.median(reference_us), statistics.median(candidate_us)
        if not self.num_chains or its_us > (1 - LEAST_GAIN) * usual_us or self.is_short():
            return None
        theirs, ours = (self.found_us[lane.name] for lane in (self.reference, self.candidate))
        now = ChainedSteps(
            list(zip(theirs, ours, strict=True)),
            list(zip(reference_us, candidate_us, strict=True)),
            self.exchange_us(),
        )
        self.case.chained.append(now)
        found = self.missing_gain(self.case.chained)
        now.is_missing = found is not None
        recent = self.case.chained[-CONFIRMED:]
        if found is not None and len(recent) == CONFIRMED and all(one.is_missing for one in recent):
            raise found
        return found

    def missing_gain(self, ones: Sequence[ChainedSteps]) -> Rejected | None:
        """Return the verdict on a candidate whose gain is missing in these repetitions, or None."""
        is_on_cpu = self.case.accelerator.kind == "cpu"
        share = KEPT_SHARE if is_on_cpu else KEPT_ON_GPU
        saved = savings(ones)
        if saved.beyond_us(share) >= -SLACK_US:
            return None
        drawn = sorted(
            (savings(resampled(ones, self.rng)) for _ in range(NUM_RESAMPLES)),
            key=lambda one: one.beyond_us(share),
        )
        most = drawn[int(CONFIDENCE * NUM_RESAMPLES)]
        if most.beyond_us(share) >= -SLACK_US:
            return None
        if not is_on_cpu and saved.ours_alone_us <= ALONE_FACTOR * saved.candidate_us + ALONE_US:
            return None
        means = "it computes answers ahead" if is_on_cpu else "what it gains is not known"
        return Rejected(
            "reward_hack" if is_on_cpu else "inconclusive",
            "timing.chained",
            f"it saves {saved.gain_us:.3g} of {saved.reference_us:.3g} us a call where all inputs "
            f"of a batch are there at once, and {saved.chained_us:.3g} (at most "
            f"{most.chained_us:.3g}) of {saved.alone_us:.3g} us where each is there only after the "
            f"answer before: {means}",
        )


@dataclass(frozen=True)
class Savings:
    """What a call takes in unchained batches, and alone in chained ones. All in microseconds."""

    reference_us: float
    candidate_us: float
    alone_us: float
    ours_alone_us: float

    @property
    def gain_us(self) -> float:
        return self.reference_us - self.candidate_us

    @property
    def chained_us(self) -> float:
        return self.alone_us - self.ours_alone_us

    def beyond_us(self, share: float) -> float:
        """Return what chained calls save beyond this share of the gain. The share is of what the
        call takes there: other work interrupts a long batch more often than a step."""
        wanted_us = share * self.gain_us * min(1.0, self.alone_us / self.reference_us)
        return self.chained_us - wanted_us


def savings(ones: Sequence[ChainedSteps]) -> Savings:
    """Return the savings of repetitions: first quartiles, as other work only adds to a time."""
    exchange_us = min(one.exchange_us for one in ones)
    chains = [pair for one in ones for pair in one.chains_us]
    rounds = [pair for one in ones for pair in one.rounds_us]
    return Savings(
        *(quartile([pair[lane] for pair in rounds]) for lane in (0, 1)),
        *(
            quartile([step_us for pair in chains for step_us in pair[lane]]) - exchange_us
            for lane in (0, 1)
        ),
    )


def resampled(ones: Sequence[ChainedSteps], rng: random.Random) -> list[ChainedSteps]:
    """Draw repetitions, and of each its rounds and chains, with replacement: a two-stage bootstrap
    (Davison and Hinkley, Bootstrap Methods and their Application, 1997, section 3.8). What disturbs
    one step or round disturbs those of its repetition too, and both programs side by side."""
    return [
        replace(
            one,
            chains_us=rng.choices(one.chains_us, k=len(one.chains_us)),
            rounds_us=rng.choices(one.rounds_us, k=len(one.rounds_us)),
        )
        for one in rng.choices(ones, k=len(ones))
    ]


def quartile(times_us: Sequence[float]) -> float:
    """Return the first quartile, as `statistics.quantiles(n=4, method="inclusive")` has it. It is
    called thousands of times here, and that one is slow."""
    ordered = sorted(times_us)
    place = (len(ordered) - 1) / 4
    low = int(place)
    above = ordered[min(low + 1, len(ordered) - 1)]
    return ordered[low] + (place - low) * (above - ordered[low])
