"""One judge's answers to one task after another.

    Bench(environment, go_on).judge(answered, settled)

Of programs that several answers have one is judged. A candidate with which the judge itself dies is
worth nothing; a judge that dies of candidate after candidate is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from cudal1_ci.errors import WorkerError
from cudal1_ci.records import Candidate, Problem
from model_training.environment import Environment, Outcome, candidate_in
from model_training.judges import Builds
from model_training.rehearsal import Found, Settled
from model_training.stream import Prompt
from model_training.table import Sample
from model_training.tasks.record import Task

NUM_TRIES = 2
"""Of a candidate with which the judge itself dies: a machine has moods, a program has not."""
MAX_DEATHS = 5
"""Candidates in a row with which it dies: then it is not the candidates."""
BROKEN = "harness_error"
Answered = tuple[Prompt, str, bool]
"""A prompt, an answer to it, and whether that was cut at the longest length."""


@dataclass
class Bench:
    """Judges answers to one task after another, with one environment."""

    environment: Environment
    go_on: Callable[[], None]
    num_deaths: int = 0

    def judge(self, answered: Sequence[Answered], settled: Found) -> list[Outcome]:
        """Of answers to one task; what is `settled` no judge need see."""
        found, known = [], dict[str, Outcome]()
        candidates = [self.candidate(one) for one in answered]
        self.build_ahead(answered[0][0].task.problem, candidates)
        for one, candidate in zip(answered, candidates, strict=True):
            self.go_on()
            if candidate is None:
                outcome = self.outcome(one)
            elif candidate.id in known:
                outcome = msgspec.structs.replace(known[candidate.id], is_known=True)
            elif candidate.id in settled:
                outcome = known[candidate.id] = rehearsed(one[0].task, settled[candidate.id])
            else:
                outcome = known[candidate.id] = self.outcome(one)
            found.append(outcome)
        return found

    def candidate(self, one: Answered) -> Candidate | None:
        prompt, text, is_cut = one
        config = self.environment.config
        found = candidate_in(prompt, text, config, is_cut=is_cut)
        return None if isinstance(found, str) else found

    def build_ahead(self, problem: Problem, candidates: Sequence[Candidate | None]) -> None:
        """What is not known yet."""
        environment = self.environment
        distinct = {one.id: one for one in candidates if one is not None}
        new = [one for one in distinct.values() if not environment.knows(one)]
        if new and isinstance(environment.judge, Builds):
            environment.judge.build_ahead(problem, new)

    def outcome(self, one: Answered) -> Outcome:
        """Where the judge dies with it, again; then it is worth nothing."""
        prompt, text, is_cut = one
        for number in range(NUM_TRIES):
            try:
                found = self.environment.outcome(prompt, text, is_cut=is_cut)
            except WorkerError:
                if self.num_deaths >= MAX_DEATHS:
                    raise
                if number + 1 == NUM_TRIES:
                    self.num_deaths += 1
            else:
                self.num_deaths = 0
                return found
        return Outcome(sample=Sample(task=prompt.task.name, status=BROKEN), reward=0.0)


def rehearsed(task: Task, settled: Settled) -> Outcome:
    """What an answer is worth that fails on any device."""
    return Outcome(
        sample=Sample(task=task.name, status=settled.evaluation.verdict.status),
        reward=0.0,
        evaluation=settled.evaluation,
        is_known=settled.is_known,
        was_rehearsed=True,
    )
