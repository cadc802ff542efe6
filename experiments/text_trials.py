"""Run trials of KernelBench-form texts and return them as rows of a result file.

Used by throughput.py and scaling.py: problems from texts, three lengths of a trial, the seconds
that each kind of request took, a limit for one trial.
"""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from cudal1_ci.errors import WorkerError
from cudal1_ci.records import Candidate, Evaluation, Made, Problem, TextProgram, Workload
from cudal1_ci.sandboxed.wire.codec import Asks
from cudal1_ci.sandboxed.wire.verifier import Reply
from cudal1_ci.stats import speedups
from cudal1_ci.verification import Session, TrialConfig

R = TypeVar("R", bound=Reply)
BRIEF = TrialConfig(call_s=20, load_s=90, num_rounds=4, launch_s=0.5, measure_s=1.0, weights="seed")
"""As in tests/test_attacks.py, but with a batch of the default length, and time for nvcc."""
MODES = {
    "verdict": msgspec.structs.replace(BRIEF, num_launches=1),
    "brief": BRIEF,
    "screen": TrialConfig(weights="seed"),
    "default": TrialConfig(weights="seed"),
}
"""One launch shows every defense to the candidate, and says less of how fast it is. `screen` is
what a scan does with every candidate, and `default` what it does with those that it shows."""
MOST_CHARS = 400


class TrialTimeout(Exception):
    """A trial was ended by the benchmark, not by the verifier."""


class TimedSession(Session):
    """A session that knows how long it waited for the verifier, by the kind of request."""

    def __init__(self, config: TrialConfig, **settings: Any):
        super().__init__(config, **settings)
        self.spent_s: Counter[str] = Counter()
        self.only_screens = False

    def _ask(self, request: Asks[R], timeout_s: float) -> R:
        started_s = time.monotonic()
        is_start = self._worker is None
        try:
            return super()._ask(request, timeout_s)
        finally:
            op = f"start and {request.op}" if is_start else str(request.op)
            self.spent_s[op] += time.monotonic() - started_s

    def spent(self) -> dict[str, float]:
        """Return seconds by kind of request since the last call."""
        found = {op: round(seconds, 3) for op, seconds in self.spent_s.items()}
        self.spent_s.clear()
        return found


def session(mode: str, device: str) -> TimedSession:
    """Return a session for a length of trial."""
    opened = TimedSession(MODES[mode], device=device)
    opened.only_screens = mode == "screen"
    return opened


def problem_of(reference: str) -> Problem:
    """Return the problem that a reference's text states."""
    workload = Workload(
        name="default",
        provenance="declared",
        init=Made(function="get_init_inputs"),
        call=Made(function="get_inputs"),
    )
    return Problem(reference=TextProgram(source=reference, entry="Model"), workloads=(workload,))


def candidate_of(problem: Problem, source: str) -> Candidate:
    program = TextProgram(source=source, entry="ModelNew")
    return Candidate(problem_id=problem.id, program=program, proposer="benchmark")


def build_ahead(session: Session, pairs: Iterable[tuple[str, str]]) -> None:
    """Compile candidates (reference and code) early, where this version of the verifier can.
    Elsewhere each is compiled when it is examined.
    """
    start = getattr(session, "build_ahead", None)
    if start is not None:
        for reference, code in pairs:
            problem = problem_of(reference)
            start(problem, [candidate_of(problem, code)])


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Limit a block to so many seconds; then raise TrialTimeout in the main thread."""

    def raise_timeout(*_: object) -> None:
        raise TrialTimeout

    before = signal.signal(signal.SIGALRM, raise_timeout)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def judged(
    session: TimedSession, reference: str, candidate: str, limit_s: float = 600.0
) -> dict[str, Any]:
    """Return the row of one trial; a verifier that died or took too long is a row too."""
    problem = problem_of(reference)
    row, _ = evaluated(session, problem, candidate_of(problem, candidate), limit_s)
    return row


def evaluated(
    session: TimedSession, problem: Problem, candidate: Candidate, limit_s: float
) -> tuple[dict[str, Any], Evaluation | None]:
    """Return the row of one trial, and its evaluation where there is one."""
    started_s = time.monotonic()
    session.spent()
    evaluation = None
    try:
        with limited(limit_s):
            judge = session.screen if session.only_screens else session.evaluate
            evaluation = judge(problem, candidate)
        found = verdict_fields(evaluation)
    except TrialTimeout:
        found = failed("unfinished", f"not finished after {limit_s:.0f} s")
    except WorkerError as error:
        found = failed("harness_error", str(error)[:MOST_CHARS])
    row = {
        **found,
        "seconds": round(time.monotonic() - started_s, 2),
        "seconds_by_request": session.spent(),
    }
    return row, evaluation


def failed(status: str, message: str) -> dict[str, Any]:
    return {"status": status, "rule": None, "message": message, "findings": [], "speedup": None}


def verdict_fields(evaluation: Evaluation) -> dict[str, Any]:
    """Return the status, the first finding where it is the reason, and what was measured."""
    verdict = evaluation.verdict
    rules = [finding.rule for finding in verdict.findings]
    is_refused = verdict.status != "passed"
    first = verdict.findings[0] if is_refused and verdict.findings else None
    found: dict[str, Any] = {
        "status": verdict.status,
        "rule": first.rule if first else None,
        "message": first.message[:MOST_CHARS] if first else None,
        "findings": rules[1:] if first else rules,
        "max_abs_error": verdict.max_abs_error,
        "max_rel_error": verdict.max_rel_error,
        "speedup": None,
    }
    if verdict.log and is_refused:
        found["log"] = verdict.log[-MOST_CHARS:]
    for measurement in evaluation.measurements:
        interval = speedups.speedup(measurement)
        if interval is None:
            continue
        found |= {
            "speedup": round(interval.estimate, 4),
            "speedup_low": round(interval.low, 4),
            "speedup_high": round(interval.high, 4),
            "num_launches": len(measurement.repetitions),
            "reference_us": round(speedups.reference_us(measurement), 2),
            "candidate_us": round(speedups.candidate_us(measurement), 2),
        }
    return found


def write(path: Path, document: dict[str, Any]) -> None:
    """Write a document as a whole or not at all, because a run may end at any time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)
