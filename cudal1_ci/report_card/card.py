"""Make the tables of a run: one row a column, over all tasks and over each level.

The tasks of every row of a scope are the same: those that every column has tried, without those
whose reference is excluded.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cudal1_ci.propose.wrappers.strategy import launches_its_own
from cudal1_ci.report_card.columns import BEST, OWN
from cudal1_ci.report_card.shape import Policy, RowDocument, RunDocument, TaskDocument
from cudal1_ci.report_card.summary import (
    ABOVE,
    fast_p,
    geometric_mean,
    interval,
    mean,
    median,
    quantile,
)
from cudal1_ci.report_card.worth import gains, worth

ALL = "all"


def carded(run: RunDocument) -> RunDocument:
    """Return the run with its tables made again."""
    ways: tuple[Policy, ...] = ("strict", "cuda-l1") if run.policy == "cuda-l1" else ("strict",)
    rows = tuple(
        row_of(solver, scope, machine, way, tasks)
        for machine in machines(run)
        for way in ways
        for scope, tasks in scopes(run, machine)
        for solver in run.solvers
    )
    return msgspec.structs.replace(run, card=rows)


def machines(run: RunDocument) -> tuple[str, ...]:
    """Return all machines that something was measured on, or should have been."""
    return tuple(dict.fromkeys(task.machine for task in run.tasks))


def counted(run: RunDocument, machine: str) -> list[TaskDocument]:
    """Return the tasks of the tables of a machine."""
    return [one for one in run.tasks if one.machine == machine and one.standing == "judged"]


def scopes(run: RunDocument, machine: str) -> list[tuple[str, list[TaskDocument]]]:
    """Return all tasks, and each level where there are several; no scope is empty."""
    tasks = counted(run, machine)
    levels = sorted({task.level for task in tasks if task.level is not None})
    found = [(ALL, tasks)] if tasks else []
    if len(levels) > 1:
        found += [(level, [task for task in tasks if task.level == level]) for level in levels]
    return found


def row_of(
    solver: str, scope: str, machine: str, policy: Policy, tasks: Sequence[TaskDocument]
) -> RowDocument:
    """Return the row of a column over at least one task."""
    found = [worth(task, solver, policy) for task in tasks]
    speedups = [one.speedup for one in found]
    columns = OWN if solver == BEST else (solver,)
    results = [result for task in tasks for result in task.results if result.solver in columns]
    trials = [trial for result in results for trial in result.trials]
    runs = [launches_its_own(one.trial.kernels) for one in found if one.trial is not None]
    generations = [t.candidate.generation for t in trials if t.candidate.generation is not None]
    return RowDocument(
        solver=solver,
        scope=scope,
        machine=machine,
        policy=policy,
        num_tasks=len(tasks),
        num_given=sum(one.is_given for one in found),
        num_success=sum(one.is_success for one in found),
        num_above=sum(one.is_success and one.speedup > ABOVE for one in found),
        num_gains=sum(bool(gains(task, columns, policy)) for task in tasks),
        judged_s=sum(one.elapsed_s for one in trials),
        completion_tokens=sum(one.completion_tokens or 0 for one in generations),
        num_declaring=len(runs) - runs.count(None),
        num_launching=runs.count(True),
        num_thrown_away=sum(one.is_thrown_away for one in found),
        mean=interval(speedups, mean),
        geometric_mean=interval(speedups, geometric_mean),
        median=interval(speedups, median),
        q25=quantile(speedups, 0.25),
        q75=quantile(speedups, 0.75),
        max=max(speedups),
        fast_p=fast_p([one.speedup if one.is_success else None for one in found]),
    )
