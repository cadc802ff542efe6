"""Draw one call before and after on one scale: what the host issues, and what the device runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from markupsafe import Markup, escape

from cudal1_ci.records import CallCost, Impact
from cudal1_ci.render.wording import time_text

WIDTH, LANE = 1000, 20
NUM_COLORS = 6
OTHERS = "o6"
LEAST_WIDTH = 0.4
"""Events that are narrower are drawn this wide."""


@dataclass(frozen=True, kw_only=True)
class Lane:
    """One row of the drawing."""

    side: str
    """`before` or `after`."""
    name: str
    total: str
    svg: Markup


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """The rows, and the colors of what takes the most time."""

    lanes: tuple[Lane, ...]
    legend: tuple[tuple[str, str], ...]
    is_cut: bool
    scale: str


def timeline_of(impact: Impact) -> Timeline | None:
    """Return the drawing of an impact; None where a call was not profiled."""
    before, after = impact.before, impact.after
    if before is None or after is None or not before.events or not after.events:
        return None
    spans_us = [one.start_us + one.duration_us for cost in (before, after) for one in cost.events]
    scale_us = max(spans_us) or 1.0
    colors = colors_of(before, after)
    lanes = [
        lane
        for side, cost in (("before", before), ("after", after))
        for lane in lanes_of(side, cost, scale_us, colors)
    ]
    return Timeline(
        lanes=tuple(lanes),
        legend=tuple((color, name) for name, color in colors.items()),
        is_cut=before.is_cut or after.is_cut,
        scale=time_text(scale_us),
    )


def colors_of(*costs: CallCost) -> dict[str, str]:
    """Return a color for each name that takes the most time."""
    times: Counter[str] = Counter()
    for cost in costs:
        has_device = any(one.on_device for one in cost.events)
        for one in cost.events:
            if one.on_device == has_device:
                times[cost.names[one.name]] += int(1000 * one.duration_us)
    most = [name for name, _ in times.most_common(NUM_COLORS)]
    return {name: f"o{number}" for number, name in enumerate(most)}


def lanes_of(side: str, cost: CallCost, scale_us: float, colors: dict[str, str]) -> list[Lane]:
    """Return the rows of one side."""
    found = []
    for on_device, name in ((False, "host"), (True, "device")):
        events = [one for one in cost.events if one.on_device == on_device]
        if not events:
            continue
        parts = []
        for one in events:
            label = cost.names[one.name]
            x = WIDTH * one.start_us / scale_us
            width = max(LEAST_WIDTH, WIDTH * one.duration_us / scale_us)
            parts.append(
                f'<rect class="part {colors.get(label, OTHERS)}" x="{x:.2f}" y="0" '
                f'width="{width:.2f}" height="{LANE}"><title>{escape(label)}, '
                f"{time_text(one.duration_us)}</title></rect>"
            )
        total_us = sum(one.duration_us for one in events)
        svg = Markup(
            f'<svg class="lane" viewBox="0 0 {WIDTH} {LANE}" preserveAspectRatio="none" '
            f'role="img" aria-label="{side}, {name}">{"".join(parts)}</svg>'
        )
        found.append(Lane(side=side, name=name, total=time_text(total_us), svg=svg))
    return found
