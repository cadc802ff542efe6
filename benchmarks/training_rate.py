"""How many candidates a minute judges have in training, by the processes that time them.

    python benchmarks/training_rate.py --device cuda --tasks 12 --ways kept:1,kept:3,new:3

Generated tasks with candidates as a policy writes them once it can: the task itself, fast ones that
are right (variants/), and one that is wrong. A way is `kept` (one launch, of processes that are
kept) or `new` (three launches, of new ones), and a number of judges that share the device. What is
said of equal code tells how much one launch may stray.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import json
import math
import queue
import statistics
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from discovery_speed import provenance

from cudal1_ci.records import Candidate, Evaluation, TextProgram
from cudal1_ci.stats import speedups
from cudal1_ci.verification import Session, TrialConfig
from model_training.tasks.draft import Scale
from model_training.tasks.families import FAMILIES
from model_training.tasks.generate import distinct
from model_training.tasks.record import Task
from model_training.variants import HandMade

OUTPUT = Path(__file__).parent / "results" / "training-rate.json"
SCALES = {"cpu": Scale(min_elements=2**14, max_elements=2**18, max_loop=8), "cuda": Scale()}
KINDS = {"cpu": ("torch",), "cuda": ("torch", "graph")}
NUM_FAST = 4
SHORT = {"launch_s": 0.5, "memory_bytes": 16_000_000_000, "load_s": 60.0, "call_s": 20.0}
WAYS = {
    "kept": TrialConfig(num_launches=1, batch_us=3000.0, num_rounds=5, **SHORT),
    "new": TrialConfig(num_launches=3, **SHORT),
}
Piece = tuple[Task, list[tuple[str, Candidate]]]


def candidates_of(task: Task, kinds: tuple[str, ...]) -> list[tuple[str, Candidate]]:
    """By what they are: `equal`, `fast`, `wrong`."""
    problem, text = task.problem, task.text
    wrong = text.replace("        return x\n", "        return x + 0.5\n")
    programs = [("equal", f"{text}\n# again\n")]
    programs += [("wrong", wrong)] if wrong != text else []
    made = [(name, TextProgram(source=source, entry="Model")) for name, source in programs]
    found = [
        (name, Candidate(problem_id=problem.id, program=program, proposer="benchmark"))
        for name, program in made
    ]
    return found + [("fast", one) for one in HandMade(kinds).propose(problem, (), NUM_FAST)]


def judged(
    pieces: Iterable[Piece], config: TrialConfig, device: str, num_judges: int, ends_s: float
) -> tuple[list[tuple[str, Evaluation]], list[float], float]:
    """Evaluations by what the candidates are, what learning each reference took, and the time from
    the first of them to the last evaluation."""
    left: queue.SimpleQueue[Piece] = queue.SimpleQueue()
    for piece in pieces:
        left.put(piece)
    found: list[tuple[str, Evaluation]] = []
    checks_s: list[float] = []
    spans: list[tuple[float, float]] = []

    def work() -> None:
        with Session(config, device=device) as session:
            session.device()
            ready.wait()
            began_s = time.monotonic()
            while time.monotonic() < ends_s:
                try:
                    task, candidates = left.get_nowait()
                except queue.Empty:
                    break
                started_s = time.monotonic()
                session.check(task.problem)
                checks_s.append(time.monotonic() - started_s)
                found.extend(
                    (name, session.evaluate(task.problem, one)) for name, one in candidates
                )
            spans.append((began_s, time.monotonic()))

    ready = threading.Barrier(num_judges)
    threads = [threading.Thread(target=work) for _ in range(num_judges)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found, checks_s, max(end for _, end in spans) - min(begin for begin, _ in spans)


def row_of(
    way: str, found: list[tuple[str, Evaluation]], checks_s: list[float], elapsed_s: float
) -> dict[str, Any]:
    statuses = collections.Counter(f"{name} {one.verdict.status}" for name, one in found)
    ratios = {
        name: [
            speedups.log_ratio(launch, m.device.kind)
            for kind, one in found
            if kind == name
            for m in one.measurements
            for launch in m.repetitions
        ]
        for name in ("equal", "fast")
    }
    seconds = {
        name: round(statistics.median(one.elapsed_s for kind, one in found if kind == name), 3)
        for name in {kind for kind, _ in found}
    }
    others = [
        f"{name}: {finding.rule} {(finding.message or '')[:200]}"
        for name, one in found
        if one.verdict.status != "passed" and name != "wrong"
        for finding in one.verdict.findings[:1]
    ]
    return {
        "way": way,
        "num_judged": len(found),
        "elapsed_s": round(elapsed_s, 2),
        "per_minute": round(60 * len(found) / elapsed_s, 1),
        "statuses": dict(sorted(statuses.items())),
        "median_seconds": seconds,
        "median_check_s": round(statistics.median(checks_s), 3),
        "equal_spread": round(statistics.pstdev(ratios["equal"]), 4) if ratios["equal"] else None,
        "equal_mean": round(statistics.fmean(ratios["equal"]), 4) if ratios["equal"] else None,
        "equal_ratios": [round(math.exp(one), 4) for one in ratios["equal"]],
        "fast_ratios": [round(math.exp(one), 3) for one in ratios["fast"]],
        "not_passed": others[:20],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", type=int, default=12)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--ways", default="kept:1,kept:3,new:3")
    parser.add_argument("--limit", type=float, default=600, help="seconds for a way")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    kind = options.device.partition(":")[0]
    tasks = list(itertools.islice(distinct(list(FAMILIES), SCALES[kind]), options.tasks))
    pieces = [(task, candidates_of(task, KINDS[kind])) for task in tasks]
    rows = []
    for way in options.ways.split(","):
        name, _, number = way.partition(":")
        ends_s = time.monotonic() + options.limit
        found, checks_s, elapsed_s = judged(pieces, WAYS[name], options.device, int(number), ends_s)
        rows.append(row_of(way, found, checks_s, elapsed_s))
        result = {
            **provenance(),
            "device": found[0][1].device.name if found else None,
            "num_tasks": len(tasks),
            "rows": rows,
        }
        options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        shown = ("per_minute", "elapsed_s", "median_seconds", "median_check_s", "equal_spread")
        print(way, {key: rows[-1][key] for key in shown}, rows[-1]["statuses"], flush=True)
        print(*rows[-1]["not_passed"], sep="\n", flush=True)


if __name__ == "__main__":
    main()
