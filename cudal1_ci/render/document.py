"""From records to the published JSON.

Derives what the records do not hold: speedups with their intervals, the control's spread, patches,
counts. Numbers that JSON cannot hold (an infinite error) become null; times that make no sense
leave the speedup null rather than stop the report.

    render(document(report), "html")
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from cudal1_ci.errors import ReportError
from cudal1_ci.records import (
    Candidate,
    Comparison,
    Device,
    Entry,
    Evaluation,
    Measurement,
    Notice,
    Repetition,
    Report,
    Target,
    Workload,
)
from cudal1_ci.records.call_text import call_text
from cudal1_ci.render.compared import comparison_document
from cudal1_ci.render.config import ReportConfig
from cudal1_ci.render.patch import patch
from cudal1_ci.render.shape import (
    SCHEMA_VERSION,
    CandidateDocument,
    ComparisonDocument,
    ContradictionDocument,
    DeviceDocument,
    EntryDocument,
    EvaluationDocument,
    FindingDocument,
    GenerationDocument,
    Judged,
    KernelDocument,
    ListedDocument,
    ListingDocument,
    MeasurementDocument,
    ModelUseDocument,
    NoticeDocument,
    OpinionUseDocument,
    RepetitionDocument,
    ReportDocument,
    TargetDocument,
    TotalsDocument,
    VerificationDocument,
    WorkloadDocument,
)
from cudal1_ci.render.step import step_of
from cudal1_ci.stats import speedups
from cudal1_ci.stats.regression import decisive

__all__ = [
    "ListingDocument",
    "ReportDocument",
    "VerificationDocument",
    "copied",
    "device_document",
    "document",
    "judged_fields",
    "plan_document",
    "totals",
    "verification",
]

MAX_LOG = 20_000
"""Characters of a program's output that are kept: its last lines say why it failed."""

D = TypeVar("D", bound=msgspec.Struct)


class Listable(Protocol):
    """A target before it is judged, as `survey` plans it."""

    @property
    def target(self) -> Target: ...
    @property
    def reason(self) -> str | None: ...
    @property
    def hint(self) -> str | None: ...
    @property
    def workloads(self) -> tuple[Workload, ...]: ...


class Listing(Protocol):
    """All targets of a tree before they are judged."""

    @property
    def repository(self) -> str: ...
    @property
    def base_sha(self) -> str | None: ...
    @property
    def head_sha(self) -> str | None: ...
    @property
    def targets(self) -> Sequence[Listable]: ...
    @property
    def notices(self) -> Sequence[Notice]: ...


def document(report: Report, config: ReportConfig | None = None) -> ReportDocument:
    """The published form of a report. A proposal whose patch cannot be made keeps its verdict and
    its numbers; why it has no patch is among the warnings."""
    patches = _Patches()
    steps_per_month = config.steps_per_month if config else None
    entries = tuple(_entry(entry, patches, steps_per_month) for entry in report.entries)
    device = device_document(report.device)
    notices = (*report.warnings, *patches.notices)
    return ReportDocument(
        schema_version=SCHEMA_VERSION,
        repository=report.repository,
        folder=report.folder,
        base_sha=report.base_sha,
        head_sha=report.head_sha,
        device=device,
        devices=() if device is None else (device,),
        entries=entries,
        totals=totals(entries),
        warnings=tuple(copied(notice, NoticeDocument) for notice in notices),
        elapsed_s=report.elapsed_s,
        generated_at=report.generated_at,
        ended=report.ended,
        searched=report.searched,
    )


def plan_document(plan: Listing) -> ListingDocument:
    """The published form of what discovery found."""
    return ListingDocument(
        repository=plan.repository,
        base_sha=plan.base_sha,
        head_sha=plan.head_sha,
        entries=tuple(
            ListedDocument(
                target=copied(each.target, TargetDocument),
                workloads=_workloads(each.workloads),
                skipped=each.reason,
                hint=each.hint,
            )
            for each in plan.targets
        ),
        warnings=tuple(copied(notice, NoticeDocument) for notice in plan.notices),
    )


def verification(evaluation: Evaluation) -> VerificationDocument:
    """The published form of one verdict."""
    return VerificationDocument(**judged_fields(evaluation))


def totals(entries: Sequence[EntryDocument]) -> TotalsDocument:
    """Counts over the entries of a report."""
    evaluations = [evaluation for entry in entries for evaluation in entry.evaluations]
    num_skipped = sum(entry.skipped is not None for entry in entries)
    return TotalsDocument(
        num_targets=len(entries),
        num_judged=len(entries) - num_skipped,
        num_skipped=num_skipped,
        num_proposals=sum(entry.best is not None for entry in entries),
        num_candidates=len(evaluations),
        num_passed=sum(evaluation.status == "passed" for evaluation in evaluations),
        num_reused=sum(evaluation.reused for evaluation in evaluations),
    )


class _Patches:
    """Patches of candidates, and why some could not be made."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []

    def of(self, candidate: Candidate, target: Target) -> str | None:
        try:
            return patch(candidate.program)
        except ReportError as error:
            message = f"no patch for {target.qualname} ({candidate.proposer}): {error}"
            self.notices.append(Notice(path=target.path, message=message))
            return None


def _entry(entry: Entry, patches: _Patches, steps_per_month: int | None) -> EntryDocument:
    reused = set(entry.reused)
    return EntryDocument(
        target=copied(entry.target, TargetDocument),
        skipped=entry.skipped,
        hint=entry.hint,
        workloads=_workloads(entry.workloads),
        evaluations=tuple(
            EvaluationDocument(
                **judged_fields(evaluation),
                candidate=_candidate(evaluation.candidate, entry, patches),
                reused=evaluation.candidate.id in reused,
            )
            for evaluation in entry.evaluations
        ),
        model_use=None if entry.model_use is None else copied(entry.model_use, ModelUseDocument),
        opinion_use=(
            None if entry.opinion_use is None else copied(entry.opinion_use, OpinionUseDocument)
        ),
        step=step_of(entry, steps_per_month),
        best=entry.best,
        comparison=None if entry.comparison is None else _comparison(entry.comparison),
    )


def _comparison(comparison: Comparison) -> ComparisonDocument:
    measured = map(decisive, comparison.rows)
    return comparison_document(
        comparison, [device_document(m.device) if m else None for m in measured]
    )


def _workloads(workloads: Sequence[Workload]) -> tuple[WorkloadDocument, ...]:
    return tuple(
        WorkloadDocument(
            name=workload.name,
            provenance=workload.provenance,
            source=workload.source,
            mode=workload.mode,
            init=None if workload.init is None else call_text(workload.init),
            call=call_text(workload.call),
            num_calls=workload.num_calls,
            share=_finite(workload.share),
            calls_per_step=_finite(workload.calls_per_step),
        )
        for workload in workloads
    )


def _candidate(candidate: Candidate, entry: Entry, patches: _Patches) -> CandidateDocument:
    return CandidateDocument(
        id=candidate.id,
        proposer=candidate.proposer,
        analysis=candidate.analysis,
        design=candidate.design,
        techniques=candidate.techniques,
        patch=patches.of(candidate, entry.target),
        generation=(
            None
            if candidate.generation is None
            else copied(candidate.generation, GenerationDocument)
        ),
        contradictions=tuple(
            copied(one, ContradictionDocument)
            for one in entry.contradictions
            if one.candidate_id == candidate.id
        ),
    )


def judged_fields(evaluation: Evaluation) -> dict[str, Any]:
    """The fields of `Judged`, from which every published evaluation is made."""
    verdict = evaluation.verdict
    judged = Judged(
        status=verdict.status,
        findings=tuple(copied(finding, FindingDocument) for finding in verdict.findings),
        max_abs_error=_finite(verdict.max_abs_error),
        max_rel_error=_finite(verdict.max_rel_error),
        log=verdict.log[-MAX_LOG:],
        measurements=tuple(_measurement(m) for m in evaluation.measurements),
        kernels=tuple(copied(kernel, KernelDocument) for kernel in evaluation.kernels),
        device=device_document(evaluation.device),
        elapsed_s=evaluation.elapsed_s,
    )
    return {name: getattr(judged, name) for name in Judged.__struct_fields__}


def _measurement(measurement: Measurement) -> MeasurementDocument:
    launches = tuple(launch for launch in measurement.repetitions if _makes_sense(launch))
    control = tuple(launch for launch in measurement.control if _makes_sense(launch))
    sound = msgspec.structs.replace(measurement, repetitions=launches, control=control)
    return MeasurementDocument(
        workload=measurement.workload,
        baseline=measurement.baseline,
        **_figures(sound),
        num_pairs=sum(len(launch.reference_us) for launch in launches),
        device=copied(measurement.device, DeviceDocument),
        repetitions=tuple(copied(launch, RepetitionDocument) for launch in launches),
        control=tuple(copied(launch, RepetitionDocument) for launch in control),
    )


def _figures(sound: Measurement) -> dict[str, float | None]:
    """What its times say."""
    speedup = speedups.speedup(sound)
    return {
        "speedup": _finite(speedup.estimate if speedup else None),
        "speedup_low": _finite(speedup.low if speedup else None),
        "speedup_high": _finite(speedup.high if speedup else None),
        "speedup_cuda_l1": _finite(speedups.cuda_l1_speedup(sound)),
        "control_spread": _finite(speedups.control_spread(sound)),
        "reference_us": speedups.reference_us(sound) if sound.repetitions else None,
        "candidate_us": speedups.candidate_us(sound) if sound.repetitions else None,
    }


def scored(document: MeasurementDocument) -> MeasurementDocument:
    """One that was read back, with the figures that its times have by the score of this version;
    as it is where it has no times."""
    if not document.repetitions:
        return document
    device = Device(kind=document.device.kind, name=document.device.name)
    sound = Measurement(
        workload=document.workload,
        baseline=document.baseline,
        repetitions=tuple(copied(launch, Repetition) for launch in document.repetitions),
        control=tuple(copied(launch, Repetition) for launch in document.control),
        device=device,
    )
    return msgspec.structs.replace(document, **_figures(sound))


def _makes_sense(launch: Repetition) -> bool:
    """Whether every time is one that a clock can show."""
    times = (*launch.reference_us, *launch.candidate_us)
    return all(math.isfinite(time) and time > 0 for time in times)


def device_document(device: Device | None) -> DeviceDocument | None:
    """The published form of a device."""
    if device is None:
        return None
    found = copied(device, DeviceDocument)
    return msgspec.structs.replace(
        found,
        clock_mhz=_finite(device.clock_mhz),
        power_w=_finite(device.power_w),
        temperature_c=_finite(device.temperature_c),
    )


def copied(record: msgspec.Struct, published: type[D]) -> D:
    """The published struct with the fields of a record that has the same ones, or back."""
    return published(**{name: getattr(record, name) for name in published.__struct_fields__})


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
