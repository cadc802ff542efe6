"""Describe a verified candidate in the JSON of a run: its verdict and its measurements.

Devices, findings, kernels, generations and measurements are the records themselves.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from cudal1_ci.records import (
    Device,
    Evaluation,
    Finding,
    Generation,
    Kernel,
    Measurement,
    Phase,
    Status,
)
from cudal1_ci.records.record import Count, Name, NotNegative, Positive, Text
from cudal1_ci.render.published import verdict_of
from cudal1_ci.stats.figures import with_figures as scored

__all__ = [
    "CandidateDocument",
    "Count",
    "Document",
    "Ended",
    "EvaluationDocument",
    "Name",
    "NotNegative",
    "Positive",
    "Text",
    "judged_fields",
    "scored",
]

Ended = Literal["done", "budget", "interrupted"]


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """Base of every published object."""


class CandidateDocument(Document, frozen=True, kw_only=True):
    """Describe what was proposed."""

    id: Name
    proposer: Name
    analysis: Text = ""
    design: Text = ""
    techniques: tuple[Name, ...] = ()
    generation: Generation | None = None


class EvaluationDocument(Document, frozen=True, kw_only=True):
    """A verified candidate."""

    status: Status
    findings: tuple[Finding, ...] = ()
    max_abs_error: NotNegative | None = None
    max_rel_error: NotNegative | None = None
    log: Text = ""
    measurements: tuple[Measurement, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    device: Device | None = None
    elapsed_s: NotNegative = 0.0
    phase: Phase | None = None
    candidate: CandidateDocument
    reused: bool = False

    def __post_init__(self) -> None:
        if self.measurements and self.status != "passed":
            raise ValueError(f"a candidate that is {self.status} cannot have measurements")


def judged_fields(evaluation: Evaluation) -> dict[str, Any]:
    """Return the fields of an `EvaluationDocument` that a verdict and its times have."""
    shown = verdict_of(evaluation)
    verdict = {name: getattr(shown.verdict, name) for name in shown.verdict.__struct_fields__}
    names = ("measurements", "kernels", "device", "elapsed_s", "phase")
    return verdict | {name: getattr(shown, name) for name in names}
