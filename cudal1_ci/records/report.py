"""Gather the entries of a run. `Report` is what `--json` writes (published.py)."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec

from cudal1_ci.records.candidate import Candidate
from cudal1_ci.records.comparison import Comparison
from cudal1_ci.records.evaluation import Contradiction, Device, Evaluation, Measurement
from cudal1_ci.records.impact import Impact, InRoot, Together
from cudal1_ci.records.record import (
    Count,
    Fraction,
    Name,
    NotNegative,
    Published,
    Text,
    refuse_disorder,
)
from cudal1_ci.records.target import Target
from cudal1_ci.records.workload import Workload


class ModelUse(Published, frozen=True, kw_only=True):
    """Count what a model answered for one target, and what became of the answers."""

    model: Name
    adapter: Name | None = None
    """Hash of the adapter that was on its weights."""
    adapter_name: Name | None = None
    num_answers: Count = 0
    refused: dict[Name, Count] = {}
    """Answers that gave no candidate, by the kind of the failure: `no_code`, `truncated`,
    `rate_limit`, `duplicate`, `unchanged`."""
    num_repairs: Count = 0
    """Of the answers, those to what was wrong with an earlier one."""
    prompt_tokens: Count = 0
    completion_tokens: Count = 0
    generating_s: NotNegative = 0.0
    """While at least one answer was under way."""
    waiting_s: NotNegative = 0.0
    """Of that, while the verifier had nothing to do."""


class OpinionUse(Published, frozen=True, kw_only=True):
    """Count what another model answered about the jumps of one target."""

    model: Name
    num_asked: Count = 0
    num_suspected: Count = 0
    failed: dict[Name, Count] = {}
    """Questions without an opinion, by what happened: `timeout`, `unreadable`, `prompt`."""


class TrainingStep(Published, frozen=True, kw_only=True):
    """Describe a target's part in a training step; None is what is not known."""

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
        refuse_disorder(self, "share", "gpu_hours_saved")


class Operation(Published, frozen=True, kw_only=True):
    """The operations of one expression, over one call of a target."""

    name: Name
    """As torch names it; of several, those that take the most time."""
    num_calls: Count
    device_us: NotNegative | None = None
    host_us: NotNegative | None = None
    share: Fraction | None = None
    """Of the time of all operations."""
    backward_us: NotNegative | None = None
    """Of its backward pass, where the call trains."""
    num_bytes: Count | None = None
    """Read and written."""
    num_syncs: Count = 0
    """Calls for which the host waits for the device, or would on a GPU."""
    path: Text = ""
    line: Count | None = None
    """None where no code of the checkout is known to have called it."""
    code: Text | None = None
    """The expression, on one line."""
    launch: Text = ""
    """Of a kernel of the user's: `grid 128 x 4, BLOCK=64, 4 warps, 3 stages`."""


TargetClass = Literal[
    "host-bound",
    "sync-bound",
    "launch-bound",
    "memory-bound",
    "compute-bound",
    "at the floor",
    "unknown",
]
"""Where the time of a target goes."""


class Understanding(Published, frozen=True, kw_only=True):
    """Hold what one run of a target showed."""

    category: TargetClass = msgspec.field(name="class")
    bound: Name
    """What no form of it can be faster than: `memory`, `arithmetic`, `launches`; `unknown`."""
    bound_us: NotNegative | None = None
    """The least time of one call by the figures of the device; None where they are not known."""
    total_us: NotNegative | None = None
    """Of one call, as it was recorded."""
    device_us: NotNegative | None = None
    host_us: NotNegative | None = None
    """Of all operations."""
    share: Fraction | None = None
    """Of the time of the program that it is part of."""
    num_operations: Count = 0
    num_syncs: Count = 0
    """Operations for which the host waits for the device, or would on a GPU."""
    operations: tuple[Operation, ...] = ()
    """By expression, most expensive first."""


class NearMiss(Published, frozen=True, kw_only=True):
    """Describe a place that a rule nearly matched."""

    rule: Name
    path: Text
    line: Count
    code: Text
    """The expression, on one line."""
    fact: Text
    """Why the rule proposes nothing there."""


class NotTried(Published, frozen=True, kw_only=True):
    """Name a candidate that was not verified."""

    proposer: Name
    reason: Text


class Explanation(Published, frozen=True, kw_only=True):
    """Hold what `explain` says of one target."""

    target: Target
    workload: Workload
    device: Device
    understanding: Understanding | None = None
    reason: Text | None = None
    """Why there is no understanding."""
    proposals: dict[Name, tuple[Name, ...]] = {}
    """What each strategy would try."""
    near_misses: tuple[NearMiss, ...] = ()
    warnings: tuple[Text, ...] = ()
    """What failed while rules looked."""


class Entry(Published, frozen=True, kw_only=True):
    """A target with all that was tried on it, or the reason that nothing was."""

    target: Target
    skipped: Text | None = None
    hint: Text | None = None
    """For a skipped target: what would make it judgeable."""
    workloads: tuple[Workload, ...] = ()
    understanding: Understanding | None = None
    evaluations: tuple[Evaluation, ...] = ()
    model_use: ModelUse | None = None
    opinion_use: OpinionUse | None = None
    contradictions: tuple[Contradiction, ...] = ()
    step: TrainingStep | None = None
    """None until a report is made, and where it is not known."""
    in_roots: tuple[InRoot, ...] = ()
    """Of a target with a proposal: its part of the calls that contain it."""
    at_sizes: tuple[Measurement, ...] = ()
    """Times of the proposal at half and double batch."""
    sizes_not_tried: Text | None = None
    """Why it was not timed at some of them."""
    reused: tuple[Name, ...] = ()
    """Ids of the candidates whose evaluation came from the archive."""
    not_tried: tuple[NotTried, ...] = ()
    near_misses: tuple[NearMiss, ...] = ()
    warnings: tuple[Text, ...] = ()
    """Rules and strategies that failed on this target, with the error."""
    best: Count | None = None
    """Index into `evaluations` of the proposal worth showing; None when there is none."""
    comparison: Comparison | None = None
    """With its base, where that was asked for."""

    def __post_init__(self) -> None:
        if self.best is None:
            return
        if self.best >= len(self.evaluations):
            raise ValueError(
                f"best is {self.best}, but there are {len(self.evaluations)} evaluations"
            )
        if self.evaluations[self.best].status != "passed":
            raise ValueError(f"best is {self.best}, an evaluation that did not pass")

    def contradictions_of(self, candidate: Candidate) -> tuple[Contradiction, ...]:
        """Return the claims of a candidate that were measured to be otherwise."""
        return tuple(one for one in self.contradictions if one.candidate_id == candidate.id)

    def is_reused(self, evaluation: Evaluation) -> bool:
        """Return whether a verdict came from the archive of an earlier run."""
        return evaluation.candidate.id in self.reused


class Notice(Published, frozen=True, kw_only=True):
    """A file or target that could not be looked at, and why."""

    path: Name
    message: Text


class Totals(Published, frozen=True, kw_only=True):
    """Counts over the entries of a report."""

    num_targets: Count = 0
    num_judged: Count = 0
    num_skipped: Count = 0
    num_proposals: Count = 0
    num_candidates: Count = 0
    num_passed: Count = 0
    num_reused: Count = 0


class Report(Published, frozen=True, kw_only=True):
    """Hold all results of a run, for the person who requested them."""

    repository: Name
    folder: Name = "."
    """What was looked at, below the top of the repository: paths begin there."""
    base_sha: Name | None = None
    head_sha: Name | None = None
    device: Device | None = None
    """None where reports of several devices were merged."""
    devices: tuple[Device, ...] = ()
    """All of them, when the report is made."""
    entries: tuple[Entry, ...] = ()
    totals: Totals = Totals()
    """Counted when the report is made."""
    impact: tuple[Impact, ...] | None = None
    """Of all proposals together; None where there is no call that contains one."""
    together: Together | None = None
    """All proposals as one patch; None where there is none."""
    warnings: tuple[Notice, ...] = ()
    elapsed_s: NotNegative = 0.0
    generated_at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    """When it was finished; None of what was measured in no run."""
    searched: bool = True
    """Whether faster versions were looked for; a comparison looks for none."""
    ended: Literal["done", "budget", "interrupted"] = "done"

    @property
    def complete(self) -> bool:
        """Return whether every target was tried."""
        return self.ended == "done"


class Listing(Published, frozen=True, kw_only=True):
    """Hold what `scan --list` finds: targets and how they can be called, before any
    verification.
    """

    repository: Name
    base_sha: Name | None = None
    head_sha: Name | None = None
    entries: tuple[Entry, ...]
    """Without evaluations."""
    warnings: tuple[Notice, ...] = ()
