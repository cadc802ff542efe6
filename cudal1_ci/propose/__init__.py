"""Propose candidates: rewrites, wrappers, launch configurations, a language model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from cudal1_ci.records import Candidate, Evaluation, NearMiss, Problem
from cudal1_ci.records.recording import Recording


class Strategy(Protocol):
    """Propose candidates for a problem, given the results of earlier ones."""

    @property
    def name(self) -> str:
        """Return the strategy's name in reports and flags: `rewrites` or `wrappers`."""
        ...

    def propose(
        self, problem: Problem, evaluations: Sequence[Evaluation], n: int
    ) -> Sequence[Candidate]:
        """Return at most `n` candidates, most promising first; empty if none is left. It is
        called again after each round, with all evaluations of this problem so far.
        """
        ...


class NeedsRecording:
    """Propose nothing without a recording of the call."""

    def propose(
        self,
        problem: Problem,  # noqa: ARG002
        evaluations: Sequence[Evaluation],  # noqa: ARG002
        n: int,  # noqa: ARG002
    ) -> list[Candidate]:
        """Return nothing."""
        return []


@dataclass(frozen=True)
class Noticed:
    """What rules saw in a recorded call besides what they propose."""

    near_misses: tuple[NearMiss, ...] = ()
    failures: tuple[str, ...] = ()
    """Rules that raised, with the error, for people."""


@runtime_checkable
class RecordingStrategy(Strategy, Protocol):
    """Propose candidates from what one call of the reference did."""

    def propose_recorded(
        self,
        problem: Problem,
        recording: Recording,
        evaluations: Sequence[Evaluation],
        n: int,
    ) -> Sequence[Candidate]:
        """Return at most `n` candidates, as `propose` does, which is called where nothing could
        be recorded.
        """
        ...


@runtime_checkable
class NoticingStrategy(RecordingStrategy, Protocol):
    """Say what rules saw in a recorded call besides what they propose."""

    def noticed(self, problem: Problem, recording: Recording) -> Noticed:
        """Return what was nearly proposed from a recording, and what failed meanwhile."""
        ...


@runtime_checkable
class RebasedStrategy(RecordingStrategy, Protocol):
    """Propose candidates on top of a faster program, from what one call of that one did."""

    def base(self, evaluations: Sequence[Evaluation]) -> Candidate | None:
        """Return the program to record; None if nothing is to be proposed on top of one."""
        ...

    def propose_on(
        self,
        problem: Problem,
        base: Candidate,
        recording: Recording,
        evaluations: Sequence[Evaluation],
        n: int,
    ) -> Sequence[Candidate]:
        """Return at most `n` candidates, with the edits of the base first."""
        ...
