"""What of the right answers is more than the task itself recorded as a CUDA graph, and how many
different programs a policy writes.

    for one in rewrites_of(runs): one.row, one.num_recordings, one.num_distinct

A recording is right wherever the task can be recorded, and the playbook writes it without a model:
a policy may come to write nothing else, and its row of the table is the better for it. So the same
row is counted once more, with recordings worth nothing.

Read from RUN/samples and RUN/tasks; evaluations of a run without these have no row here.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from cudal1_ci.propose.llm.answer import Unusable, parse
from cudal1_ci.records import Record, TextProgram
from model_training.answers import form_of, program_in
from model_training.environment import NO_CODE
from model_training.recorded import is_recording
from model_training.report.rows import Row, rows_of
from model_training.report.run_folder import Judged, PolicyEvaluation, Run, lines_of
from model_training.run_files import EVALUATION
from model_training.table import Sample
from model_training.tasks.record import Task

RECORDING = "recording"
"""Status of a right answer that is the reference as a CUDA graph."""


class Rewrites(Record, frozen=True, kw_only=True):
    """A policy's answers."""

    row: Row
    """With recordings as failures."""
    num_right: int
    num_recordings: int
    num_distinct: float
    """Forms among the answers to a task, with one seed of sampling, in the mean; an answer that
    could not be read has none."""


class Read(Record, frozen=True, kw_only=True):
    """An answer of an evaluation."""

    sample: Sample
    form: str | None


def rewrites_of(runs: Sequence[Run]) -> list[Rewrites]:
    """In the order of the rows of the table."""
    counted: list[Run] = []
    distinct: dict[tuple[str, str], float] = {}
    for run in runs:
        answers = answers_of(run)
        evaluations = []
        for one in run.evaluations:
            some = answers.get((one.name, one.seed), [])
            if len(some) == len(one.samples):
                evaluations.append(with_recordings(one, some))
        for name in {one.name for one in evaluations}:
            mine = {seed: some for (of, seed), some in answers.items() if of == name}
            distinct[run.name, name] = num_distinct(mine)
        counted.append(msgspec.structs.replace(run, evaluations=tuple(evaluations)))
    return [
        Rewrites(
            row=row,
            num_right=row.table.statuses.get("passed", 0) + row.table.statuses.get(RECORDING, 0),
            num_recordings=row.table.statuses.get(RECORDING, 0),
            num_distinct=distinct[row.run, row.name],
        )
        for row in rows_of(counted)
    ]


def answers_of(run: Run) -> dict[tuple[str, int], list[Read]]:
    """By the name and the seed of their evaluation, as they were sampled."""
    tasks = {one.name: one for one in lines_of(run.folder / "tasks" / "evaluation.jsonl", Task)}
    found: dict[tuple[str, int], list[Read]] = defaultdict(list)
    for name in {one.name for one in run.evaluations} if tasks else ():
        for judged in lines_of(run.folder / "samples" / f"{EVALUATION}{name}.jsonl", Judged):
            found[name, judged.seed].append(read(judged, tasks[judged.task]))
    return found


def read(judged: Judged, task: Task) -> Read:
    """The answer as the judge was given it."""
    problem, program = task.problem, program_of(judged, task)
    sample = Sample(task=judged.task, status=judged.status, speedup=judged.speedup)
    if program is None:
        return Read(sample=sample, form=None)
    if judged.status == "passed" and is_recording(problem, program):
        sample = Sample(task=judged.task, status=RECORDING)
    return Read(sample=sample, form=form_of(problem, program.source))


def program_of(judged: Judged, task: Task) -> TextProgram | None:
    """None of an answer that could not be read, and of the reference itself."""
    said = parse(judged.completion)
    reference = task.problem.reference
    if judged.status == NO_CODE or isinstance(said, Unusable):
        return None
    assert isinstance(reference, TextProgram), "tasks are texts"
    program = program_in(reference, said.code)
    return None if isinstance(program, Unusable) else program


def with_recordings(one: PolicyEvaluation, answers: Sequence[Read]) -> PolicyEvaluation:
    samples = tuple(answer.sample for answer in answers)
    return msgspec.structs.replace(one, samples=samples, greedy=None)


def num_distinct(answers: dict[int, list[Read]]) -> float:
    """Of answers by their seed."""
    return statistics.fmean(
        len(forms) for some in answers.values() for forms in forms_by_task(some)
    )


def forms_by_task(answers: Sequence[Read]) -> Iterator[set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for one in answers:
        found[one.sample.task] |= {one.form} if one.form else set()
    yield from found.values()
