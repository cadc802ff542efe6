"""The published JSON: what `scan --json`, `verify --json` and `report.json` look like.

Structs and their constraints only; `document.py` fills them from records, `reading.py` reads them
back from files that are hostile data. Fields, units and the promise about versions are described
in docs/report.md. Every field is always written, absent values as null: a reader need not know our
defaults. Unknown fields are ignored when read, so that a field can be added without a new version.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec

from cudal1_ci.records import ComparisonVerdict, Provenance, Status, TargetKind

SCHEMA_VERSION: Literal[1] = 1

Ended = Literal["done", "budget", "interrupted"]

Text = Annotated[str, msgspec.Meta(max_length=1_000_000)]
Name = Annotated[str, msgspec.Meta(max_length=4096)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Line = Annotated[int, msgspec.Meta(ge=1)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """Base of every published object."""


class DeviceDocument(Document, frozen=True, kw_only=True):
    """What was measured on."""

    kind: Literal["cpu", "cuda"]
    name: Name
    num_threads: Count | None = None
    capability: Name | None = None
    driver: Name | None = None
    software: dict[Name, Name] = {}
    clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    other_processes: Count | None = None
    sandbox_missing: tuple[Name, ...] = ()


class FindingDocument(Document, frozen=True, kw_only=True):
    """Something that the judge saw."""

    rule: Name
    message: Text
    line: Line | None = None
    evidence: Text | None = None


class RepetitionDocument(Document, frozen=True, kw_only=True):
    """Paired times of one pair of fresh processes, microseconds per call."""

    reference_us: Annotated[tuple[Positive, ...], msgspec.Meta(min_length=1)]
    candidate_us: Annotated[tuple[Positive, ...], msgspec.Meta(min_length=1)]
    num_calls: Line

    def __post_init__(self) -> None:
        if len(self.reference_us) != len(self.candidate_us):
            raise ValueError(
                f"expected as many candidate times as reference times, got "
                f"{len(self.candidate_us)} and {len(self.reference_us)}"
            )


class MeasurementDocument(Document, frozen=True, kw_only=True):
    """One workload on one device against one baseline; null where too little was measured."""

    workload: Name
    baseline: Name
    speedup: Positive | None
    speedup_low: Positive | None
    speedup_high: Positive | None
    speedup_cuda_l1: float | None = None
    """By the rules of CUDA-L1's paper; null where they throw the times away."""
    control_spread: NotNegative | None
    reference_us: Positive | None
    candidate_us: Positive | None
    num_pairs: Count
    device: DeviceDocument
    repetitions: tuple[RepetitionDocument, ...] = msgspec.field(default=(), name="launches")
    control: tuple[RepetitionDocument, ...] = ()

    def __post_init__(self) -> None:
        bounds = (self.speedup_low, self.speedup, self.speedup_high)
        known = [bound for bound in bounds if bound is not None]
        if known and (len(known) < 3 or known != sorted(known)):
            raise ValueError(
                f"expected speedup_low <= speedup <= speedup_high, or three nulls, got {bounds}"
            )


class GenerationDocument(Document, frozen=True, kw_only=True):
    """How a model's text came to be."""

    model: Name
    revision: Name | None = None
    adapter: Name | None = None
    adapter_name: Name | None = None
    server: Name = ""
    temperature: NotNegative
    top_p: NotNegative = 1.0
    max_tokens: Count
    seed: Count | None = None
    prompt_digest: Name
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    turn: Count = 0


class ModelUseDocument(Document, frozen=True, kw_only=True):
    """What a model was asked for one target, and what became of its answers."""

    model: Name
    adapter: Name | None = None
    adapter_name: Name | None = None
    num_answers: Count = 0
    refused: dict[Name, Count] = {}
    num_repairs: Count = 0
    prompt_tokens: Count = 0
    completion_tokens: Count = 0
    generating_s: NotNegative = 0.0
    waiting_s: NotNegative = 0.0


class OpinionUseDocument(Document, frozen=True, kw_only=True):
    """What another model was asked about the jumps of one target."""

    model: Name
    num_asked: Count = 0
    num_suspected: Count = 0
    failed: dict[Name, Count] = {}


class ContradictionDocument(Document, frozen=True, kw_only=True):
    """A sentence of the analysis, and what was measured instead."""

    claim: Text
    measured: Text


class CandidateDocument(Document, frozen=True, kw_only=True):
    """What was proposed. `patch` is null for a program that is no change of a checkout."""

    id: Name
    proposer: Name
    analysis: Text = ""
    design: Text = ""
    techniques: tuple[Name, ...] = ()
    patch: Text | None = None
    generation: GenerationDocument | None = None
    """Of what a model wrote: its words are not measured."""
    contradictions: tuple[ContradictionDocument, ...] = ()
    """Claims of the analysis that were measured to be otherwise."""


class KernelDocument(Document, frozen=True, kw_only=True):
    """A kernel that one call of the candidate launched, as its own process says."""

    name: Name
    num_launches: Count
    device_us: NotNegative
    is_own: bool


class Judged(Document, frozen=True, kw_only=True):
    """What `verify` says of a candidate, and `scan` of each."""

    status: Status
    findings: tuple[FindingDocument, ...] = ()
    max_abs_error: NotNegative | None = None
    max_rel_error: NotNegative | None = None
    log: Text = ""
    measurements: tuple[MeasurementDocument, ...] = ()
    kernels: tuple[KernelDocument, ...] = ()
    device: DeviceDocument | None = None
    elapsed_s: NotNegative = 0.0

    def __post_init__(self) -> None:
        if self.measurements and self.status != "passed":
            raise ValueError(f"a candidate that is {self.status} cannot have measurements")


class EvaluationDocument(Judged, frozen=True, kw_only=True):
    """A judged candidate of a target."""

    candidate: CandidateDocument
    reused: bool = False
    """Whether the verdict came from the archive of an earlier run."""


class VerificationDocument(Judged, frozen=True, kw_only=True):
    """The answer of `verify`."""

    schema_version: Literal[1] = SCHEMA_VERSION


class TargetDocument(Document, frozen=True, kw_only=True):
    """Where the code is."""

    path: Name
    qualname: Name
    kind: TargetKind
    first_line: Line
    last_line: Line
    launchers: tuple[Name, ...] = ()
    selected_because: Text | None = None


class WorkloadDocument(Document, frozen=True, kw_only=True):
    """One way in which the target is called; `init` and `call` are text for people."""

    name: Name
    provenance: Provenance
    source: Name | None = None
    mode: Literal["infer", "train"] = "infer"
    init: Text | None = None
    call: Text
    num_calls: Count | None = None
    share: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    calls_per_step: NotNegative | None = None


class StepDocument(Document, frozen=True, kw_only=True):
    """What the target is in a training step; null is what is not known."""

    device: Name
    num_steps: Count
    calls_per_step: NotNegative
    share: NotNegative | None = None
    share_low: NotNegative | None = None
    share_high: NotNegative | None = None
    steps_per_month: Count | None = None
    gpu_hours_saved: float | None = None
    gpu_hours_saved_low: float | None = None
    gpu_hours_saved_high: float | None = None

    def __post_init__(self) -> None:
        for name in ("share", "gpu_hours_saved"):
            bounds = [getattr(self, f"{name}{end}") for end in ("_low", "", "_high")]
            known = [bound for bound in bounds if bound is not None]
            if known and (len(known) < 3 or known != sorted(known)):
                raise ValueError(f"expected {name} between its bounds, or three nulls: {bounds}")


class AcknowledgementDocument(Document, frozen=True, kw_only=True):
    """A slowdown that somebody has agreed to."""

    target: Name
    max_slowdown: Positive
    reason: Text
    owner: Name
    expires: Name


class ComparedDocument(Document, frozen=True, kw_only=True):
    """One workload on both trees, on one device; nulls where nothing was measured. Numbers are of
    the last measurement, in new processes; a slowdown above 1 is slower."""

    workload: Name
    verdict: ComparisonVerdict
    device: DeviceDocument | None = None
    slowdown: Positive | None = None
    slowdown_low: Positive | None = None
    slowdown_high: Positive | None = None
    base_us: Positive | None = None
    head_us: Positive | None = None
    control_spread: NotNegative | None = None
    num_measurements: Count = 0
    """1, or more where an alarm had to be found again."""
    reason: Text | None = None

    def __post_init__(self) -> None:
        bounds = (self.slowdown_low, self.slowdown, self.slowdown_high)
        known = [bound for bound in bounds if bound is not None]
        if known and (len(known) < 3 or known != sorted(known)):
            raise ValueError(
                f"expected slowdown_low <= slowdown <= slowdown_high, or three nulls, got {bounds}"
            )


class ComparisonDocument(Document, frozen=True, kw_only=True):
    """A target before and after a change. The numbers are those of the worst workload."""

    verdict: ComparisonVerdict
    slowdown: Positive | None = None
    slowdown_low: Positive | None = None
    slowdown_high: Positive | None = None
    rows: tuple[ComparedDocument, ...] = ()
    reason: Text | None = None
    output_change: Text | None = None
    acknowledged: AcknowledgementDocument | None = None


class EntryDocument(Document, frozen=True, kw_only=True):
    """A target with all that was tried on it, or the reason that nothing was."""

    target: TargetDocument
    skipped: Text | None = None
    hint: Text | None = None
    workloads: tuple[WorkloadDocument, ...] = ()
    evaluations: tuple[EvaluationDocument, ...]
    model_use: ModelUseDocument | None = None
    opinion_use: OpinionUseDocument | None = None
    step: StepDocument | None = None
    best: Count | None = None
    comparison: ComparisonDocument | None = None

    def __post_init__(self) -> None:
        if self.best is None:
            return
        if self.best >= len(self.evaluations):
            raise ValueError(
                f"best is {self.best}, but there are {len(self.evaluations)} evaluations"
            )
        if self.evaluations[self.best].status != "passed":
            raise ValueError(f"best is {self.best}, an evaluation that did not pass")


class NoticeDocument(Document, frozen=True, kw_only=True):
    """A file that could not be looked at, and why."""

    path: Name
    message: Text


class TotalsDocument(Document, frozen=True, kw_only=True):
    """Counts over the entries."""

    num_targets: Count
    num_judged: Count
    num_skipped: Count
    num_proposals: Count
    num_candidates: Count
    num_passed: Count
    num_reused: Count


class ReportDocument(Document, frozen=True, kw_only=True):
    """A whole report. `device` is null when several devices were merged: see `devices`."""

    schema_version: Literal[1]
    repository: Name
    folder: Name = "."
    base_sha: Name | None = None
    head_sha: Name | None = None
    device: DeviceDocument | None = None
    devices: tuple[DeviceDocument, ...] = ()
    entries: tuple[EntryDocument, ...]
    totals: TotalsDocument
    warnings: tuple[NoticeDocument, ...] = ()
    elapsed_s: NotNegative = 0.0
    generated_at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    ended: Ended = "done"
    searched: bool = True
    """Whether faster versions were looked for; a comparison of two trees looks for none."""


class ListedDocument(Document, frozen=True, kw_only=True):
    """A target and how it can be called, before anything is judged."""

    target: TargetDocument
    workloads: tuple[WorkloadDocument, ...] = ()
    skipped: Text | None = None
    hint: Text | None = None


class ListingDocument(Document, frozen=True, kw_only=True):
    """What `scan --list` finds."""

    schema_version: Literal[1] = SCHEMA_VERSION
    repository: Name
    base_sha: Name | None = None
    head_sha: Name | None = None
    entries: tuple[ListedDocument, ...]
    warnings: tuple[NoticeDocument, ...] = ()
