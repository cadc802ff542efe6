"""Keep a verifier process for many trials.

What a candidate does wrong is a Verdict. When the verifier itself dies, the current trial raises a
WorkerError and the next one gets a new verifier.
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

from cudal1_ci.errors import UnsupportedError, WorkerTimeout
from cudal1_ci.processes import Executor, Local, Worker
from cudal1_ci.processes.lock import shared
from cudal1_ci.records import (
    CallCost,
    Candidate,
    ContractCheck,
    Demand,
    Device,
    Evaluation,
    Finding,
    Kernel,
    Measurement,
    Phase,
    Problem,
    Program,
    Status,
    Verdict,
    Workload,
)
from cudal1_ci.records.recording import Recording
from cudal1_ci.sandboxed.wire.codec import Asks
from cudal1_ci.sandboxed.wire.verdicts import KernelTime
from cudal1_ci.sandboxed.wire.verifier import (
    Check,
    CountDemand,
    Counted,
    Describe,
    Examine,
    ExamineContract,
    Failed,
    InTurn,
    LeftOut,
    Limits,
    PriceCall,
    Profile,
    Profiled,
    RecordCall,
    Reply,
)
from cudal1_ci.verification.conditions import Gpu, gpu_of
from cudal1_ci.verification.config import BuildsConfig, TrialConfig
from cudal1_ci.verification.crossing import (
    problem_on_wire,
    program_on_wire,
    record,
    verdict_of,
    workload_on_wire,
)
from cudal1_ci.verification.device_hold import Seat
from cudal1_ci.verification.kernels import finding_on, kernels_of, own_names
from cudal1_ci.verification.prebuild import Ahead, compiles, site_for, store_of
from cudal1_ci.verification.repetitions import measure
from cudal1_ci.verification.same_program import is_same_program
from cudal1_ci.verification.spread_memory import SpreadMemory
from cudal1_ci.verification.static_rules import convictions
from cudal1_ci.verification.static_rules import screen as read_text

R = TypeVar("R", bound=Reply)
SPREADS = "spreads.json"
"""What controls showed, next to the folder of builds."""
SCREENED_ROUNDS = 6
"""Rounds of a screening. More would narrow nothing, as one repetition's interval is wide anyway."""
SAME = Finding(
    rule="timing.same_program",
    message="its statements are the reference's, so it cannot be faster: it was not timed",
)
CUT = "budget.time"
"""The rule of what took longer than the budget leaves for a candidate."""
GIVEN_UP = "budget.reference"
"""The rule of a reference that took longer than its part of the budget."""
GPU_EXHAUSTED = re.compile(
    r"\bCUDA\b.{0,24}\bout of memory|\bCU(BLAS|DNN)_STATUS_ALLOC_FAILED", re.DOTALL
)
"""Matches memory errors of torch's allocator, CUDA, Triton and NVIDIA's libraries."""


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
        """Configure a session.

        `executor` starts the verifier; without one it is a process in `python`. This session takes
        its share of the memory of a GPU that `num_sharing` sessions use. A session with `cores`
        examines and does not time. Its programs share these processor cores with other such
        sessions; they do not use the core on which all CPU verifiers of a machine time. Where
        candidates have one repetition, it `recalls` problems that return, as in training. Elsewhere
        that would waste memory.
        """
        self.config = config
        self.where = device
        self.num_sharing = num_sharing
        self.require_sandbox = require_sandbox
        self.require_kernel = require_kernel
        self.executor: Executor = executor or Local(python)
        self.cores = cores
        self.recalls = recalls
        self.builds = builds or BuildsConfig()
        self.spreads = SpreadMemory(self.builds.place().parent / SPREADS)
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
        """The last request's times and seconds that the verifier waited for its runners, by
        request."""
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
        """Return the device that is measured on."""
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
                    f"{', '.join(found.sandbox_missing)}: see `cudal1-ci doctor`"
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
        """Verify that candidates can be compared with the problem's reference. A verifier that
        takes more than `most_s` seconds is ended with a verdict that is inconclusive, and the next
        request starts another one.

        Raises:
            WorkerError: The verifier could not be started, died, or took too long.
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
            keeps=self.config.num_launches in (None, 1) and self.cores is None,
            cores=None if self.cores is None else tuple(self.cores),
        )
        # A reference is loaded four times, and its variations may each fail once.
        timeout_s = 15 * (self.config.load_s + self.config.call_s) * num_workloads
        timeout_s = timeout_s if most_s is None else min(timeout_s, most_s)
        try:
            reply = self._ask_beside(request, timeout_s)
        except WorkerTimeout:
            if most_s is None or timeout_s < most_s:
                raise
            late = f"its reference was not verified within {most_s:.0f} s, its part of the budget"
            return Verdict(status="inconclusive", findings=(Finding(rule=GIVEN_UP, message=late),))
        self._reference = self._beside_others(verdict_of(reply.verdict))
        self._problem_id = problem.id
        return self._reference

    def build_ahead(self, problem: Problem, candidates: Sequence[Candidate]) -> None:
        """Compile what these candidates compile, ahead of their verification. Return at once.

        Raises:
            WorkerError: The verifier could not be started or died.
        """
        worth = [
            candidate
            for candidate in candidates
            if compiles(candidate.program)
            and candidate.program != problem.reference
            and not convictions(read_text(candidate.program, problem.reference))
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
        """Yield all candidates, those whose builds still run last. `is_over` is called during a
        wait for a build. Once it returns True the wait ends, and later candidates may still be
        building."""
        return self._ahead.in_turn(candidates, is_over)

    def screen(
        self, problem: Problem, candidate: Candidate, most_s: float | None = None
    ) -> Evaluation:
        """Verify a candidate and, when it passed, time it once with processes that are kept. Its
        interval is wide. The same text as the reference's is not timed. Where the number of
        repetitions is configured, do what `evaluate` does. An examination ends after `most_s`
        seconds, without those that it waits for the device; then nothing is known of a candidate.

        Raises:
            WorkerError: The verifier could not be started or died.
            ValueError: The session has `cores`, and does not time.
        """
        if self.config.num_launches is not None:
            return self.evaluate(problem, candidate)
        num_rounds = self.config.num_rounds or SCREENED_ROUNDS
        config = msgspec.structs.replace(self.config, num_launches=1, num_rounds=num_rounds)
        found = is_same_program(candidate.program, problem.reference)
        evaluation = self._evaluated(
            problem, candidate, config, "screened", times=not found, most_s=most_s
        )
        return cut(evaluation, most_s)

    def evaluate(self, problem: Problem, candidate: Candidate) -> Evaluation:
        """Verify a candidate and, when it passed, measure it in fresh processes.

        Raises:
            WorkerError: The verifier could not be started or died.
            ValueError: The session has `cores`, and does not time.
        """
        phase: Phase | None = "confirmed" if self.config.num_launches is None else None
        return self._evaluated(problem, candidate, self.config, phase)

    def confirm(
        self, problem: Problem, candidate: Candidate, most_s: float | None = None
    ) -> Evaluation:
        """Measure a screened candidate in fresh processes. The examination that it passed stands,
        while the problem is the last one: each output of a timed call is compared again. After
        `most_s` seconds an examination ends as it does in `screen`, and measuring ends with the
        interval that the repetitions give by then: it is valid whenever one stops.

        Raises:
            WorkerError: The verifier could not be started or died.
            ValueError: The session has `cores`, and does not time.
        """
        phase: Phase | None = "confirmed" if self.config.num_launches is None else None
        evaluation = self._evaluated(
            problem, candidate, self.config, phase, may_recall=True, most_s=most_s
        )
        return cut(evaluation, most_s)

    def _evaluated(
        self,
        problem: Problem,
        candidate: Candidate,
        config: TrialConfig,
        phase: Phase | None,
        *,
        times: bool = True,
        may_recall: bool = False,
        most_s: float | None = None,
    ) -> Evaluation:
        """Return what a candidate is worth by a number of repetitions that `config` says."""
        if self.cores is not None:
            raise ValueError("expected a session without `cores`: one with them does not time")
        started_s = time.monotonic()
        measurements: tuple[Measurement, ...] = ()
        seen = read_text(candidate.program, problem.reference)
        keeps = config.keeps and times
        verdict = self._judged(
            problem, candidate, seen, keeps=keeps, may_recall=may_recall, most_s=most_s
        )
        # What is only screened is no claim, and is profiled where the verdict needs it.
        shows = phase != "screened" or self._is_kernel_required(problem)
        if verdict.status == "passed" and times:
            goes_on = shows and config.keeps and self._needs_evidence(problem, candidate.program)
            if most_s is not None:
                left_s = max(1.0, most_s - (time.monotonic() - started_s))
                measure_s = min(config.measure_s, left_s / len(problem.workloads))
                config = msgspec.structs.replace(config, measure_s=measure_s)
            verdict, measurements = self._measure(config, problem.workloads, verdict, goes_on)
        kernels: tuple[Kernel, ...] = ()
        if verdict.status == "passed" and shows:
            verdict, kernels = self._evidence(problem, candidate, verdict)
            measurements = measurements if verdict.status == "passed" else ()
        findings = (*verdict.findings, *seen, *(() if times else (SAME,)))
        verdict = msgspec.structs.replace(verdict, findings=findings)
        return Evaluation(
            candidate=candidate,
            verdict=verdict,
            measurements=measurements,
            kernels=kernels,
            device=self.device(),
            elapsed_s=time.monotonic() - started_s,
            phase=phase,
        )

    def examine(self, problem: Problem, candidate: Candidate) -> Verdict:
        """Verify that a candidate is the same function, as `evaluate` does before it times. Nothing
        is measured, and launched kernels are not reported.

        Raises:
            WorkerError: The verifier could not be started or died.
        """
        seen = read_text(candidate.program, problem.reference)
        verdict = self._judged(problem, candidate, seen, keeps=self.config.keeps)
        return msgspec.structs.replace(verdict, findings=(*verdict.findings, *seen))

    def examine_contract(self, problem: Problem, evaluation: Evaluation) -> Evaluation:
        """Return the evaluation of a candidate that passed, with the lines of its contract. Others
        stay as they are.

        Raises:
            WorkerError: The verifier could not be started or died.
        """
        budget_s = self.config.contract_s
        if not budget_s or evaluation.verdict.status != "passed":
            return evaluation
        started_s = time.monotonic()
        if self.check(problem).status != "passed":
            return evaluation
        program = program_on_wire(evaluation.candidate.program)
        request = ExamineContract(program=program, budget_s=budget_s)
        reply = self._ask_beside(request, 4 * (self.config.load_s + self.config.call_s))
        if isinstance(reply, Failed):
            missing = ContractCheck(aspect="contract", result="not_tried", detail=reply.why)
            return msgspec.structs.replace(evaluation, contract=(missing,))
        took_s = time.monotonic() - started_s
        verdict = evaluation.verdict
        found = tuple(record(one, Finding) for one in reply.findings)
        return msgspec.structs.replace(
            evaluation,
            verdict=msgspec.structs.replace(verdict, findings=(*verdict.findings, *found)),
            contract=tuple(record(one, ContractCheck) for one in reply.lines),
            contract_s=took_s,
            elapsed_s=evaluation.elapsed_s + took_s,
        )

    def _judged(
        self,
        problem: Problem,
        candidate: Candidate,
        seen: Sequence[Finding],
        *,
        keeps: bool,
        may_recall: bool = False,
        most_s: float | None = None,
    ) -> Verdict:
        """Return what is wrong with the reference, the text or its results. The static rules'
        findings on the text are `seen`; they are not part of the verdict. The process `keeps` until
        it is timed."""
        verdict = self.check(problem, most_s)
        if verdict.status != "passed":
            return verdict
        if convictions(seen):
            return Verdict(status="reward_hack")  # the text has only one meaning: not run
        return self._ahead.settle(candidate) or self._beside_others(
            self._examine(problem, candidate, keeps=keeps, may_recall=may_recall, most_s=most_s)
        )

    def _examine(
        self,
        problem: Problem,
        candidate: Candidate,
        *,
        keeps: bool,
        may_recall: bool,
        most_s: float | None,
    ) -> Verdict:
        """Verify that a candidate computes the same."""
        looks = not keeps and self._needs_evidence(problem, candidate.program)
        request = Examine(
            program=program_on_wire(candidate.program),
            keeps=keeps,
            may_recall=may_recall,
            profiled=problem.workloads[0].name if looks else None,
            most_s=most_s,
        )
        timeout_s = 2 * (self.config.load_s + self.config.call_s) * len(problem.workloads)
        return verdict_of(self._ask_beside(request, timeout_s).verdict)

    def _measure(
        self,
        config: TrialConfig,
        workloads: tuple[Workload, ...],
        verdict: Verdict,
        goes_on: bool,
    ) -> tuple[Verdict, tuple[Measurement, ...]]:
        """Return measurements of all workloads, or the verdict that timing led to. With
        `goes_on` the timed candidate is examined further afterwards."""
        measurements = []
        for workload in workloads:
            found = measure(self._seat(), config, workload, goes_on=goes_on)
            if isinstance(found, Verdict):
                return self._beside_others(found), ()
            if found is not None:
                measurements.append(found)
        return verdict, tuple(measurements)

    def _seat(self) -> Seat:
        device = self.device()
        pid = None if self._worker is None else self._worker.pid
        return Seat(self._ask, self._ask_beside, device, self._lock(), self._gpu, pid, self.spreads)

    def _lock(self) -> str:
        """Return the name of the device among all processes of the machine."""
        return self._uuid or self.device().kind

    def profile(self, workload: str, *, is_candidate: bool) -> list[dict[str, Any]] | str:
        """Return the kernels (on a CPU: operators) of one call, or why there are none. The call is
        of the reference last checked or of the candidate last examined. Each has `name`,
        `num_calls` and `time_us`; the longest is first.

        Raises:
            WorkerError: The verifier died.
        """
        found = self._profiled(workload, is_candidate=is_candidate)
        return found if isinstance(found, str) else [asdict(row) for row in found]

    def _profiled(self, workload: str, *, is_candidate: bool) -> Sequence[KernelTime] | str:
        """Return what `profile` does, as records of the wire."""
        timeout_s = 2 * (self.config.load_s + self.config.call_s)
        request = Profile(workload=workload, is_candidate=is_candidate)
        match self._ask_beside(request, timeout_s):
            case Profiled(rows=rows):
                return rows
            case Failed(why=why):
                return why
            case LeftOut():
                return f"the verifier excluded `{workload}`"

    def demand(self, workload: str) -> Demand | str:
        """Return what a call of the reference last checked demands of the device, or why that is
        not known. Raises WorkerError as `profile` does."""
        timeout_s = 2 * (self.config.load_s + self.config.call_s)
        match self._ask_beside(CountDemand(workload=workload), timeout_s):
            case Counted(demand=demand):
                return record(demand, Demand)
            case Failed(why=why):
                return why
            case LeftOut():
                return f"the verifier excluded `{workload}`"

    def record(self, problem: Problem, workload: Workload) -> Recording | str:
        """Return the operations of one call of a problem's reference, or why there are none. The
        reference need not have been checked, and what was checked stays.

        Raises:
            WorkerError: The verifier could not be started, or died.
        """
        self.device()
        request = RecordCall(
            reference=program_on_wire(problem.reference),
            workload=workload_on_wire(workload),
            limits=Limits(self.config.load_s, self.config.call_s),
            seed=self.config.seed,
            store=store_of(self.builds),
        )
        reply = self._ask_beside(request, 6 * (self.config.load_s + self.config.call_s))
        return reply.why if isinstance(reply, Failed) else record(reply.recording, Recording)

    def price(self, program: Program, workload: Workload, energy_s: float = 0.0) -> CallCost | str:
        """Return what a call of a program takes besides its time, or why that is not known. The
        program need not have been checked. With `energy_s` a GPU's energy is read over so many
        seconds of calls.

        Raises:
            WorkerError: The verifier could not be started, or died.
        """
        self.device()
        request = PriceCall(
            program=program_on_wire(program),
            workload=workload_on_wire(workload),
            limits=Limits(self.config.load_s, self.config.call_s),
            seed=self.config.seed,
            store=store_of(self.builds),
            energy_s=energy_s,
        )
        timeout_s = 6 * (self.config.load_s + self.config.call_s) + energy_s
        reply = self._ask_beside(request, timeout_s)
        return reply.why if isinstance(reply, Failed) else record(reply.cost, CallCost)

    def _share_bytes(self) -> int | None:
        """Return the bytes for a trial's tensors while others may use the device; None is all
        free memory."""
        if self.config.memory_bytes is not None or self._gpu is None or self.num_sharing == 1:
            return None
        total_bytes = self._gpu.memory_bytes
        return None if total_bytes is None else total_bytes * 4 // 5 // self.num_sharing

    def _beside_others(self, verdict: Verdict) -> Verdict:
        """Return an inconclusive verdict where memory ran out on a GPU that others share. The
        candidate is not to blame."""
        said = verdict.findings[0].message if verdict.findings else ""
        if verdict.status == "passed" or not GPU_EXHAUSTED.search(said):
            return verdict
        if self.num_sharing > 1:
            why = f"this GPU is shared by {self.num_sharing} verifiers, name it less often"
        elif num_others := self._num_others():
            why = f"{num_others} other process{'es have' if num_others > 1 else ' has'} memory of "
            why += "this GPU"
        else:
            return verdict
        finding = Finding(rule="memory.device", message=f"{why}: {said}")
        return Verdict(status="inconclusive", findings=(finding,), log=verdict.log)

    def _num_others(self) -> int:
        """Count processes on the GPU that are not known to be of this session. For a container
        it is unknown which are its own, so the result is 0."""
        return self._gpu.num_others() if self._gpu and self.executor.has_disk else 0

    def _is_kernel_required(self, problem: Problem) -> bool:
        target = problem.target
        return self.require_kernel or (target is not None and target.is_kernel)

    def _needs_evidence(self, problem: Problem, program: Program) -> bool:
        """Return whether a candidate's launched kernels are checked."""
        if self.device().kind != "cuda":
            return False
        return self._is_kernel_required(problem) or bool(own_names(problem, program))

    def _evidence(
        self, problem: Problem, candidate: Candidate, verdict: Verdict
    ) -> tuple[Verdict, tuple[Kernel, ...]]:
        """Check whether the candidate's own kernels do its work. A finding is shown where they
        do not. It decides the verdict where own kernels are required, as for a candidate for a
        kernel."""
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
        """Send a request that uses the device without timing, never while another verifier
        times. A verifier on this machine holds the device itself, and yields to those that time."""
        if self.executor.has_disk:
            return self._ask(replace(request, turn=self._lock()), timeout_s)
        with shared(self._lock()):
            return self._ask(request, timeout_s)

    def _ask(self, request: Asks[R], timeout_s: float) -> R:
        """Send a request to the verifier; start one where there is none."""
        if self._worker is None:
            worker = self.executor.start(
                "verifier", num_threads=self.config.threads, device=self.where
            )
            self._worker = self._stack.enter_context(worker)
        op, started_s = request.op, time.monotonic()
        try:
            reply = self._worker.ask(request, timeout_s)
            self.spent_on_runners = reply.spent
            for what, (times, seconds) in self.spent_on_runners.items():
                self._add_spent(f"{op}: {what}", times, seconds)
            return reply
        except (
            BaseException
        ):  # also of an interrupt: the pending reply would answer the next request
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
        """Return times and seconds of all requests since the last call. Each kind has an entry
        (`ask check`), and so has the verifier's wait for its runners (`check: load`)."""
        found, self._spent = self._spent, {}
        return {what: [times, round(seconds, 3)] for what, (times, seconds) in found.items()}


def was_given_up(verdict: Verdict) -> bool:
    """Return whether a reference ran out of time. It may be valid, given more."""
    return any(one.rule == GIVEN_UP for one in verdict.findings)


def cut(evaluation: Evaluation, most_s: float | None) -> Evaluation:
    """Return an evaluation whose examination was ended after `most_s` seconds as inconclusive:
    nothing is known of the candidate. Others stay as they are."""
    verdict = evaluation.verdict
    if most_s is None or verdict.status != "timeout":
        return evaluation
    finding = Finding(rule=CUT, message=f"not done within {most_s:.0f} s, its part of the budget")
    findings = (finding, *verdict.findings)
    verdict = msgspec.structs.replace(verdict, status="inconclusive", findings=findings)
    return msgspec.structs.replace(evaluation, verdict=verdict)
