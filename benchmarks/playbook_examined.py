"""Whether what the playbook writes computes the same: its rewrites of many tasks before the judge.

    python benchmarks/playbook_examined.py CUDA-L1/optimized_cuda_code/h100.json --limit 3600
    python benchmarks/playbook_examined.py KernelBench --level 1 --output level1.json

Tasks are read as `cudal1-ci bench` reads them, and fetched by whoever runs this. What the playbook
proposes for each, one rewrite alone and all that match together, is examined as in a trial with the
settings of a report card, on the CPU, and not timed: nothing is said of whether it is faster, and
rewrites that need a GPU are left out. A reference that the judge does not accept within its limits
says nothing of the playbook; of those there is a count by reason. Tasks come in an order drawn with
a seed, so that those before `--limit` are a fair sample.
"""

from __future__ import annotations

import argparse
import os
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from discovery_speed import provenance
from text_trials import write

from cudal1_ci.errors import WorkerError
from cudal1_ci.propose.rewrites import PREFIX
from cudal1_ci.propose.rewrites.strategy import Playbook
from cudal1_ci.records import Candidate, Verdict
from cudal1_ci.report_card.tasks import Choice, Task, natural, tasks_at
from cudal1_ci.verification import Session, TrialConfig
from cudal1_ci.verification.config import BuildsConfig

OUTPUT = Path(__file__).parent / "results" / "playbook-examined.json"
SETTINGS = TrialConfig(weights="seed", call_s=30, load_s=60, num_launches=1)
"""A CPU takes long for what was made for a GPU; what takes longer is not examined."""
MOST = 100
"""More candidates than the playbook has for any task."""
Row = dict[str, Any]


class Examination:
    """Judges side by side, each on a core of its own, and what they said."""

    def __init__(
        self,
        tasks: list[tuple[Task, list[Candidate]]],
        limit_s: float,
        keep: Callable[[list[Row]], None],
    ) -> None:
        """`keep` is told of all rows after each, so that a kill loses none."""
        self.left = list(reversed(tasks))
        self.until_s = time.monotonic() + limit_s
        self.keep = keep
        self.rows: list[Row] = []
        self.lock = threading.Lock()

    def run(self, num_judges: int) -> None:
        cores = sorted(os.sched_getaffinity(0))
        threads = [
            threading.Thread(target=self.judge, args=([cores[place % len(cores)]],))
            for place in range(num_judges)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def judge(self, cores: list[int]) -> None:
        with Session(SETTINGS, device="cpu", builds=BuildsConfig(keep=False), cores=cores) as one:
            while time.monotonic() < self.until_s:
                with self.lock:
                    if not self.left:
                        return
                    task, candidates = self.left.pop()
                row = examined(one, task, candidates)
                with self.lock:
                    self.rows.append(row)
                    self.keep(self.rows)
                    print(f"{task.name}: {told(row)}; {len(self.left)} left", flush=True)


def examined(session: Session, task: Task, candidates: list[Candidate]) -> Row:
    started_s = time.monotonic()
    row: Row = {"task": task.name, "problem_id": task.problem.id, "candidates": []}
    try:
        reference = session.check(task.problem)
        row["reference"] = said(reference)
        if reference.status == "passed":
            for candidate in candidates:
                verdict = session.examine(task.problem, candidate)
                name = candidate.proposer.removeprefix(PREFIX)
                row["candidates"].append({"rewrites": name, **said(verdict)})
    except WorkerError as error:
        row["failure"] = str(error)
    return {**row, "elapsed_s": round(time.monotonic() - started_s, 1)}


def said(verdict: Verdict) -> Row:
    """A verdict without what it quotes."""
    rules = [one.rule for one in verdict.findings]
    found: Row = {"status": verdict.status, "rules": rules}
    if verdict.status != "passed":
        found["messages"] = [one.message[:300] for one in verdict.findings]
    return found


def told(row: Row) -> str:
    if "failure" in row:
        return str(row["failure"])
    if row["reference"]["status"] != "passed":
        return f"reference: {row['reference']['status']}"
    return ", ".join(f"{one['rewrites']} {one['status']}" for one in row["candidates"])


def counted(rows: list[Row]) -> Row:
    """By rewrite what became of it alone, and of those together."""
    by_rewrite: dict[str, Counter[str]] = defaultdict(Counter)
    together: Counter[str] = Counter()
    for row in rows:
        for one in row["candidates"]:
            counts = together if "+" in one["rewrites"] else by_rewrite[one["rewrites"]]
            counts[one["status"]] += 1
    references = Counter(
        "failure" if "failure" in row else row["reference"]["status"] for row in rows
    )
    return {
        "references": dict(references.most_common()),
        "rewrites": {name: dict(by_rewrite[name]) for name in sorted(by_rewrite)},
        "together": dict(together),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("paths", nargs="+", type=Path, metavar="FOLDER|FILE")
    parser.add_argument("--level", type=int, action="append", default=[])
    parser.add_argument("--task", action="append", default=[], metavar="GLOB")
    parser.add_argument("--judges", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds; no task begins later")
    parser.add_argument("--seed", type=int, default=0, help="of the order of the tasks")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    choice = Choice(levels=tuple(options.level), globs=tuple(options.task))
    tasks = tasks_at(options.paths, choice).tasks
    playbook = Playbook()
    matching = [
        (task, found) for task in tasks if (found := playbook.propose(task.problem, (), MOST))
    ]
    num_matching = len(matching)
    random.Random(options.seed).shuffle(matching)
    about = {**provenance(), "num_tasks": len(tasks), "num_matching": num_matching}

    def keep(rows: list[Row]) -> None:
        in_order = sorted(rows, key=lambda row: natural(row["task"]))
        found = {**about, "num_examined": len(rows), **counted(in_order), "rows": in_order}
        write(options.output, found)

    keep([])
    examination = Examination(matching, options.limit, keep)
    examination.run(options.judges)
    for name, counts in counted(examination.rows).items():
        print(f"{name}: {counts}")


if __name__ == "__main__":
    main()
