"""Reports of one commit from several machines, as one report.

Entries are joined by target. A candidate that passed everywhere keeps the measurements of every
device, each with its device's name; one that passed here and failed there stays two evaluations,
and is nobody's best. Which is best is then asked again, by the rule of `score.best`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TypeVar

import msgspec

from cudal1_ci.errors import ReportError
from cudal1_ci.records import (
    Call,
    Candidate,
    Evaluation,
    Measurement,
    TextProgram,
    Verdict,
    Workload,
)
from cudal1_ci.render.compared import joined
from cudal1_ci.render.digest import SUSPECTED
from cudal1_ci.render.document import totals
from cudal1_ci.render.shape import (
    DeviceDocument,
    EntryDocument,
    EvaluationDocument,
    MeasurementDocument,
    ReportDocument,
    WorkloadDocument,
)
from cudal1_ci.stats import speedups

T = TypeVar("T")
UNDECIDED = ("inconclusive", "harness_error")
"""Statuses that speak of a machine and not of the candidate."""


def merge(documents: Sequence[ReportDocument]) -> ReportDocument:
    """One report of several.

    Raises:
        ReportError: There is none, or they are not of the same repository and commit.
    """
    if not documents:
        raise ReportError("expected at least one report to merge, got none")
    first = documents[0]
    for other in documents[1:]:
        _refuse_another_commit(first, other)
    if len(documents) == 1:
        return first
    entries = tuple(_joined(same) for same in _by_target(documents))
    devices = _distinct(device for document in documents for device in document.devices)
    return ReportDocument(
        schema_version=first.schema_version,
        repository=first.repository,
        folder=first.folder,
        base_sha=first.base_sha,
        head_sha=first.head_sha,
        device=devices[0] if len(devices) == 1 else None,
        devices=devices,
        entries=entries,
        totals=totals(entries),
        warnings=tuple(dict.fromkeys(w for document in documents for w in document.warnings)),
        elapsed_s=sum(document.elapsed_s for document in documents),
        generated_at=max((d.generated_at for d in documents if d.generated_at), default=None),
        ended=next((d.ended for d in documents if d.ended != "done"), "done"),
        searched=any(document.searched for document in documents),
    )


def _refuse_another_commit(first: ReportDocument, other: ReportDocument) -> None:
    for field in ("repository", "folder", "base_sha", "head_sha"):
        expected, found = getattr(first, field), getattr(other, field)
        if expected != found:
            raise ReportError(
                f"expected reports of one commit, got {field} {expected!r} and {found!r}; "
                "render them one by one"
            )


def _by_target(documents: Sequence[ReportDocument]) -> list[list[EntryDocument]]:
    """Entries of the same target together, in the order in which targets are first seen."""
    entries: dict[tuple[str, str, str], list[EntryDocument]] = {}
    for document in documents:
        for entry in document.entries:
            target = entry.target
            entries.setdefault((target.path, target.qualname, target.kind), []).append(entry)
    return list(entries.values())


def _joined(entries: Sequence[EntryDocument]) -> EntryDocument:
    judged = [entry for entry in entries if entry.skipped is None]
    reasons = dict.fromkeys(e.skipped for e in entries if e.skipped)
    hints = dict.fromkeys(e.hint for e in entries if e.hint)
    workloads = tuple({w.name: w for entry in reversed(entries) for w in entry.workloads}.values())
    evaluations = _joined_evaluations([e for entry in entries for e in entry.evaluations])
    return EntryDocument(
        target=entries[0].target,
        skipped=None if judged else "; ".join(reasons),
        hint=None if judged else "; ".join(hints) or None,
        workloads=workloads,
        evaluations=evaluations,
        model_use=_only(entry.model_use for entry in entries),
        opinion_use=_only(entry.opinion_use for entry in entries),
        step=_only(entry.step for entry in entries),
        best=_best(evaluations, workloads),
        comparison=joined([e.comparison for e in entries if e.comparison is not None]),
    )


def _only(said: Iterable[T | None]) -> T | None:
    """What one report alone says; nothing where several do, each of its own run and device."""
    known: list[T] = []
    for one in said:
        if one is not None and one not in known:
            known.append(one)
    return known[0] if len(known) == 1 else None


def _joined_evaluations(
    evaluations: Sequence[EvaluationDocument],
) -> tuple[EvaluationDocument, ...]:
    """Evaluations that passed joined by candidate; the others as they are."""

    def candidate_id(evaluation: EvaluationDocument) -> str:
        return evaluation.candidate.id

    joined: list[EvaluationDocument] = []
    for _, group in groupby(sorted(evaluations, key=candidate_id), key=candidate_id):
        same = list(group)
        passed = [evaluation for evaluation in same if evaluation.status == "passed"]
        joined += [evaluation for evaluation in same if evaluation.status != "passed"]
        if passed:
            joined.append(_passed_everywhere(passed))
    place = {candidate_id(e): i for i, e in reversed(list(enumerate(evaluations)))}
    return tuple(sorted(joined, key=lambda evaluation: place[candidate_id(evaluation)]))


def _passed_everywhere(passed: Sequence[EvaluationDocument]) -> EvaluationDocument:
    devices = _distinct(e.device for e in passed if e.device is not None)
    claims = dict.fromkeys(one for e in passed for one in e.candidate.contradictions)
    return msgspec.structs.replace(
        passed[0],
        candidate=msgspec.structs.replace(passed[0].candidate, contradictions=tuple(claims)),
        findings=tuple(dict.fromkeys(finding for e in passed for finding in e.findings)),
        max_abs_error=_largest(e.max_abs_error for e in passed),
        max_rel_error=_largest(e.max_rel_error for e in passed),
        measurements=tuple(m for evaluation in passed for m in evaluation.measurements),
        device=devices[0] if len(devices) == 1 else None,
        elapsed_s=sum(evaluation.elapsed_s for evaluation in passed),
        reused=all(evaluation.reused for evaluation in passed),
    )


def _best(
    evaluations: Sequence[EvaluationDocument], workloads: Sequence[WorkloadDocument]
) -> int | None:
    """The rule of `score.best` over the measurements of all devices."""
    refused = {evaluation.candidate.id for evaluation in evaluations if is_refused(evaluation)}
    return speedups.best(
        [_record(e, is_refused=e.candidate.id in refused) for e in evaluations],
        [
            Workload(name=w.name, provenance=w.provenance, call=Call(), share=w.share)
            for w in workloads
        ],
    )


def is_refused(evaluation: EvaluationDocument) -> bool:
    """Whether one machine's verdict stands against all others: not where it speaks of the machine,
    and where another model suspects a hack, also of what passed elsewhere."""
    if any(finding.rule == SUSPECTED for finding in evaluation.findings):
        return True
    return evaluation.status != "passed" and evaluation.status not in UNDECIDED


def _record(evaluation: EvaluationDocument, *, is_refused: bool) -> Evaluation:
    """As much of the record as `score` looks at: status and raw times."""
    counts = evaluation.status == "passed" and not is_refused
    program = TextProgram(source=evaluation.candidate.id, entry="")
    return Evaluation(
        candidate=Candidate(problem_id="", program=program, proposer=""),
        verdict=Verdict(status="passed" if counts else "inconclusive"),
        measurements=tuple(map(_measurement, evaluation.measurements)) if counts else (),
    )


def _measurement(measurement: MeasurementDocument) -> Measurement:
    """The record that was published."""
    known = {name: getattr(measurement, name) for name in Measurement.__struct_fields__}
    return msgspec.convert(msgspec.to_builtins(known), Measurement)


def _distinct(devices: Iterable[DeviceDocument]) -> tuple[DeviceDocument, ...]:
    """Devices that differ in hardware or software; clock and temperature are a mood."""
    seen: dict[bytes, DeviceDocument] = {}
    for device in devices:
        steady = msgspec.structs.replace(
            device, clock_mhz=None, power_w=None, temperature_c=None, other_processes=None
        )
        seen.setdefault(msgspec.json.encode(steady, order="sorted"), device)
    return tuple(seen.values())


def _largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
