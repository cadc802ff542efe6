"""The judge: holds what a candidate must not know, and says what it is worth.

It never loads user code. Requests come from the host, one at a time:

    describe             -> the device
    check    {problem}   -> verdict on the reference alone
    examine  {program}   -> verdict on a candidate of the problem that was last checked
    launch   {workload}  -> paired times of the candidate that was last examined

What it believes of a runner: nothing about time (its own clock counts) and nothing about values
(it reads them from shared memory). What a runner says of structure, aliasing and settings is
believed only to its disadvantage; a candidate that forges it is for the sandbox and the static
rules to stop.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from .accelerators import Accelerator, accelerator, available_memory_bytes
from .cases import Case, Limits, Rejected
from .channel import Channel, ChannelClosed
from .clock import ClockConfig, launch, timed_slots
from .correctness import examine
from .failures import rejection_of_launch
from .processes import RunnerFailure, Template
from .reference import make_case
from .sandbox import missing

HOME_PREFIX = "cudal1-ci-"
"""Of the folder that the host makes for a worker."""
SPARE_S = 30.0
"""Of learning a reference: beyond it no further workload of the problem is taken up."""


def main(
    channel: Channel,
    num_threads: int,
    device: str,
    process: subprocess.Popen[bytes],
    template_channel: Channel,
) -> None:
    """Answer the host until it hangs up. `process` is that of the template."""
    torch.set_num_threads(1)
    memory_bytes = available_memory_bytes()
    here = accelerator(device)
    # The driver of a GPU reserves more addresses than there is memory.
    limit = memory_bytes if here.kind == "cpu" else None
    template = Template(process, template_channel, limit)
    if here.kind == "cpu":
        template.cores = cores_for(num_threads)
    judge = Judge(num_threads, here, memory_bytes, template)
    answers: dict[str, Callable[..., dict[str, Any]]] = {
        "describe": judge.describe,
        "check": judge.check,
        "examine": judge.examine,
        "launch": judge.launch,
    }
    try:
        while True:
            message, _ = channel.receive()
            channel.send(answers[message.pop("op")](**message))
    except ChannelClosed:
        return
    finally:
        judge.template.close()
        if Path.home().name.startswith(HOME_PREFIX):  # the host may be gone
            shutil.rmtree(Path.home(), ignore_errors=True)


class Judge:
    """The problem at hand, what is known of its reference, and the candidate at hand."""

    def __init__(
        self, num_threads: int, accelerator: Accelerator, memory_bytes: int, template: Template
    ):
        self.num_threads = num_threads
        self.accelerator = accelerator
        self.memory_bytes = memory_bytes
        self.template = template
        self.cases: dict[str, Case] = {}
        self.findings: list[dict[str, Any]] = []
        self.candidate: dict[str, Any] = {}
        self.slots: dict[str, list[dict[str, Any]]] = {}
        # Not from the seed that is configured: who can guess the inputs of timed calls can have
        # computed them before.
        self.rng = random.SystemRandom()

    def describe(self) -> dict[str, Any]:
        """The record Device."""
        return {
            **self.accelerator.describe(),
            "num_threads": self.num_threads,
            "sandbox_missing": missing(self.template.sandbox),
        }

    def check(self, problem: dict[str, Any], limits: dict[str, Any], seed: int) -> dict[str, Any]:
        """Learn the reference; the verdict is `passed` when it can be judged against."""
        self.cases = {}
        self.limits = Limits(memory_bytes=self.memory_bytes, **limits)
        findings: list[dict[str, Any]] = []
        try:
            started_s = time.monotonic()
            for number, workload in enumerate(problem["workloads"]):
                if number and time.monotonic() - started_s > SPARE_S:
                    message = f"`{workload['name']}` was left out: the reference is slow on others"
                    findings.append({"rule": "workload.left_out", "message": message})
                    continue
                case = make_case(
                    self.template, self.accelerator, problem, workload, self.limits, seed
                )
                self.cases[case.name] = case
                findings += [
                    {**finding, "message": f"{case.name}: {finding['message']}"}
                    for finding in case.findings
                ]
        except Rejected as rejected:
            self.cases = {}
            return verdict_of(rejected)
        self.findings = findings
        return {"status": "passed", "findings": findings}

    def examine(self, program: dict[str, Any]) -> dict[str, Any]:
        """Correctness of a candidate on every workload that was taken up."""
        self.candidate, self.slots = program, {}
        abs_error = rel_error = 0.0
        findings = list(self.findings)
        try:
            for case in self.cases.values():
                found = examine(case, self.template, program, self.limits)
                self.slots[case.name] = timed_slots(case, found.call)
                abs_error = max(abs_error, found.max_abs_error)
                rel_error = max(rel_error, found.max_rel_error)
                findings += found.findings
        except Rejected as rejected:
            return verdict_of(rejected)
        return {
            "status": "passed",
            "findings": findings,
            "max_abs_error": abs_error,
            "max_rel_error": rel_error,
        }

    def launch(self, workload: str, clock: dict[str, Any]) -> dict[str, Any]:
        """Times of one launch, or the verdict that they led to, or that which there is when the
        launch is not made again: `interrupted`, because the reference failed. Beside the times a
        `suspicion`: the verdict when another launch confirms it."""
        config = ClockConfig(memory_bytes=self.accelerator.memory_bytes() // 4, **clock)
        case = self.cases.get(workload)
        if case is None:
            return {"left_out": True}
        try:
            result = launch(
                case,
                self.template,
                self.candidate,
                self.slots[workload],
                self.limits,
                config,
                self.rng,
            )
        except Rejected as rejected:
            return {"verdict": verdict_of(rejected)}
        except RunnerFailure as failure:
            return {"interrupted": verdict_of(rejection_of_launch(failure))}
        contradiction = result.pop("contradiction")
        if contradiction is None:
            return {"launch": result}
        return {"launch": result, "suspicion": verdict_of(contradicted(**contradiction))}


def contradicted(claim_us: float, span_us: float) -> Rejected:
    """A candidate whose own clock and the judge's contradict each other."""
    return Rejected(
        "reward_hack",
        "timing.reconciliation",
        f"it claims {claim_us:.0f} us for a batch that took {span_us:.0f} us until its outputs "
        "were there: work is put off until after its own clock stopped",
    )


def cores_for(num_threads: int) -> list[int] | None:
    """As many as there are threads, the last ones, so that all runners share them and the judge
    has another; None where there are no more than that."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[-num_threads:] if num_threads < len(allowed) else None


def verdict_of(rejected: Rejected) -> dict[str, Any]:
    """The record Verdict."""
    finding = {key: value for key, value in rejected.finding.items() if value is not None}
    return {
        "status": rejected.status,
        "findings": [finding],
        "max_abs_error": rejected.max_abs_error,
        "max_rel_error": rejected.max_rel_error,
        "log": rejected.log,
    }
