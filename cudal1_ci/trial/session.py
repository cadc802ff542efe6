"""A judge, kept for many trials.

What a candidate does wrong is a Verdict. When the judge itself dies, the trial at hand is a
WorkerError and the next one gets a new judge.
"""

from __future__ import annotations

import contextlib
import sys
import time
from types import TracebackType
from typing import Any, Self

import msgspec

from cudal1_ci import score
from cudal1_ci.errors import WorkerError
from cudal1_ci.executor.local import Worker
from cudal1_ci.schema import (
    Candidate,
    Device,
    Evaluation,
    Finding,
    Launch,
    Measurement,
    Problem,
    Verdict,
    Workload,
)
from cudal1_ci.trial.config import TrialConfig
from cudal1_ci.trial.statistics import is_settled

FEWEST_LAUNCHES = 3
NOISY = 0.5
"""A control that strays further than this from 1 says that nothing can be measured here now. Below
it a gain still has to exceed the control's spread (score.py)."""


class Session:
    """Context manager: `check` a reference, `evaluate` candidates of it."""

    def __init__(self, config: TrialConfig, *, python: str = sys.executable):
        self.config = config
        self.python = python
        self._stack = contextlib.ExitStack()
        self._worker: Worker | None = None
        self._device: Device | None = None
        self._problem_id: str | None = None
        self._reference = Verdict(status="harness_error")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def device(self) -> Device:
        """What is measured on."""
        if self._device is None:
            reply = self._ask({"op": "describe"}, self.config.load_s)
            self._device = msgspec.convert(reply, Device)
        return self._device

    def check(self, problem: Problem) -> Verdict:
        """Whether candidates can be judged against the problem's reference.

        Raises:
            WorkerError: The judge could not be started or died.
        """
        if self._problem_id == problem.id:
            return self._reference
        self._problem_id = None
        num_workloads = len(problem.workloads)
        limits = {"load_s": self.config.load_s, "call_s": self.config.call_s}
        request = {
            "op": "check",
            "problem": msgspec.to_builtins(problem),
            "limits": limits,
            "seed": self.config.seed,
        }
        # A reference is loaded some five times, and its variations may each fail once.
        timeout_s = 15 * (self.config.load_s + self.config.call_s) * num_workloads
        self._reference = verdict_of(self._ask(request, timeout_s))
        self._problem_id = problem.id
        return self._reference

    def evaluate(self, problem: Problem, candidate: Candidate) -> Evaluation:
        """Judge a candidate and, when it passed, measure it.

        Raises:
            WorkerError: The judge could not be started or died.
        """
        started_s = time.monotonic()
        verdict = self.check(problem)
        measurements: tuple[Measurement, ...] = ()
        if verdict.status == "passed":
            program = msgspec.to_builtins(candidate.program)
            timeout_s = 2 * (self.config.load_s + self.config.call_s) * len(problem.workloads)
            reply = self._ask({"op": "examine", "program": program}, timeout_s)
            verdict = verdict_of(reply)
        if verdict.status == "passed":
            verdict, measurements = self._measure(problem.workloads, verdict)
        return Evaluation(
            candidate=candidate,
            verdict=verdict,
            measurements=measurements,
            device=self.device(),
            elapsed_s=time.monotonic() - started_s,
        )

    def _measure(
        self, workloads: tuple[Workload, ...], verdict: Verdict
    ) -> tuple[Verdict, tuple[Measurement, ...]]:
        """Measurements of all workloads, or the verdict that timing led to."""
        measurements = []
        for workload in workloads:
            found = self._measure_one(workload)
            if isinstance(found, Verdict):
                return found, ()
            if found is None:
                continue
            spread = score.control_spread(found)
            if spread is not None and spread > NOISY:
                message = (
                    f"the reference against itself strays by {spread:.0%} on `{workload.name}`: "
                    "this machine is too busy to measure on"
                )
                finding = Finding(rule="timing.noisy", message=message)
                return Verdict(status="inconclusive", findings=(finding,)), ()
            measurements.append(found)
        return verdict, tuple(measurements)

    def _measure_one(self, workload: Workload) -> Measurement | Verdict | None:
        """Launches until the interval is settled or the time is spent; None for a workload that
        the judge left out."""
        config = self.config
        clock = {
            "batch_us": config.batch_us,
            "max_calls": config.max_calls,
            "num_rounds": config.num_rounds,
            "launch_s": config.launch_s,
        }
        launches: list[Launch] = []
        control: list[Launch] = []
        started_s = time.monotonic()
        timeout_s = 3 * (config.load_s + config.call_s) + config.launch_s * 10
        while not is_settled(launches, config.half_width):
            # Two launches have a spread, but one that says nothing: their t quantile is 38.
            if len(launches) >= FEWEST_LAUNCHES and time.monotonic() - started_s > config.measure_s:
                break
            request = {"op": "launch", "workload": workload.name, "clock": clock}
            reply = self._ask(request, timeout_s)
            if "left_out" in reply:
                return None
            if "verdict" in reply:
                return verdict_of(reply["verdict"])
            times = reply["launch"]
            launches.append(a_launch(times, "candidate_us"))
            control.append(a_launch(times, "control_us"))
        return Measurement(
            workload=workload.name,
            launches=tuple(launches),
            control=tuple(control),
            device=self.device(),
        )

    def _ask(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Ask the judge, starting one where there is none."""
        if self._worker is None:
            worker = Worker("judge", python=self.python, num_threads=self.config.threads)
            self._worker = self._stack.enter_context(worker)
        try:
            return self._worker.ask(request, timeout_s)
        except WorkerError:
            self._stack.close()
            self._stack = contextlib.ExitStack()
            self._worker = None
            self._problem_id = None
            raise


def verdict_of(reply: dict[str, Any]) -> Verdict:
    """The judge's words as a record."""
    return msgspec.convert(reply, Verdict)


def a_launch(times: dict[str, Any], other: str) -> Launch:
    """Times of one launch, of the reference against the candidate or against itself."""
    return Launch(
        reference_us=tuple(times["reference_us"]),
        candidate_us=tuple(times[other]),
        num_calls=times["num_calls"],
    )
