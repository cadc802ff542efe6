"""What there is to judge, and what came of it."""

from __future__ import annotations

from cudal1_ci.records import Candidate, Evaluation, Problem, Record


class Task(Record, frozen=True, kw_only=True):
    """A problem with candidates of it. One that is there twice is judged once."""

    problem: Problem
    candidates: tuple[Candidate, ...]
    name: str = ""
    """What people call it; the problem's id where it has no name."""

    def __post_init__(self) -> None:
        strays = {one.problem_id for one in self.candidates} - {self.problem.id}
        if strays:
            raise ValueError(
                f"expected candidates of problem {self.problem.id}, got some of "
                f"{', '.join(sorted(strays))}"
            )


class Judged(Record, frozen=True, kw_only=True):
    """An evaluation that is in the archive."""

    evaluation: Evaluation
    is_known: bool
    """Whether it was there before."""
    seat: str | None = None
    """Where it was made in this run."""
