"""Run the loop: every task, every column, one verifier for each task. With a budget, every prefix
of the task order is spread over all tasks, so that it represents the rest.

Each evaluation is in the archive before the next one starts, so that a kill loses none. A resumed
run (`since`) repeats no question; a new run verifies again what an earlier one could not decide.
Published kernels are in the same archive; a model is never shown them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

from cudal1_ci import __version__
from cudal1_ci.optimize.context import RunContext
from cudal1_ci.report_card.card import carded
from cudal1_ci.report_card.columns import CardConfig
from cudal1_ci.report_card.documents import machine_text, task_document
from cudal1_ci.report_card.shape import RunDocument, TaskDocument
from cudal1_ci.report_card.task_result import missing_because, target_of, task_result
from cudal1_ci.report_card.tasks import Found, Task
from cudal1_ci.verification.protocol import Verifier

GOLDEN = (5**0.5 - 1) / 2
"""Multiples of it leave no large gap between 0 and 1, however many there are (Steinhaus)."""


def run(found: Found, context: RunContext, config: CardConfig) -> RunDocument:
    """Run every column on every task, while the budget lasts.

    Raises:
        WorkerError: The verifier cannot be started at all.
    """
    context.progress.start(len(found.tasks))
    count, has_budget = len(found.tasks), context.config.budget_s is not None
    order = spread(count) if has_budget else range(count)
    taken = (side_by_side if context.pool else one_by_one)(
        [found.tasks[i] for i in order], context, config
    )
    documents = [one for _, one in sorted(zip(order, taken, strict=True), key=lambda pair: pair[0])]
    machines = context.pool.devices if context.pool else [context.session.device()]
    return carded(
        RunDocument(
            version=__version__,
            solvers=config.columns,
            policy=config.policy,
            precision=config.precision,
            judge=(context.policy,),
            devices=tuple(filter(None, machines)),
            tasks=tuple(documents),
            left_out=found.left_out,
            elapsed_s=time.monotonic() - context.started_s,
            generated_at=datetime.now(UTC).replace(microsecond=0),
            ended=ended(context),
        )
    )


def spread(count: int) -> Sequence[int]:
    """Return all numbers below `count`; for each n, the first n are spread evenly."""
    return sorted(range(count), key=lambda number: number * GOLDEN % 1.0)


def one_by_one(
    tasks: Sequence[Task], context: RunContext, config: CardConfig
) -> list[TaskDocument]:
    """Evaluate every task with one verifier."""
    machine = machine_text(context.session.device())
    documents: list[TaskDocument] = []
    for task in tasks:
        if context.is_over():
            documents.append(task_document(task, machine, "missing", missing_because(context)))
            continue
        context.progress.target_started(target_of(task))
        documents.append(task_result(task, context, config, machine))
    return documents


def side_by_side(
    tasks: Sequence[Task], context: RunContext, config: CardConfig
) -> list[TaskDocument]:
    """Evaluate with several verifiers, a task each, on one kind of device while it lasts."""
    assert context.pool is not None

    def turn(task: Task, verifier: Verifier) -> TaskDocument:
        context.progress.target_started(target_of(task))
        found = task_result(
            task, context.with_verifier(verifier), config, machine_text(verifier.device())
        )
        if not context.ending.is_early:
            context.progress.target_ended(target_of(task))
        return found

    def begun_on(task: Task) -> frozenset[str]:
        """Return the devices on which this run has found something of a task."""
        since = time.time() if context.since is None else context.since
        return frozenset(context.archive.devices(task.problem.id, since))

    outcomes = context.pool.map(
        tasks, turn, is_over=context.is_over, run_status=context.ending, begun_on=begun_on
    )
    machine = machine_text(context.session.device())
    documents = []
    for task, outcome in zip(tasks, outcomes, strict=True):
        if outcome.result is not None:
            documents.append(outcome.result)
        elif outcome.reason is not None:
            context.progress.target_skipped(target_of(task), f"invalid: {outcome.reason}")
            documents.append(task_document(task, machine, "invalid", outcome.reason))
        else:
            documents.append(task_document(task, machine, "missing", missing_because(context)))
    return documents


def ended(context: RunContext) -> Literal["done", "budget", "interrupted"]:
    if context.ending.was_interrupted:
        return "interrupted"
    return "budget" if context.ending.was_cut else "done"
