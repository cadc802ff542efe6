"""Define what the host requests of a verifier, and what a verifier answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar

from .codec import Asks, Form, answers_or
from .programs import Problem, Program, Workload
from .recording import Recording
from .verdicts import CallCost, ContractCheck, Demand, Finding, KernelTime, Verdict

R = TypeVar("R")

# --- replies -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Reply:
    """Base of what a verifier answers."""

    spent: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Times and seconds that it waited for runners, by request."""


@dataclass(frozen=True, kw_only=True)
class Waits:
    """Sent before the reply: whether the device is waited for. Such time does not count."""

    op: ClassVar[str] = "waits"
    is_waiting: bool


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """The device, as torch knows it."""

    kind: Literal["cpu", "cuda"]
    name: str
    capability: str
    uuid: str | None = None
    software: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Described(Reply):
    """Describes where candidates are verified and timed."""

    hardware: Hardware
    architecture: str | None
    """Architecture that programs are compiled for."""
    num_threads: int
    sandbox_missing: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Verified(Reply):
    """Findings on a reference or a candidate."""

    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class LeftOut(Reply):
    """The workload was not taken up."""

    op: ClassVar[str] = "left_out"


@dataclass(frozen=True, kw_only=True)
class Failed(Reply):
    """The answer is not known, with the reason."""

    op: ClassVar[str] = "failed"
    why: str


@dataclass(frozen=True, kw_only=True)
class Times:
    """Microseconds a call of one repetition, round by round. The candidate and the control have
    their own; where memory is short the control has a reference of its own."""

    reference_us: tuple[float, ...]
    candidate_us: tuple[float, ...]
    control_us: tuple[float, ...]
    control_reference_us: tuple[float, ...] | None = None
    num_calls: int
    phases_s: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Repeated(Reply):
    """A repetition. Besides its times it has the verdict that follows if more repetitions
    confirm it."""

    op: ClassVar[str] = "repeated"
    times: Times
    suspicion: Verdict | None = None


@dataclass(frozen=True, kw_only=True)
class Convicted(Reply):
    """The verdict that timing led to."""

    op: ClassVar[str] = "convicted"
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class Interrupted(Reply):
    """The reference failed in the repetition. The verdict holds when it is not repeated."""

    op: ClassVar[str] = "interrupted"
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class Dismissed(Reply):
    """The request was carried out."""


@dataclass(frozen=True, kw_only=True)
class StartedAhead(Reply):
    """Processes wait for their repetitions."""

    op: ClassVar[str] = "started_ahead"
    number: int
    """Repetitions whose processes wait; 0 where they cannot be started ahead."""
    took_s: float
    """Seconds that it took, without those in which others timed."""


@dataclass(frozen=True, kw_only=True)
class Profiled(Reply):
    """Profile of a call, the longest first."""

    op: ClassVar[str] = "profiled"
    rows: tuple[KernelTime, ...]


@dataclass(frozen=True, kw_only=True)
class RecordedCall(Reply):
    """Operations of a call of the reference."""

    op: ClassVar[str] = "recorded"
    recording: Recording


@dataclass(frozen=True, kw_only=True)
class Priced(Reply):
    """What a call takes besides its time."""

    op: ClassVar[str] = "priced"
    cost: CallCost


@dataclass(frozen=True, kw_only=True)
class Counted(Reply):
    """Demand of a call of the reference on the device."""

    op: ClassVar[str] = "counted"
    demand: Demand


@dataclass(frozen=True, kw_only=True)
class ContractExamined(Reply):
    """The lines of a contract, and findings on what no trial changed."""

    op: ClassVar[str] = "contract_examined"
    lines: tuple[ContractCheck, ...]
    findings: tuple[Finding, ...]


# --- requests ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class InTurn(Asks[R]):
    """Base of requests that use the device without timing."""

    turn: str | None = None
    """Name of the device that the verifier shares with others, and releases while another
    process times; None where the host holds it."""


@dataclass(frozen=True, kw_only=True)
class Describe(Asks[Described]):
    """Describe what is measured on."""

    op: ClassVar[str] = "describe"


@dataclass(frozen=True, kw_only=True)
class Store:
    """Folder where builds are kept."""

    folder: str
    max_bytes: int


@dataclass(frozen=True)
class Limits:
    """Seconds that a trial may take."""

    load_s: float
    call_s: float


@dataclass(frozen=True, kw_only=True)
class Check(InTurn[Verified]):
    """Learn the reference of a problem."""

    op: ClassVar[str] = "check"
    problem: Problem
    limits: Limits
    seed: int
    memory_bytes: int | None
    """Most device memory,"""
    share_bytes: int | None
    """and while others may use it; None is all free memory."""
    weights: Literal["checkpoint", "seed", "shared"]
    precision: str
    store: Store | None
    key: str | None = None
    """Identifies the problem when it returns."""
    keeps: bool = False
    """Whether candidates are timed with processes that the problem was learned from."""
    cores: tuple[int, ...] | None = None
    """Cores of a verifier that does not time, and of its runners."""


@dataclass(frozen=True, kw_only=True)
class Examine(InTurn[Verified]):
    """Verify a candidate of the problem that was last checked."""

    op: ClassVar[str] = "examine"
    program: Program
    profiled: str | None = None
    """Workload under which its kernels are profiled meanwhile."""
    keeps: bool = False
    """Whether the examined process is timed."""
    may_recall: bool = False
    """Whether an examination of this program that passed may stand, where fresh processes are
    timed next and none is profiled."""
    most_s: float | None = None
    """Seconds that it may take in all, without those in which the device is released."""


@dataclass(frozen=True, kw_only=True)
class Clock:
    """Settings for the timing of a repetition."""

    batch_us: float
    """Least length of a batch, so that the exchange (about 50 us) is small in comparison."""
    max_calls: int
    num_rounds: int
    repetition_s: float
    fewest_rounds: int | None = None
    """Rounds after which a repetition may end. Every round must show, in the same direction,
    that the two differ by more than `plain_effect`, a log ratio. None is never."""
    plain_effect: float = float("inf")
    most_error: float | None = None
    """A repetition on a GPU has more rounds until the standard error of the log ratios, the
    candidate's and the control's, is no more than this; None is never."""
    num_ahead: int = 1
    """Repetitions whose processes may be started together, including this one."""
    gpu_index: int | None = None
    """Number of the GPU among the machine's."""


@dataclass(frozen=True, kw_only=True)
class Repeat(Asks[Repeated | Convicted | Interrupted | LeftOut]):
    """Time the candidate that was last examined, once, in fresh processes or in kept ones."""

    op: ClassVar[str] = "repeat"
    workload: str
    clock: Clock


@dataclass(frozen=True, kw_only=True)
class StartAhead(InTurn[StartedAhead]):
    """Start the processes of the next repetitions, and let each make a call, before the device is
    held. What a program compiles in its first call then costs no time in which others wait."""

    op: ClassVar[str] = "start_ahead"
    workload: str
    clock: Clock


@dataclass(frozen=True, kw_only=True)
class Dismiss(Asks[Dismissed]):
    """Release the device to others, and the candidate's processes too unless it `goes_on`."""

    op: ClassVar[str] = "dismiss"
    goes_on: bool


@dataclass(frozen=True, kw_only=True)
class Profile(InTurn[Profiled | Failed | LeftOut]):
    """Profile a call."""

    op: ClassVar[str] = "profile"
    workload: str
    is_candidate: bool


@dataclass(frozen=True, kw_only=True)
class CountDemand(InTurn[Counted | Failed | LeftOut]):
    """Count what a call of the reference demands of the device."""

    op: ClassVar[str] = "demand"
    workload: str


@dataclass(frozen=True, kw_only=True)
class RecordCall(InTurn[RecordedCall | Failed]):
    """Record the operations of one call of a reference, which need not have been checked."""

    op: ClassVar[str] = "record"
    reference: Program
    workload: Workload
    limits: Limits
    seed: int
    store: Store | None


@dataclass(frozen=True, kw_only=True)
class PriceCall(InTurn[Priced | Failed]):
    """Profile one call of a program that need not have been checked."""

    op: ClassVar[str] = "price"
    program: Program
    workload: Workload
    limits: Limits
    seed: int
    store: Store | None
    energy_s: float
    """Seconds of calls over which the energy of a GPU is read; 0 is not at all."""


@dataclass(frozen=True, kw_only=True)
class ExamineContract(InTurn[ContractExamined | Failed]):
    """Try on a candidate what the current reference honors (verifier/contract/)."""

    op: ClassVar[str] = "contract"
    program: Program
    budget_s: float
    """Seconds for the reference, and as many for the candidate."""


Request = (
    Describe
    | Check
    | Examine
    | Repeat
    | StartAhead
    | Dismiss
    | Profile
    | CountDemand
    | RecordCall
    | PriceCall
    | ExamineContract
)
REQUEST: Form[Request] = Form(Request)


def answers_in_turn(request: Asks[Any]) -> Form[Any]:
    """Return the form of the answers to a request; with a turn also a Waits."""
    has_turn = isinstance(request, InTurn) and request.turn is not None
    return answers_or(request, Waits) if has_turn else answers_or(request)
