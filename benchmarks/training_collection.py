"""What stage 1 can learn from without any model: generated tasks, the playbook's variants of them,
and the judge's verdicts.

    python benchmarks/training_collection.py --tasks 30 --device cpu
"""

from __future__ import annotations

import argparse
import collections
import itertools
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from discovery_speed import provenance

from cudal1_ci.propose.rewrites.strategy import Playbook
from cudal1_ci.records.archive import Archive
from cudal1_ci.verification import Session, TrialConfig
from model_training.collection import CollectionConfig, balanced, counted, examples_of, judged
from model_training.tasks.draft import Scale
from model_training.tasks.families import FAMILIES
from model_training.tasks.generate import distinct
from model_training.tasks.splits import HELD_OUT

OUTPUT = Path(__file__).parent / "results" / "training-collection.json"
SCALES = {"cpu": Scale(min_elements=2**14, max_elements=2**18, max_loop=8), "cuda": Scale()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=30)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--limit", type=float, default=1200, help="seconds; later tasks are left")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    ends_s = time.monotonic() + options.limit
    families = [family for family in FAMILIES if family not in HELD_OUT]
    stream = distinct(families, SCALES[options.device.partition(":")[0]])
    config, trial = CollectionConfig(contrasts=False), TrialConfig()
    statuses: collections.Counter[str] = collections.Counter()
    speedups: dict[str, float] = {}
    examples, num_tasks, started_s = [], 0, time.monotonic()
    with (
        tempfile.TemporaryDirectory() as folder,
        Archive.open(Path(folder) / "archive.sqlite") as archive,
        Session(trial, device=options.device) as session,
    ):
        device = session.device()
        for task in itertools.islice(stream, options.tasks):
            if time.monotonic() > ends_s:
                break
            num_tasks += 1
            found = list(judged(task, [Playbook()], session, archive, trial.policy))
            statuses.update(one.verdict.status for one in found)
            kept = examples_of(task, found, device, (), config)
            examples += kept
            if kept:
                speedups[task.name] = round(kept[0].speedup, 3)
            print(task.name, [one.verdict.status for one in found], flush=True)
    elapsed_s = time.monotonic() - started_s
    num_judged = sum(statuses.values())
    result: dict[str, Any] = {
        **provenance(),
        "device": device.name,
        "num_tasks": num_tasks,
        "num_judged": num_judged,
        "statuses": dict(statuses.most_common()),
        "num_tasks_with_examples": len(speedups),
        "num_examples": len(examples),
        "num_balanced": len(balanced(examples, config)),
        "techniques": counted(examples),
        "median_best_speedup": statistics.median(speedups.values()) if speedups else None,
        "best_speedups": speedups,
        "seconds_per_candidate": round(elapsed_s / max(1, num_judged), 2),
    }
    options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
