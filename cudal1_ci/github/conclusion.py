"""Summarize a report for its pull request, and decide whether it has news.

The check and the comment have one headline and one judgement (stats/gate.py), so that they cannot
contradict each other. The marker of the comment has one word of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from cudal1_ci.records import Record, Report
from cudal1_ci.render.changes import headline
from cudal1_ci.render.digest import digest
from cudal1_ci.stats.gate import Finding, Judgement, Policy, is_acknowledged, judged

Overall = Literal[
    "regression", "inconclusive", "missing", "acknowledged", "improvement", "same", "skipped"
]


class Standing(Record, frozen=True, kw_only=True):
    """Hold what is said of a report besides its text."""

    overall: Overall
    title: str
    judgement: Judgement
    has_news: bool
    """Whether the report is worth a comment."""


def standing(document: Report, policy: Policy, missing: Sequence[Finding] = ()) -> Standing:
    """Summarize a report. `missing` are machines that have left none."""
    sorted_out = digest(document)
    said = headline(sorted_out.changes, len(sorted_out.proposals), sorted_out.is_search, missing)
    judgement = judged(document, policy, missing)
    compared = [e.comparison for e in document.entries if e.comparison is not None]
    news = (
        judgement.conclusion == "failure"
        or sorted_out.proposals
        or any(one.verdict in ("regression", "improvement") for one in compared)
        or any(one.output_change is not None or one.broken for one in compared)
    )
    return Standing(
        overall=_overall(document, judgement),
        title=said[:1].upper() + said[1:],
        judgement=judgement,
        has_news=bool(news),
    )


def _overall(document: Report, judgement: Judgement) -> Overall:
    compared = [e.comparison for e in document.entries if e.comparison is not None]
    verdicts = {one.verdict for one in compared}
    if judgement.of("fail-on"):
        return "regression"
    if compared and not any(one.rows for one in compared) and judgement.missing:
        return "skipped"
    if judgement.of("on-inconclusive"):
        return "inconclusive"
    if judgement.missing and compared:
        return "missing"
    if any(is_acknowledged(one) for one in compared):
        return "acknowledged"
    return "improvement" if "improvement" in verdicts else "same"
