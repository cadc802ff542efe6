"""What a container costs: time to the judge's first answer and to its end, and the same two trials
in every place where the judge can run here.

Containers are made from an image that is named, which has to be on this machine; an engine that
does not work is left out and said. The places take turns, so that other work on the machine meets
all.

    python benchmarks/executors.py --image debian:bookworm-slim --repeat 10 \\
        --output benchmarks/results/executors.json
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
from aa_control import told
from discovery_speed import provenance

from cudal1_ci.errors import CudaL1Error
from cudal1_ci.processes import Container, ContainerConfig, Executor, Local
from cudal1_ci.processes.engine import ENGINES, find_engine
from cudal1_ci.records import Call, Candidate, Problem, TensorSpec, TextProgram, Workload
from cudal1_ci.verification import Session, TrialConfig

SOURCE = """\
import torch
import torch.nn.functional as F


class Model(torch.nn.Module):
    def forward(self, x):
        return {forward}
"""
PAIRS = {
    "softmax by hand": ("torch.exp(x) / torch.exp(x).sum(-1, keepdim=True)", "F.softmax(x, -1)"),
    "another function": ("F.gelu(x)", 'F.gelu(x, approximate="tanh")'),
}
"""The first is right and faster, the second wrong."""
CONFIG = TrialConfig(measure_s=8.0)
"""Coarse: what is asked is whether the place makes a difference, not how large the speedup is."""


def places(image: str | None) -> dict[str, Executor]:
    """Where the judge can run here, by name."""
    found: dict[str, Executor] = {"local": Local()}
    for name in ENGINES if image else ():
        try:
            find_engine(name).image_id(str(image))
        except CudaL1Error as error:
            print(f"{name} is left out: {error}")
            continue
        found[name] = Container(ContainerConfig(image=image, engine=name), sys.executable)
    return found


def started(executor: Executor) -> dict[str, float]:
    """Seconds to a judge's first answer, and to its end."""
    begun_s = time.monotonic()
    with executor.start("judge", num_threads=1, device="cpu") as worker:
        entered_s = time.monotonic()
        worker.ask({"op": "describe"}, 180)
        answered_s = time.monotonic()
    return {
        "worker_s": entered_s - begun_s,
        "answer_s": answered_s - begun_s,
        "end_s": time.monotonic() - answered_s,
    }


def trial(executor: Executor, pair: tuple[str, str]) -> dict[str, Any]:
    """One trial in a session of its own."""
    reference, candidate = (
        TextProgram(source=SOURCE.format(forward=forward), entry="Model") for forward in pair
    )
    workload = Workload(
        name="w",
        provenance="declared",
        init=Call(),
        call=Call(args=(TensorSpec(shape=(512, 512), dtype="float32"),)),
    )
    problem = Problem(reference=reference, workloads=(workload,))
    proposed = Candidate(problem_id=problem.id, program=candidate, proposer="benchmark")
    with Session(CONFIG, device="cpu", executor=executor) as session:
        session.device()
        evaluation = session.evaluate(problem, proposed)
        found: dict[str, Any] = {
            "status": evaluation.verdict.status,
            "elapsed_s": round(evaluation.elapsed_s, 2),
            "device": msgspec.to_builtins(evaluation.device),
        }
    if evaluation.measurements:
        found |= told(evaluation.measurements[0])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--image", help="on this machine; without one only the local place is run")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    found = places(arguments.image)
    starts: dict[str, list[dict[str, float]]] = {name: [] for name in found}
    trials: dict[str, dict[str, list[dict[str, Any]]]] = {
        name: {pair: [] for pair in PAIRS} for name in found
    }
    order = list(found)
    for _ in range(arguments.repeat):
        random.shuffle(order)
        for name in order:
            starts[name].append({k: round(v, 3) for k, v in started(found[name]).items()})
            for pair, programs in PAIRS.items():
                trials[name][pair].append(trial(found[name], programs))
    if arguments.output is not None:
        document = {**provenance(), "image": arguments.image, "starts": starts, "trials": trials}
        arguments.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    for name in found:
        medians = {
            key: statistics.median(one[key] for one in starts[name]) for key in starts[name][0]
        }
        print(
            f"{name:8} worker {medians['worker_s']:.2f} s, first answer "
            f"{medians['answer_s']:.2f} s, end {medians['end_s']:.2f} s "
            f"(medians of {arguments.repeat})"
        )
        for pair, ran in trials[name].items():
            statuses = sorted({one["status"] for one in ran})
            elapsed_s = statistics.median(one["elapsed_s"] for one in ran)
            speedups = [one["speedup"] for one in ran if "speedup" in one]
            said = f", speedup {statistics.median(speedups):.2f}x" if speedups else ""
            print(f"         {pair}: {', '.join(statuses)}{said}, {elapsed_s:.1f} s a trial")


if __name__ == "__main__":
    main()
