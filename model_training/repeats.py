"""Measure right answers again, so that one measurement does not decide what a policy is worth.

    groups = repeated(asked.groups, scorer, num_measured=3)

A verifier times a program in a few rounds, and all answers with that program share the number. Two
measurements of one program were 3 % apart in the median and 13 % in the ninth decile, more than the
difference between policies (docs/lab/training.md, the ninth run). The speedup of an answer is the
geometric mean of all measurements of its program. A program that does not pass again is not right.
Each measurement is noted in the archive and not repeated.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from cudal1_ci.errors import WorkerError
from cudal1_ci.records import Candidate, Problem, Record
from cudal1_ci.records.archive import Archive
from cudal1_ci.stats import speedups
from model_training.asking import RolloutGroup
from model_training.environment import Outcome
from model_training.judges import Shared
from model_training.scoring import PASSED, Scorer
from model_training.table import Sample
from model_training.work_queue import Progress

REPEAT = "repeat"
"""Kind of a note."""
UNDECIDED = ("inconclusive", "harness_error")
"""They say nothing of the program."""


class Repeat(Record, frozen=True, kw_only=True):
    """Hold a further measurement."""

    status: str
    speedup: float
    """0 of what did not pass."""


def repeated(
    groups: Sequence[RolloutGroup], scorer: Scorer, num_measured: int
) -> list[RolloutGroup]:
    """Measure so many times, with the measurement that is there; return groups with the means.

    Raises:
        Stopped: The run must stop.
    """
    if num_measured < 2:
        return list(groups)
    of_task: dict[str, dict[str, tuple[Problem, Candidate]]] = defaultdict(dict)
    for group in groups:
        problem = group.prompt.task.problem
        for outcome in group.outcomes:
            if outcome.evaluation is not None and outcome.sample.status == PASSED:
                candidate = outcome.evaluation.candidate
                of_task[group.prompt.task.id][candidate.id] = problem, candidate
    progress = Progress("programs measured again", sum(map(len, of_task.values())))
    found: dict[str, list[Repeat]] = {}

    def measure(judge: Shared, task: str) -> None:
        for problem, candidate in of_task[task].values():
            found[candidate.id] = [
                repeat
                for number in range(1, num_measured)
                if (repeat := repeat_of(judge, problem, candidate, number, scorer)) is not None
            ]
            progress.step()

    scorer.each(list(of_task), measure, lambda task: task)
    return [
        RolloutGroup(
            prompt=group.prompt,
            completions=group.completions,
            outcomes=[with_repeats(one, found) for one in group.outcomes],
        )
        for group in groups
    ]


def repeat_of(
    judge: Shared, problem: Problem, candidate: Candidate, number: int, scorer: Scorer
) -> Repeat | None:
    """Return a further measurement; None where the verifier dies of it."""
    archive: Archive = scorer.archive
    key = f"{candidate.id}/{scorer.device().key}/{scorer.policy}/{number}"
    known = archive.noted(REPEAT, key, Repeat)
    if known is not None:
        return known
    scorer.go_on()
    try:
        evaluation = judge.evaluate(problem, candidate)
    except WorkerError:
        return None
    status = evaluation.verdict.status
    speedup = speedups.score(evaluation) if status == PASSED else 0.0
    found = Repeat(status=status, speedup=speedup)
    archive.note(REPEAT, key, found)
    return found


def with_repeats(outcome: Outcome, found: Mapping[str, Sequence[Repeat]]) -> Outcome:
    """Return what an answer is worth by all measurements of its program."""
    speedup = outcome.sample.speedup
    if outcome.evaluation is None or speedup is None:
        return outcome
    repeats = [one for one in found[outcome.evaluation.candidate.id] if one.status not in UNDECIDED]
    refused = next((one.status for one in repeats if one.status != PASSED), None)
    if refused is not None:
        sample = Sample(task=outcome.sample.task, status=refused)
        return msgspec.structs.replace(outcome, sample=sample)
    every = [speedup, *(one.speedup for one in repeats)]
    mean = math.exp(statistics.fmean(map(math.log, every)))
    sample = msgspec.structs.replace(outcome.sample, speedup=mean)
    return msgspec.structs.replace(outcome, sample=sample)
