"""Proposers: Exemplars in, Candidates out. Nothing they say is believed until it was judged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cudal1_ci.records import Candidate, Exemplar, Problem


class Proposer(Protocol):
    """Writes candidates for a problem, shown scored exemplars of earlier rounds."""

    def propose(self, problem: Problem, exemplars: Sequence[Exemplar], n: int) -> list[Candidate]:
        """At most `n` candidates, most promising first; empty when there is nothing to say."""
        ...
