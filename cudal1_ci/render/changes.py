"""Show what a change did to the speed of each target, the worst first.

Text, Markdown, HTML and the comment show the same `Changes`. A cell is a target on a device, where
the worst of its workloads decides, as it does for the target.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from cudal1_ci.records import (
    ComparedWorkload,
    Comparison,
    Entry,
    Report,
)
from cudal1_ci.render.wording import (
    NOT_MEASURED,
    change_text,
    count_text,
    device_text,
    ratio_change_text,
    time_text,
)
from cudal1_ci.stats.figures import of_rows
from cudal1_ci.stats.gate import Finding, is_acknowledged, is_missing
from cudal1_ci.stats.regression import SEVERITY

LOST = {
    "machine_missing": ("no report from", "machine"),
    "no_report": ("no report from", "project"),
    "unmeasured": ("no GPU visible on", "machine"),
}
"""What to say of machines and projects that did not measure, by the state of their finding."""
MEASURED = ("regression", "inconclusive", "improvement", "same")
"""Verdicts of targets whose two sides were timed, or were to be."""
VERDICT_WORDS = {
    "regression": "slower",
    "improvement": "faster",
    "same": "same",
    "inconclusive": "inconclusive",
    "new": "new",
    "removed": "removed",
    "skipped": "not measured",
}
BY_CALLERS = "measured by callers"
ICONS = {
    "regression": "\N{LARGE RED CIRCLE}",
    "improvement": "\N{LARGE GREEN CIRCLE}",
    "same": "\N{MEDIUM WHITE CIRCLE}",
    "inconclusive": "\N{LARGE YELLOW CIRCLE}",
    "new": "\N{SQUARED NEW}",
    "removed": "\N{HEAVY MINUS SIGN}",
    "skipped": "\N{BLACK RIGHT-POINTING DOUBLE TRIANGLE}",
}


@dataclass(frozen=True, kw_only=True)
class Change:
    """A target before and after. `cells` are of the devices of all changes, in their order."""

    entry: Entry
    comparison: Comparison
    cells: tuple[Comparison | None, ...]

    def workload(self, row: ComparedWorkload) -> str:
        """Format `8x128`, or `8x128, train, bf16 autocast`: calls of one shape differ by that
        alone."""
        named = (w.conditions for w in self.entry.workloads if w.name == row.workload)
        return ", ".join((row.workload, *next(named, ())))

    @property
    def previous(self) -> str:
        """Format `was model.py:OldName`; empty where the target has kept its name and file."""
        return f"was {self.comparison.previous}" if self.comparison.previous else ""


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Hold all targets that were compared, or should have been, the worst first."""

    devices: tuple[str, ...]
    all: tuple[Change, ...]

    @property
    def measured(self) -> tuple[Change, ...]:
        return self.of(*MEASURED)

    def of(self, *verdicts: str) -> tuple[Change, ...]:
        found = (change for change in self.all if change.comparison.verdict in verdicts)
        return tuple(change for change in found if not change.comparison.within)

    @property
    def helpers(self) -> tuple[Change, ...]:
        """Return what has no call of its own, and was measured by what calls it."""
        return tuple(change for change in self.all if change.comparison.within)

    def count(self, verdict: str) -> int:
        return len(self.of(verdict))

    @property
    def num_acknowledged(self) -> int:
        return sum(is_acknowledged(change.comparison) for change in self.of("regression"))

    @property
    def missing(self) -> tuple[Change, ...]:
        """Return what of the base was not measured, or not on every machine."""
        return tuple(change for change in self.all if is_missing(change.comparison))


def changes(document: Report) -> Changes:
    """Return the changes of a report; empty where nothing was compared."""
    compared = [(e, e.comparison) for e in document.entries if e.comparison is not None]
    rows = [row for _, comparison in compared for row in comparison.rows]
    devices = tuple(dict.fromkeys(device_text(row.device) for row in rows if row.device))
    found = [
        Change(entry=entry, comparison=comparison, cells=_cells(comparison, devices))
        for entry, comparison in compared
    ]
    return Changes(devices=devices, all=tuple(sorted(found, key=_rank)))


def is_only_compared(entry: Entry) -> bool:
    """Return whether no faster version was searched for, so that finding none means nothing."""
    tried = entry.evaluations or entry.model_use is not None or entry.skipped is not None
    return entry.comparison is not None and not tried


def _rank(change: Change) -> tuple[int, bool, float, str, str]:
    """Return a sort key: worst verdict first, then unacknowledged ones, then the largest
    difference.
    """
    comparison, target = change.comparison, change.entry.target
    size = comparison.slowdown or 1.0
    return (
        SEVERITY.index(comparison.verdict),
        comparison.acknowledged is not None,
        size if comparison.verdict == "improvement" else -size,
        target.path,
        target.qualname,
    )


def _cells(comparison: Comparison, devices: Sequence[str]) -> tuple[Comparison | None, ...]:
    """Return the cell of each device; a row without a device fills cells that are
    otherwise empty.
    """
    rows: dict[str | None, list[ComparedWorkload]] = {}
    for row in comparison.rows:
        rows.setdefault(device_text(row.device) if row.device else None, []).append(row)
    unplaced = rows.get(None, [])
    if len(devices) == 1:
        rows = {devices[0]: list(comparison.rows)}
    empty = msgspec.structs.replace(comparison, acknowledged=None, reason=None)
    found = (rows.get(device, unplaced) for device in devices)
    return tuple(of_rows(tuple(one), empty) if one else None for one in found)


# --- in words --------------------------------------------------------------------------------


def cell_text(cell: Comparison | ComparedWorkload | None) -> str:
    """Format a cell: `+12.0 % [+10.0, +14.0] slower`, `-9.0 % [-11.0, -7.0] faster`, `same`,
    `inconclusive`, or a dash where there is no result. The percentage is of the base's time.
    """
    if cell is None:
        return NOT_MEASURED
    if isinstance(cell, Comparison) and cell.within:
        return BY_CALLERS
    word = VERDICT_WORDS[cell.verdict]
    has_numbers = cell.verdict in ("regression", "improvement")
    return f"{numbers_text(cell)} {word}".strip() if has_numbers else word


def row_text(row: Comparison | ComparedWorkload) -> str:
    """Format a row like `cell_text`, with numbers for `same` and `inconclusive` too: `+0.3 % [-1.0,
    +2.0] same within noise`. The text is `within the threshold` where the interval shows a
    difference that is too small to count. For a short call that may depend on the absolute time
    alone.
    """
    numbers = numbers_text(row)
    if row.verdict not in ("same", "inconclusive") or not numbers:
        return cell_text(row)
    said = VERDICT_WORDS[row.verdict]
    if row.verdict == "same":
        has_one = (row.slowdown_low or 0.0) <= 1.0 <= (row.slowdown_high or 0.0)
        said += " within noise" if has_one else f" within {_bound_text(row)}"
    return f"{numbers} {said}"


HALF_A_MICROSECOND = 0.5
"""By default no comparison counts less than this as a difference, however short a call is."""


def _bound_text(row: Comparison | ComparedWorkload) -> str:
    """Return the threshold below which a difference counts as none, in words."""
    base_us = row.base_us if isinstance(row, ComparedWorkload) else None
    if base_us is None or row.slowdown_low is None or row.slowdown_high is None:
        return "the threshold"
    spread_us = max(row.slowdown_high - 1, 1 - row.slowdown_low) * base_us
    return "half a microsecond" if spread_us <= HALF_A_MICROSECOND else "the threshold"


def numbers_text(cell: Comparison | ComparedWorkload) -> str:
    """Format `+12.0 % [+10.0, +14.0]`; empty where nothing was measured."""
    if cell.slowdown is None or cell.slowdown_low is None or cell.slowdown_high is None:
        return ""
    return change_text(cell.slowdown, cell.slowdown_low, cell.slowdown_high)


def times_text(cell: Comparison | ComparedWorkload | None) -> str:
    """Format `120 us -> 135 us`, of the workload that decides; a dash where it was not timed."""
    if isinstance(cell, Comparison):
        cell = next((row for row in cell.rows if row.slowdown == cell.slowdown), None)
    if cell is None or cell.base_us is None or cell.head_us is None:
        return NOT_MEASURED
    return f"{time_text(cell.base_us)} \N{RIGHTWARDS ARROW} {time_text(cell.head_us)}"


def icon_counts_text(found: Changes) -> str:
    """Format `🔴 2 slower (1 acknowledged), 🟢 1 faster`; empty where nothing was compared."""
    said = [
        f"{ICONS[verdict]} {found.count(verdict)} {word}"
        + (
            f" ({found.num_acknowledged} acknowledged)"
            if verdict == "regression" and found.num_acknowledged
            else ""
        )
        for verdict, word in VERDICT_WORDS.items()
        if found.count(verdict)
    ]
    if found.helpers:
        said.append(f"{ICONS['same']} {len(found.helpers)} {BY_CALLERS}")
    return ", ".join(said)


def counts_text(found: Changes) -> str:
    """Format `2 slower (1 acknowledged), 1 faster, 10 same; 1 new`; empty where nothing was
    compared.
    """
    counts = Counter({verdict: found.count(verdict) for verdict in VERDICT_WORDS})
    words = {
        verdict: f"{counts[verdict]} {VERDICT_WORDS[verdict]}"
        for verdict in SEVERITY
        if counts[verdict]
    }
    if found.num_acknowledged:
        words["regression"] += f" ({found.num_acknowledged} acknowledged)"
    order = ("regression", "improvement", "same", "inconclusive")
    measured = ", ".join(words[verdict] for verdict in order if verdict in words)
    others = ", ".join(words[v] for v in ("new", "removed", "skipped") if v in words)
    helpers = f"{len(found.helpers)} {BY_CALLERS}" if found.helpers else ""
    return "; ".join(part for part in (measured, others, helpers) if part)


def headline(
    found: Changes, num_proposals: int, is_search: bool = True, missing: Sequence[Finding] = ()
) -> str:
    """Return the whole verdict in a few words; of the comparison alone where no search was made.
    `missing` are machines and projects that have left no report.
    """
    said = _verdict(found)
    lost = [one for one in missing if one.state in LOST]
    if not is_search and not found.all:
        said = "nothing to compare"
    elif lost and not num_proposals and not found.all:
        said = "nothing measured"
    elif num_proposals or not found.all:
        count = count_text(num_proposals, "faster version")
        proven = f"{count if num_proposals else 'no faster version'} proven"
        said = f"{said}; {proven}" if said else proven
    if number := sum(bool(change.comparison.broken) for change in found.all):
        said += f"; {count_text(number, 'target')} with a use that no longer works"
    if number := sum(change.comparison.output_change is not None for change in found.all):
        said += f"; {count_text(number, 'changed output')}"
    for state, (lack, noun) in LOST.items():
        if number := sum(one.state == state for one in missing):
            said += f"; {lack} {count_text(number, noun)}"
    if any(one.state == "unverified" for one in missing):
        said += "; unverified"
    return said


def _verdict(found: Changes) -> str:
    timed = [change for change in found.measured if change.comparison.rows]
    unsure = [c for c in found.of("inconclusive") if not is_missing(c.comparison)]
    num_open = sum(not is_acknowledged(c.comparison) for c in found.of("regression"))
    num_removed = sum(one.comparison.verdict == "removed" for one in found.missing)
    lacking = {"removed": num_removed, "not measured": len(found.missing) - num_removed}
    lack = "".join(f", {number} {word}" for word, number in lacking.items() if number)
    of_all = f"of {count_text(len(found.measured), 'target')}"
    doubt = f", {len(unsure)} inconclusive" if unsure else ""
    if num_open:
        return f"{num_open} {of_all} got slower{doubt}{lack}"
    if found.num_acknowledged:
        return f"{found.num_acknowledged} {of_all} got slower, as acknowledged{doubt}{lack}"
    if unsure:
        return f"{len(unsure)} {of_all} inconclusive, none found to be slower{lack}"
    if found.count("improvement"):
        return f"{found.count('improvement')} {of_all} got faster, none slower{lack}"
    if timed:
        return f"no target got slower{lack}"
    if found.missing:
        return "nothing could be compared"
    return "nothing to compare" if found.all else ""


def spread_of(found: Iterable[ComparedWorkload], device: str) -> float | None:
    """Return the largest distance from 1 that a base showed against itself on a device."""
    spreads = (
        row.control_spread for row in found if row.device and device_text(row.device) == device
    )
    return max((spread for spread in spreads if spread is not None), default=None)


CHANGE_FILTERS: dict[str, Callable[..., str]] = {
    "cell": cell_text,
    "numbers": numbers_text,
    "change": ratio_change_text,
    "icon": lambda cell: "" if cell is None else ICONS[cell.verdict],
    "times": times_text,
    "row": row_text,
}
"""The same words under the names that templates call them by."""
