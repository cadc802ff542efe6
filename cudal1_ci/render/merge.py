"""Merge reports of one commit from several machines into one report.

Entries are joined by target. A candidate that passed everywhere keeps the measurements of every
device, each with its device's name. A candidate that passed on one machine and failed on another
stays two evaluations and is never the best. The best is then chosen again, by the rule of
`score.best`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TypeVar

import msgspec

from cudal1_ci.errors import ReportError
from cudal1_ci.records import (
    Comparison,
    ContractCheck,
    Device,
    Entry,
    Evaluation,
    NotTried,
    Report,
    Workload,
)
from cudal1_ci.records.comparison import Cause
from cudal1_ci.render.digest import SUSPECTED
from cudal1_ci.render.published import totals
from cudal1_ci.stats import regression, speedups
from cudal1_ci.stats.figures import of_rows
from cudal1_ci.stats.gate import CAUSES

T = TypeVar("T")
CONTRACT_SEVERITY = ("not_applicable", "not_tried", "held", "differs", "broken")
UNDECIDED = ("inconclusive", "harness_error")
"""Statuses that speak of a machine and not of the candidate."""


def merge(documents: Sequence[Report]) -> Report:
    """Merge several reports into one.

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
    entries = tuple(_join_entries(same) for same in _by_target(documents))
    devices = _distinct(device for document in documents for device in document.devices)
    return Report(
        repository=first.repository,
        folder=first.folder,
        base_sha=first.base_sha,
        head_sha=first.head_sha,
        device=devices[0] if len(devices) == 1 else None,
        devices=devices,
        entries=entries,
        totals=totals(entries),
        impact=_only(document.impact for document in documents),
        together=_only(document.together for document in documents),
        warnings=tuple(dict.fromkeys(w for document in documents for w in document.warnings)),
        elapsed_s=sum(document.elapsed_s for document in documents),
        generated_at=max((d.generated_at for d in documents if d.generated_at), default=None),
        ended=next((d.ended for d in documents if d.ended != "done"), "done"),
        searched=any(document.searched for document in documents),
    )


def _refuse_another_commit(first: Report, other: Report) -> None:
    for field in ("repository", "folder", "base_sha", "head_sha"):
        expected, found = getattr(first, field), getattr(other, field)
        if expected != found:
            raise ReportError(
                f"expected reports of one commit, got {field} {expected!r} and {found!r}; "
                "render them one by one"
            )


def _by_target(documents: Sequence[Report]) -> list[list[Entry]]:
    """Group entries of the same target, in the order in which targets are first seen."""
    entries: dict[tuple[str, str, str], list[Entry]] = {}
    for document in documents:
        for entry in document.entries:
            target = entry.target
            entries.setdefault((target.path, target.qualname, target.kind), []).append(entry)
    return list(entries.values())


def _join_entries(entries: Sequence[Entry]) -> Entry:
    judged = [entry for entry in entries if entry.skipped is None]
    reasons = dict.fromkeys(e.skipped for e in entries if e.skipped)
    hints = dict.fromkeys(e.hint for e in entries if e.hint)
    workloads = tuple({w.name: w for entry in reversed(entries) for w in entry.workloads}.values())
    tried = [(entry, e) for entry in entries for e in entry.evaluations]
    evaluations = _joined_evaluations([e for _, e in tried])
    afresh = {e.candidate.id for entry, e in tried if not entry.is_reused(e)}
    return Entry(
        target=entries[0].target,
        skipped=None if judged else "; ".join(reasons),
        hint=None if judged else "; ".join(hints) or None,
        workloads=workloads,
        evaluations=evaluations,
        model_use=_only(entry.model_use for entry in entries),
        opinion_use=_only(entry.opinion_use for entry in entries),
        step=_only(entry.step for entry in entries),
        in_roots=_only(entry.in_roots or None for entry in entries) or (),
        at_sizes=tuple(one for entry in entries for one in entry.at_sizes),
        sizes_not_tried=_only(entry.sizes_not_tried for entry in entries),
        contradictions=tuple(dict.fromkeys(c for entry in entries for c in entry.contradictions)),
        reused=tuple(dict.fromkeys(i for e in entries for i in e.reused if i not in afresh)),
        understanding=_only(entry.understanding for entry in entries),
        near_misses=tuple(dict.fromkeys(one for entry in entries for one in entry.near_misses)),
        not_tried=_not_tried(entries),
        warnings=tuple(dict.fromkeys(one for entry in entries for one in entry.warnings)),
        best=_best(evaluations, workloads),
        comparison=joined([e.comparison for e in entries if e.comparison is not None]),
    )


def _not_tried(entries: Sequence[Entry]) -> tuple[NotTried, ...]:
    """Return what no report's machine tried, with the first reason."""
    tried = {one.candidate.proposer for entry in entries for one in entry.evaluations}
    found = {one.proposer: one for entry in reversed(entries) for one in reversed(entry.not_tried)}
    return tuple(one for name, one in reversed(found.items()) if name not in tried)


def _only(said: Iterable[T | None]) -> T | None:
    """Return what exactly one report says; None where several do, each of its own run and
    device.
    """
    known: list[T] = []
    for one in said:
        if one is not None and one not in known:
            known.append(one)
    return known[0] if len(known) == 1 else None


def _joined_evaluations(
    evaluations: Sequence[Evaluation],
) -> tuple[Evaluation, ...]:
    """Join evaluations that passed by candidate; leave the others unchanged."""

    def candidate_id(evaluation: Evaluation) -> str:
        return evaluation.candidate.id

    joined: list[Evaluation] = []
    for _, group in groupby(sorted(evaluations, key=candidate_id), key=candidate_id):
        same = list(group)
        passed = [evaluation for evaluation in same if evaluation.status == "passed"]
        joined += [evaluation for evaluation in same if evaluation.status != "passed"]
        if passed:
            joined.append(_passed_everywhere(passed))
    place = {candidate_id(e): i for i, e in reversed(list(enumerate(evaluations)))}
    return tuple(sorted(joined, key=lambda evaluation: place[candidate_id(evaluation)]))


def _passed_everywhere(passed: Sequence[Evaluation]) -> Evaluation:
    devices = _distinct(e.device for e in passed if e.device is not None)
    return msgspec.structs.replace(
        passed[0],
        verdict=msgspec.structs.replace(
            passed[0].verdict,
            findings=tuple(dict.fromkeys(finding for e in passed for finding in e.findings)),
            max_abs_error=_largest(e.max_abs_error for e in passed),
            max_rel_error=_largest(e.max_rel_error for e in passed),
        ),
        measurements=tuple(m for evaluation in passed for m in evaluation.measurements),
        device=devices[0] if len(devices) == 1 else None,
        elapsed_s=sum(evaluation.elapsed_s for evaluation in passed),
    )


def _best(evaluations: Sequence[Evaluation], workloads: Sequence[Workload]) -> int | None:
    """Apply the rule of `score.best` over the measurements of all devices."""
    refused = {evaluation.candidate.id for evaluation in evaluations if is_refused(evaluation)}
    counted = [_withdrawn(e) if e.candidate.id in refused else e for e in evaluations]
    return speedups.best_examined(counted, workloads)


def is_refused(evaluation: Evaluation) -> bool:
    """Return whether one machine's verdict overrides all others. A verdict that concerns the
    machine does not. A model's suspicion of a hack does, also where the candidate passed elsewhere.
    """
    if any(finding.rule == SUSPECTED for finding in evaluation.findings):
        return True
    return evaluation.status != "passed" and evaluation.status not in UNDECIDED


def _withdrawn(evaluation: Evaluation) -> Evaluation:
    verdict = msgspec.structs.replace(evaluation.verdict, status="inconclusive")
    return msgspec.structs.replace(evaluation, verdict=verdict, measurements=())


def joined(comparisons: Sequence[Comparison]) -> Comparison | None:
    """Join comparisons of one target on several machines: all their rows, with the worst deciding.
    A regression that is acknowledged on one machine and not on another is not acknowledged.
    """
    if not comparisons:
        return None
    rows = tuple(row for one in comparisons for row in one.rows)
    regressed = [one for one in comparisons if one.verdict == "regression"]
    agreed = [one.acknowledged for one in regressed]
    reasons = dict.fromkeys(one.reason for one in comparisons if one.reason)
    changes = dict.fromkeys(one.output_change for one in comparisons if one.output_change)
    return of_rows(
        rows,
        Comparison(
            verdict=regression.worst(one.verdict for one in comparisons),
            reason="; ".join(reasons) or None,
            cause=joined_cause(comparisons),
            within=joined_callers(comparisons),
            previous=_only(one.previous for one in comparisons),
            output_change="; ".join(changes) or None,
            acknowledged=agreed[0] if agreed and all(agreed) else None,
            contract=joined_contract([one.contract for one in comparisons]),
            contract_s=sum(seconds) if (seconds := _known(comparisons)) else None,
        ),
    )


def joined_cause(comparisons: Sequence[Comparison]) -> Cause | None:
    """Return what of a target was not measured on some machine. That it cannot be called on one
    does not count where another one has measured it.
    """
    causes = [one.cause for one in comparisons if one.cause is not None]
    if any(one.rows for one in comparisons):
        causes = [cause for cause in causes if cause != "skipped"]
    return max(causes, key=CAUSES.index, default=None)


def joined_callers(comparisons: Sequence[Comparison]) -> tuple[str, ...]:
    """Return what has measured a helper; nothing where that was not so on every machine."""
    if not all(one.within for one in comparisons):
        return ()
    return tuple(dict.fromkeys(name for one in comparisons for name in one.within))


def _known(comparisons: Sequence[Comparison]) -> list[float]:
    return [one.contract_s for one in comparisons if one.contract_s is not None]


def joined_contract(
    contracts: Sequence[tuple[ContractCheck, ...] | None],
) -> tuple[ContractCheck, ...] | None:
    """Join the lines of one target on several machines: of each the worst result."""
    known = [contract for contract in contracts if contract is not None]
    lines: dict[tuple[str, str], ContractCheck] = {}
    for check in (check for contract in known for check in contract):
        place = check.group, check.aspect
        other = lines.get(place, check)
        lines[place] = max(other, check, key=lambda one: CONTRACT_SEVERITY.index(one.result))
    return tuple(lines.values()) if known else None


def _distinct(devices: Iterable[Device]) -> tuple[Device, ...]:
    """Return devices that differ in hardware or software; clock and temperature do not count."""
    seen: dict[bytes, Device] = {}
    for device in devices:
        steady = msgspec.structs.replace(
            device, clock_mhz=None, power_w=None, temperature_c=None, other_processes=None
        )
        seen.setdefault(msgspec.json.encode(steady, order="sorted"), device)
    return tuple(seen.values())


def _largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
