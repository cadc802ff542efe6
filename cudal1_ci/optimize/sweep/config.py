"""Configure how long a sweep may take."""

from __future__ import annotations

from cudal1_ci.records import Record
from cudal1_ci.records.validation import positive


class SweepConfig(Record, frozen=True, kw_only=True):
    """Apart from a scan's budget, which is for a person who waits."""

    budget_s: float = 14_400.0
    """Wall-clock seconds; the next sweep continues from there."""

    def __post_init__(self) -> None:
        positive(self, "sweep", "budget_s")
