"""Hold what a candidate must not know, and decide what it is worth.

The verifier never loads user code. Requests (wire/verifier.py) come from the host, one at a time.

Each reply also reports the time `spent` on runners (wait_times.py). A request with a `turn` names a
device. This process shares it with others meanwhile, and releases it while another process times
(giving_way.py). Without a `turn` the host holds the device.

The verifier believes nothing of a runner about time (its own clock counts) or about values (it
reads them from shared memory). It believes a runner's reports of structure, aliasing and settings
only to the runner's disadvantage. The sandbox and the static rules must stop a candidate that
forges them.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from ..builds.build_keys import architecture_of
from ..builds.torch_compiler import modules_for
from ..confinement import missing
from ..forkserver.client import Template
from ..forkserver.handles import RunnerFailure
from ..memory.accelerators import (
    Accelerator,
    accelerator,
    available_memory_bytes,
    free_memory_bytes,
)
from ..memory.cuda import DriverError
from ..timing.batch_length import ClockConfig, timed_slots
from ..timing.clock import launch, start_ahead
from ..timing.cores import cores_for, cores_of_turns
from ..timing.giving_way import Turn
from ..timing.reuse_runners import MOST_CASES, Kept
from ..timing.runner_groups import Crews
from ..wire.channel import Channel, ChannelClosed
from ..wire.programs import Problem, Program
from ..wire.tensors import OutputSlot
from ..wire.verdicts import Finding, KernelTime, Verdict
from ..wire.verifier import (
    REQUEST,
    Check,
    Clock,
    ContractExamined,
    Convicted,
    CountDemand,
    Counted,
    Describe,
    Described,
    Dismiss,
    Dismissed,
    Examine,
    ExamineContract,
    Failed,
    Interrupted,
    InTurn,
    LeftOut,
    Limits,
    PriceCall,
    Priced,
    Profile,
    Profiled,
    RecordCall,
    RecordedCall,
    Repeat,
    Repeated,
    Reply,
    Request,
    StartAhead,
    StartedAhead,
    Store,
    Verified,
)
from .calls import call_of
from .cases import Case, OtherState, Rejected, verdict_of
from .contract import examine_contract
from .correctness import Examined, examine
from .failures import rejection_of_launch, says_out_of_memory
from .reference import make_case
from .reference_cache import Known
from .stream_order import UNORDERED

Repetition = Repeated | Convicted | Interrupted
SPARE_S = 30.0
"""Seconds for learning a reference. Beyond it only the first workload of training and the first one
of inference are taken up: what a program gains in one says little of the other."""
LEAST_S = 1.0
MOST_PASSED = 64
"""Examinations that are remembered of the candidates of a problem."""


def main(
    channel: Channel,
    num_threads: int,
    device: str,
    template_pid: int,
    template_channel: Channel,
) -> None:
    """Answer the host until it hangs up."""
    torch.set_num_threads(1)
    limit_bytes = available_memory_bytes()
    here = accelerator(device)
    # The driver of a GPU reserves more addresses than there is memory.
    template = Template(template_pid, template_channel, limit_bytes if here.kind == "cpu" else None)
    if here.kind == "cpu":
        template.cores = cores_for(num_threads)
    else:
        template.device = here.kind
        template.keep_to(str(here.describe().uuid))
    verifier = Verifier(num_threads, here, template)
    try:
        while True:
            request, _ = channel.receive(REQUEST)
            turn = request.turn if isinstance(request, InTurn) else None
            with taking_turns(template, turn, channel):
                try:
                    reply = verifier.answer(request)
                except (torch.cuda.OutOfMemoryError, DriverError) as error:
                    reply = verifier.without_memory(request, error)
                template.settle()
            channel.send(replace(reply, spent=verifier.template.spent.taken()))
    except ChannelClosed:
        return
    finally:
        verifier.dismiss()
        verifier.kept.close()
        verifier.template.close()


@contextlib.contextmanager
def taking_turns(template: Template, name: str | None, channel: Channel) -> Iterator[None]:
    """Share the device of that name with others, and release it while another process times.
    Without a name this process holds none."""
    if name is None:
        yield
        return
    with Turn(name, stop=template.stop, go_on=template.go_on, host=channel) as turn:
        template.turn = turn
        try:
            yield
        finally:
            template.turn = None


class Until(Limits):
    """Limits that shrink to what is left until a moment of a clock."""

    def __init__(self, limits: Limits, most_s: float, clock: Callable[[], float]):
        self.limits, self.clock, self.ends_s = limits, clock, clock() + most_s

    @property
    def load_s(self) -> float:
        return self.left_of(self.limits.load_s)

    @property
    def call_s(self) -> float:
        return self.left_of(self.limits.call_s)

    def left_of(self, limit_s: float) -> float:
        """Return what is left of a limit: a moment at least, for the program that is at fault."""
        return min(limit_s, max(LEAST_S, self.ends_s - self.clock()))


@dataclass(frozen=True)
class Passed:
    """An examination that a candidate passed, and what its timing needs of it."""

    verified: Verified
    at_hand: dict[str, Case]
    slots: dict[str, Sequence[OutputSlot]]


class Verifier:
    """The current problem, what is known of its reference, and the current candidate."""

    def __init__(self, num_threads: int, accelerator: Accelerator, template: Template):
        self.num_threads = num_threads
        self.accelerator = accelerator
        self.template = template
        self.crews = Crews(template)
        self.kept = Kept(template)
        self.keeps = False
        """Whether the current candidate is timed by kept processes."""
        self.cores = sorted(os.sched_getaffinity(0))
        self.is_open = False
        self.cases: dict[str, Case] = {}
        self.at_hand: dict[str, Case] = {}
        """Cases under which the current candidate was examined."""
        self.drawn: dict[tuple[str, tuple[str, ...] | None], Case] = {}
        """With weights that constructors draw, once they are needed."""
        self.problem: Problem | None = None
        self.weights = "checkpoint"
        self.precision = "strict"
        self.findings: list[Finding] = []
        self.known = Known(accelerator.kind == "cuda")
        self.candidate: Program | None = None
        self.slots: dict[str, Sequence[OutputSlot]] = {}
        self.num_calls: dict[str, int] = {}
        """Calls in a timed batch of the current candidate, by workload, from its first
        repetition on."""
        self.tight: set[str] = set()
        """Workloads under which a repetition of it has run out of memory."""
        self.passed_before: dict[Program, Passed] = {}
        """Candidates of the problem that passed their examination."""
        self.rows: dict[str, tuple[KernelTime, ...]] = {}
        """The profile of a call of it, by workload, where that is known."""
        # Not from the configured seed: a program that guesses the inputs of timed calls can have
        # computed them before.
        self.rng = random.SystemRandom()

    def answer(self, request: Request) -> Reply:
        """Answer a request."""
        match request:
            case Describe():
                return self.describe()
            case Check():
                return self.check(request)
            case Examine():
                if request.may_recall and self.recall(request.program):
                    return self.passed_before[request.program].verified
                return self.examine(
                    request.program, request.profiled, request.keeps, request.most_s
                )
            case StartAhead():
                return self.start_ahead(request.workload, request.clock)
            case Repeat():
                return self.repeat(request.workload, request.clock)
            case Dismiss():
                return self.leave(request.goes_on)
            case ExamineContract():
                return self.examine_contract(request.program, request.budget_s)
            case Profile():
                return self.profile(request.workload, request.is_candidate)
            case CountDemand():
                return self.demand(request.workload)
            case RecordCall():
                return self.record(request)
            case PriceCall():
                return self.price(request)

    def describe(self) -> Described:
        """Describe what is measured on."""
        return Described(
            hardware=self.accelerator.describe(),
            architecture=architecture_of(self.accelerator.kind),
            num_threads=self.num_threads,
            sandbox_missing=tuple(missing(self.template.sandbox)),
        )

    def open(self, store: Store | None) -> None:
        """Start the builders, once."""
        if not self.is_open:
            self.template.build_for(architecture_of(self.accelerator.kind), store)
            self.is_open = True

    def check(self, request: Check) -> Verified:
        """Learn the reference; the verdict is `passed` when candidates can be compared with it."""
        self.dismiss()
        if request.cores is not None:
            os.sched_setaffinity(0, request.cores)
            self.template.cores = request.cores
        self.weights, self.precision = request.weights, request.precision
        self.at_hand, self.drawn, self.problem = {}, {}, request.problem
        self.passed_before = {}
        self.open(request.store)
        self.template.builds.forget_checkouts()
        self.cases = {}
        self.accelerator.limit_bytes = request.memory_bytes
        self.accelerator.share_bytes = request.share_bytes
        self.limits = request.limits
        with self.template.spent.over("recall"):
            known = self.known.find(request.key)
        if known is not None:
            self.cases, self.findings = known
            return self.learned()
        started_s = time.monotonic()
        # Processes that other candidates were timed with, and their memory, would be released
        # during it, after the amount of memory was settled.
        self.kept.close()
        try:
            self.findings = self.learn(request.problem, request.seed, request.keeps)
        except Rejected as rejected:
            self.kept.close()
            self.cases = {}
            return Verified(verdict=verdict_of(rejected))
        if request.key is not None:
            took_s = time.monotonic() - started_s
            near, far = self.accelerator.memory_bytes(), free_memory_bytes()
            with self.template.spent.over("put aside"):
                self.known.keep(request.key, (self.cases, self.findings), near, far, took_s)
        return self.learned()

    def learned(self) -> Verified:
        """Return that candidates can be compared, once runners of them know of the reference."""
        changes = any(case.changes_environment for case in self.cases.values())
        self.template.keeps_environment = not changes
        return passed(self.findings)

    def learn(self, problem: Problem, seed: int, keeps: bool = False) -> list[Finding]:
        """Return the cases of the current problem, and the findings on them. Raises Rejected."""
        is_kept = keeps and len(problem.workloads) <= MOST_CASES[self.accelerator.kind]
        hold = self.kept.keep if is_kept else None
        findings: list[Finding] = []
        started_s = self.template.awake_s()
        modes: set[str] = set()
        for workload in problem.workloads:
            is_late = self.template.awake_s() - started_s > SPARE_S
            if is_late and workload.mode in modes:
                message = f"`{workload.name}` was left out: the reference is slow on others"
                findings.append(Finding(rule="workload.left_out", message=message))
                continue
            case = make_case(
                self.template,
                self.accelerator,
                problem,
                workload,
                self.limits,
                seed,
                hold=hold,
                precision=self.precision,
            )
            self.cases[case.name] = case
            modes.add(workload.mode)
            findings += [
                replace(finding, message=f"{case.name}: {finding.message}")
                for finding in case.findings
            ]
        return findings

    def examine(
        self,
        program: Program,
        profiled: str | None = None,
        keeps: bool = False,
        most_s: float | None = None,
    ) -> Verified:
        """Verify a candidate on every workload that was taken up. Its kernels are profiled
        meanwhile under the workload `profiled`. A request that `keeps` the processes for timing
        does not profile: a profiler slows down later launches in its process."""
        assert not (keeps and profiled)
        self.dismiss()
        self.keeps = keeps
        self.candidate, self.slots, self.at_hand = program, {}, {}
        self.num_calls, self.rows, self.tight = {}, {}, set()
        abs_error = rel_error = 0.0
        findings = list(self.findings)
        limits = self.limits
        if most_s is not None:
            limits = Until(self.limits, most_s, self.template.awake_s)
        try:
            for case in self.cases.values():
                profiles = case.name == profiled
                case, found = self.examine_one(case, program, limits, profiles=profiles)
                self.at_hand[case.name] = case
                self.slots[case.name] = timed_slots(case, found.call)
                if found.rows is not None:
                    self.rows[case.name] = found.rows
                abs_error = max(abs_error, found.max_abs_error)
                rel_error = max(rel_error, found.max_rel_error)
                findings += [one for one in found.findings if one not in findings]
        except Rejected as rejected:
            self.kept.dismiss()
            return Verified(verdict=verdict_of(rejected))
        verified = passed(findings, abs_error, rel_error)
        while len(self.passed_before) >= MOST_PASSED:
            self.passed_before.pop(next(iter(self.passed_before)))
        self.passed_before[program] = Passed(verified, self.at_hand, self.slots)
        return verified

    def recall(self, program: Program) -> bool:
        """Make a program the current candidate as after its examination, for fresh processes to
        time. Return whether it passed one. Each of their outputs is compared again."""
        known = self.passed_before.get(program)
        if known is None:
            return False
        self.dismiss()
        self.keeps, self.candidate = False, program
        self.at_hand, self.slots = known.at_hand, known.slots
        self.num_calls, self.rows, self.tight = {}, {}, set()
        return True

    def examine_one(
        self, case: Case, program: Program, limits: Limits, *, profiles: bool
    ) -> tuple[Case, Examined]:
        """Return what is known of a candidate that is right, and the case under which it is.
        With `weights` "seed" a candidate whose state_dict differs is compared with the reference
        under the weights that both draw, as in KernelBench; with "shared" under those that both
        have, in train mode too. Raises Rejected."""
        hold = self.kept.hold if self.keeps else None
        look = partial(
            examine,
            profiles=profiles,
            follows_gradients=not self.is_compiled_for_training(program),
            hold=hold,
        )
        try:
            return case, look(case, self.template, program, limits)
        except OtherState as rejected:
            if self.weights == "checkpoint" or (self.weights == "seed" and case.train):
                raise
            differs = rejected
        keys = differs.shared if self.weights == "shared" else None
        try:
            drawn = self.other_case(case, keys)
            found = look(drawn, self.template, program, limits)
        except Rejected as rejected:
            # It may draw other weights; its place on the caller's stream does not depend on them.
            is_of_values = rejected.status in ("incorrect_values", "precision")
            if self.weights == "seed" and is_of_values and rejected.finding.rule != UNORDERED:
                raise differs from rejected
            raise
        how = "with the weights that both draw under one seed"
        if keys is not None:
            how = f"with {len(keys)} weights and buffers that both have"
        found.findings.append(Finding(rule="state.keys", message=f"{differs}; verified {how}"))
        return drawn, found

    def is_compiled_for_training(self, program: Program) -> bool:
        """Return whether a program asks for the compiler, and a workload compares its gradients.
        To follow those of a call for inference would compile it once more."""
        trains = any(case.train for case in self.cases.values())
        return trains and bool(modules_for(program, keeps_environment=True))

    def other_case(self, case: Case, keys: tuple[str, ...] | None) -> Case:
        """Return a workload whose state is drawn by constructors, but for some keys."""
        if (case.name, keys) not in self.drawn:
            assert self.problem is not None
            (workload,) = (w for w in self.problem.workloads if w.name == case.name)
            self.drawn[case.name, keys] = make_case(
                self.template,
                self.accelerator,
                self.problem,
                workload,
                self.limits,
                self.rng.randrange(2**31),
                draws_weights=not keys,
                keys=keys,
                precision=self.precision,
            )
        return self.drawn[case.name, keys]

    def start_ahead(self, workload: str, clock: Clock) -> StartedAhead:
        """Start what the next repetitions need, next to other verifiers. Where that fails, the
        repetition tries it again, and says why."""
        started_s, number = self.template.awake_s(), 0
        case, is_tight = self.at_hand.get(workload), workload in self.tight
        if case is not None and self.candidate is not None and not (self.keeps or is_tight):
            memory_bytes = self.accelerator.memory_bytes()
            config = ClockConfig(memory_bytes=memory_bytes, **vars(clock))
            lacks = (torch.cuda.OutOfMemoryError, DriverError)
            with contextlib.suppress(Rejected, RunnerFailure, *lacks):
                number = start_ahead(
                    case, self.crews, self.candidate, self.limits, config, self.rng
                )
        return StartedAhead(number=number, took_s=self.template.awake_s() - started_s)

    def repeat(self, workload: str, clock: Clock) -> Repetition | LeftOut:
        """Return times of one repetition, or the verdict that they led to. A repetition that ran
        out of memory before its rounds counted is made again by new processes, with as little
        memory as possible. Later there is no second try."""
        if workload not in self.at_hand:
            return LeftOut()
        cores = self.turns(clock.gpu_index)

        def repeated() -> Repetition:
            try:
                return self.repeat_once(workload, cores, clock)
            except (torch.cuda.OutOfMemoryError, DriverError) as error:
                return Convicted(verdict=verdict_of(self.lack_of_memory(error)))

        reply = repeated()
        has_begun = self.at_hand[workload].counts
        if workload in self.tight or has_begun or not lacks_memory(reply):
            return reply
        self.tight.add(workload)
        self.kept.close()
        self.dismiss()
        return repeated()

    def repeat_once(self, workload: str, cores: list[int] | None, clock: Clock) -> Repetition:
        """Run one repetition, as `repeat` does. Raises what a lack of memory of the verifier's
        own raises."""
        assert self.candidate is not None
        case, is_tight = self.at_hand[workload], workload in self.tight
        is_fresh = is_tight or not self.keeps
        if is_fresh:
            self.kept.close()  # memory and, on a GPU, contexts of references for screening
        config = ClockConfig(
            memory_bytes=self.accelerator.memory_bytes(is_alone=True),
            cores=cores,
            is_least=is_tight,
            **vars(clock),
        )
        try:
            times, contradiction = launch(
                case,
                self.crews if is_fresh else self.kept,
                self.candidate,
                self.slots[workload],
                self.limits,
                config,
                self.rng,
                self.num_calls.get(workload),
            )
        except Rejected as rejected:
            self.kept.close()  # they may have been left in the middle of a round
            return Convicted(verdict=verdict_of(rejected))
        except RunnerFailure as failure:
            self.kept.close()
            return Interrupted(verdict=verdict_of(rejection_of_launch(failure)))
        self.num_calls[workload] = times.num_calls
        suspicion = None if contradiction is None else verdict_of(contradiction)
        return Repeated(times=times, suspicion=suspicion)

    def examine_contract(self, program: Program, budget_s: float) -> ContractExamined | Failed:
        """Try on a candidate what the reference honors, under the first workload."""
        case = next(iter(self.cases.values()), None)
        if case is None:
            return Failed(why="no workload was taken up")
        self.dismiss()
        lines, findings = examine_contract(case, self.template, program, self.limits, budget_s)
        return ContractExamined(lines=tuple(lines), findings=tuple(findings))

    def leave(self, goes_on: bool) -> Dismissed:
        """Release the device to others. End what was started for repetitions that will not come,
        and the candidate too unless it `goes_on`. Keep no more memory than a verifier may while
        it shares."""
        self.crews.dismiss()
        if not goes_on:
            self.kept.dismiss()
        # The query also releases what this process has cached.
        self.kept.let_go(self.accelerator)
        return Dismissed()

    def dismiss(self) -> None:
        """End what was started for repetitions that will not come."""
        self.crews.dismiss()
        self.kept.dismiss()

    def turns(self, gpu_index: int | None) -> list[int] | None:
        """Return cores for the runners of a repetition on a GPU, which this process no longer
        uses; None where there are too few."""
        if gpu_index is None:
            return None
        found = cores_of_turns(self.cores, self.num_threads, gpu_index)
        if found is None:
            return None
        cores, apart = found
        os.sched_setaffinity(0, set(self.cores) - apart)
        return cores

    def without_memory(self, request: Request, error: Exception) -> Reply:
        """Return the answer when the verifier itself found no memory on the device. Raises the
        error when it is another one."""
        if isinstance(request, Describe | Dismiss):
            raise error
        rejected = self.lack_of_memory(error)
        match request:
            case Profile() | CountDemand() | RecordCall() | PriceCall() | ExamineContract():
                return Failed(why=rejected.finding.message)
            case Repeat():
                return Convicted(verdict=verdict_of(rejected))
            case Check():
                self.cases = {}
        return Verified(verdict=verdict_of(rejected))

    def lack_of_memory(self, error: Exception) -> Rejected:
        """Return the verdict when the verifier itself found no memory on the device, which gives
        no information on any program. Memory that it can do without is released. Raises the
        error when it is another one."""
        if "out of memory" not in str(error):
            raise error
        self.known.clear()
        self.kept.close()
        torch.cuda.empty_cache()
        message = f"the device has too little memory for the verifier: {str(error)[:300]}"
        return Rejected("inconclusive", "memory.device", message)

    def profile(self, workload: str, is_candidate: bool) -> Profiled | Failed | LeftOut:
        """Return kernels or operators of a call of the reference, or of the current candidate,
        which then has no process left to be timed."""
        case = (self.at_hand if is_candidate else self.cases).get(workload)
        if case is None:
            return LeftOut()
        if is_candidate and workload in self.rows:
            return Profiled(rows=self.rows[workload])
        program = self.candidate if is_candidate else case.program
        assert program is not None
        try:
            if is_candidate:
                with self.kept.last_use(workload) as runner:
                    if runner is not None:
                        return Profiled(rows=case.profiled(runner, self.limits))
            return Profiled(rows=case.profile(self.template, program, self.limits))
        except (Rejected, RunnerFailure) as failure:
            return Failed(why=str(failure))

    def record(self, request: RecordCall) -> RecordedCall | Failed:
        """Return the operations of a call of a reference, which may not have been checked."""
        try:
            case, generator = self.case_of(request.reference, request)
            return RecordedCall(recording=case.recorded(self.template, request.limits, generator))
        except (Rejected, RunnerFailure) as failure:
            return Failed(why=str(failure))

    def price(self, request: PriceCall) -> Priced | Failed:
        """Return what a call of a program takes besides its time."""
        uuid = self.accelerator.describe().uuid
        try:
            case, generator = self.case_of(request.program, request)
            cost = case.priced(self.template, request.limits, generator, uuid, request.energy_s)
            return Priced(cost=cost)
        except (Rejected, RunnerFailure) as failure:
            return Failed(why=str(failure))

    def case_of(
        self, program: Program, request: RecordCall | PriceCall
    ) -> tuple[Case, torch.Generator]:
        """Return the call of a program that may not have been checked, and what draws its inputs.
        Raises Rejected."""
        self.open(request.store)
        generator = torch.Generator(self.accelerator.device).manual_seed(request.seed)
        case = call_of(
            self.template,
            self.accelerator,
            program,
            request.workload,
            request.limits,
            request.seed,
            generator,
        )
        return case, generator

    def demand(self, workload: str) -> Counted | Failed | LeftOut:
        """Return bytes and operations of a call of the reference."""
        case = self.cases.get(workload)
        if case is None:
            return LeftOut()
        try:
            return Counted(demand=case.demand(self.template, self.limits))
        except (Rejected, RunnerFailure) as failure:
            return Failed(why=str(failure))


def passed(
    findings: Sequence[Finding],
    max_abs_error: float | None = None,
    max_rel_error: float | None = None,
) -> Verified:
    """Return the verdict on a program that is right."""
    return Verified(
        verdict=Verdict(
            status="passed",
            findings=tuple(findings),
            max_abs_error=max_abs_error,
            max_rel_error=max_rel_error,
        )
    )


def lacks_memory(reply: Repetition) -> bool:
    """Return whether a repetition ended for lack of memory, by an error that says so. A dead
    process gives no reason, and the candidate may have killed it."""
    return not isinstance(reply, Repeated) and any(
        one.rule in ("memory.device", "memory.exhausted")
        or (one.rule == "reference.raised" and says_out_of_memory(one.message))
        for one in reply.verdict.findings
    )
