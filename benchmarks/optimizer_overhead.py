"""What the contrastive loop costs beside the model and the judge, for one candidate.

A module of the example in its checkout; a model that answers at once with variants that no other
answer is like, and a judge that says at once that each is right. What is left is the loop's own
work: exemplars, prompts, reading and splicing answers, fingerprints, the archive.

    python benchmarks/optimizer_overhead.py --output benchmarks/results/optimizer-overhead.json
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from discovery_speed import provenance

from cudal1_ci.discover.files import DiscoveryConfig
from cudal1_ci.discover.ladder import Evidence
from cudal1_ci.discover.plan import Plan, Planned, survey
from cudal1_ci.optimize.context import ReviewConfig, RunContext
from cudal1_ci.optimize.llm_loop import Optimizer
from cudal1_ci.optimize.run import review
from cudal1_ci.propose.llm.contrast import ContrastConfig
from cudal1_ci.propose.llm.contrastive import OptimizerConfig
from cudal1_ci.propose.llm.servers import Answer, Message
from cudal1_ci.records import (
    Call,
    Candidate,
    Device,
    Evaluation,
    Identity,
    Launch,
    Measurement,
    Problem,
    TensorSpec,
    TreeProgram,
    Verdict,
    Workload,
)
from cudal1_ci.records.archive import Archive
from cudal1_ci.render.progress import SilentProgress

EXAMPLE = Path(__file__).parent.parent / "examples" / "slowformer"
TARGET = "CausalSelfAttention"
ANSWER = """## Performance analysis
The mask is made anew in every call, and the scores are written out.

## Algorithm design
One fused operator.

## Code
```python
import math
import torch
from torch import nn


{code}
```
"""
CPU = Device(kind="cpu", name="none", num_threads=1)


class AtOnce:
    """Answers with the target's own class and a statement more, another one each time."""

    identity = Identity(model="at-once", temperature=0.8, max_tokens=2048)

    def __init__(self, code: str):
        self.code = code
        self.num_asked = 0

    def ask(self, messages: Sequence[Message], *, n: int, seed: int) -> Iterator[Answer]:
        for _ in range(n):
            self.num_asked += 1
            head, separator, rest = self.code.partition("def forward(self, x):\n")
            more = f"        x = x + {self.num_asked}\n"
            yield Answer(text=ANSWER.format(code=head + separator + more + rest))

    def cancel(self) -> None:
        return


class Agreeable:
    """A judge that finds everything right, and each candidate differently fast."""

    def __init__(self) -> None:
        self.rng = random.Random(0)

    def device(self) -> Device:
        return CPU

    def check(self, problem: Problem) -> Verdict:
        return Verdict(status="passed")

    def profile(self, workload: str, *, is_candidate: bool) -> list[dict[str, object]]:
        return [{"name": f"aten::op{n}", "num_calls": 3, "time_us": 90.0 - n} for n in range(30)]

    def build_ahead(self, problem: Problem, candidates: Sequence[Candidate]) -> None:
        return

    def in_turn(self, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        return candidates

    def evaluate(self, problem: Problem, candidate: Candidate) -> Evaluation:
        speedup = 1 + self.rng.random()
        times_us = (100.0,) * 12
        launch = Launch(
            reference_us=times_us, candidate_us=tuple(t / speedup for t in times_us), num_calls=9
        )
        measured = Measurement(workload="w", launches=(launch,) * 5, control=(), device=CPU)
        return Evaluation(
            candidate=candidate,
            verdict=Verdict(status="passed"),
            measurements=(measured,),
            device=CPU,
        )


def problem_of(plan: Plan) -> tuple[Planned, str]:
    """The target with a workload, and the text of its class."""
    (planned,) = [one for one in plan.targets if one.target.qualname == TARGET]
    text = (EXAMPLE / planned.target.path).read_text()
    lines = text.splitlines()[planned.target.first_line - 1 : planned.target.last_line]
    workload = Workload(
        name="w",
        provenance="declared",
        init=Call(),
        call=Call(args=(TensorSpec(shape=(4, 256, 256), dtype="float32"),)),
    )
    module = planned.target.path.removesuffix(".py").replace("/", ".")
    reference = TreeProgram(
        root=str(EXAMPLE), import_root=".", import_path=f"{module}:{TARGET}", digest="d"
    )
    problem = Problem(reference=reference, workloads=(workload,), target=planned.target)
    return Planned(target=planned.target, problem=problem, workloads=(workload,)), "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--samples", type=int, default=10, help="of a round")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    plan = survey(EXAMPLE, DiscoveryConfig(), evidence=Evidence(), repository="example")
    planned, code = problem_of(plan)
    per_candidate_ms = []
    for _ in range(options.repeat):
        with tempfile.TemporaryDirectory() as folder:
            with Archive.open(Path(folder) / "archive.sqlite") as archive:
                bench = RunContext(
                    session=Agreeable(),
                    strategies=[],
                    archive=archive,
                    progress=SilentProgress(),
                    config=ReviewConfig(),
                    policy="p",
                    optimizer=Optimizer(
                        model=AtOnce(code),
                        config=OptimizerConfig(
                            num_rounds=options.rounds, num_samples=options.samples, patience=99
                        ),
                        contrast=ContrastConfig(),
                        num_concurrent=8,
                        overlaps=True,
                        since=time.time(),
                    ),
                )
                started_s = time.monotonic()
                report = review(Plan(root=EXAMPLE, repository="example", targets=(planned,)), bench)
                elapsed_s = time.monotonic() - started_s
            (entry,) = report.entries
            assert len(entry.evaluations) == options.rounds * options.samples, entry
            per_candidate_ms.append(1000 * elapsed_s / len(entry.evaluations))
    document = {
        **provenance(),
        "target": f"{planned.target.path}:{TARGET}",
        "num_candidates": options.rounds * options.samples,
        "per_candidate_ms": [round(one, 2) for one in per_candidate_ms],
        "median_ms": round(statistics.median(per_candidate_ms), 2),
    }
    print(json.dumps(document, indent=2))
    if options.output is not None:
        options.output.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
