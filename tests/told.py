"""Verifiers that examine and whose times are told: the same ones on every machine.

    python -m tests.told scan .          the command line, with them
    with told_times(): ...               this process, with them

What passes is three times as fast as its reference. `TOLD` says otherwise of texts:
`{"sleep": 0.5}` makes each candidate half as fast in whose text `sleep` stands.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest

from cudal1_ci.records import Candidate, Evaluation, Phase, Problem, Program, TextProgram
from cudal1_ci.verification import Session
from cudal1_ci.verification.config import TrialConfig
from cudal1_ci.verification.session import SAME
from cudal1_ci.verification.static_rules import screen as read_text
from tests.fakes import a_measurement

TOLD = "TESTS_TOLD_SPEEDUPS"
"""In the environment, as JSON."""
USUAL = 3.0


def evaluated(
    session: Session,
    problem: Problem,
    candidate: Candidate,
    config: TrialConfig,
    phase: Phase | None,
    *,
    times: bool = True,
    may_recall: bool = False,
    most_s: float | None = None,
) -> Evaluation:
    """Do what a screening, an evaluation and a confirmation do, but for the times."""
    started_s = time.monotonic()
    seen = read_text(candidate.program, problem.reference)
    keeps = session.config.keeps and times
    verdict = session._judged(
        problem, candidate, seen, keeps=keeps, may_recall=may_recall, most_s=most_s
    )
    findings = (*verdict.findings, *seen, *(() if times else (SAME,)))
    device = session.device()
    is_timed = verdict.status == "passed" and times
    speedup, launches = told_of(candidate.program), config.num_launches or 5
    measured = [
        a_measurement(speedup, workload.name, num_launches=launches)
        for workload in (problem.workloads if is_timed else ())
    ]
    return Evaluation(
        candidate=candidate,
        verdict=msgspec.structs.replace(verdict, findings=findings),
        measurements=tuple(msgspec.structs.replace(one, device=device) for one in measured),
        device=device,
        elapsed_s=time.monotonic() - started_s,
        phase=phase,
    )


def told_of(program: Program) -> float:
    """How many times as fast a program is, by its text, or by what it changes and where it is."""
    if isinstance(program, TextProgram):
        texts = [program.source]
    else:
        texts = [program.import_path, *(one.text for one in program.overlay)]
    told: dict[str, float] = json.loads(os.environ.get(TOLD, "{}"))
    found = [speedup for words, speedup in told.items() if any(words in text for text in texts)]
    return found[0] if found else USUAL


@contextmanager
def told_times() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "_evaluated", evaluated)
        yield


if __name__ == "__main__":
    from cudal1_ci.cli import main

    with told_times():
        main(prog_name="cudal1-ci")
