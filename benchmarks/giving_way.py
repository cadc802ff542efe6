"""Judges of one device, and programs that a compiler works on for long: what it gains that these
are stopped while others time (giving_way.py), where those would wait for their end.

Each judge has as many candidates, all right; every so many takes some seconds to be imported, in
which it waits: it loses nothing by being stopped, as a compiler would, so that what is found is the
most there is to gain. All are judged twice, once as
the product does it, and once with the device held by the host, which gives way to nobody.

    python benchmarks/giving_way.py --device cpu --judges 4
    python benchmarks/giving_way.py --device cuda --judges 8
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from discovery_speed import provenance
from text_trials import write

from cudal1_ci.processes.lock import shared
from cudal1_ci.records import Candidate, Evaluation, Problem, TextProgram
from cudal1_ci.verification import Session, TrialConfig
from cudal1_ci.verification.verify import problem_of

OUTPUT = Path(__file__).parent / "results" / "giving-way-cpu.json"
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
time.sleep({slow_s})


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)
"""
CONFIG = TrialConfig(num_launches=1, num_rounds=5, launch_s=0.5, call_s=60.0, load_s=120.0)


class Waiting(Session):
    """One that gives way to nobody."""

    def _ask_beside(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        with shared(self._lock()):
            return self._ask(request, timeout_s)


WAYS: dict[str, type[Session]] = {"giving way": Session, "waiting": Waiting}


def candidate(problem: Problem, number: int, slow_s: float) -> Candidate:
    source = CANDIDATE.format(number=number, slow_s=slow_s)
    program = TextProgram(source=source, entry="ModelNew")
    return Candidate(problem_id=problem.id, program=program, proposer="benchmark")


def judged(way: str, problem: Problem, options: argparse.Namespace) -> dict[str, Any]:
    """All candidates of all judges, side by side, once each judge knows the reference."""
    found: list[Evaluation] = []
    ready = threading.Barrier(options.judges + 1)

    def work(place: int) -> None:
        with WAYS[way](CONFIG, device=options.device, num_sharing=options.judges) as session:
            session.check(problem)
            ready.wait()
            for step in range(options.candidates):
                number = place * options.candidates + step
                # Of each judge another one, so that they are not slow at the same time.
                is_slow = (step + place) % options.every == 0
                one = candidate(problem, number, options.slow_s if is_slow else 0.0)
                found.append(session.evaluate(problem, one))

    threads = [threading.Thread(target=work, args=(place,)) for place in range(options.judges)]
    for thread in threads:
        thread.start()
    ready.wait()
    started_s = time.monotonic()
    for thread in threads:
        thread.join()
    elapsed_s = time.monotonic() - started_s
    return {
        "way": way,
        "elapsed_s": round(elapsed_s, 2),
        "per_minute": round(60 * len(found) / elapsed_s, 1),
        "median_s": round(statistics.median(one.elapsed_s for one in found), 2),
        "statuses": dict(Counter(one.verdict.status for one in found)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Judges that give way to who times.")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--judges", type=int, default=4)
    parser.add_argument("--candidates", type=int, default=6, help="of each judge")
    parser.add_argument("--every", type=int, default=3, help="every so many is slow")
    parser.add_argument("--slow-s", type=float, default=8.0)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    problem = problem_of(REFERENCE, "softmax")
    rows = [judged(way, problem, options) for way in WAYS]
    for row in rows:
        print(row)
    asked = {key: value for key, value in vars(options).items() if key != "output"}
    write(options.output, {**provenance(), **asked, "rows": rows})


if __name__ == "__main__":
    main()
