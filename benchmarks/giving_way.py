"""Judges of one device, and programs that compile for seconds at their first call: what it gains
that who times stops the others' examinations (executor/lock.py `giving_way`).

Each judge has the same number of candidates, all right, every second of which keeps a processor
busy for some seconds when it is imported, as a compiler does. All are judged twice: once as the
product does it, and once with a patience so long that nobody is ever stopped.

    python benchmarks/giving_way.py --device cuda --judges 4
    python benchmarks/giving_way.py --device cpu --judges 2 --candidates 2     # to try it
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import statistics
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from discovery_speed import provenance

from cudal1_ci.executor import lock
from cudal1_ci.schema import Candidate, Evaluation, Problem, TextProgram
from cudal1_ci.trial import Session, TrialConfig
from cudal1_ci.verification import problem_of

OUTPUT = Path(__file__).parent / "results" / "giving-way.json"
REFERENCE = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        e = torch.exp(x - x.max(dim=1, keepdim=True).values)
        return e / e.sum(dim=1, keepdim=True)


def get_inputs():
    return [torch.randn(512, 1024)]


def get_init_inputs():
    return []
"""
CANDIDATE = """import time
import torch
from torch import nn

# {number}
ends_s = time.process_time() + {busy_s}
while time.process_time() < ends_s:
    pass


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)
"""
CONFIG = TrialConfig(num_launches=1, num_rounds=5, launch_s=0.5, call_s=30.0, load_s=120.0)
WAYS = {"giving way": lock.GRACE_S, "waiting": math.inf}


def candidate(problem: Problem, number: int, busy_s: float) -> Candidate:
    source = CANDIDATE.format(number=number, busy_s=busy_s if number % 2 else 0.0)
    program = TextProgram(source=source, entry="ModelNew")
    return Candidate(problem_id=problem.id, program=program, proposer="benchmark")


def judged(way: str, sessions: list[Session], problem: Problem, options: Any) -> dict[str, Any]:
    """All candidates of all judges, side by side."""
    found: list[Evaluation] = []

    def work(session: Session, first: int) -> None:
        numbers = range(first, first + options.candidates)
        found.extend(
            session.evaluate(problem, candidate(problem, number, options.busy))
            for number in numbers
        )

    quick_ids = {
        candidate(problem, number, options.busy).id
        for number in range(0, len(sessions) * options.candidates, 2)
    }
    lock.GRACE_S = WAYS[way]
    threads = [
        threading.Thread(target=work, args=(session, place * options.candidates))
        for place, session in enumerate(sessions)
    ]
    started_s = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed_s = time.monotonic() - started_s
    quick = [one.elapsed_s for one in found if one.candidate.id in quick_ids]
    return {
        "way": way,
        "elapsed_s": round(elapsed_s, 2),
        "per_minute": round(60 * len(found) / elapsed_s, 1),
        "median_quick_s": round(statistics.median(quick), 3),
        "statuses": dict(Counter(one.verdict.status for one in found)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--judges", type=int, default=4)
    parser.add_argument("--candidates", type=int, default=6, help="Of each judge.")
    parser.add_argument("--busy", type=float, default=4.0, help="Seconds of every second one.")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    problem = problem_of(REFERENCE, "reference")
    rows = []
    with contextlib.ExitStack() as stack:
        sessions = [
            stack.enter_context(Session(CONFIG, device=options.device, num_sharing=options.judges))
            for _ in range(options.judges)
        ]
        device = sessions[0].device()
        for session in sessions:
            assert session.check(problem).status == "passed"
        for way in WAYS:
            rows.append(judged(way, sessions, problem, options))
            print(json.dumps(rows[-1]), flush=True)
    said = {"num_judges": options.judges, "num_candidates": options.candidates}
    result = {**provenance(), "device": device.name, **said, "busy_s": options.busy, "rows": rows}
    options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
