"""What whoever has a turn with a judge may ask of it: a Session, or one that is somewhere else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from cudal1_ci.schema import Candidate, Device, Evaluation, Problem, Verdict


class Judge(Protocol):
    """Used by one thread at a time. `Session` says what each of these does; all may raise
    WorkerError."""

    def device(self) -> Device: ...
    def check(self, problem: Problem) -> Verdict: ...
    def build_ahead(self, problem: Problem, candidates: Sequence[Candidate]) -> None: ...
    def in_turn(self, candidates: Sequence[Candidate]) -> Iterable[Candidate]: ...
    def evaluate(self, problem: Problem, candidate: Candidate) -> Evaluation: ...
    def profile(self, workload: str, *, is_candidate: bool) -> list[dict[str, Any]] | str: ...
