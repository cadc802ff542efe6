"""How much faster the tasks of an evaluation become without a model: by the generator's own rules,
the playbook, and a CUDA graph.

    python benchmarks/head_room.py --config model_training/configs/h200-0.5b.toml
    python benchmarks/head_room.py --run benchmarks/results/training-h200-fourth

Reads the tasks of the configuration's run, and asks its judges; verdicts are in the run's archive
of evaluation, which no prompt of training shows. What a policy finds is to be seen beside it: a
task that nothing makes faster has no head-room that anybody knows of. The second line judges
nothing: it counts how many of the tasks that a rewrite makes faster a run's policies make faster.
"""

from __future__ import annotations

import argparse
import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
from discovery_speed import provenance
from text_trials import write

from cudal1_ci.propose.rewrites.strategy import Playbook
from cudal1_ci.records import Evaluation
from cudal1_ci.stats import speedups
from model_training.collection import judged
from model_training.config import load_config
from model_training.judges import Shared
from model_training.recorded import is_recording
from model_training.report.rows import rows_of
from model_training.report.run_folder import read_run
from model_training.table import FASTER, Sample, table
from model_training.tasks.record import Task
from model_training.variants import HandMade
from model_training.workplace import opened

RESULTS = Path(__file__).parent / "results"
OUTPUT, FOUND = RESULTS / "head-room-h200.json", RESULTS / "head-room-found.json"
WAYS = ("rewrite", "recording", "both")
MAX_CANDIDATES = 4
"""Of each proposer; of hand-made ones all steps rewritten, that in a graph, the task in a graph,
and another rewrite."""


def way_of(task: Task, evaluation: Evaluation) -> str:
    """What a variant is: a rewrite, the task recorded, or a rewrite that is recorded."""
    if is_recording(task.problem, evaluation.candidate.program):
        return "recording"
    return "both" if evaluation.candidate.proposer == "hand-made:graph" else "rewrite"


def row_of(task: Task, evaluations: list[Evaluation]) -> dict[str, Any]:
    """The best of each way; 1 where nothing of it passed and was faster."""
    best = dict.fromkeys(WAYS, 1.0)
    for one in evaluations:
        way = way_of(task, one)
        best[way] = max(best[way], speedups.score(one))
    statuses = Counter(one.verdict.status for one in evaluations)
    return {"task": task.name, **best, "statuses": dict(statuses)}


def measured(config_path: Path) -> dict[str, Any]:
    config = load_config(config_path)
    rows: list[dict[str, Any]] = []
    lock = threading.Lock()
    with opened(config, is_resumed=True) as place:
        scorer, tasks = place.evaluation_scorer, place.split.evaluation
        proposers = (HandMade(("torch", "graph")), Playbook())

        def work(judge: Shared, task: Task) -> None:
            if not scorer.accepts(judge, task):
                return
            archive, policy = scorer.archive, scorer.policy
            found = list(judged(task, proposers, judge, archive, policy, MAX_CANDIDATES))
            with lock:
                rows.append(row_of(task, found))

        scorer.each(tasks, work, lambda task: task.id)
        device = scorer.device().name
    return {"device": device, "rows": sorted(rows, key=lambda row: str(row["task"]))}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Tasks that are faster by more than a twentieth, and the geometric mean of all."""
    found = {}
    for way in (*WAYS, "any"):
        best = [max(row[one] for one in WAYS) if way == "any" else row[way] for row in rows]
        found[way] = {
            "num_faster": sum(one > FASTER for one in best),
            "geometric_mean": round(speedups.geometric_mean(best), 3),
        }
    return found


def found_by(run: Path, known: dict[str, Any]) -> list[dict[str, Any]]:
    """Of the tasks that a rewrite makes faster, what share each policy of a run makes faster."""
    tasks = {row["task"] for row in known["rows"] if row["rewrite"] > FASTER}
    return [
        {
            "policy": row.policy,
            "num_tasks": len(tasks),
            "k": row.table.k,
            "faster_at_k": msgspec.to_builtins(
                table([one for one in row.samples if one.task in tasks], row.table.k).faster_at_k
            ),
            "num_faster": len(
                {one.task for one in row.samples if one.task in tasks and is_faster(one)}
            ),
        }
        for row in rows_of([read_run(run)])
    ]


def is_faster(sample: Sample) -> bool:
    return sample.speedup is not None and sample.speedup > FASTER


def main() -> None:
    parser = argparse.ArgumentParser(description="What tasks of evaluation can gain.")
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--config", type=Path, help="of the run whose tasks are judged")
    asked.add_argument("--run", type=Path, help="whose policies are counted, by what is known")
    parser.add_argument("--output", type=Path, help="of what is asked")
    options = parser.parse_args()
    if options.run is not None:
        policies = found_by(options.run, json.loads(OUTPUT.read_text(encoding="utf-8")))
        about = {"run": options.run.name, "policies": policies}
        write(options.output or FOUND, {**provenance(), **about})
        for one in policies:
            share = one["faster_at_k"]
            print(
                f"{one['policy']}: best of {one['k']} above {FASTER}x on {share['value']:.1%} ",
                end="",
            )
            print(
                f"[{share['low']:.1%}, {share['high']:.1%}] of {one['num_tasks']} tasks, ", end=""
            )
            print(f"any sample on {one['num_faster']}")
        return
    found = measured(options.config)
    counted = summary(found["rows"])
    write(options.output or OUTPUT, {**provenance(), **found, "summary": counted})
    for way, numbers in counted.items():
        print(f"{way}: {numbers['num_faster']} of {len(found['rows'])} above {FASTER}x, ", end="")
        print(f"geometric mean {numbers['geometric_mean']:.3f}x")


if __name__ == "__main__":
    main()
