"""Tasks, runs and judges for the tests of the report card: no process is started."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from cudal1_ci.optimize.config import ReviewConfig
from cudal1_ci.optimize.context import RunContext
from cudal1_ci.propose.config import PlaybookConfig
from cudal1_ci.records import Candidate, Edit, Evaluation, Kernel, Problem, Status
from cudal1_ci.records.archive import Archive
from cudal1_ci.render.progress import SilentProgress
from cudal1_ci.report_card import task_result
from cudal1_ci.report_card.card import carded
from cudal1_ci.report_card.columns import (
    BEST,
    COLUMNS,
    CONTRASTIVE,
    OF_WRAPPERS,
    PUBLISHED,
    REWRITES,
    CardConfig,
)
from cudal1_ci.report_card.documents import task_document, trial_document
from cudal1_ci.report_card.shape import Policy, RunDocument, TaskDocument
from cudal1_ci.report_card.tasks import Found, Task
from tests.fakes import CPU, FakeSession, a_candidate, a_problem, an_evaluation

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


class Verifier(FakeSession):
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


class Bench(NamedTuple):
    """What `run` takes besides tasks."""

    context: RunContext
    config: CardConfig


@contextlib.contextmanager
def a_bench(
    folder: Path,
    session: FakeSession,
    proposed: Mapping[str, Sequence[str]] | None,
    *,
    since: float | None = None,
    columns: Sequence[str] = (),
    policy: Policy = "strict",
    playbook: PlaybookConfig | None = None,
    budget_s: float | None = None,
    **fields: object,
) -> Iterator[Bench]:
    """A bench whose strategies write these sources for every task, by column; the strategies of
    the product where there are none."""
    asked = {*(proposed or ()), *columns, BEST} | (
        {CONTRASTIVE} if "optimizer" in fields else set()
    )
    config = CardConfig(
        columns=tuple(one for one in COLUMNS if one in asked),
        policy=policy,
        playbook=playbook or PlaybookConfig(),
    )
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch, Archive.open(folder / "a.sqlite") as archive:
        if proposed is not None:
            in_order = sorted(proposed, key=lambda name: (name == PUBLISHED, COLUMNS.index(name)))
            always = [Always(name, proposed[name]) for name in in_order]
            patch.setattr(task_result, "strategies_for", lambda *_: always)
        context = RunContext(
            session=session,  # type: ignore[arg-type]
            strategies=(),
            archive=archive,
            progress=SilentProgress(),
            config=ReviewConfig(budget_s=budget_s),
            policy="judge",
            since=time.time() if since is None else since,
            **fields,  # type: ignore[arg-type]
        )
        yield Bench(context, config)


class Always:
    """The same first round for every task, and nothing in later ones."""

    def __init__(self, column: str, sources: Sequence[str]) -> None:
        self.column, self.sources = column, sources
        own = {REWRITES: "rewrites", PUBLISHED: PUBLISHED}
        self.name = own.get(column, "wrappers")

    def propose(
        self, problem: Problem, evaluations: Sequence[Evaluation], n: int
    ) -> list[Candidate]:
        return [] if evaluations else [self.written(problem, one) for one in self.sources[:n]]

    def written(self, problem: Problem, source: str) -> Candidate:
        """A candidate as the strategies of the column describe theirs."""
        candidate = a_candidate(problem, source)
        if self.column == PUBLISHED:
            return msgspec.structs.replace(candidate, proposer=f"{PUBLISHED}:h100")
        operator = OF_WRAPPERS.get(self.column, "silu")
        edit = Edit(operator=operator, technique="t", found=("here",), why="It is faster.")
        return msgspec.structs.replace(candidate, proposer=f"playbook:{operator}", edits=(edit,))


def found(*tasks: Task) -> Found:
    return Found(tasks=tasks)
