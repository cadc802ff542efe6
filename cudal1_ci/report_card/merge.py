"""Merge several runs, whatever their order and however often one is given.

Runs may be parts of the tasks, some of the columns, or the same on several machines. A task is
identified by its reference and machine, a trial by its content. Of two trials of one candidate on
equal machines one counts. A refusal comes before a pass, because what one machine saw is true. A
pass comes before an undecided trial.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import msgspec

from cudal1_ci.errors import ReportError
from cudal1_ci.records import Device, content_hash
from cudal1_ci.report_card.card import carded
from cudal1_ci.report_card.columns import BEST, COLUMNS
from cudal1_ci.report_card.crowded import (
    crowded_because,
    crowded_columns,
    lacked_memory,
    was_crowded,
)
from cudal1_ci.report_card.names import Named, names_apart
from cudal1_ci.report_card.shape import (
    ResultDocument,
    RunDocument,
    Standing,
    TaskDocument,
    TrialDocument,
)
from cudal1_ci.report_card.tasks import natural

UNDECIDED = ("inconclusive", "harness_error")


def merge(runs: Sequence[RunDocument]) -> RunDocument:
    """Merge at least one run.

    Raises:
        ReportError: The runs count by different policies, or allow different precisions.
    """
    policies = sorted({run.policy for run in runs})
    if len(policies) > 1:
        raise ReportError(f"expected runs of one policy, got {' and '.join(policies)}")
    precisions = sorted({run.precision for run in runs})
    if len(precisions) > 1:
        raise ReportError(f"expected runs of one precision, got {' and '.join(precisions)}")
    distinct = {content_hash(run): run for run in runs}
    runs = [distinct[key] for key in sorted(distinct)]
    asked = {solver for run in runs for solver in run.solvers}
    # Of those that another version has and this one does not know, results are kept all the same.
    solvers = (*(one for one in COLUMNS if one in asked), *sorted(asked - set(COLUMNS)))
    by_task: dict[tuple[str, str], list[TaskDocument]] = {}
    for task in chain.from_iterable(run.tasks for run in runs):
        by_task.setdefault((task.machine, task.problem_id), []).append(task)
    tasks = [joined(same, solvers) for same in by_task.values()]
    tasks.sort(key=lambda t: (t.machine, t.source, natural(t.name)))
    names = names_apart(Named(t.name, t.source, t.title, t.problem_id) for t in tasks)
    return carded(
        msgspec.structs.replace(
            runs[0],
            version=", ".join(sorted({run.version for run in runs})),
            solvers=solvers,
            policy=runs[0].policy,
            judge=tuple(sorted({judge for run in runs for judge in run.judge})),
            devices=distinct_devices(chain.from_iterable(run.devices for run in runs)),
            tasks=tuple(msgspec.structs.replace(t, name=names[t.problem_id]) for t in tasks),
            left_out=tuple(sorted({one for run in runs for one in run.left_out})),
            elapsed_s=sum(run.elapsed_s for run in runs),
            generated_at=max((r.generated_at for r in runs if r.generated_at), default=None),
            ended=next((run.ended for run in runs if run.ended != "done"), "done")
            if any(task.standing == "missing" for task in tasks)
            else "done",
        )
    )


def joined(tasks: Sequence[TaskDocument], solvers: Sequence[str]) -> TaskDocument:
    """Join one task of one machine from several runs."""
    told = [task for task in tasks if task.standing in ("degenerate", "invalid")]
    if any(task.results for task in tasks):  # a reference for which one run had enough memory
        told = [task for task in told if not lacked_memory(task)]
    degenerate = [task for task in told if task.standing == "degenerate"]
    first = ([*degenerate, *told] or list(tasks))[0]
    results = [
        joined_result(solver, found)
        for solver in solvers
        if (found := [r for task in tasks for r in task.results if r.solver == solver])
    ]
    standing: Standing
    reason: str | None
    # That a reference fails may be one run's bad luck; that it is degenerate is not.
    absent = [one for one in solvers if one not in {result.solver for result in results}]
    if any(task.standing == "judged" for task in tasks):
        # What `best` makes of columns of several runs is chosen among what each of them found.
        absent = [one for one in absent if one != BEST]
    crowded = crowded_columns(results)
    if not absent and not crowded and not degenerate:
        first = next(task for task in tasks if task.results)
        standing, reason = "judged", None
    elif told:
        standing, reason = first.standing, first.reason
    else:
        why = [f"no result of {', '.join(absent)}"] if absent else []
        why += [crowded_because(crowded)] if crowded else []
        standing, reason = "missing", "; ".join(why)
    # Counted once: a run may have been cut before, or its verifier died of the question.
    counted = next((task for task in tasks if task.demand is not None), first)
    return msgspec.structs.replace(
        first,
        standing=standing,
        reason=reason,
        claimed=claims(tasks),
        demand=counted.demand,
        least_us=counted.least_us,
        results=tuple(results),
    )


def claims(tasks: Iterable[TaskDocument]) -> dict[str, float]:
    return dict(sorted(chain.from_iterable(task.claimed.items() for task in tasks)))


def joined_result(solver: str, results: Sequence[ResultDocument]) -> ResultDocument:
    """Join all candidates of a column, each once. A run with too little memory adds none where
    another had enough for the column: `best` may have chosen others there.
    """
    had_enough = any(
        result.failure is None and not any(map(was_crowded, result.trials)) for result in results
    )
    by_candidate: dict[str, list[TrialDocument]] = {}
    for trial in chain.from_iterable(result.trials for result in results):
        if not (had_enough and was_crowded(trial)):
            by_candidate.setdefault(trial.candidate.id, []).append(trial)
    has_whole = any(result.failure is None for result in results)
    failures = sorted({result.failure for result in results if result.failure})
    return ResultDocument(
        solver=solver,
        trials=tuple(min(same, key=precedence) for same in by_candidate.values()),
        failure=None if has_whole else "; ".join(failures),
    )


def precedence(trial: TrialDocument) -> tuple[int, str]:
    """Return a key that sorts refusals first, then passes, then undecided trials."""
    rank = 2 if trial.status in UNDECIDED else 1 if trial.status == "passed" else 0
    return rank, content_hash(msgspec.structs.replace(trial, reused=False))


def distinct_devices(devices: Iterable[Device]) -> tuple[Device, ...]:
    """Return devices that differ in hardware or software; clock and temperature do not count."""
    seen: dict[str, Device] = {}
    for device in devices:
        steady = msgspec.structs.replace(
            device, clock_mhz=None, power_w=None, temperature_c=None, other_processes=None
        )
        seen.setdefault(content_hash(steady), steady)
    return tuple(seen[key] for key in sorted(seen))
