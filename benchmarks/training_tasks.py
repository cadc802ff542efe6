"""How many distinct tasks the generator makes, how many of them can be tasks, and which are like
one of KernelBench.

    python benchmarks/training_tasks.py --kernelbench build/KernelBench
"""

from __future__ import annotations

import argparse
import collections
import itertools
import json
import time
from pathlib import Path
from typing import Any

from discovery_speed import provenance

from model_training.tasks.contamination import hits
from model_training.tasks.draft import TINY
from model_training.tasks.families import FAMILIES
from model_training.tasks.generate import distinct
from model_training.tasks.probe import probe
from model_training.tasks.published import kernelbench

OUTPUT = Path(__file__).parent / "results" / "training-tasks.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernelbench", type=Path, required=True)
    parser.add_argument("--tasks", type=int, default=3000)
    parser.add_argument("--probed", type=int, default=600, help="of those, run at a small size")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    started_s = time.monotonic()
    tasks = list(itertools.islice(distinct(list(FAMILIES), TINY), options.tasks))
    made_s = time.monotonic() - started_s
    known = kernelbench(options.kernelbench)
    started_s = time.monotonic()
    found = hits(tasks, known)
    compared_s = time.monotonic() - started_s
    problems: collections.Counter[str] = collections.Counter()
    for task in tasks[: options.probed]:
        problems[str(probe(task.text)["problem"])[:60]] += 1
    result: dict[str, Any] = {
        **provenance(),
        "num_distinct": len(tasks),
        "made_s": round(made_s, 1),
        "per_family": dict(collections.Counter(task.family for task in tasks)),
        "num_probed": options.probed,
        "problems": dict(problems.most_common()),
        "num_kernelbench": len(known),
        "compared_s": round(compared_s, 1),
        "hits": [f"{hit.training} is {hit.evaluation}: {hit.reason}" for hit in found],
    }
    options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
