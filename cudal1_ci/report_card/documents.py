"""Convert what a run recorded to its published form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cudal1_ci.records import Demand, Evaluation, Finding, TextProgram, Verdict
from cudal1_ci.render.wording import STATUS_WORDS, AnyDevice, device_text
from cudal1_ci.report_card.columns import text_of
from cudal1_ci.report_card.judged import CandidateDocument, judged_fields
from cudal1_ci.report_card.shape import (
    DemandDocument,
    ResultDocument,
    Standing,
    TaskDocument,
    TrialDocument,
)
from cudal1_ci.report_card.tasks import Task

WEAK = "workload.weak"
"""The verifier's finding that answers would pass which have nothing to do with the inputs."""

LOG_LINES = 3
"""Of what a reference raised, which say why."""


def machine_text(device: AnyDevice) -> str:
    """Format `NVIDIA H200, torch 2.11.0+cu130`; tasks are compared within one such machine."""
    torch = device.software.get("torch")
    return device_text(device) + (f", torch {torch}" if torch else "")


def trial_document(
    evaluation: Evaluation, *, is_reused: bool, doubted: Finding | None = None
) -> TrialDocument:
    """Convert one candidate."""
    candidate = evaluation.candidate
    assert isinstance(candidate.program, TextProgram), "candidates of tasks are texts"
    return TrialDocument(
        **judged_fields(evaluation),
        candidate=CandidateDocument(
            id=candidate.id,
            proposer=candidate.proposer,
            analysis=candidate.analysis,
            design=candidate.design,
            techniques=candidate.techniques,
            generation=candidate.generation,
        ),
        reused=is_reused,
        code=candidate.program.source,
        doubted=doubted,
    )


def standing_of(verdict: Verdict) -> tuple[Standing, str | None]:
    """Return what the verifier's verdict on a reference makes of its task, and why."""
    weak = [one for one in verdict.findings if one.rule == WEAK]
    if verdict.status == "passed":
        return ("degenerate", said(weak)) if weak else ("judged", None)
    tail = "\n".join(verdict.log.strip().splitlines()[-LOG_LINES:])
    why = said(verdict.findings) or STATUS_WORDS[verdict.status]
    standing: Standing = "degenerate" if verdict.status == "degenerate" else "invalid"
    return standing, f"{why}\n{tail}".strip()


def said(findings: Sequence[Finding]) -> str:
    return "; ".join(f"{one.rule}: {one.message}" for one in findings)


def task_document(
    task: Task,
    machine: str,
    standing: Standing,
    reason: str | None = None,
    *,
    findings: Sequence[Finding] = (),
    trials: Mapping[str, Sequence[TrialDocument]] | None = None,
    failures: Mapping[str, str] | None = None,
    demand: Demand | None = None,
    least_us: float | None = None,
) -> TaskDocument:
    """Convert a task with all columns that were tried. `least_us` is the time its
    `demand` takes.
    """
    failed = failures or {}
    return TaskDocument(
        name=task.name,
        level=task.level,
        title=task.title,
        source=task.source,
        problem_id=task.problem.id,
        machine=machine,
        standing=standing,
        reason=reason,
        reference=text_of(task.problem),
        findings=tuple(findings),
        claimed={one.origin: one.claimed_speedup for one in task.published if one.claimed_speedup},
        demand=(
            None
            if demand is None
            else DemandDocument(
                **{name: getattr(demand, name) for name in demand.__struct_fields__}
            )
        ),
        least_us=least_us,
        results=tuple(
            ResultDocument(solver=solver, trials=tuple(found), failure=failed.get(solver))
            for solver, found in (trials or {}).items()
        ),
    )
