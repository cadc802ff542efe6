"""Who had too little of a GPU's memory, such as where several judges share it.

That says nothing of a candidate, so its column has not had its turn on the task: neither is it
counted as failed, nor are the others compared without it. The same run with fewer judges on a GPU
judges it again.
"""

from __future__ import annotations

from collections.abc import Iterable

from cudal1_ci.report_card.shape import ResultDocument, TaskDocument, TrialDocument

RULE = "memory.device"


def was_crowded(trial: TrialDocument) -> bool:
    return trial.status == "inconclusive" and RULE in {one.rule for one in trial.findings}


def lacked_memory(task: TaskDocument) -> bool:
    """Whether the reference did."""
    return task.standing == "invalid" and RULE in {one.rule for one in task.findings}


def crowded_columns(results: Iterable[ResultDocument]) -> list[str]:
    """Those with a candidate that did."""
    return [one.solver for one in results if any(map(was_crowded, one.trials))]


def crowded_because(columns: Iterable[str]) -> str:
    """Why the task is in no table."""
    return (
        f"too little of the device's memory for {', '.join(columns)}: run it again with fewer "
        "judges on a GPU, or with nothing else there"
    )
