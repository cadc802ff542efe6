"""Configure how much a run tries. Every verb reads it, so nothing that proposes is imported."""

from __future__ import annotations

from cudal1_ci.records import Record
from cudal1_ci.records.validation import at_least


class ReviewConfig(Record, frozen=True, kw_only=True):
    """Say how much to try."""

    num_rounds: int = 4
    """Rounds of proposals; from the second on strategies see what was found before. A round in
    which no strategy has anything new is the last one."""
    num_candidates: int = 12
    """Candidates of one strategy for one target in one round."""
    min_share: float = 0.001
    """Share (0..1) of the traced time below which rewrites of a target's own lines are not tried:
    they save less. Those of a whole module are, which may save time of what it calls."""
    budget_s: float | None = None
    """Wall-clock seconds for the whole run; None is until done."""
    accept_s: float = 120.0
    """Seconds for a repository's own tests and examples, on its tree and on the patched one, for
    each candidate that would be proposed; 0 runs none of them."""
    impact_share: float = 0.3
    """Share (0..1) of the budget that is kept for what all proposals together do to the calls that
    contain them, once there is a proposal. With 0 that is not measured."""

    def __post_init__(self) -> None:
        at_least(self, "review", 0, "impact_share")
        if self.impact_share >= 1:
            raise ValueError(f"review.impact-share: expected less than 1, got {self.impact_share}")
