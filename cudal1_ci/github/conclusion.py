"""Summarize a report for its pull request in one word, and decide whether it has news.

The worst target decides, as in `slowdown.py`. A regression counts as accepted only up to the
accepted slowdown. A report without comparisons has no regressions: then its proposals are the news.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal

from cudal1_ci.records import Comparison, Record, Report
from cudal1_ci.render.wording import count_text

Overall = Literal["regression", "inconclusive", "acknowledged", "improvement", "same", "skipped"]
Conclusion = Literal["failure", "neutral", "success"]


class Standing(Record, frozen=True, kw_only=True):
    """Count the results of a report's targets."""

    overall: Overall
    num_targets: int
    num_compared: int
    num_regressions: int
    """Without accepted ones."""
    num_acknowledged: int
    num_improvements: int
    num_inconclusive: int
    num_output_changes: int
    num_broken: int
    """Targets that break a use which worked in the base."""
    num_proposals: int
    is_complete: bool
    """Whether every target was processed."""

    @property
    def has_news(self) -> bool:
        """Return whether the report is worth a comment."""
        return bool(
            self.num_regressions
            or self.num_acknowledged
            or self.num_improvements
            or self.num_proposals
            or self.num_output_changes
            or self.num_broken
        )

    def conclusion(self, fail_on: str) -> Conclusion:
        """Return the check run's conclusion; an unclear or incomplete report is no success."""
        if self.overall == "regression":
            return "neutral" if fail_on == "never" else "failure"
        if self.num_broken and fail_on == "contract":
            return "failure"
        if self.overall == "inconclusive" and fail_on == "inconclusive":
            return "failure"
        if self.overall in ("inconclusive", "skipped") or not self.is_complete:
            return "neutral"
        return "success"

    @property
    def title(self) -> str:
        """Return one line in our own words and numbers, without text of the report."""
        counted = [
            _count_text(self.num_regressions, "regression"),
            _count_text(self.num_acknowledged, "acknowledged regression"),
            _count_text(self.num_inconclusive, "target", "inconclusive"),
            _count_text(self.num_improvements, "improvement"),
            _count_text(self.num_output_changes, "changed output"),
            _count_text(self.num_broken, "target", "with a use that no longer works"),
            _count_text(self.num_proposals, "faster version", "proven"),
        ]
        parts = [part for part in counted if part]
        if not self.num_targets:
            parts = ["there was nothing to measure"]
        if not parts and self.overall == "skipped":
            parts = ["nothing could be measured"]
        if not parts:
            parts = ["nothing got slower" if self.num_compared else "nothing faster was found"]
        if not self.is_complete:
            parts.append("not everything was looked at")
        title = "; ".join(parts)
        return title[0].upper() + title[1:]


def standing(document: Report) -> Standing:
    """Count a report's results."""
    comparisons = [e.comparison for e in document.entries if e.comparison is not None]
    verdicts = Counter(one.verdict for one in comparisons)
    acknowledged = sum(is_acknowledged(one) for one in comparisons)
    regressions = verdicts["regression"] - acknowledged
    overall: Overall = "same"
    if regressions:
        overall = "regression"
    elif verdicts["inconclusive"]:
        overall = "inconclusive"
    elif acknowledged:
        overall = "acknowledged"
    elif verdicts["improvement"]:
        overall = "improvement"
    elif comparisons and verdicts["skipped"] == len(comparisons):
        overall = "skipped"
    return Standing(
        overall=overall,
        num_targets=len(document.entries),
        num_compared=len(comparisons) - verdicts["skipped"],
        num_regressions=regressions,
        num_acknowledged=acknowledged,
        num_improvements=verdicts["improvement"],
        num_inconclusive=verdicts["inconclusive"],
        num_output_changes=sum(one.output_change is not None for one in comparisons),
        num_broken=sum(bool(one.broken) for one in comparisons),
        num_proposals=sum(entry.best is not None for entry in document.entries),
        is_complete=document.ended == "done",
    )


def is_acknowledged(comparison: Comparison) -> bool:
    """Return whether a comparison is a regression, and no worse than what was accepted."""
    agreed = comparison.acknowledged
    if comparison.verdict != "regression" or agreed is None:
        return False
    return comparison.slowdown is not None and comparison.slowdown <= agreed.max_slowdown


def _count_text(number: int, noun: str, after: str = "") -> str:
    return f"{count_text(number, noun)} {after}".rstrip() if number else ""
