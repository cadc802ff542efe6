"""Verify the reference of a problem, once for all that is tried on it."""

from __future__ import annotations

from cudal1_ci.optimize.context import RunContext, reference_of
from cudal1_ci.records import Evaluation, Problem
from cudal1_ci.render.wording import STATUS_WORDS
from cudal1_ci.verification.session import was_given_up


def reference_failure(problem: Problem, context: RunContext) -> str | None:
    """Return why the reference cannot be verified, in one paragraph; None when it can."""
    verdict = reference_verdict(problem, context).verdict
    if verdict.status == "passed":
        return None
    findings = "; ".join(finding.message for finding in verdict.findings)
    tail = "\n".join(verdict.log.strip().splitlines()[-3:])
    said = f"{STATUS_WORDS[verdict.status]}: {findings or 'the reference could not be run'}"
    return f"{said}\n{tail}" if tail else said


def reference_verdict(problem: Problem, context: RunContext) -> Evaluation:
    """Return the verdict on a problem's reference, known or new; a new one is recorded."""
    known = context.remembered_reference(problem)
    if known is not None:
        return known
    verdict = context.session.check(problem, context.most_for_reference_s())
    found = Evaluation(
        candidate=reference_of(problem), verdict=verdict, device=context.session.device()
    )
    if not was_given_up(verdict):  # another run may have more time for it
        context.archive.record(found, context.reference_policy)
    return found
