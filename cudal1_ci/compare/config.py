"""Configure what counts as a difference, and what a comparison needs before it can measure."""

from __future__ import annotations

from cudal1_ci.records import Record
from cudal1_ci.records.validation import at_least, positive
from cudal1_ci.stats.regression import Thresholds


class CompareConfig(Record, frozen=True, kw_only=True):
    """Hold the settings of a comparison. For a pull request they are read from the merge base, so
    that its author cannot loosen the rule.
    """

    threshold: float | None = None
    """Relative: 0.05 is five percent. None is 0.05 on a CPU and 0.02 on a GPU."""
    min_us: float = 0.5
    """Microseconds a call that a difference must exceed as well."""
    setup: tuple[str, ...] = ()
    """Shell commands that are run once in each tree, in their order: what has to be built."""
    num_devices: int = 1
    """Devices that the same change is measured on side by side, each by a run of its own: the more
    there are, the surer each has to be."""

    def __post_init__(self) -> None:
        positive(self, "compare", "threshold")
        at_least(self, "compare", 0, "min_us")
        at_least(self, "compare", 1, "num_devices")

    @property
    def thresholds(self) -> Thresholds:
        return Thresholds(relative=self.threshold, absolute_us=self.min_us)
