"""Find tasks with too little GPU memory, such as where several verifiers share a GPU.

A lack of memory is no verdict on a candidate, so its column counts as not tried on the task. The
column is not counted as failed, and the others are not compared without it. The same run with fewer
verifiers on a GPU verifies it again.
"""

from __future__ import annotations

from collections.abc import Iterable

from cudal1_ci.report_card.shape import ResultDocument, TaskDocument, TrialDocument

RULE = "memory.device"


def was_crowded(trial: TrialDocument) -> bool:
    return trial.status == "inconclusive" and RULE in {one.rule for one in trial.findings}


def lacked_memory(task: TaskDocument) -> bool:
    """Return whether the reference lacked memory."""
    return task.standing == "invalid" and RULE in {one.rule for one in task.findings}


def crowded_columns(results: Iterable[ResultDocument]) -> list[str]:
    """Return the columns with a candidate that lacked memory."""
    return [one.solver for one in results if any(map(was_crowded, one.trials))]


def crowded_because(columns: Iterable[str]) -> str:
    """Return why the task is in no table."""
    return (
        f"too little of the device's memory for {', '.join(columns)}: run it again with fewer "
        "verifiers on the GPU, or with nothing else running there"
    )
