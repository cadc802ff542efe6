"""What building ahead of the judge and keeping what was built save.

Candidates that compile C++ through `load_inline`, judged in one session: without anything kept, so
that each is compiled by the judge when its turn comes; built ahead into an empty store; and again,
with all of them in the store. What is counted is the time from the end of the reference's check to
the last verdict, on the CPU, where builds and timing take turns: on a GPU they go on side by side.
The speed of the candidates does not matter here, so other sessions of the machine are not waited
for.

    python benchmarks/builds.py --output benchmarks/results/builds.json
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from discovery_speed import provenance

from cudal1_ci.processes import lock
from cudal1_ci.records import Call, Candidate, Problem, TensorSpec, TextProgram, Workload
from cudal1_ci.verification import BuildsConfig, Session, TrialConfig

REFERENCE = """\
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2 + 1
"""
CANDIDATE = """\
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = '''
torch::Tensor fused(torch::Tensor x) {{
    auto input = x.contiguous();
    auto out = torch::empty_like(input);
    const float *from = input.const_data_ptr<float>();
    float *to = out.mutable_data_ptr<float>();
    for (int64_t i = 0; i < input.numel(); ++i)
        to[i] = (from[i] > 0 || from[i] != from[i] ? from[i] : 0) * 2 + {one};
    return out;
}}
'''
extension = load_inline(name="fused", cpp_sources=CPP, functions=["fused"])


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.fused(x)
"""
CONFIG = TrialConfig(measure_s=2.0)


def problem() -> Problem:
    workload = Workload(
        name="w",
        provenance="declared",
        init=Call(),
        call=Call(args=(TensorSpec(shape=(256, 256), dtype="float32"),)),
    )
    reference = TextProgram(source=REFERENCE, entry="Model")
    return Problem(reference=reference, workloads=(workload,))


def candidates(number: int) -> list[Candidate]:
    """Texts that differ, and compute the same; the last one does not compile."""
    found = []
    for index in range(number):
        one = "one" if index == number - 1 else f"1.0f + {index} * 0.0f"
        program = TextProgram(source=CANDIDATE.format(one=one), entry="ModelNew")
        found.append(Candidate(problem_id=problem().id, program=program, proposer="benchmark"))
    return found


def judged(several: list[Candidate], builds: BuildsConfig) -> dict[str, Any]:
    """One session that judges them all."""
    with Session(CONFIG, device="cpu", builds=builds) as session:
        session.check(problem())
        started_s = time.monotonic()
        session.build_ahead(problem(), several)
        verdicts, ready_s = {}, None
        for candidate in session.in_turn(several):
            evaluation = session.evaluate(problem(), candidate)
            ready_s = ready_s or time.monotonic() - started_s
            verdicts[several.index(candidate)] = {
                "status": evaluation.verdict.status,
                "evaluate_s": round(evaluation.elapsed_s, 1),
            }
        elapsed_s = time.monotonic() - started_s
    return {
        "elapsed_s": round(elapsed_s, 1),
        "first_verdict_s": round(ready_s or 0.0, 1),
        "verdicts": [verdicts[index] for index in sorted(verdicts)],
        "load_average": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=4)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    several = candidates(arguments.candidates)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="builds-") as folder:
        lock.FOLDER = Path(folder)
        ways = {
            "nothing kept, nothing built ahead": BuildsConfig(keep=False),
            "built ahead, empty store": BuildsConfig(folder=f"{folder}/store"),
            "all in the store": BuildsConfig(folder=f"{folder}/store"),
        }
        for name, builds in ways.items():
            found[name] = judged(several, builds)
            print(f"{name}: {found[name]['elapsed_s']} s")
    result = {
        **provenance(),
        "num_candidates": len(several),
        "num_cores": len(os.sched_getaffinity(0)),
        "found": found,
    }
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
