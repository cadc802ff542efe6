"""Optimize one task and show what was found by column.

    document = task_result(task, context, CardConfig(columns=DEFAULT), machine)

Proposing, verifying and recording are optimize/target.py's; this groups its evaluations.
"""

from __future__ import annotations

from cudal1_ci.discover.plan import Planned
from cudal1_ci.errors import WorkerError
from cudal1_ci.optimize.context import RunContext
from cudal1_ci.optimize.reasons import AT_THE_FLOOR, NO_KERNEL_PROPOSED, NOTHING_PROPOSED
from cudal1_ci.optimize.references import reference_verdict
from cudal1_ci.optimize.target import MODEL, optimize_target
from cudal1_ci.processes.device_wait import GaveUp, patient_until
from cudal1_ci.records import Entry, Evaluation, Finding, Target, Verdict, content_hash
from cudal1_ci.report_card.columns import (
    BEST,
    CONTRASTIVE,
    PUBLISHED,
    REWRITES,
    CardConfig,
    column_of,
    strategies_for,
)
from cudal1_ci.report_card.crowded import crowded_because, was_crowded
from cudal1_ci.report_card.documents import standing_of, task_document, trial_document
from cudal1_ci.report_card.roof import bound_us, demand_of
from cudal1_ci.report_card.shape import Standing, TaskDocument, TrialDocument
from cudal1_ci.report_card.tasks import Task
from cudal1_ci.verification import cuda_l1

DOUBTS = "bench.cuda-l1"
NO_FAILURE = (NOTHING_PROPOSED, NO_KERNEL_PROPOSED)
COLUMN_OF_STRATEGY = {
    "rewrites": REWRITES,
    "wrappers": BEST,
    MODEL: CONTRASTIVE,
    PUBLISHED: PUBLISHED,
}


def task_result(task: Task, context: RunContext, config: CardConfig, machine: str) -> TaskDocument:
    """Return a task with its columns, after every strategy was tried or the run is over."""
    target = target_of(task)
    verdict, standing, reason = reference_standing(task, context)
    trials: dict[str, list[TrialDocument]] = {}
    failures: dict[str, str] = {}
    demand = None
    if standing == "judged":
        planned = Planned(target=target, problem=task.problem, workloads=task.problem.workloads)
        kind = context.session.device().kind
        entry = optimize_target(planned, strategies_for(task, config, kind), context)
        if context.ending.is_early:  # which columns are whole is not known; the archive has them
            standing = "missing"
        else:
            failures = failures_of(entry, context, config)
            trials = trials_of(task, entry, context, config, failures)
            demand = demand_of(context.session, context.archive, task.problem)
    crowded = [name for name, found in trials.items() if any(map(was_crowded, found))]
    if standing == "missing":
        reason = missing_because(context)
    elif reason is not None:
        context.progress.target_skipped(target, f"{standing}: {reason}")
    elif crowded:
        standing, reason = "missing", crowded_because(crowded)
        context.progress.notice(f"{task.name}: {reason}")
    return task_document(
        task,
        machine,
        standing,
        reason,
        findings=verdict.findings,
        trials=trials,
        failures=failures,
        demand=demand,
        least_us=bound_us(demand, context.session.device()) if demand else None,
    )


def reference_standing(task: Task, context: RunContext) -> tuple[Verdict, Standing, str | None]:
    """Return the verdict on a task's reference, and what it makes of the task."""
    try:
        with patient_until(context.is_over, context.progress.waiting):
            verdict = reference_verdict(task.problem, context).verdict
    except KeyboardInterrupt:
        context.ending.was_interrupted = True
        return Verdict(status="inconclusive"), "missing", None
    except GaveUp:
        return Verdict(status="inconclusive"), "missing", None
    except WorkerError as error:
        return Verdict(status="harness_error"), "invalid", f"the verifier failed: {error}"
    return verdict, *standing_of(verdict)


def failures_of(entry: Entry, context: RunContext, config: CardConfig) -> dict[str, str]:
    """Return why columns were left as they are."""
    found = {
        COLUMN_OF_STRATEGY.get(strategy, BEST): reason
        for strategy, reason in context.failed(entry.target).items()
    }
    reason = context.fallen.get(entry.target) or entry.skipped
    is_floor = reason is not None and reason.startswith(AT_THE_FLOOR)
    is_known = reason in NO_FAILURE or is_floor or reason in found.values() or CONTRASTIVE in found
    if reason is None or is_known:
        return found
    return dict.fromkeys(config.columns, reason) | found  # any of them may lack candidates


def trials_of(
    task: Task,
    entry: Entry,
    context: RunContext,
    config: CardConfig,
    failures: dict[str, str],
) -> dict[str, list[TrialDocument]]:
    """Return what was found, by column."""
    by_column: dict[str, list[Evaluation]] = {name: [] for name in config.columns}
    for one in entry.evaluations:
        name = column_of(one.candidate, config.columns)
        if name in by_column:
            by_column[name].append(one)
    trials: dict[str, list[TrialDocument]] = {}
    for name, found in by_column.items():
        doubts: list[Finding | None] = [None] * len(found)
        if config.policy == "cuda-l1":
            try:
                doubts = [doubted(task, found[: n + 1], context) for n in range(len(found))]
            except WorkerError as error:
                failures[name] = str(error)
        trials[name] = [
            trial_document(one, is_reused=one.candidate.id in entry.reused, doubted=doubt)
            for one, doubt in zip(found, doubts, strict=True)
        ]
    return trials


def doubted(task: Task, found: list[Evaluation], context: RunContext) -> Finding | None:
    """Return why CUDA-L1's rules throw the times of the last evaluation away, found once and
    remembered."""
    *before, evaluation = found
    key = "/".join(
        (
            task.problem.id,
            evaluation.candidate.id,
            context.session.device().key,
            content_hash(evaluation.measurements),
        )
    )
    known = context.archive.noted(DOUBTS, key, tuple[Finding, ...])
    if known is None:
        earlier = [one for other in before for one in cuda_l1.speedups(other) if one is not None]
        made = cuda_l1.doubt(context.session, task.problem, evaluation, max(earlier, default=None))
        known = (made,) if made else ()
        context.archive.note(DOUBTS, key, known)
    return known[0] if known else None


def missing_because(context: RunContext) -> str:
    """Return why a task was not reached."""
    why = "interrupted" if context.ending.was_interrupted else "the budget was spent"
    return f"not reached: {why}"


def target_of(task: Task) -> Target:
    """Return a task as progress names it."""
    return Target(path=task.name, qualname="Model", kind="torch_module", first_line=1, last_line=1)
