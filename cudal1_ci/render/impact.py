"""Say what all proposals together do to the calls that contain them. A report opens with it.

    for one in headlines(document):
        one.text     # VisionModel: 41.2 ms -> 25.9 ms, 1.59x [1.52, 1.66]; launches 412 -> 230

For each root its longest call of each mode has a headline, and its training step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cudal1_ci.records import Baseline, Entry, Impact, Measurement, Report
from cudal1_ci.render.wording import bytes_text, interval_text, speedup_text, time_text

MOST_TOLD = 8
"""Of what is left out or not reached, in a text."""
ONCE = "measured once, for want of time"
COMPILE_OFF = "torch.compile is off here"


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A number before and after."""

    name: str
    before: str
    after: str

    @property
    def text(self) -> str:
        """Format `launches 412 -> 230`."""
        return f"{self.name} {self.before} -> {self.after}"


@dataclass(frozen=True, kw_only=True)
class Headline:
    """The first line about a root."""

    impact: Impact
    title: str
    """`VisionModel`, `VisionModel in training`, `training step of VisionModel (AdamW)`."""
    speedup: str
    direction: str
    """`faster`, `slower` or `unclear`, by the interval."""
    facts: tuple[Fact, ...]
    remarks: tuple[str, ...]

    @property
    def times(self) -> str:
        return f"{time_text(self.impact.before_us)} -> {time_text(self.impact.after_us)}"

    @property
    def text(self) -> str:
        """Format the headline as one line."""
        parts = (f"{self.title}: {self.times}, {self.speedup}", *(one.text for one in self.facts))
        return "; ".join((*parts, *self.remarks))


def headlines(document: Report) -> list[Headline]:
    """Return a headline for each root and mode, in the report's order. Targets that are the root
    of nothing but themselves have none where there are others."""
    impact = document.impact or ()
    containing = {
        part.root
        for entry in document.entries
        for part in entry.in_roots
        if part.root != entry.target.address
    }
    known = [one for one in impact if one.root in containing] or impact
    found: dict[tuple[str, str, str], Headline] = {}
    for one in known:
        found.setdefault((one.root, one.kind, one.mode), headline_of(one))
    return list(found.values())


def headline_of(impact: Impact) -> Headline:
    """Return the headline of one impact."""
    return Headline(
        impact=impact,
        title=title_of(impact),
        speedup=gained_text(impact),
        direction=direction_of(impact.low, impact.high),
        facts=tuple(facts_of(impact)),
        remarks=tuple(remarks_of(impact)),
    )


def title_of(impact: Impact) -> str:
    name = name_of_root(impact)
    if impact.kind == "step":
        return f"training step of {name} ({impact.optimizer})"
    return f"{name} in training" if impact.mode == "train" else name


def name_of_root(impact: Impact) -> str:
    """Return the name without the path."""
    return impact.root.rpartition(":")[2]


def gained_text(impact: Impact) -> str:
    """Format `1.59x [1.52, 1.66]`."""
    return interval_text(impact.speedup, impact.low, impact.high)


def direction_of(low: float, high: float) -> str:
    return "faster" if low > 1 else "slower" if high < 1 else "unclear"


def facts_of(impact: Impact) -> Iterator[Fact]:
    """Yield what was counted before and after."""
    before, after = impact.before, impact.after
    if before is None or after is None:
        return
    if before.peak_bytes and after.peak_bytes:
        sizes = bytes_text(before.peak_bytes), bytes_text(after.peak_bytes)
        yield Fact(name="peak memory", before=sizes[0], after=sizes[1])
    on_gpu = before.device_us is not None
    counts = f"{before.num_launches:,}", f"{after.num_launches:,}"
    yield Fact(name="launches" if on_gpu else "operators", before=counts[0], after=counts[1])
    if before.device_us is not None and after.device_us is not None:
        device = time_text(before.device_us), time_text(after.device_us)
        host = time_text(before.host_us), time_text(after.host_us)
        yield Fact(name="device time", before=device[0], after=device[1])
        yield Fact(name="host time", before=host[0], after=host[1])
    if before.energy_j is not None and after.energy_j is not None:
        joules = energy_text(before.energy_j), energy_text(after.energy_j)
        yield Fact(name="energy", before=joules[0], after=joules[1])


def remarks_of(impact: Impact) -> Iterator[str]:
    """Yield what it is next to, and what it saves in a month."""
    if compares(impact) and impact.compiled is not None:
        yield f"torch.compile alone {baseline_text(impact.compiled)}"
    if impact.own is not None:
        yield f"next to your torch.compile {baseline_text(impact.own)}"
    yield from savings_of(impact)
    if not impact.is_confirmed:
        yield ONCE


def compares(impact: Impact) -> bool:
    """Return whether torch.compile of the root was tried."""
    return impact.compiled is not None and impact.compiled.reason != COMPILE_OFF


def savings_of(impact: Impact) -> Iterator[str]:
    """Yield what is saved in a month."""
    if impact.gpu_hours_saved is not None:
        money = "" if impact.money_saved is None else f" (cost {impact.money_saved:,.2f})"
        yield f"{impact.gpu_hours_saved:,.3g} GPU hours{money} saved a month"
    if impact.energy_saved_kwh is not None:
        yield f"{impact.energy_saved_kwh:,.3g} kWh saved a month"


def energy_text(energy_j: float) -> str:
    """Format `3.42 J` or `81 mJ` a call."""
    return f"{energy_j:.3g} J" if energy_j >= 1 else f"{1000 * energy_j:.3g} mJ"


def baseline_text(baseline: Baseline) -> str:
    """Format `1.31x [1.28, 1.34]`, or why it is not known."""
    if baseline.speedup is None or baseline.speedup_low is None or baseline.speedup_high is None:
        return f"not known ({baseline.reason})"
    return interval_text(baseline.speedup, baseline.speedup_low, baseline.speedup_high)


def together_lines(document: Report) -> list[str]:
    """Return what the patch of all proposals has, and what is missing."""
    together = document.together
    if together is None:
        return []
    number = len(together.included)
    words = "1 proposal is" if number == 1 else f"{number} proposals are"
    lines = [f"{words} in one patch (`scan --apply`)"]
    lines += [f"not in it: {one.what}: {one.reason}" for one in together.left_out[:MOST_TOLD]]
    missing: dict[str, dict[str, None]] = {}
    for one in together.not_reached:
        missing.setdefault(one.reason, {})[one.what] = None
    for reason, names in list(missing.items())[:MOST_TOLD]:
        more = f" and {len(names) - MOST_TOLD} more" if len(names) > MOST_TOLD else ""
        lines.append(f"not measured: {', '.join([*names][:MOST_TOLD])}{more}: {reason}")
    return lines


def worst_of(entry: Entry) -> Measurement | None:
    """Return where a proposal gains least, of all that was timed; None where that is one call."""
    if entry.best is None or not entry.at_sizes:
        return None
    every = [*entry.evaluations[entry.best].measurements, *entry.at_sizes]
    known = [one for one in every if one.speedup is not None]
    return min(known, key=lambda one: one.speedup or 0.0, default=None)


def sizes_text(entry: Entry) -> str:
    """Return where a proposal gains least, and why some sizes were not tried; empty where no other
    size is known of."""
    reason = entry.sizes_not_tried
    parts = [least_text(entry), f"not timed at another size: {reason}" if reason else ""]
    return "; ".join(filter(None, parts))


def least_text(entry: Entry) -> str:
    """Return where a proposal gains least; empty where one size alone was timed."""
    worst = worst_of(entry)
    return f"gains least at {worst.workload}: {speedup_text(worst)}" if worst is not None else ""


def parts_text(entry: Entry) -> str:
    """Format `takes 26 % of a call of Net`, for each root but itself."""
    parts = [
        f"{100 * one.share:.0f} % of a call of {one.root.rpartition(':')[2]}"
        for one in entry.in_roots
        if one.root != entry.target.address
    ]
    return f"takes {', '.join(parts)}" if parts else ""


IMPACT_FILTERS = {
    "sizes": sizes_text,
    "parts": parts_text,
    "baseline": baseline_text,
    "gained": gained_text,
    "root": name_of_root,
}
