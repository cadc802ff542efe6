"""What a timed batch costs beyond its calls and what the judge takes off for the exchange.

    python benchmarks/batch_overhead.py --device cuda --output FILE

Of one call a batch takes `fixed + call`, of n calls `fixed + n * call`. Both are fitted to batches
of one call, four, sixteen and so on, of a program beside itself. What is fixed makes everything
look alike: 0.4 ms beside 2 ms of calls make 1.7x of what is twice as fast. Long batches hide it,
and memory limits how long they may be (sandboxed/verifier/memory_plan.py).
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from discovery_speed import provenance
from text_trials import write

from cudal1_ci.records import Call, Candidate, Problem, TensorSpec, TextProgram, Workload
from cudal1_ci.verification import Session, TrialConfig

OUTPUT = Path(__file__).parent / "results" / "batch-overhead.json"
SOURCE = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        for _ in range({steps}):
            x = x + 1
        return x
"""
PROGRAMS = ((16, 1), (16, 8), (1024, 1), (1024, 8), (4096, 8), (16384, 8))
"""Rows of 1024 numbers, 4 KiB each, and additions in a row."""
MOST_CALLS = (1, 4, 16, 64)
CONFIG = TrialConfig(num_launches=1, batch_us=1e6, num_rounds=12)
"""As long as `max_calls` allows."""


def problem_of(rows: int, steps: int) -> Problem:
    tensor = TensorSpec(dtype="float32", shape=(rows, 1024), stride=(1024, 1))
    workload = Workload(
        name="default", provenance="declared", call=Call(args=(tensor,)), init=Call()
    )
    program = TextProgram(source=SOURCE.format(steps=steps), entry="Model")
    return Problem(reference=program, workloads=(workload,))


def batch_us(session: Session, problem: Problem, most: int) -> list[float] | None:
    """Microseconds of batches of so many calls, less the exchange; None where memory does not allow
    as many, or where they are so short that all is noise."""
    assert isinstance(problem.reference, TextProgram)
    program = TextProgram(source=f"{problem.reference.source}# itself\n", entry="Model")
    candidate = Candidate(problem_id=problem.id, program=program, proposer="itself")
    found = session.evaluate(problem, candidate)
    if found.verdict.status == "inconclusive":
        return None
    if not found.measurements:
        raise SystemExit(f"{found.verdict}")
    (launch,) = found.measurements[0].repetitions
    if launch.num_calls < most:
        return None
    return [one * most for one in launch.reference_us]


def fit(rows: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """What is fixed, and a call's, in microseconds: least squares over medians, each weighed by
    its inverse, as a long batch strays by more."""
    medians = [(row["num_calls"], statistics.median(row["batch_us"])) for row in rows]
    weighed = torch.tensor([(1.0, n, us) for n, us in medians], dtype=torch.float64)
    weighed /= weighed[:, 2:].sqrt()
    fixed_us, call_us = torch.linalg.lstsq(weighed[:, :2], weighed[:, 2:]).solution.flatten()
    return float(fixed_us), float(call_us)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    given = parser.parse_args()
    document: dict[str, Any] = {**provenance(), "device": None, "programs": []}
    batches: dict[tuple[int, int], list[dict[str, Any]]] = {program: [] for program in PROGRAMS}
    for most in MOST_CALLS:
        config = msgspec.structs.replace(CONFIG, max_calls=most)
        with Session(config, device=given.device) as session:
            document["device"] = session.device().name
            for program, found in batches.items():
                times = batch_us(session, problem_of(*program), most)
                if times is not None:
                    found.append({"num_calls": most, "batch_us": times})
    for (rows, steps), found in batches.items():
        if len(found) < 2:
            print(f"{rows * 4096:>12,} bytes, {steps} steps: noise", flush=True)
            continue
        fixed_us, call_us = fit(found)
        document["programs"].append(
            {
                "bytes": rows * 4096,
                "steps": steps,
                "fixed_us": round(fixed_us, 1),
                "call_us": round(call_us, 2),
                "batches": [
                    {**one, "batch_us": [round(us, 1) for us in one["batch_us"]]} for one in found
                ],
            }
        )
        write(given.output, document)
        print(
            f"{rows * 4096:>12,} bytes, {steps} steps: fixed {fixed_us:7.1f} us, "
            f"call {call_us:8.2f} us, {len(found)} lengths",
            flush=True,
        )


if __name__ == "__main__":
    main()
