"""A judge, kept for many trials.

What a candidate does wrong is a Verdict. When the judge itself dies, the trial at hand is a
WorkerError and the next one gets a new judge.
"""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from cudal1_ci.errors import UnsupportedError
from cudal1_ci.processes import Executor, Local, Worker
from cudal1_ci.processes.lock import shared
from cudal1_ci.records import (
    Candidate,
    Demand,
    Device,
    Evaluation,
    Finding,
    Kernel,
    Measurement,
    Problem,
    Program,
    Status,
    Verdict,
    Workload,
)
from cudal1_ci.sandboxed.wire.codec import Asks
from cudal1_ci.sandboxed.wire.verdicts import KernelTime
from cudal1_ci.sandboxed.wire.verifier import (
    Check,
    CountDemand,
    Counted,
    Describe,
    Examine,
    Failed,
    InTurn,
    LeftOut,
    Limits,
    Profile,
    Profiled,
    Reply,
)
from cudal1_ci.verification.conditions import Gpu, gpu_of
from cudal1_ci.verification.config import BuildsConfig, TrialConfig
from cudal1_ci.verification.crossing import problem_on_wire, program_on_wire, record, verdict_of
from cudal1_ci.verification.kernels import finding_on, kernels_of, own_names
from cudal1_ci.verification.prebuild import Ahead, compiles, site_for, store_of
from cudal1_ci.verification.repetitions import Seat, measure
from cudal1_ci.verification.static_rules import convictions, screen

R = TypeVar("R", bound=Reply)
GPU_EXHAUSTED = re.compile(
    r"\bCUDA\b.{0,24}\bout of memory|\bCU(BLAS|DNN)_STATUS_ALLOC_FAILED", re.DOTALL
)
"""In what torch's allocator, CUDA, Triton and NVIDIA's libraries say."""


class Session:
    """Context manager: `check` a reference, `examine` or `evaluate` candidates of it."""

    def __init__(
        self,
        config: TrialConfig,
        *,
        python: str = sys.executable,
        device: str = "auto",
        num_sharing: int = 1,
        require_sandbox: bool = False,
        require_kernel: bool = False,
        builds: BuildsConfig | None = None,
        executor: Executor | None = None,
        cores: Sequence[int] | None = None,
        recalls: bool = True,
    ):
        """`executor` says where the judge runs; without one it is a process in `python`. Of the
        memory of a GPU that `num_sharing` sessions have, this one takes its share. A session with
        `cores` examines and does not time: its programs have these processor cores together with
        whoever else does, instead of the one on which all CPU judges of a machine time in turn.
        Where candidates have one launch it `recalls` problems that come again, as those of training
        do: others take memory for nothing."""
        self.config = config
        self.where = device
        self.num_sharing = num_sharing
        self.require_sandbox = require_sandbox
        self.require_kernel = require_kernel
        self.executor: Executor = executor or Local(python)
        self.cores = cores
        self.recalls = recalls
        self.builds = builds or BuildsConfig()
        if not self.executor.has_disk:
            self.builds = msgspec.structs.replace(self.builds, keep=False)
        self._ahead = Ahead(
            self.builds, self.executor, threads=config.threads, limit_s=config.load_s
        )
        self._architecture: str | None = None
        self._stack = contextlib.ExitStack()
        self._worker: Worker | None = None
        self._device: Device | None = None
        self._uuid: str | None = None
        self._gpu: Gpu | None = None
        self._problem_id: str | None = None
        self._reference_kernels: dict[str, frozenset[str]] = {}
        self._reference = Verdict(status="harness_error")
        self.spent_on_runners: dict[str, tuple[float, float]] = {}
        """Of the last request: times and seconds that the judge waited for its runners, by what it
        asked of them."""
        self._spent: dict[str, list[float]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ahead.close()
        self._stack.close()

    def device(self) -> Device:
        """What is measured on."""
        if self._device is None:
            reply = self._ask(Describe(), self.config.load_s)
            hardware = reply.hardware
            self._uuid, self._architecture = hardware.uuid, reply.architecture
            self._gpu = gpu_of(self._uuid)
            found = Device(
                kind=hardware.kind,
                name=hardware.name,
                num_threads=reply.num_threads,
                capability=hardware.capability,
                software=hardware.software,
                sandbox_missing=reply.sandbox_missing,
            )
            if self.require_sandbox and found.sandbox_missing:
                raise UnsupportedError(
                    "the sandbox is required, and this machine does not grant "
                    f"{', '.join(found.sandbox_missing)}: `cudal1-ci doctor` says why"
                )
            if self._gpu is not None:
                found = msgspec.structs.replace(found, driver=self._gpu.driver)
            if self.require_kernel and found.kind != "cuda":
                raise UnsupportedError(
                    "--require-kernel needs a GPU: nothing launches a kernel on a CPU; "
                    "leave the option out, or choose --device cuda"
                )
            if self._worker is not None:
                software = found.software | self._worker.software
                found = msgspec.structs.replace(found, software=software)
            self._device = found
        return self._device

    def check(self, problem: Problem, most_s: float | None = None) -> Verdict:
        """Whether candidates can be judged against the problem's reference. A judge that takes
        more than `most_s` seconds is ended, and another one is started for what is asked next.

        Raises:
            WorkerError: The judge could not be started, died, or took too long.
        """
        if self._problem_id == problem.id:
            return self._reference
        self.device()  # refuses where nothing may be run
        self._problem_id = None
        self._reference_kernels = {}
        num_workloads = len(problem.workloads)
        request = Check(
            problem=problem_on_wire(problem),
            limits=Limits(self.config.load_s, self.config.call_s),
            seed=self.config.seed,
            memory_bytes=self.config.memory_bytes,
            share_bytes=self._share_bytes(),
            weights=self.config.weights,
            precision=self.config.precision,
            store=store_of(self.builds),
            key=problem.id if self.config.keeps and self.recalls else None,
            keeps=self.config.keeps and self.cores is None,
            cores=None if self.cores is None else tuple(self.cores),
        )
        # A reference is loaded four times, and its variations may each fail once.
        timeout_s = 15 * (self.config.load_s + self.config.call_s) * num_workloads
        timeout_s = timeout_s if most_s is None else min(timeout_s, most_s)
        self._reference = self._beside_others(
            verdict_of(self._ask_beside(request, timeout_s).verdict)
        )
        self._problem_id = problem.id
        return self._reference

    def build_ahead(self, problem: Problem, candidates: Sequence[Candidate]) -> None:
        """Compile what these candidates compile before their turn. Returns at once.

        Raises:
            WorkerError: The judge could not be started or died.
        """
        worth = [
            candidate
            for candidate in candidates
            if compiles(candidate.program)
            and candidate.program != problem.reference
            and not convictions(screen(candidate.program, problem.reference))
        ]
        device = self.device()
        site = site_for(
            device.kind,
            self._lock(),
            self._architecture,
            self.config.threads,
            self.builds.num_processes,
        )
        self._ahead.start(worth, site)

    def in_turn(
        self, candidates: Sequence[Candidate], is_over: Callable[[], bool] = lambda: False
    ) -> Iterator[Candidate]:
        """All of them, those last that are still being built. `is_over` is asked while a build is
        waited for, which ends when it says so: what comes then may still be being built."""
        return self._ahead.in_turn(candidates, is_over)

    def evaluate(self, problem: Problem, candidate: Candidate) -> Evaluation:
        """Judge a candidate and, when it passed, measure it.

        Raises:
            WorkerError: The judge could not be started or died.
            ValueError: The session has `cores`, and does not time.
        """
        if self.cores is not None:
            raise ValueError("expected a session without `cores`: one with them does not time")
        started_s = time.monotonic()
        measurements: tuple[Measurement, ...] = ()
        seen = screen(candidate.program, problem.reference)
        verdict = self._judged(problem, candidate, seen)
        if verdict.status == "passed":
            goes_on = self.config.keeps and self._needs_evidence(problem, candidate.program)
            verdict, measurements = self._measure(problem.workloads, verdict, goes_on)
        kernels: tuple[Kernel, ...] = ()
        if verdict.status == "passed":
            verdict, kernels = self._evidence(problem, candidate, verdict)
            measurements = measurements if verdict.status == "passed" else ()
        verdict = msgspec.structs.replace(verdict, findings=(*verdict.findings, *seen))
        return Evaluation(
            candidate=candidate,
            verdict=verdict,
            measurements=measurements,
            kernels=kernels,
            device=self.device(),
            elapsed_s=time.monotonic() - started_s,
        )

    def examine(self, problem: Problem, candidate: Candidate) -> Verdict:
        """Whether a candidate is the same function, which `evaluate` asks before it times: nothing
        is measured, and of what kernels it launches nothing is said.

        Raises:
            WorkerError: The judge could not be started or died.
        """
        seen = screen(candidate.program, problem.reference)
        verdict = self._judged(problem, candidate, seen)
        return msgspec.structs.replace(verdict, findings=(*verdict.findings, *seen))

    def _judged(self, problem: Problem, candidate: Candidate, seen: Sequence[Finding]) -> Verdict:
        """What is wrong with the reference, with the text, of which the static rules have `seen`
        something, or with what it computes; without what they have seen."""
        verdict = self.check(problem)
        if verdict.status != "passed":
            return verdict
        if convictions(seen):
            return Verdict(status="reward_hack")  # its text can mean nothing else: not run
        return self._ahead.settle(candidate) or self._beside_others(
            self._examine(problem, candidate)
        )

    def _examine(self, problem: Problem, candidate: Candidate) -> Verdict:
        """Whether what it computes is the same."""
        looks = not self.config.keeps and self._needs_evidence(problem, candidate.program)
        request = Examine(
            program=program_on_wire(candidate.program),
            keeps=self.config.keeps,
            profiled=problem.workloads[0].name if looks else None,
        )
        timeout_s = 2 * (self.config.load_s + self.config.call_s) * len(problem.workloads)
        return verdict_of(self._ask_beside(request, timeout_s).verdict)

    def _measure(
        self, workloads: tuple[Workload, ...], verdict: Verdict, goes_on: bool
    ) -> tuple[Verdict, tuple[Measurement, ...]]:
        """Measurements of all workloads, or the verdict that timing led to. What is timed is looked
        at afterwards where it `goes_on`."""
        measurements = []
        for workload in workloads:
            found = measure(self._seat(), self.config, workload, goes_on=goes_on)
            if isinstance(found, Verdict):
                return self._beside_others(found), ()
            if found is not None:
                measurements.append(found)
        return verdict, tuple(measurements)

    def _seat(self) -> Seat:
        device = self.device()
        pid = None if self._worker is None else self._worker.pid
        return Seat(self._ask, device, self._lock(), self._gpu, pid)

    def _lock(self) -> str:
        """Name of the device among all processes of the machine."""
        return self._uuid or self.device().kind

    def profile(self, workload: str, *, is_candidate: bool) -> list[dict[str, Any]] | str:
        """Kernels (on a CPU: operators) of one call of the reference that was last checked or of
        the candidate that was last examined: `name`, `num_calls`, `time_us` of each, the longest
        first; or why there are none.

        Raises:
            WorkerError: The judge died.
        """
        found = self._profiled(workload, is_candidate=is_candidate)
        return found if isinstance(found, str) else [asdict(row) for row in found]

    def _profiled(self, workload: str, *, is_candidate: bool) -> Sequence[KernelTime] | str:
        """See `profile`."""
        timeout_s = 2 * (self.config.load_s + self.config.call_s)
        request = Profile(workload=workload, is_candidate=is_candidate)
        match self._ask_beside(request, timeout_s):
            case Profiled(rows=rows):
                return rows
            case Failed(why=why):
                return why
            case LeftOut():
                return f"the judge left `{workload}` out"

    def demand(self, workload: str) -> Demand | str:
        """What a call of the reference that was last checked asks of the device, or why that is
        not known. Raises WorkerError as `profile` does."""
        timeout_s = 2 * (self.config.load_s + self.config.call_s)
        match self._ask_beside(CountDemand(workload=workload), timeout_s):
            case Counted(demand=demand):
                return record(demand, Demand)
            case Failed(why=why):
                return why
            case LeftOut():
                return f"the judge left `{workload}` out"

    def _share_bytes(self) -> int | None:
        """For a trial's tensors while others may work on the device; None is what is free."""
        if self.config.memory_bytes is not None or self._gpu is None or self.num_sharing == 1:
            return None
        total_bytes = self._gpu.memory_bytes
        return None if total_bytes is None else total_bytes * 4 // 5 // self.num_sharing

    def _beside_others(self, verdict: Verdict) -> Verdict:
        """Whoever runs out of the memory of a GPU that others share is not to blame for it."""
        said = verdict.findings[0].message if verdict.findings else ""
        if verdict.status == "passed" or not GPU_EXHAUSTED.search(said):
            return verdict
        if self.num_sharing > 1:
            why = f"this GPU is shared by {self.num_sharing} judges, name it less often"
        elif num_others := self._num_others():
            why = f"{num_others} other process{'es have' if num_others > 1 else ' has'} memory of "
            why += "this GPU"
        else:
            return verdict
        finding = Finding(rule="memory.device", message=f"{why}: {said}")
        return Verdict(status="inconclusive", findings=(finding,), log=verdict.log)

    def _num_others(self) -> int:
        """Processes on the GPU that are not of this session, as far as is known: of a container's
        it is not known which are."""
        return self._gpu.num_others() if self._gpu and self.executor.has_disk else 0

    def _is_kernel_required(self, problem: Problem) -> bool:
        target = problem.target
        return self.require_kernel or (target is not None and target.is_kernel)

    def _needs_evidence(self, problem: Problem, program: Program) -> bool:
        """Whether it is looked at which kernels a candidate launches."""
        if self.device().kind != "cuda":
            return False
        return self._is_kernel_required(problem) or bool(own_names(problem, program))

    def _evidence(
        self, problem: Problem, candidate: Candidate, verdict: Verdict
    ) -> tuple[Verdict, tuple[Kernel, ...]]:
        """Whether the kernels that a candidate brings along do its work. Shown where they do not,
        and the verdict where they are required, as they are of a candidate for a kernel."""
        if not self._needs_evidence(problem, candidate.program):
            return verdict, ()
        declared = own_names(problem, candidate.program)
        is_required = self._is_kernel_required(problem)
        name = problem.workloads[0].name
        rows = self._profiled(name, is_candidate=True)
        if isinstance(rows, str):
            finding: Finding | None = Finding(rule="kernel.unseen", message=rows[:1000])
            status: Status = "inconclusive"
            kernels: tuple[Kernel, ...] = ()
        else:
            if name not in self._reference_kernels:
                known = self._profiled(name, is_candidate=False)
                names = () if isinstance(known, str) else (row.name for row in known)
                self._reference_kernels[name] = frozenset(names)
            kernels = kernels_of(rows, declared, self._reference_kernels[name], problem.target)
            finding, status = finding_on(kernels, declared), "reward_hack"
        if finding is None:
            return verdict, kernels
        if is_required:
            return Verdict(status=status, findings=(finding, *verdict.findings)), kernels
        return msgspec.structs.replace(verdict, findings=(*verdict.findings, finding)), kernels

    def _ask_beside(self, request: InTurn[R], timeout_s: float) -> R:
        """Ask for what makes the device work and is not timed: never while another judge times. A
        judge on this machine holds the device itself, and gives way to who wants to time."""
        if self.executor.has_disk:
            return self._ask(replace(request, turn=self._lock()), timeout_s)
        with shared(self._lock()):
            return self._ask(request, timeout_s)

    def _ask(self, request: Asks[R], timeout_s: float) -> R:
        """Ask the judge, starting one where there is none."""
        if self._worker is None:
            worker = self.executor.start(
                "judge", num_threads=self.config.threads, device=self.where
            )
            self._worker = self._stack.enter_context(worker)
        op, started_s = request.op, time.monotonic()
        try:
            reply = self._worker.ask(request, timeout_s)
            self.spent_on_runners = reply.spent
            for what, (times, seconds) in self.spent_on_runners.items():
                self._add_spent(f"{op}: {what}", times, seconds)
            return reply
        except BaseException:  # of an interrupt too: the reply under way would be the next one's
            self._stack.close()
            self._stack = contextlib.ExitStack()
            self._worker = None
            self._problem_id = None
            raise
        finally:
            self._add_spent(f"ask {op}", 1, time.monotonic() - started_s)

    def _add_spent(self, what: str, times: float, seconds: float) -> None:
        one = self._spent.setdefault(what, [0, 0.0])
        one[0] += times
        one[1] += seconds

    def spent(self) -> dict[str, list[float]]:
        """Times and seconds of all requests since this was asked the last time: of each kind
        (`ask check`), and what of that the judge waited for its runners (`check: load`)."""
        found, self._spent = self._spent, {}
        return {what: [times, round(seconds, 3)] for what, (times, seconds) in found.items()}
