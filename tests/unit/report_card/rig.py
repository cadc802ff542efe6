"""Tasks, runs and judges for the tests of the report card: no process is started."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from cudal1_ci.records import Candidate, Evaluation, Kernel, Problem, Status
from cudal1_ci.records.archive import Archive
from cudal1_ci.render.progress import SilentProgress
from cudal1_ci.report_card.card import carded
from cudal1_ci.report_card.documents import task_document, trial_document
from cudal1_ci.report_card.shape import RunDocument, TaskDocument
from cudal1_ci.report_card.solvers import BEST, COLUMNS, CONTRASTIVE
from cudal1_ci.report_card.tasks import Found, Task
from cudal1_ci.report_card.work import Bench, RunConfig
from tests.fakes import CPU, FakeProposer, FakeSession, a_candidate, a_problem, an_evaluation

MACHINE = "fake, 1 thread, torch 0"


def a_task(name: str = "level1/1", source: str = "class Model: ...") -> Task:
    level = name.partition("/")[0] if "/" in name else None
    return Task(name=name, level=level, source="made", problem=a_problem(source))


def told(
    task: Task, columns: Mapping[str, float | Status | None], machine: str = MACHINE
) -> TaskDocument:
    """A judged task: by column a speedup, a status that is no pass, or nothing given."""
    trials = {}
    for column, worth in columns.items():
        candidate = a_candidate(task.problem, f"{column} {worth}")
        if worth is None:
            trials[column] = []
        elif isinstance(worth, str):
            trials[column] = [trial_document(an_evaluation(candidate, worth), is_reused=False)]
        else:
            found = an_evaluation(candidate, "passed", worth)
            trials[column] = [trial_document(found, is_reused=False)]
    return task_document(task, machine, "judged", trials=trials)


def launching(task: TaskDocument, *own: bool) -> TaskDocument:
    """The task with as many kernels in the trials of its last column, own ones and others."""
    kernels = tuple(
        Kernel(name=f"kernel {number}", device_us=1.0, num_launches=1, is_own=one)
        for number, one in enumerate(own)
    )
    *others, result = task.results
    trials = tuple(msgspec.structs.replace(one, kernels=kernels) for one in result.trials)
    last = msgspec.structs.replace(result, trials=trials)
    return msgspec.structs.replace(task, results=(*others, last))


def a_run(*tasks: TaskDocument, policy: str = "strict", **fields: object) -> RunDocument:
    device = CPU
    assert device is not None
    asked = {result.solver for task in tasks for result in task.results}
    known: dict[str, object] = {
        "version": "0",
        "solvers": tuple(one for one in COLUMNS if one in asked or one == BEST),
        "policy": policy,
        "judge": ("j",),
        "devices": (device,),
        "tasks": tasks,
    }
    return carded(RunDocument(**(known | fields)))  # type: ignore[arg-type]


class Judge(FakeSession):
    """Answers by source, and stops as a kill would after so many answers."""

    def __init__(
        self, answers: dict[str, tuple[Status, float]], *, stops_after: int | None = None
    ) -> None:
        super().__init__(answers)
        self.stops_after = stops_after
        self.num_answers = 0

    def evaluate(self, problem: Problem, candidate: Candidate) -> Evaluation:
        if self.num_answers == self.stops_after:
            raise KeyboardInterrupt
        self.num_answers += 1
        return super().evaluate(problem, candidate)


@contextlib.contextmanager
def a_bench(
    folder: Path,
    session: FakeSession,
    proposers: Mapping[str, Sequence[str]],
    *,
    since: float | None = None,
    **fields: object,
) -> Iterator[Bench]:
    """A bench whose proposers write these sources for every task."""
    known = {name for name in fields if name in RunConfig.__struct_fields__}
    config = RunConfig(
        columns=tuple(
            one
            for one in COLUMNS
            if one in proposers or one == BEST or (one == CONTRASTIVE and "optimizer" in fields)
        ),
        **{name: fields.pop(name) for name in known},  # type: ignore[arg-type]
    )
    with (
        Archive.open(folder / "a.sqlite") as archive,
        Archive.open(folder / "b.sqlite") as published,
    ):
        yield Bench(
            session=session,  # type: ignore[arg-type]
            proposers={name: Always(sources) for name, sources in proposers.items()},
            archive=archive,
            given=published,
            progress=SilentProgress(),
            config=config,
            judge="judge",
            since=time.time() if since is None else since,
            **fields,  # type: ignore[arg-type]
        )


class Always(FakeProposer):
    """The same first round for every task, and nothing in later ones."""

    def __init__(self, sources: Sequence[str]) -> None:
        super().__init__()
        self.sources = sources

    def propose(self, problem: Problem, exemplars: Sequence[object], n: int) -> list[Candidate]:
        if exemplars:
            return []
        return [a_candidate(problem, source) for source in self.sources[:n]]


def found(*tasks: Task) -> Found:
    return Found(tasks=tasks)
