"""Stand-ins for what a room needs of another: one for each seam, no mocks."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from cudal1_ci.processes.device_wait import until
from cudal1_ci.propose.llm.servers import Answer, Message
from cudal1_ci.records import (
    Call,
    Candidate,
    ContractCheck,
    Device,
    Evaluation,
    Finding,
    Identity,
    Measurement,
    Problem,
    Repetition,
    Status,
    Target,
    TensorSpec,
    TextProgram,
    Verdict,
    Workload,
)

GPU = Device(kind="cuda", name="fake", num_threads=1, software={"torch": "0"})
CPU = Device(kind="cpu", name="fake", num_threads=1, software={"torch": "0"})


def a_target(path: str = "pkg/model.py", qualname: str = "Block") -> Target:
    return Target(path=path, qualname=qualname, kind="torch_module", first_line=1, last_line=9)


def a_workload(
    name: str = "small", share: float | None = None, root: str | None = None
) -> Workload:
    return Workload(
        name=name,
        provenance="declared",
        init=Call(),
        call=Call(args=(TensorSpec(shape=(2, 4), dtype="float32"),)),
        share=share,
        root=root,
    )


def a_problem(source: str = "class Model: ...", *workloads: Workload) -> Problem:
    return Problem(
        reference=TextProgram(source=source, entry="Model"), workloads=workloads or (a_workload(),)
    )


def a_candidate(problem: Problem, source: str = "class ModelNew: ...") -> Candidate:
    program = TextProgram(source=source, entry="ModelNew")
    return Candidate(problem_id=problem.id, program=program, proposer="fake", analysis="why")


def a_measurement(
    speedup: float = 2.0, workload: str = "small", spread: float = 0.01, num_launches: int = 5
) -> Measurement:
    """Times whose median ratio is `speedup`, with launches that differ by `spread`."""
    offsets = [
        1 + spread * (i - (num_launches - 1) / 2) / num_launches for i in range(num_launches)
    ]
    launches = tuple(
        Repetition(
            reference_us=(100.0 * offset,) * 3,
            candidate_us=(100.0 / speedup,) * 3,
            num_calls=10,
        )
        for offset in offsets
    )
    control = tuple(
        Repetition(reference_us=(100.0 * offset,) * 3, candidate_us=(100.0,) * 3, num_calls=10)
        for offset in offsets
    )
    return Measurement(workload=workload, repetitions=launches, control=control, device=CPU)


def an_evaluation(
    candidate: Candidate,
    status: Status = "passed",
    speedup: float = 2.0,
    workloads: Sequence[str] = ("small",),
) -> Evaluation:
    passed = status == "passed"
    return Evaluation(
        candidate=candidate,
        verdict=Verdict(
            status=status,
            findings=() if passed else (Finding(rule="values.mismatch", message="off by 1"),),
        ),
        measurements=tuple(a_measurement(speedup, name) for name in workloads) if passed else (),
        device=CPU,
        elapsed_s=0.1,
    )


class FakeSession:
    """A judge that answers from a table of candidate source -> (status, speedup)."""

    def __init__(self, answers: dict[str, tuple[Status, float]], reference: Status = "passed"):
        self.answers = answers
        self.reference = reference
        self.asked: list[str] = []
        self.built: list[str] = []
        self.examined: list[str] = []
        """Sources whose contract was examined,"""
        self.breaking: Sequence[str] = ()
        """and those that break a line."""
        self.is_closed = threading.Event()
        """Of the slot that it is in, where it is in one."""

    def device(self) -> Device:
        return CPU

    def check(self, problem: Problem, most_s: float | None = None) -> Verdict:
        self.asked.append("reference")
        return Verdict(status=self.reference, log="Traceback\nValueError: no file")

    def build_ahead(self, problem: Problem, candidates: Sequence[Candidate]) -> None:
        self.built += [candidate.id for candidate in candidates]

    def in_turn(
        self, candidates: Sequence[Candidate], is_over: Callable[[], bool] = lambda: False
    ) -> Sequence[Candidate]:
        return candidates

    def screen(
        self, problem: Problem, candidate: Candidate, most_s: float | None = None
    ) -> Evaluation:
        return self.evaluate(problem, candidate)

    def confirm(
        self, problem: Problem, candidate: Candidate, most_s: float | None = None
    ) -> Evaluation:
        return self.evaluate(problem, candidate)

    def evaluate(self, problem: Problem, candidate: Candidate) -> Evaluation:
        assert isinstance(candidate.program, TextProgram)
        self.asked.append(candidate.program.source)
        status, speedup = self.answers[candidate.program.source]
        names = [w.name for w in problem.workloads]
        return an_evaluation(candidate, status, speedup, names)

    def record(self, problem: Problem, workload: Workload) -> str:
        """Record nothing, and say why."""
        return "nothing runs here"

    def examine_contract(self, problem: Problem, evaluation: Evaluation) -> Evaluation:
        """Return the evaluation with a line that the sources in `breaking` break."""
        program = evaluation.candidate.program
        source = program.source if isinstance(program, TextProgram) else ""
        self.examined.append(source)
        is_broken = source in self.breaking
        check = ContractCheck(aspect="gradients", result="broken" if is_broken else "held")
        return msgspec.structs.replace(evaluation, contract=(check,))


class Waiting(FakeSession):
    """Before some sources it waits for a device that somebody else has for ten seconds."""

    def __init__(self, answers: dict[str, tuple[Status, float]], waits: Sequence[str]):
        super().__init__(answers)
        self.waits = waits

    def check(self, problem: Problem, most_s: float | None = None) -> Verdict:
        self._wait("reference")
        return super().check(problem)

    def evaluate(self, problem: Problem, candidate: Candidate) -> Evaluation:
        assert isinstance(candidate.program, TextProgram)
        self._wait(candidate.program.source)
        return super().evaluate(problem, candidate)

    def _wait(self, source: str) -> None:
        if source in self.waits:
            free_s = time.monotonic() + 10.0
            until(lambda _: threading.Event().wait(0.01) or time.monotonic() > free_s)


class FakeProposer:
    """Proposes a list of sources a round, and remembers the evaluations it was shown."""

    name = "fake"

    def __init__(self, *rounds: Sequence[str]):
        self.rounds = list(rounds)
        self.shown: list[list[Evaluation]] = []

    def propose(
        self, problem: Problem, evaluations: Sequence[Evaluation], n: int
    ) -> list[Candidate]:
        self.shown.append(list(evaluations))
        sources = self.rounds.pop(0) if self.rounds else []
        return [a_candidate(problem, source) for source in sources[:n]]


class FakeModel:
    """Answers from a function of the messages and the seed, and remembers which seeds it was
    asked."""

    def __init__(
        self, reply: Callable[[Sequence[Message], int], str | Answer], name: str = "fake-coder"
    ):
        self.reply = reply
        self.identity = Identity(model=name, temperature=0.8, max_tokens=512)
        self.asked: list[int] = []
        self.prompts: list[Sequence[Message]] = []
        self.is_cancelled = threading.Event()

    def ask(self, messages: Sequence[Message], *, n: int, seed: int) -> Iterator[Answer]:
        for each in range(seed, seed + n):
            self.asked.append(each)
            self.prompts.append(messages)
            found = self.reply(messages, each)
            yield (
                found
                if isinstance(found, Answer)
                else Answer(text=found, finish_reason="stop", prompt_tokens=10, completion_tokens=5)
            )

    def apart(self) -> FakeModel:
        """With the same memory, and ended by itself."""
        twin = copy.copy(self)
        twin.is_cancelled = threading.Event()
        return twin

    def cancel(self) -> None:
        self.is_cancelled.set()

    def waited(self) -> Answer:
        """An answer that never comes: until it is cancelled."""
        self.is_cancelled.wait(20)
        return Answer(failure="cancelled")


@dataclass
class FakeBackend:
    """Slots whose verifiers a test makes: `verifier` of a number, which may raise SlotLost."""

    verifier: Callable[[int], FakeSession]
    num_slots: int = 2
    devices: Sequence[Device] = ()
    """By number, where they are not of one kind."""
    opened: list[int] = field(default_factory=list)
    num_closed: int = 0

    def open(self, number: int, is_over: Callable[[], bool]) -> FakeSlot:
        verifier = self.verifier(number)
        self.opened.append(number)
        device = self.devices[number] if self.devices else CPU
        return FakeSlot(f"slot-{number}", device, verifier, self)


@dataclass
class FakeSlot:
    """One of them; `is_closed` is for a verifier that waits to be ended."""

    name: str
    device: Device
    verifier: FakeSession
    backend: FakeBackend
    remark: str | None = None
    is_closed: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.verifier.is_closed = self.is_closed

    def close(self) -> None:
        self.backend.num_closed += not self.is_closed.is_set()
        self.is_closed.set()
