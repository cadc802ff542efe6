"""Make a report of what a run recorded.

Fills in what the records of a run leave open: what the times say (`stats/figures.py`), the patches
of candidates against the checkout, the share of a training step, counts. A candidate of a checkout
keeps its patch in place of the files that it changes, and of a log its end.

    render(published(report), "html")
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from cudal1_ci.errors import ReportError
from cudal1_ci.records import (
    Candidate,
    Entry,
    Evaluation,
    Listing,
    Notice,
    Program,
    Report,
    Target,
    Totals,
    TreeProgram,
    Workload,
)
from cudal1_ci.render.config import ReportConfig
from cudal1_ci.render.monthly import saving
from cudal1_ci.render.patch import patch
from cudal1_ci.render.step import step_of
from cudal1_ci.stats.figures import comparison_with_figures, evaluation_with_figures, with_figures

MAX_LOG = 20_000
"""Characters of a program's output that are kept: its last lines say why it failed."""


class Listable(Protocol):
    """A target before it is verified, as `survey` plans it."""

    @property
    def target(self) -> Target: ...
    @property
    def reason(self) -> str | None: ...
    @property
    def hint(self) -> str | None: ...
    @property
    def workloads(self) -> tuple[Workload, ...]: ...


class Plan(Protocol):
    """Hold all targets of a tree before they are verified."""

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


def published(report: Report, config: ReportConfig | None = None) -> Report:
    """Return a report as `--json` writes it. A proposal whose patch cannot be made keeps its
    verdict and its numbers; why it has no patch is among the warnings."""
    notices: list[Notice] = []
    steps_per_month = config.steps_per_month if config else None
    entries = tuple(_entry(entry, steps_per_month, notices) for entry in report.entries)
    notices += [one for entry in entries for one in _failures(entry) if one not in report.warnings]
    return msgspec.structs.replace(
        report,
        impact=report.impact and tuple(saving(one, report.device, config) for one in report.impact),
        devices=() if report.device is None else (report.device,),
        entries=entries,
        totals=totals(entries),
        warnings=(*report.warnings, *notices),
    )


def listing(plan: Plan) -> Listing:
    """Return what discovery found."""
    return Listing(
        repository=plan.repository,
        base_sha=plan.base_sha,
        head_sha=plan.head_sha,
        entries=tuple(
            Entry(target=each.target, workloads=each.workloads, skipped=each.reason, hint=each.hint)
            for each in plan.targets
        ),
        warnings=tuple(plan.notices),
    )


def totals(entries: Iterable[Entry]) -> Totals:
    """Count over the entries of a report."""
    entries = tuple(entries)
    tried = [(entry, evaluation) for entry in entries for evaluation in entry.evaluations]
    num_skipped = sum(entry.skipped is not None for entry in entries)
    return Totals(
        num_targets=len(entries),
        num_judged=len(entries) - num_skipped,
        num_skipped=num_skipped,
        num_proposals=sum(entry.best is not None for entry in entries),
        num_candidates=len(tried),
        num_passed=sum(evaluation.status == "passed" for _, evaluation in tried),
        num_reused=sum(entry.is_reused(evaluation) for entry, evaluation in tried),
    )


def verdict_of(evaluation: Evaluation) -> Evaluation:
    """Return an evaluation as `verify --json` writes it: with its figures, and the end of its
    log."""
    verdict = msgspec.structs.replace(evaluation.verdict, log=evaluation.verdict.log[-MAX_LOG:])
    return evaluation_with_figures(msgspec.structs.replace(evaluation, verdict=verdict))


def with_patch(candidate: Candidate, text: str | None) -> Candidate:
    """Return a candidate as a report has it."""
    return msgspec.structs.replace(
        candidate, known_id=candidate.id, program=_without_files(candidate.program), patch=text
    )


def _entry(entry: Entry, steps_per_month: int | None, notices: list[Notice]) -> Entry:
    return msgspec.structs.replace(
        entry,
        evaluations=tuple(_evaluation(one, entry.target, notices) for one in entry.evaluations),
        step=step_of(entry, steps_per_month),
        at_sizes=tuple(map(with_figures, entry.at_sizes)),
        comparison=None if entry.comparison is None else comparison_with_figures(entry.comparison),
    )


def _failures(entry: Entry) -> Iterable[Notice]:
    """Return a notice for each thing that failed on a target, with the end of its traceback."""
    for one in entry.warnings:
        first, *more = one.strip().splitlines() or [""]
        message = " ".join([entry.target.qualname + ":", first, *more[-1:]])
        yield Notice(path=entry.target.path, message=message)


def _evaluation(evaluation: Evaluation, target: Target, notices: list[Notice]) -> Evaluation:
    candidate = evaluation.candidate
    text = None
    try:
        text = patch(candidate.program)
    except ReportError as error:
        message = f"no patch for {target.qualname} ({candidate.proposer}): {error}"
        notices.append(Notice(path=target.path, message=message))
    shown = verdict_of(evaluation)
    return msgspec.structs.replace(shown, candidate=with_patch(candidate, text))


def _without_files(program: Program) -> Program:
    if isinstance(program, TreeProgram):
        return msgspec.structs.replace(program, root=".", overlay=())
    return program
