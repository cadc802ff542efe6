"""The loop: every task, every column, one judge.

Each evaluation is in the archive before the next one starts, so that a kill loses none. A run that
goes on (`since`) asks nothing twice; another one judges again what an earlier one could not decide.
Published kernels have an archive of their own: the model's loop looks into ours for what passed,
and is to be shown what we found alone.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Literal

from cudal1_ci import __version__
from cudal1_ci.bench.card import carded
from cudal1_ci.bench.documents import machine_text, task_document
from cudal1_ci.bench.shape import RunDocument, TaskDocument
from cudal1_ci.bench.tasks import Found
from cudal1_ci.bench.turn import Turn
from cudal1_ci.bench.work import Bench, missing_because, target_of
from cudal1_ci.report.document import device_document


def run(found: Found, bench: Bench) -> RunDocument:
    """Judge every column on every task, as far as the budget lasts.

    Raises:
        WorkerError: The judge cannot be started at all.
    """
    device = bench.session.device()
    machine = machine_text(device)
    bench.progress.start(len(found.tasks))
    documents: list[TaskDocument] = []
    for task in found.tasks:
        if bench.is_over():
            documents.append(task_document(task, machine, "missing", missing_because(bench)))
            continue
        bench.progress.target_started(target_of(task))
        documents.append(Turn(task, bench, machine).taken())
    published = device_document(device)
    assert published is not None
    return carded(
        RunDocument(
            version=__version__,
            solvers=bench.config.columns,
            policy=bench.config.policy,
            judge=(bench.judge,),
            devices=(published,),
            tasks=tuple(documents),
            left_out=found.left_out,
            elapsed_s=time.monotonic() - bench.started_s,
            generated_at=datetime.now(UTC).replace(microsecond=0),
            ended=ended(bench),
        )
    )


def ended(bench: Bench) -> Literal["done", "budget", "interrupted"]:
    if bench.was_interrupted:
        return "interrupted"
    return "budget" if bench.was_cut else "done"
