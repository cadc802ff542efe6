"""Repeat a round on inputs that differ by rounding, to see where the reference itself jumps."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

from ..forkserver.handles import RunnerFailure
from ..recorder.rounding import seed_of
from ..verifier.inputs import is_float
from .new_inputs import Stock
from .timed_rounds import Round, nearby_round

FEW_JUMPS, EXPLAINED_ROUNDS, EXPLAINED_SHARE = 1e-4, 2, 0.25
"""Where fewer elements than this share are off at jumps of the reference, the first rounds of a
repetition are explained, and this share of the others: one costs a dozen batches or more."""


class Repeat(Protocol):
    """Plays a round that does not count, in all lanes."""

    def __call__(self, one: Round, *, rounding: int | None = None) -> None: ...


@dataclass
class KnownJumps:
    """What rounds on nearby inputs have explained in a repetition."""

    explained: Counter[bool] = field(default_factory=Counter)
    """Elements by the kind of rounds; those in which the reference rounds are True."""
    num_rounds: int = 0
    """Rounds that were explained as a whole."""


@dataclass
class Nearby:
    """Let lanes repeat a round that does not count, on inputs that differ by rounding. In some
    rounds the reference rounds at random too: some thresholds lie where a sum of many inputs
    crosses them, which noise of single inputs does not move. Both kinds of rounds take turns at
    first. Then the kind that has explained more elements comes three times as often. Where inputs
    are whole numbers alone, which nothing else changes, the reference rounds in every round."""

    repeat: Repeat
    stock: Stock
    rng: random.Random
    one: Round
    """The last round that ran."""
    known: KnownJumps

    def __post_init__(self) -> None:
        self.first = self.one
        self.rounds = False
        self.can_round = True
        self.num_rounds = self.num_rounded = self.num_left = 0

    def __call__(self, num_left: int) -> None:
        """Play another round; so many elements are not explained yet."""
        self.known.explained[self.rounds] += max(0, self.num_left - num_left)
        self.num_left = num_left
        self.one = nearby_round(self.first, self.stock)
        self.rounds = self.can_round and self.is_rounding_due()
        self.num_rounds += 1
        if self.rounds:
            self.num_rounded += 1
            try:
                return self.repeat(self.one, rounding=seed_of(self.num_rounded - 1, self.rng))
            except RunnerFailure as failure:
                if failure.kind != "raised":
                    raise
                self.can_round = False  # a program that knows no other tensors
        return self.repeat(self.one)

    def is_rounding_due(self) -> bool:
        """Return whether the reference rounds in the next round."""
        if not any(map(is_float, self.stock.base[0].tensors)):
            return True
        explained = self.known.explained
        if explained[True] == explained[False]:
            return not self.rounds
        return (explained[True] > explained[False]) != (self.num_rounds % 4 == 3)

    def are_due(self, share: float) -> bool:
        """Return whether elements of a round that are off, by their share, must be explained.
        Each round may be one of those, and a program that saves work is off in more elements."""
        return (
            share > FEW_JUMPS
            or self.known.num_rounds < EXPLAINED_ROUNDS
            or self.rng.random() < EXPLAINED_SHARE
        )

    def note_explained(self) -> None:
        """Count a round that was explained."""
        self.known.num_rounds += 1
