"""Measure how often the verifier claims a difference where there is none, and its interval widths.

The candidate is the reference with another comment, so its true speedup is 1. Every evaluation is a
trial of its own with fresh processes, as in a scan, under the default settings.

    python experiments/aa_control.py --repeat 75 --output assets/results/aa-control.json
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from provenance import provenance

from cudal1_ci.records import (
    Call,
    Candidate,
    Measurement,
    Problem,
    TensorSpec,
    TextProgram,
    Workload,
)
from cudal1_ci.stats import speedups
from cudal1_ci.verification import Session, TrialConfig

SOURCE = """\
import torch
from torch import nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(256, 256)

    def forward(self, x):
        return {forward}
"""
PROGRAMS = {
    "gelu 64x256": ("F.gelu(x)", (64, 256)),
    "softmax 1024x256": ("torch.softmax(x, dim=-1)", (1024, 256)),
    "linear 512x256": ("self.fc(x)", (512, 256)),
    "mlp 2048x256": ("self.fc(F.gelu(self.fc(x))) + x", (2048, 256)),
}


def evaluate(session: Session, forward: str, shape: tuple[int, ...], number: int) -> dict[str, Any]:
    """Run one trial of a program against itself."""
    workload = Workload(
        name="w",
        provenance="declared",
        init=Call(),
        call=Call(args=(TensorSpec(shape=shape, dtype="float32"),)),
    )
    source = SOURCE.format(forward=forward)
    problem = Problem(reference=TextProgram(source=source, entry="Model"), workloads=(workload,))
    program = TextProgram(source=f"{source}# {number}\n", entry="Model")
    candidate = Candidate(problem_id=problem.id, program=program, proposer="same")
    evaluation = session.evaluate(problem, candidate)
    found: dict[str, Any] = {
        "status": evaluation.verdict.status,
        "elapsed_s": round(evaluation.elapsed_s, 2),
    }
    if evaluation.measurements:
        found |= told(evaluation.measurements[0])
    return found


def told(measurement: Measurement) -> dict[str, Any]:
    """Return the claim, by the rules that a scan uses."""
    interval = speedups.speedup(measurement)
    assert interval is not None
    return {
        "speedup": round(interval.estimate, 4),
        "low": round(interval.low, 4),
        "high": round(interval.high, 4),
        "num_launches": len(measurement.repetitions),
        "reference_us": round(speedups.reference_us(measurement), 2),
        "is_gain": speedups.is_gain(measurement),
        "is_slower": speedups.is_slower(measurement),
        "covers_one": interval.low <= 1 <= interval.high,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in PROGRAMS}
    config = TrialConfig()
    with Session(config, device=arguments.device) as session:
        for number in range(arguments.repeat):
            for name, (forward, shape) in PROGRAMS.items():
                results[name].append(evaluate(session, forward, shape, number))
        device = msgspec.to_builtins(session.device())
    document = {**provenance(), "device": device, "config": msgspec.to_builtins(config)}
    if arguments.output is not None:
        text = json.dumps({**document, "results": results}, indent=1)
        arguments.output.write_text(text + "\n", encoding="utf-8")
    print("\n".join(table(results)))


def table(results: Mapping[str, Sequence[dict[str, Any]]]) -> list[str]:
    """Return a row of Markdown for each program, and one for all of them."""
    every = [one for found in results.values() for one in found]
    lines = [
        "| program | trials | gains claimed | slowdowns claimed | accused | inconclusive "
        "| intervals that cover 1 | half width, median | seconds a trial |",
        "|---" * 9 + "|",
    ]
    for name, found in {**results, "all": every}.items():
        measured = [one for one in found if "speedup" in one]
        widths = [(one["high"] - one["low"]) / 2 for one in measured]
        accused = [one for one in found if one["status"] not in ("passed", "inconclusive")]
        inconclusive = len(found) - len(measured) - len(accused)
        elapsed_s = statistics.median(one["elapsed_s"] for one in found)
        lines.append(
            f"| {name} | {len(found)} | {sum(o['is_gain'] for o in measured)} "
            f"| {sum(o['is_slower'] for o in measured)} | {len(accused)} | {inconclusive} "
            f"| {sum(o['covers_one'] for o in measured)} of {len(measured)} "
            f"| {statistics.median(widths):.1%} | {elapsed_s:.1f} |"
        )
    return lines


if __name__ == "__main__":
    main()
