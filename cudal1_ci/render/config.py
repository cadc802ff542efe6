"""Describe settings of a report that nothing in the repository states."""

from __future__ import annotations

from cudal1_ci.records import Record
from cudal1_ci.records.validation import at_least, positive


class ReportConfig(Record, frozen=True, kw_only=True):
    """Hold what the numbers of a report are put in proportion to."""

    steps_per_month: int | None = None
    """Training steps that all GPUs together make in a month; None leaves hours out."""
    calls_per_day: int | None = None
    """Calls of each root that all machines together make in a day."""
    gpu_hour_price: float | None = None
    """What an hour of a GPU costs, in any currency."""

    def __post_init__(self) -> None:
        at_least(self, "report", 1, "steps_per_month", "calls_per_day")
        positive(self, "report", "gpu_hour_price")
