"""Describe the JSON of a run: what `cudal1-ci bench --output` writes and docs/bench.md describes.

Structs only. A trial is published as in a report (verified.py), with the candidate's code, as a
task has no checkout that a patch could be of. Unknown fields are ignored when read.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from cudal1_ci.records import Device, Finding
from cudal1_ci.report_card.judged import (
    Count,
    Document,
    Ended,
    EvaluationDocument,
    Name,
    NotNegative,
    Positive,
    Text,
)
from cudal1_ci.verification.config import Precision

SCHEMA_VERSION: Literal[1] = 1

Policy = Literal["strict", "cuda-l1"]
Standing = Literal["judged", "degenerate", "invalid", "missing"]
"""Of a task: in the tables; excluded, as its reference is degenerate; excluded, as its reference
cannot be verified here; excluded, as it was not tried in every column."""


class TrialDocument(EvaluationDocument, frozen=True, kw_only=True):
    """A verified candidate of a task."""

    code: Text
    doubted: Finding | None = None
    """With the policy `cuda-l1`: why the paper's rules throw its times away."""


class ResultDocument(Document, frozen=True, kw_only=True):
    """Describe one column on one task. Without a trial nothing was given, or the
    verifier failed.
    """

    solver: Name
    trials: tuple[TrialDocument, ...] = ()
    failure: Text | None = None
    """Of the verifier or of the model, after which the column was left as it is."""


class DemandDocument(Document, frozen=True, kw_only=True):
    """Hold the least that a call of a reference demands of any device."""

    num_bytes: Count
    """Of inputs, parameters, buffers and outputs."""
    product_flops: Count = 0
    convolution_flops: Count = 0
    dtype: Name = "none"


class TaskDocument(Document, frozen=True, kw_only=True):
    """A task on one machine."""

    name: Name
    level: Name | None = None
    title: Name = ""
    source: Name
    problem_id: Name
    machine: Name
    """Device and version of torch: what is compared within."""
    standing: Standing
    reason: Text | None = None
    """Why it is in no table."""
    reference: Text
    findings: tuple[Finding, ...] = ()
    """The verifier's on the reference."""
    claimed: dict[Name, Positive] = msgspec.field(default_factory=dict)
    """Speedups that were claimed for the published kernels, by their origin."""
    demand: DemandDocument | None = None
    least_us: Positive | None = None
    """What a call takes on this device in any case, where its data sheet is known."""
    results: tuple[ResultDocument, ...] = ()


class IntervalDocument(Document, frozen=True, kw_only=True):
    """A statistic over tasks with its bootstrap interval of 95 %."""

    estimate: NotNegative
    low: NotNegative
    high: NotNegative


class RowDocument(Document, frozen=True, kw_only=True):
    """A column over the tasks of a scope on a machine, by one way of counting."""

    solver: Name
    scope: Name
    """`all`, or a level."""
    machine: Name
    policy: Policy
    num_tasks: Count
    num_given: Count
    num_success: Count
    num_above: Count
    """Above 1.01x."""
    num_gains: Count = 0
    """That would be proposed: gains beyond noise."""
    judged_s: NotNegative = 0.0
    """That the verifier took for all candidates of the column, those of ours together for
    `best`.
    """
    completion_tokens: Count = 0
    """Of the candidates that a model wrote."""
    num_declaring: Count = 0
    """Of those that are right, with kernels of their own in their text, on a GPU;"""
    num_launching: Count = 0
    """and of these, that launch one. The others' work is done by what they call instead."""
    num_thrown_away: Count = 0
    """By CUDA-L1's rules: right, with times that they do not count, so that it counts 1.00."""
    mean: IntervalDocument
    geometric_mean: IntervalDocument
    median: IntervalDocument
    q25: NotNegative
    q75: NotNegative
    max: NotNegative
    fast_p: dict[Name, NotNegative]
    """By p: the share of the tasks that are right and more than p times as fast."""


class RunDocument(Document, frozen=True, kw_only=True):
    """A run, or several as one."""

    schema_version: Literal[1] = SCHEMA_VERSION
    kind: Literal["bench"] = "bench"
    version: Name
    """Of cudal1-ci."""
    solvers: tuple[Name, ...]
    policy: Policy
    precision: Precision = "strict"
    """What candidates could lose."""
    judge: tuple[Name, ...]
    """Hashes of the verifier's settings: more than one where runs under different ones are
    merged.
    """
    devices: tuple[Device, ...] = ()
    tasks: tuple[TaskDocument, ...]
    card: tuple[RowDocument, ...] = ()
    """Derived from the tasks."""
    left_out: tuple[Text, ...] = ()
    """Files that are no tasks."""
    elapsed_s: NotNegative = 0.0
    generated_at: datetime | None = None
    ended: Ended = "done"
