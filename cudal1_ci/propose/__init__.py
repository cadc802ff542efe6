"""Propose candidates for a problem. Nothing a strategy says is believed until it was verified."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cudal1_ci.records import Candidate, Evaluation, Problem


class Strategy(Protocol):
    """Propose candidates for a problem, given what was found of earlier ones."""

    @property
    def name(self) -> str:
        """Return the strategy's name in reports and flags: `rewrites` or `wrappers`."""
        ...

    def propose(
        self, problem: Problem, evaluations: Sequence[Evaluation], n: int
    ) -> Sequence[Candidate]:
        """Return at most `n` candidates, most promising first; empty when there is nothing left to
        try. Asked again after each round, with all evaluations of this problem so far."""
        ...
