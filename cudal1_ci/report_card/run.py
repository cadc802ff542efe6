"""The loop: every task, every column, one judge for each task. With a budget tasks are taken in an
order whose every beginning is spread over all of them, so that what was reached says something of
the rest.

Each evaluation is in the archive before the next one starts, so that a kill loses none. A run that
goes on (`since`) asks nothing twice; another one judges again what an earlier one could not decide.
Published kernels have an archive of their own: the model's loop looks into ours for what passed,
and is to be shown what we found alone.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

from cudal1_ci import __version__
from cudal1_ci.report_card.card import carded
from cudal1_ci.report_card.documents import machine_text, task_document
from cudal1_ci.report_card.shape import RunDocument, TaskDocument
from cudal1_ci.report_card.tasks import Found, Task
from cudal1_ci.report_card.turn import Turn
from cudal1_ci.report_card.work import Bench, missing_because, target_of
from cudal1_ci.verification.protocol import Judge

GOLDEN = (5**0.5 - 1) / 2
"""Multiples of it leave no large gap between 0 and 1, however many there are (Steinhaus)."""


def run(found: Found, bench: Bench) -> RunDocument:
    """Judge every column on every task, as far as the budget lasts.

    Raises:
        WorkerError: The judge cannot be started at all.
    """
    bench.progress.start(len(found.tasks))
    count, has_budget = len(found.tasks), bench.config.budget_s is not None
    order = spread(count) if has_budget else range(count)
    taken = (side_by_side if bench.pool else one_by_one)([found.tasks[i] for i in order], bench)
    documents = [one for _, one in sorted(zip(order, taken, strict=True), key=lambda pair: pair[0])]
    machines = bench.pool.devices if bench.pool else [bench.session.device()]
    return carded(
        RunDocument(
            version=__version__,
            solvers=bench.config.columns,
            policy=bench.config.policy,
            precision=bench.config.precision,
            judge=(bench.judge,),
            devices=tuple(filter(None, machines)),
            tasks=tuple(documents),
            left_out=found.left_out,
            elapsed_s=time.monotonic() - bench.started_s,
            generated_at=datetime.now(UTC).replace(microsecond=0),
            ended=ended(bench),
        )
    )


def spread(count: int) -> Sequence[int]:
    """All numbers below `count`, of which the first n are about as far from one another as n can
    be, for each n."""
    return sorted(range(count), key=lambda number: number * GOLDEN % 1.0)


def one_by_one(tasks: Sequence[Task], bench: Bench) -> list[TaskDocument]:
    """Every task, by one judge."""
    machine = machine_text(bench.session.device())
    documents: list[TaskDocument] = []
    for task in tasks:
        if bench.is_over():
            documents.append(task_document(task, machine, "missing", missing_because(bench)))
            continue
        bench.progress.target_started(target_of(task))
        documents.append(Turn(task, bench, machine).taken())
    return documents


def side_by_side(tasks: Sequence[Task], bench: Bench) -> list[TaskDocument]:
    """The same by several judges, a task each: on one kind of device as long as there is one."""
    assert bench.pool is not None

    def turn(task: Task, judge: Judge) -> TaskDocument:
        bench.progress.target_started(target_of(task))
        found = Turn(task, bench.with_judge(judge), machine_text(judge.device())).taken()
        if not bench.ending.is_early:
            bench.progress.target_ended(target_of(task))
        return found

    outcomes = bench.pool.map(
        tasks, turn, is_over=bench.is_over, run_status=bench.ending, begun_on=bench.begun_on
    )
    machine = machine_text(bench.session.device())
    documents = []
    for task, outcome in zip(tasks, outcomes, strict=True):
        if outcome.result is not None:
            documents.append(outcome.result)
        elif outcome.reason is not None:
            bench.progress.target_skipped(target_of(task), f"invalid: {outcome.reason}")
            documents.append(task_document(task, machine, "invalid", outcome.reason))
        else:
            documents.append(task_document(task, machine, "missing", missing_because(bench)))
    return documents


def ended(bench: Bench) -> Literal["done", "budget", "interrupted"]:
    if bench.ending.was_interrupted:
        return "interrupted"
    return "budget" if bench.ending.was_cut else "done"
