"""Where a compiled program's time in the judge goes, request by request.

    python benchmarks/compile_parts.py CUDA-L1/optimized_cuda_code/h100.json --device cuda:0

A reference, its graph and its compiled forms, one after the other before one judge, one launch
each. `asks` are the requests to the judge, with seconds, and what its runners were asked within
them: how often, and for how long together.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from discovery_speed import provenance
from text_trials import write

from cudal1_ci.report_card.columns import SOLVERS, Means
from cudal1_ci.report_card.tasks import Choice, tasks_at
from cudal1_ci.verification import Session, TrialConfig

OUTPUT = Path(__file__).parent / "results" / "compile-parts.json"
SOLVED_BY = ("eager", "cuda-graph", "compile", "compile-reduce-overhead")
LEAST_S = 0.05
"""What takes less is not told."""


class Noting(Session):
    """A session that keeps what it asked its judge."""

    def __init__(self, *given: Any, **named: Any):
        super().__init__(*given, **named)
        self.asks: list[dict[str, Any]] = []

    def _ask(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        started_s = time.monotonic()
        reply = super()._ask(request, timeout_s)
        elapsed_s = round(time.monotonic() - started_s, 2)
        runners = {op: one for op, one in self.spent_on_runners.items() if one[1] > LEAST_S}
        self.asks.append({"op": request["op"], "seconds": elapsed_s, "runners": runners})
        return reply


def rows_of(session: Noting, tasks: list[Any], ends_s: float) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []

    def note(task: str, what: str, status: str, started_s: float) -> None:
        seconds = round(time.monotonic() - started_s, 2)
        asks, session.asks = session.asks, []
        rows.append(
            {"task": task, "what": what, "status": status, "seconds": seconds} | {"asks": asks}
        )
        print(task, what, status, seconds, flush=True)

    kind = session.device().kind
    for task in tasks:
        session.asks, started_s = [], time.monotonic()
        note(task.name, "reference", session.check(task.problem).status, started_s)
        for name in SOLVED_BY:
            made = SOLVERS[name](Means(kind=kind)).propose(task.problem, (), 1)
            for candidate in made if time.monotonic() < ends_s else ():
                started_s = time.monotonic()
                status = session.evaluate(task.problem, candidate).verdict.status
                note(task.name, name, status, started_s)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("--tasks", nargs="+", default=["level1/39", "level2/35", "level2/64"])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, default=600.0, help="begin nothing after them")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    tasks = tasks_at([options.path], Choice(globs=tuple(options.tasks))).tasks
    with Noting(TrialConfig(num_launches=1), device=options.device) as session:
        rows = rows_of(session, list(tasks), time.monotonic() + options.seconds)
        name = session.device().name
    write(options.output, {**provenance(), "device": name, "rows": rows})


if __name__ == "__main__":
    main()
