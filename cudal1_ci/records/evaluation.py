"""Record what was found of a candidate: verdict, findings and raw times."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from cudal1_ci.records.acceptance import Acceptance
from cudal1_ci.records.candidate import Candidate
from cudal1_ci.records.record import (
    Count,
    Line,
    Name,
    NotNegative,
    Positive,
    Published,
    Record,
    Text,
    content_hash,
    refuse_disorder,
)

Status = Literal[
    "passed",
    "compile_error",
    "runtime_error",
    "timeout",
    "incorrect_shape",
    "incorrect_dtype",
    "incorrect_values",
    "precision",
    "mutates_input",
    "reward_hack",
    "degenerate",
    "invalid_reference",
    "inconclusive",
    "harness_error",
]


Phase = Literal["screened", "confirmed"]


class Finding(Published, frozen=True, kw_only=True):
    """Something seen, with the rule's name: `values.mismatch`, `timing.reconciliation`."""

    rule: Name
    message: Text
    line: Line | None = None
    evidence: Text | None = None


class Verdict(Published, frozen=True, kw_only=True):
    """Is the candidate the same function, honestly computed?"""

    status: Status
    findings: tuple[Finding, ...] = ()
    max_abs_error: NotNegative | None = None
    max_rel_error: NotNegative | None = None
    log: Text = ""
    """The last lines of what the program printed or raised."""


class Device(Published, frozen=True, kw_only=True):
    """Describe what the measurement ran on. Clock, power and temperature are absent
    where unknown.
    """

    kind: Literal["cpu", "cuda"]
    name: Name
    num_threads: Count | None = None
    capability: Name | None = None
    driver: Name | None = None
    software: dict[Name, Name] = {}
    """Versions: `python`, `torch`, `cuda`, `triton`, `platform`; `container` is the image with its
    digest, and `container_engine` what ran it, where the verifier ran in one."""
    clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    other_processes: Count | None = None
    sandbox_missing: tuple[Name, ...] = ()
    """Layers of the sandbox that this machine did not grant to the programs that ran here."""

    @property
    def key(self) -> str:
        """Return what must agree to reuse a measurement: hardware and software, not clock or
        temperature.
        """
        return content_hash(
            [self.kind, self.name, self.num_threads, self.capability, self.driver, self.software]
        )


class Demand(Record, frozen=True, kw_only=True):
    """Hold the least that a call of a reference demands of any device; see
    sandboxed/runner/flops.py.
    """

    num_bytes: int
    """Of inputs, parameters, buffers and outputs."""
    product_flops: int = 0
    """Of matrix products and attention."""
    convolution_flops: int = 0
    dtype: str = "none"
    """Of what it returns, as torch names it."""


Time = Annotated[float, msgspec.Meta(gt=1e-9, lt=1e15)]
"""Microseconds that a clock can show: less than half a lifetime, more than nothing."""


class Repetition(Published, frozen=True, kw_only=True):
    """Paired times from one pair of fresh processes: `reference_us[i]` and `candidate_us[i]` are
    microseconds per call of two batches run back to back, in random order, on the same inputs."""

    reference_us: Annotated[tuple[Time, ...], msgspec.Meta(min_length=1)]
    candidate_us: Annotated[tuple[Time, ...], msgspec.Meta(min_length=1)]
    num_calls: Line
    """Calls in each batch."""

    def __post_init__(self) -> None:
        if len(self.reference_us) != len(self.candidate_us) or not self.reference_us:
            raise ValueError(
                "expected as many candidate times as reference times in a repetition, at least "
                f"one, got {len(self.candidate_us)} and {len(self.reference_us)}"
            )
        for time_us in (*self.reference_us, *self.candidate_us):
            if not 1e-9 < time_us < 1e15:
                raise ValueError(f"expected microseconds that a clock can show, got {time_us}")


class Measurement(Published, frozen=True, kw_only=True):
    """Raw paired times of one workload against one baseline, with its control.

    The numbers are what the times say, None until a report is made (`stats/figures.py`) and where
    too little was measured."""

    workload: Name
    baseline: Name = "eager"
    speedup: Positive | None = None
    speedup_low: Positive | None = None
    speedup_high: Positive | None = None
    speedup_cuda_l1: float | None = None
    """By the rules of CUDA-L1's paper; None where they throw the times away."""
    control_spread: NotNegative | None = None
    reference_us: Positive | None = None
    candidate_us: Positive | None = None
    num_pairs: Count = 0
    repetitions: tuple[Repetition, ...] = ()
    control: tuple[Repetition, ...] = ()
    """The reference against itself in the same session (A/A)."""
    prior_spread: Positive | None = None
    """What repetitions were expected to spread by before this measurement, for an interval that is
    valid at every look (stats/sequential.py). None for a number of them that was fixed."""
    device: Device

    def __post_init__(self) -> None:
        refuse_disorder(self, "speedup")


class Kernel(Published, frozen=True, kw_only=True):
    """A kernel that one call of a candidate launched, as a profiler in its process says."""

    name: Name
    num_launches: Count
    device_us: NotNegative
    """All launches together."""
    is_own: bool
    """Whether the candidate's text defines it."""


class ContractCheck(Published, frozen=True, kw_only=True):
    """Describe one property that users of a target may rely on, and whether a candidate
    keeps it.
    """

    aspect: Name
    """`gradients`, `layout of x: transposed`, `weight changed in place`."""
    result: Literal["held", "differs", "broken", "not_applicable", "not_tried"]
    """`not_applicable` is what the reference itself refuses. What `differs` is stated, and may be
    proposed: numbers where the reference multiplies NaN or an infinity by zero, and subnormal
    numbers that are lost."""
    detail: Text = ""
    """What was tried, how it is broken, or why it is not tried."""
    group: Name = ""
    """`layouts`, `weights`, `side effects`."""


class Evaluation(Published, frozen=True, kw_only=True):
    """A verified candidate. Only a candidate that passed has measurements."""

    candidate: Candidate
    verdict: Verdict
    measurements: tuple[Measurement, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    """On a GPU, of a candidate that passed and defines kernels; the longest first."""
    device: Device | None = None
    elapsed_s: NotNegative = 0.0
    contract: tuple[ContractCheck, ...] | None = None
    contract_s: NotNegative | None = None
    """Seconds of `elapsed_s` that these lines took; None where none was tried."""
    acceptance: Acceptance | None = None
    """What the repository says of it; None where it was not asked."""
    phase: Phase | None = None
    """Whether its times are one repetition in processes that were kept, or as many as a claim needs
    in fresh ones. None where another number of repetitions was asked for."""

    @property
    def broken(self) -> tuple[ContractCheck, ...]:
        """Return the lines of the contract that the candidate breaks."""
        return tuple(one for one in self.contract or () if one.result == "broken")

    @property
    def is_refused(self) -> bool:
        """Return whether it breaks the contract or something of its repository."""
        return bool(self.broken or (self.acceptance and self.acceptance.broken))

    @property
    def status(self) -> Status:
        return self.verdict.status

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.verdict.findings

    @property
    def max_abs_error(self) -> float | None:
        return self.verdict.max_abs_error

    @property
    def max_rel_error(self) -> float | None:
        return self.verdict.max_rel_error

    def __post_init__(self) -> None:
        if self.measurements and self.verdict.status != "passed":
            raise ValueError(f"a candidate that is {self.verdict.status} cannot have measurements")


class Exemplar(Record, frozen=True, kw_only=True):
    """An earlier variant shown to a proposer, with what it was worth."""

    candidate: Candidate
    score: float
    origin: str | None = None
    """Where it is from, when not from this problem on this device: `of a similar module,
    src/ops.py:RMSNorm`, `measured on an NVIDIA A100`."""


class Contradiction(Published, frozen=True, kw_only=True):
    """A claim of a candidate's analysis that was measured to be otherwise."""

    candidate_id: Name
    claim: Text
    """The sentence, in the words of who proposed it."""
    measured: Text
    """What was measured instead, and on what."""
