"""Describe settings of a report that nothing in the repository states."""

from __future__ import annotations

from cudal1_ci.records import Record
from cudal1_ci.records.validation import at_least


class ReportConfig(Record, frozen=True, kw_only=True):
    """Hold what the numbers of a report are put in proportion to."""

    steps_per_month: int | None = None
    """Training steps that all GPUs together make in a month; None leaves hours out."""

    def __post_init__(self) -> None:
        at_least(self, "report", 1, "steps_per_month")
