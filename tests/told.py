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

from cudal1_ci.records import Candidate, Evaluation, Problem, Program, TextProgram
from cudal1_ci.verification import Session
from tests.fakes import a_measurement

TOLD = "TESTS_TOLD_SPEEDUPS"
"""In the environment, as JSON."""
USUAL = 3.0


def evaluate(session: Session, problem: Problem, candidate: Candidate) -> Evaluation:
    """Do what `Session.evaluate` does, but for the times."""
    started_s = time.monotonic()
    verdict = session.examine(problem, candidate)
    device = session.device()
    passed = verdict.status == "passed"
    measured = [
        a_measurement(told_of(candidate.program), workload.name, num_launches=launches_of(session))
        for workload in (problem.workloads if passed else ())
    ]
    return Evaluation(
        candidate=candidate,
        verdict=verdict,
        measurements=tuple(msgspec.structs.replace(one, device=device) for one in measured),
        device=device,
        elapsed_s=time.monotonic() - started_s,
    )


def launches_of(session: Session) -> int:
    return session.config.num_launches or 5


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
        patch.setattr(Session, "evaluate", evaluate)
        yield


if __name__ == "__main__":
    from cudal1_ci.cli import main

    with told_times():
        main(prog_name="cudal1-ci")
