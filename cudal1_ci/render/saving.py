"""Estimate what a proposal saves, from below.

The lower bound of each speedup is weighted by the calls' part of the time. That part has several
sources, from the best to the worst: the part of a call of a root, the share of a training step, the
share of the traced time, calls in a step and the time of one, calls in a trace and the time of one,
the time of one call.
Different units are not compared: the better source comes first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cudal1_ci.records import Entry, Evaluation
from cudal1_ci.render.wording import percent_text, time_text, traced_time_text

Unit = Literal["root", "step", "traced", "step_us", "traced_us", "call_us"]
ORDER: tuple[Unit, ...] = ("step", "traced", "step_us", "traced_us", "call_us")
RANK = {"root": 0, "step": 1, "traced": 1, "step_us": 2, "traced_us": 3, "call_us": 4}
"""Shares are compared with one another, whatever they are shares of."""
UNIT_WORDS = {
    "root": "of a call",
    "step": "of a training step",
    "step_us": "per training step",
    "traced_us": "of what was traced",
    "call_us": "per call",
}
MOST = 1e18
"""Microseconds; a report with longer times was not measured by a clock."""
MOST_CALLS = 10**15


@dataclass(frozen=True, kw_only=True)
class Saved:
    """Hold what is saved at least, as a fraction or in microseconds."""

    unit: Unit
    amount: float
    root: str = ""
    """Whose call, or whose traced time, it is."""
    share: float | None = None
    """Of that call, as a fraction."""

    @property
    def text(self) -> str:
        """Format `4.1 % of a training step`."""
        return f"{self.amount_text} {self.unit_text}"

    @property
    def amount_text(self) -> str:
        """Format `4.1 %` or `12.3 us`."""
        is_share = self.unit in ("step", "traced")
        return percent_text(self.amount) if is_share else time_text(self.amount)

    @property
    def unit_text(self) -> str:
        """Return `of a training step`; `(12.0 %) of a call of VisionModel`."""
        if self.unit == "traced":
            return traced_time_text(self.root)
        if self.unit != "root":
            return UNIT_WORDS[self.unit]
        return f"({percent_text(self.share)}) of a call of {self.root}"


def rank(saved: Saved | None) -> tuple[int, float]:
    """Return a sort key: the better source first, then the larger saving; what saves nothing
    last.
    """
    return (len(RANK), 0.0) if saved is None else (RANK[saved.unit], -saved.amount)


def saved_by(entry: Entry, evaluation: Evaluation) -> Saved | None:
    """Return the saving from the best source available; None where it comes to nothing."""
    fractions = lowest_fractions(evaluation)
    of_root = saved_of_root(entry, fractions)
    if of_root is not None:
        return of_root
    for unit in ORDER:
        roots = traced_parts(entry, fractions) if unit == "traced" else {}
        root = max(roots, key=lambda one: roots[one], default="")
        amount = roots[root] if roots else _amount(unit, entry, evaluation, fractions)
        if amount is not None:
            return Saved(unit=unit, amount=amount, root=root) if 0 < amount < MOST else None
    return None


def traced_parts(entry: Entry, fractions: dict[str, float]) -> dict[str, float]:
    """Return what is saved of the traced time of each root; of all of it under an empty name."""
    found: dict[str, float] = {}
    for one in entry.workloads:
        if one.share is not None and one.name in fractions:
            root = one.root or ""
            found[root] = found.get(root, 0.0) + fractions[one.name] * one.share
    return found


def saved_of_root(entry: Entry, fractions: dict[str, float]) -> Saved | None:
    """Return what is saved of a call of the root that gains most; None where that is not known, or
    nothing. The workload that gains least stands for the calls of the root."""
    part = max(entry.in_roots, key=lambda one: one.time_us, default=None)
    fraction = min(fractions.values(), default=0.0)
    if part is None or not 0 < part.time_us * fraction < MOST:
        return None
    return Saved(
        unit="root",
        amount=part.time_us * fraction,
        root=part.root.rpartition(":")[2],
        share=part.share * fraction,
    )


def lowest_fractions(evaluation: Evaluation) -> dict[str, float]:
    """Return the saved fraction of each workload's time, on the device that gains the least."""
    found: dict[str, float] = {}
    for m in evaluation.measurements:
        if m.speedup_low is not None and m.baseline == "eager":
            fraction = max(-1.0, 1 - 1 / m.speedup_low)
            found[m.workload] = min(found.get(m.workload, 1.0), fraction)
    return found


def _amount(
    unit: Unit, entry: Entry, evaluation: Evaluation, fractions: dict[str, float]
) -> float | None:
    if unit == "traced":
        return None
    times_us = {
        m.workload: m.reference_us
        for m in evaluation.measurements
        if m.reference_us is not None and m.workload in fractions
    }
    calls = _calls(unit, entry, times_us)
    weights = {name: calls[name] * time_us for name, time_us in times_us.items() if name in calls}
    saved = _sum([weight * fractions[name] for name, weight in weights.items()])
    if unit != "step":
        return saved
    share, total = entry.step.share if entry.step else None, _sum(list(weights.values()))
    return share * saved / total if share is not None and saved is not None and total else None


def _calls(unit: Unit, entry: Entry, times_us: dict[str, float]) -> dict[str, float]:
    """Return how often each workload is called, where that is known."""
    if unit == "call_us":
        return dict.fromkeys(times_us, 1.0)
    if unit == "traced_us":
        counts = {w.name: w.num_calls for w in entry.workloads if w.num_calls is not None}
        return {name: float(min(count, MOST_CALLS)) for name, count in counts.items()}
    return {w.name: w.calls_per_step for w in entry.workloads if w.calls_per_step is not None}


def _sum(values: Sequence[float]) -> float | None:
    if not values or not all(map(math.isfinite, values)):
        return None
    try:
        return math.fsum(values)
    except OverflowError:
        return None
