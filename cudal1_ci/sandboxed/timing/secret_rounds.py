"""Play rounds of a repetition that only look like the timed ones.

A program may be careful in the process that is examined and careless in those that are timed. So
at random, and at least once, rounds in the timed processes hold inputs of the examination (other
scales, outliers, zeros), or come with other weights. They are the same requests, and their times do
not count. Some outputs are kept for many rounds, and compared at the end with what they were: a
program that writes to memory that it has handed out is wrong, however long its ring of buffers is.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ..memory.segment import place, size_bytes, view_of
from ..verifier.cases import Case, Limits, Rejected, size_of
from ..verifier.compare import Tolerance
from ..verifier.correctness import settled
from ..verifier.inputs import InputSet, Room, same_bits, shapes_of
from ..verifier.near_inputs import Strays, are_jumps, strays_of
from ..wire.runner import AskKept, Batch, Collect, GetReady, KeepOutputs
from .new_inputs import Stock
from .timed_checks import Repeats, check_left, check_outputs
from .timed_rounds import Lane, Round, new_round

EARLY_ROUNDS = 4
ROUND_SHARE = 0.08
"""Share of the rounds after which a secret one comes, besides one of the first."""
SPECIAL_SHARE = 0.75
"""Share of the calls of such a round that get inputs of the examination. The first call does not
tell what the others get."""
KEPT_BYTES = 2**26
"""Outputs that a runner keeps, and the share of the memory that a single larger one may have."""
KEPT_SHARE = 64
KEEP_SHARE = 0.25
ENDURED_SHARE, ENDURED_CALLS, ENDURED_S = 0.5, 400, 0.2
"""One repetition of a candidate, drawn by this share, ends with many more calls."""
RELOADED_SHARE = 0.5
"""Share of the repetitions in which other weights come."""
Values = Callable[[int], torch.Tensor]
STATE_BYTES = 2**26
"""Most bytes of weights that are exchanged during a repetition."""


@dataclass
class Kept:
    """Outputs that lanes keep, and what they were."""

    values: dict[str, list[torch.Tensor]] = field(default_factory=dict)
    num_bytes: int = 0


@dataclass
class SecretRounds:
    """The secret rounds of one repetition."""

    case: Case
    reference: Lane
    candidate: Lane
    room: Room
    stock: Stock
    rng: random.Random
    limits: Limits
    tolerances: list[Tolerance]
    play: Callable[[Round], None]
    """Plays a round in both lanes that does not count."""
    nearby: Callable[[Round], Repeats]
    """Returns what repeats a round on inputs that differ by rounding."""
    num_rounds: int
    kept: Kept = field(default_factory=Kept)

    def __post_init__(self) -> None:
        early = min(EARLY_ROUNDS, self.num_rounds)
        self.special = self.rng.randrange(early)
        is_due = self.rng.random() < RELOADED_SHARE
        self.reloaded = self.rng.randrange(early) if is_due else None
        self.fitting = [
            number
            for number, (_, one) in enumerate(self.case.trials)
            if self.is_stateless and fits(one, self.stock.base)
        ]

    @property
    def is_stateless(self) -> bool:
        """Return whether a call's outputs depend on its inputs and the weights alone, as in the
        examination."""
        return not (self.case.train or self.case.leaves_traces or self.case.uses_rng)

    @property
    def returns_inputs(self) -> bool:
        """Return whether an output of the reference is memory of an input."""
        assert self.case.expected is not None
        return any(map(any, (call.aliases for call in self.case.expected.calls)))

    @property
    def lanes(self) -> tuple[Lane, Lane]:
        return self.reference, self.candidate

    def after(self, number: int, ends: bool) -> None:
        """Do what is due after a round. Raises Rejected."""
        if number < 2 or self.rng.random() < KEEP_SHARE:
            self.keep()
        is_late = ends and number < self.special
        if number == self.special or is_late or self.rng.random() < ROUND_SHARE:
            self.play_special()
        if self.reloaded is not None and (number == self.reloaded or ends):
            self.reloaded = None
            self.play_reloaded()
        if ends:
            self.check_kept()
        for lane in self.lanes:
            lane.runner.pause()

    def play_special(self) -> None:
        """Play a round with inputs of the examination, and compare as it does."""
        if not self.fitting:
            return
        one = new_round(self.case, self.room, self.stock, self.rng)
        chosen: dict[int, int] = {}
        for position, place_number in enumerate(one.places):
            if position and self.rng.random() > SPECIAL_SHARE and len(one.places) > 2:
                continue
            trial = chosen[position] = self.next_trial()
            inputs = self.case.timed_inputs(self.case.trials[trial][1], self.stock.generator)
            for tensor, slot in zip(inputs.tensors, self.room.layout[place_number], strict=True):
                view_of(one.staged, slot).copy_(tensor)
        self.play(one)
        self.compare_all(one, chosen)
        check_left(self.reference, self.candidate, self.limits)

    def next_trial(self) -> int:
        """Return a trial; each comes once before one comes again, over all repetitions."""
        deck = self.case.secret_trials
        if not deck:
            deck += self.rng.sample(self.fitting, len(self.fitting))
        return deck.pop()

    def compare_all(self, one: Round, chosen: dict[int, int]) -> None:
        """Compare the outputs of calls on inputs of the examination, by their positions in a round.
        Under autocast inputs and weights are others, and the reference of the same round is the
        truth. Raises Rejected."""
        assert self.case.expected is not None
        compared = {
            position: trial
            for position, trial in chosen.items()
            if trial not in self.case.unsettled
        }
        if self.case.cast is None:
            for position, trial in compared.items():
                self.compare(self.candidate.outputs_at(position), trial)
            return
        # What is compared may repeat the round.
        answers = [
            [[output.clone() for output in lane.outputs_at(position)] for lane in self.lanes]
            for position in compared
        ]
        nearby = self.nearby(one)
        for (position, trial), (ours, theirs) in zip(compared.items(), answers, strict=True):

            def values(leaf: int, position: int = position) -> torch.Tensor:
                return self.reference.outputs_at(position)[leaf]

            def are_explained(strays: dict[int, Strays], values: Values = values) -> bool:
                return are_jumps(strays, nearby, values)

            self.compare(theirs, trial, ours, are_explained)

    def compare(
        self,
        outputs: list[torch.Tensor],
        trial: int,
        others: list[torch.Tensor] | None = None,
        are_explained: Callable[[dict[int, Strays]], bool] = lambda _: False,
    ) -> None:
        """Compare the outputs of a call on inputs of the examination with the reference's there, or
        with `others` and a doubled budget. Raises Rejected."""
        assert self.case.expected is not None
        expected = self.case.expected.outputs[trial] if others is None else others
        on = f"of a call on the inputs `{self.case.trials[trial][0]}`"
        where = "in a process that is timed, and was right in the one that was examined"
        for leaf, (output, wanted) in enumerate(zip(outputs, expected, strict=True)):
            if output.shape != wanted.shape:
                message = f"output {leaf} {on} has another shape {where}"
                raise Rejected("incorrect_shape", "values.timed", message)
        for leaf, output in enumerate(settled(self.case, trial, outputs, expected)):
            budget = self.case.tolerances[trial][leaf]
            if others is None:
                found = self.case.leaf_difference(trial, leaf, output, budget)
            else:
                budget = doubled(budget)
                found = self.case.leaf_difference(trial, leaf, output, budget, others[leaf])
            if found.excess > 1:
                strays = None if others is None else strays_of(output, others[leaf], budget)
                if strays is not None and are_explained({leaf: strays}):
                    continue
                message = f"output {leaf} {on} is off by {found.max_abs:.3g} {where}"
                raise Rejected(
                    "incorrect_values", "values.timed", message, max_abs_error=found.max_abs
                )

    def play_reloaded(self) -> None:
        """Play a round after other weights were loaded, then load the first ones again."""
        state = self.case.other_state
        if state is None or not self.is_stateless or size_of(self.case.state_slots) > STATE_BYTES:
            return
        with self.weights(state[0]):
            one = new_round(self.case, self.room, self.stock, self.rng)
            self.play(one)
            check_outputs(self.reference, self.candidate, self.tolerances, self.nearby(one))

    @contextmanager
    def weights(self, state: list[torch.Tensor]) -> Iterator[None]:
        """Load a state into both runners for a while."""
        for lane in self.lanes:
            self.case.load_state(lane.runner, state, self.limits)
        yield
        usual = self.case.timed_state()
        for lane in self.lanes:
            self.case.load_state(lane.runner, usual, self.limits)

    def keep(self) -> None:
        """Let both runners keep the outputs of one call of the last round."""
        if self.returns_inputs:  # which the verifier itself writes again
            return
        num_bytes = sum(map(size_bytes, self.outputs_of(self.reference)))
        most_bytes = max(KEPT_BYTES, self.case.accelerator.memory_bytes() // KEPT_SHARE)
        if self.kept.num_bytes + num_bytes > (most_bytes if self.kept.values else KEPT_BYTES):
            return
        self.kept.num_bytes += num_bytes
        last = len(self.candidate.slots) - 1
        position = last if self.candidate.commits else self.rng.randint(0, last)
        for lane in self.lanes:
            lane.runner.ask(KeepOutputs(position=position), self.limits.call_s)
            values = self.kept.values.setdefault(lane.name, [])
            outputs = lane.outputs_at(position)[: self.num_outputs]
            values += [output.clone() for output in outputs]

    def outputs_of(self, lane: Lane) -> Sequence[Any]:
        """Return the places of what a call returns, without gradients of inputs."""
        return lane.slots[0][: self.num_outputs + len(self.case.bounds)]

    @property
    def num_outputs(self) -> int:
        """Return the number of tensors that a call returns."""
        assert self.case.expected is not None
        return self.case.expected.calls[0].num_leaves

    def check_kept(self) -> None:
        """Compare what was kept with what it was. Raises Rejected."""
        if not self.kept.values:
            return
        num_batches = 0
        if not self.case.has_endured and self.rng.random() < ENDURED_SHARE:
            self.case.has_endured = True
            num_batches = self.endure()
        changed = set(self.changed(self.candidate))
        if changed or self.case.leaves_traces:  # what follows compares both again
            for _ in range(num_batches):
                self.repeat_batch(self.reference)
        if changed:
            changed -= set(self.changed(self.reference))
        if changed:
            message = (
                "an output of a timed call was written again by a later call: who keeps it finds "
                "another answer in it"
            )
            raise Rejected("reward_hack", "output.rewritten", message)

    def endure(self) -> int:
        """Let the candidate make many calls, for a ring of buffers that is long. Return the
        number of batches."""
        until_s = time.monotonic() + ENDURED_S
        most = -(-ENDURED_CALLS // len(self.candidate.slots))
        for number in range(most):
            if time.monotonic() > until_s:
                return number
            self.repeat_batch(self.candidate)
        return most

    def repeat_batch(self, lane: Lane) -> None:
        """Make the calls of the last batch again."""
        lane.runner.ask(GetReady(), self.limits.call_s)
        lane.runner.ask(Batch(seed=0), self.limits.call_s)

    def changed(self, lane: Lane) -> list[int]:
        """Return the numbers of the kept outputs of a lane that do not hold what they held."""
        remains = lane.runner.ask(AskKept(), self.limits.call_s)
        slots, size = place(remains.slots)
        segment = lane.runner.share("aftermath", self.case.accelerator, size, self.limits.call_s)
        request = Collect(slots=(tuple(slots),), segment="aftermath")
        lane.runner.ask(request, self.limits.call_s)
        values = self.kept.values[lane.name]
        if len(slots) != len(values):
            return list(range(len(values)))
        return [
            number
            for number, (slot, value) in enumerate(zip(slots, values, strict=True))
            if slot.shape != tuple(value.shape) or not same_bits(segment.tensor(slot), value)
        ]


def doubled(budget: Tolerance) -> Tolerance:
    """Return the budget of an answer that is compared with the reference's own, not the truth."""
    local = None if budget.local is None else 2 * budget.local
    return replace(budget, absolute=2 * budget.absolute, relative=2 * budget.relative, local=local)


def fits(one: InputSet, base: Sequence[InputSet]) -> bool:
    """Return whether a set of the examination can take the place of any set of a batch."""
    first = base[0]
    return (
        shapes_of(one) == shapes_of(first)
        and [t.dtype for t in one.tensors] == [t.dtype for t in first.tensors]
        and all(other.data == one.data for other in base)
    )
