"""Record what was found of a candidate: verdict, findings and raw times."""

from __future__ import annotations

from typing import Literal

from cudal1_ci.records.candidate import Candidate
from cudal1_ci.records.record import Record, content_hash

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


class Finding(Record, frozen=True, kw_only=True):
    """Something seen, with the rule's name: `values.mismatch`, `timing.reconciliation`."""

    rule: str
    message: str
    line: int | None = None
    evidence: str | None = None


class Verdict(Record, frozen=True, kw_only=True):
    """Is the candidate the same function, honestly computed?"""

    status: Status
    findings: tuple[Finding, ...] = ()
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    log: str = ""
    """The last lines of what the program printed or raised."""


class Device(Record, frozen=True, kw_only=True):
    """What the measurement ran on. Clock, power and temperature are absent where unknown."""

    kind: Literal["cpu", "cuda"]
    name: str
    num_threads: int | None = None
    capability: str | None = None
    driver: str | None = None
    software: dict[str, str] = {}
    """Versions: `python`, `torch`, `cuda`, `triton`, `platform`; `container` is the image with its
    digest, and `container_engine` what ran it, where the judge ran in one."""
    clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    other_processes: int | None = None
    sandbox_missing: tuple[str, ...] = ()
    """Layers of the sandbox that this machine did not grant to the programs that ran here."""

    @property
    def key(self) -> str:
        """What must agree for a measurement to be re-used: hardware and software, not its mood."""
        return content_hash(
            [self.kind, self.name, self.num_threads, self.capability, self.driver, self.software]
        )


class Demand(Record, frozen=True, kw_only=True):
    """What a call of a reference asks of any device at the least; see sandboxed/runner/flops.py."""

    num_bytes: int
    """Of inputs, parameters, buffers and outputs."""
    product_flops: int = 0
    """Of matrix products and attention."""
    convolution_flops: int = 0
    dtype: str = "none"
    """Of what it returns, as torch names it."""


class Repetition(Record, frozen=True, kw_only=True):
    """Paired times from one pair of fresh processes: `reference_us[i]` and `candidate_us[i]` are
    microseconds per call of two batches run back to back, in random order, on the same inputs."""

    reference_us: tuple[float, ...]
    candidate_us: tuple[float, ...]
    num_calls: int
    """Calls in each batch."""

    def __post_init__(self) -> None:
        if len(self.reference_us) != len(self.candidate_us) or not self.reference_us:
            raise ValueError(
                "a repetition needs as many candidate times as reference times, at least one"
            )


class Measurement(Record, frozen=True, kw_only=True):
    """Raw paired times of one workload against one baseline, with its control."""

    workload: str
    baseline: str = "eager"
    repetitions: tuple[Repetition, ...]
    control: tuple[Repetition, ...] = ()
    """The reference against itself in the same session (A/A)."""
    device: Device


class Kernel(Record, frozen=True, kw_only=True):
    """A kernel that one call of a candidate launched, as a profiler in its process says."""

    name: str
    num_launches: int
    device_us: float
    """All launches together."""
    is_own: bool
    """Whether the candidate's text defines it."""


class Evaluation(Record, frozen=True, kw_only=True):
    """A judged candidate. Only a candidate that passed has measurements."""

    candidate: Candidate
    verdict: Verdict
    measurements: tuple[Measurement, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    """On a GPU, of a candidate that passed and defines kernels; the longest first."""
    device: Device | None = None
    elapsed_s: float = 0.0

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


class Contradiction(Record, frozen=True, kw_only=True):
    """A claim of a candidate's analysis that was measured to be otherwise."""

    candidate_id: str
    claim: str
    """The sentence, in the words of who proposed it."""
    measured: str
    """What was measured instead, and on what."""
