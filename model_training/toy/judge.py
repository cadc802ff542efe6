"""Verify programs by a table, and propose those that are in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cudal1_ci.records import (
    Candidate,
    Device,
    Evaluation,
    Finding,
    Measurement,
    Problem,
    Repetition,
    TextProgram,
    Verdict,
)
from model_training.toy.programs import PROGRAMS, ToyProgram

DEVICE = Device(kind="cpu", name="toy", num_threads=1, software={"toy": "1"})
POLICY = "toy"
"""Hash of its settings; it has none."""
REFERENCE_US = 100.0
NUM_LAUNCHES, NUM_ROUNDS = 5, 4
BY_CODE = {one.code: one for one in PROGRAMS}


@dataclass
class ToyJudge:
    """Return what the table says, without noise. A program that is not in it cannot be loaded."""

    asked: list[str] = field(default_factory=list)
    """Names of the programs that were verified, in turn; `unknown` for what is not in the table."""

    def device(self) -> Device:
        return DEVICE

    def evaluate(self, problem: Problem, candidate: Candidate) -> Evaluation:
        program = candidate.program
        known = BY_CODE.get(program.source.strip()) if isinstance(program, TextProgram) else None
        self.asked.append(known.name if known else "unknown")
        if known is None or known.status is None:
            finding = Finding(rule="load.failed", message="the program cannot be loaded")
            verdict = Verdict(status="compile_error", findings=(finding,))
            return Evaluation(candidate=candidate, verdict=verdict, device=DEVICE)
        if known.speedup is None:
            finding = Finding(rule=f"toy.{known.status}", message=f"it is {known.name}")
            verdict = Verdict(status=known.status, findings=(finding,))
            return Evaluation(candidate=candidate, verdict=verdict, device=DEVICE)
        return Evaluation(
            candidate=candidate,
            verdict=Verdict(status="passed"),
            measurements=tuple(measured(one.name, known.speedup) for one in problem.workloads),
            device=DEVICE,
        )


def measured(workload: str, speedup: float) -> Measurement:
    """Return repetitions that are all equal."""
    launch = Repetition(
        reference_us=(REFERENCE_US,) * NUM_ROUNDS,
        candidate_us=(REFERENCE_US / speedup,) * NUM_ROUNDS,
        num_calls=10,
    )
    return Measurement(workload=workload, repetitions=(launch,) * NUM_LAUNCHES, device=DEVICE)


@dataclass(frozen=True)
class ToyProposer:
    """Write the programs of the table, in its order: what stage 1 collects from."""

    programs: tuple[ToyProgram, ...] = PROGRAMS
    name: str = "toy"

    def propose(
        self,
        problem: Problem,
        evaluations: Sequence[Evaluation],  # noqa: ARG002
        n: int,
    ) -> list[Candidate]:
        return [
            Candidate(
                problem_id=problem.id,
                program=TextProgram(source=one.code + "\n", entry="ModelNew"),
                proposer="toy",
                analysis=one.analysis,
                design=one.design,
                techniques=(one.name,),
            )
            for one in self.programs[:n]
        ]
