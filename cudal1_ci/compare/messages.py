"""Say to the author of a change why a target has no times, in words of base and head.

The verifier speaks of a reference and of a candidate. Here these are two trees of one repository,
and the reader wrote one of them.
"""

from __future__ import annotations

import re

from cudal1_ci.records import Comparison, Evaluation
from cudal1_ci.records.comparison import Cause

OTHER_FORM = "{message}: calls that return other things are not timed against each other"
FAILS = "the head fails with what the base takes: {message}"
BASE_FAILS = "the base cannot be timed like this: {message}"
BASE_SAYS_LITTLE = "times of the base would mean little: {message}"
REFERENCE = re.compile(r"\b(?:the|a) reference\b")
CANDIDATE = re.compile(r"\b(?:the|a) candidate\b")
NOISE = ("timing.noisy", "timing.disturbed")
"""Rules by which a machine was too busy, although both trees ran."""
FORMS = ("incorrect_shape", "incorrect_dtype")
FAILURES = ("runtime_error", "compile_error", "timeout")


def refusal(found: Evaluation) -> Comparison:
    """Return the comparison of a target without times."""
    status, message = found.verdict.status, said(found) or "it could not be run"
    if status == "invalid_reference":
        return Comparison(
            verdict="skipped", reason=BASE_FAILS.format(message=message), cause="skipped"
        )
    if status == "degenerate":
        reason = BASE_SAYS_LITTLE.format(message=message)
        return Comparison(verdict="skipped", reason=reason, cause="skipped")
    cause: Cause = "unmeasured" if status in ("inconclusive", "harness_error") else "crashed"
    if status == "inconclusive" and any(one.rule in NOISE for one in found.verdict.findings):
        cause = "noisy"
    if status in FORMS:
        message = OTHER_FORM.format(message=message)
    elif status in FAILURES:
        message = FAILS.format(message=message)
    elif status != "inconclusive":
        message = f"the head: {message}"
    return Comparison(verdict="inconclusive", reason=message, cause=cause)


def said(found: Evaluation) -> str:
    """Return what was found first, in words of base and head."""
    messages = [finding.message for finding in found.verdict.findings]
    first = messages[0] if messages else ""
    return CANDIDATE.sub("the head", REFERENCE.sub("the base", first))
