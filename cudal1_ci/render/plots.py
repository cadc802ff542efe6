"""Draw times and speedups as inline SVG. Geometry only: colors and fonts are the page's CSS.

The overview has one bar a measurement on a logarithmic axis, so that 2x and 8x are as far apart as
0.5x and 2x; the plot of paired times starts at zero, so that lengths compare as times do.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from cudal1_ci.records import Measurement, Repetition
from cudal1_ci.render.wording import direction, speedup_text, time_text

WIDTH, HEIGHT = 640, 220
LEFT, RIGHT, TOP, BOTTOM = 68, 12, 12, 26
"""Pixels around the plot of times: room for its labels."""
NUM_GRID_LINES = 4
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10_000, 100_000)
MAX_TICKS = 6


@dataclass(frozen=True, kw_only=True)
class RatioAxis:
    """A logarithmic axis of speedups; positions are percent of its length."""

    low: float
    high: float

    @property
    def ticks(self) -> tuple[float, ...]:
        """Return 1 and the round ratios on the axis, thinned until they fit."""
        inside = [tick for tick in TICKS if self.low <= tick <= self.high]
        step = math.ceil(len(inside) / MAX_TICKS)
        origin = inside.index(1)
        return tuple(tick for i, tick in enumerate(inside) if (i - origin) % step == 0)

    def percent(self, ratio: float) -> float:
        span = math.log(self.high) - math.log(self.low)
        place = (math.log(ratio) - math.log(self.low)) / span
        return round(100 * min(max(place, 0.0), 1.0), 2)


def ratio_axis(measurements: Sequence[Measurement]) -> RatioAxis:
    """Return the axis that holds 1x and every interval, with a small margin."""
    lows = [m.speedup_low for m in measurements if m.speedup_low is not None]
    highs = [m.speedup_high for m in measurements if m.speedup_high is not None]
    lowest, highest = min(lows, default=1.0), max(highs, default=1.0)
    return RatioAxis(
        low=1.0 if lowest >= 1 else lowest / 1.05,
        high=max(highest * 1.05, 2.0),
    )


def bar(measurement: Measurement, axis: RatioAxis) -> Markup:
    """Draw one bar from 1x to the speedup, with its interval as a whisker. It stretches to its
    place.
    """
    if (
        measurement.speedup is None
        or measurement.speedup_low is None
        or measurement.speedup_high is None
    ):
        return Markup()
    one, end = axis.percent(1.0), axis.percent(measurement.speedup)
    low, high = axis.percent(measurement.speedup_low), axis.percent(measurement.speedup_high)
    grid = "".join(f"M{axis.percent(tick):g} 0V20" for tick in axis.ticks)
    return Markup(
        '<svg class="bar" viewBox="0 0 100 20" preserveAspectRatio="none" role="img" '
        'aria-label="{label}"><path class="grid" d="{grid}"/>'
        '<rect class="value {direction}" x="{x:g}" y="4" width="{width:g}" height="12"/>'
        '<path class="whisker" d="M{low:g} 10H{high:g}M{low:g} 6V14M{high:g} 6V14"/></svg>'
    ).format(
        label=speedup_text(measurement),
        direction=direction(measurement),
        grid=grid,
        x=min(one, end),
        width=abs(end - one),
        low=low,
        high=high,
    )


def paired_times(measurement: Measurement, title: str) -> Markup:
    """Draw every pair of a measurement in time order: reference and candidate, by repetition."""
    repetitions = measurement.repetitions
    if not repetitions:
        return Markup('<p class="muted">No times were kept.</p>')
    longest_us = max(
        t
        for repetition in repetitions
        for t in (*repetition.reference_us, *repetition.candidate_us)
    )
    frame = _Frame(top_us=_rounded_up(longest_us), num_pairs=_num_pairs(repetitions))
    parts = [_grid(frame), _repetition_lines(repetitions, frame)]
    for series in ("reference", "candidate"):
        times = [t for repetition in repetitions for t in getattr(repetition, f"{series}_us")]
        median_y = frame.y(statistics.median(times))
        dots = "".join(f"M{frame.x(i):.0f} {frame.y(t):.1f}h0" for i, t in enumerate(times))
        parts.append(f'<path class="median {series}" d="M{LEFT} {median_y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<path class="dots {series}" d="{dots}"/>')
    return Markup(
        f'<svg class="times" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(title)}"><title>{escape(title)}</title>{"".join(parts)}</svg>'
    )


@dataclass(frozen=True, kw_only=True)
class _Frame:
    """Map a pair and a time to the plot."""

    top_us: float
    num_pairs: int

    def x(self, pair: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (pair + 0.5) / self.num_pairs

    def y(self, time_us: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * time_us / self.top_us


def _grid(frame: _Frame) -> str:
    lines = []
    for i in range(NUM_GRID_LINES + 1):
        time_us = frame.top_us * i / NUM_GRID_LINES
        y = frame.y(time_us)
        label = time_text(time_us) if i else "0"
        lines.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        lines.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    return "".join(lines)


def _repetition_lines(repetitions: Sequence[Repetition], frame: _Frame) -> str:
    """Draw a line between repetitions, which are fresh processes, and their numbers below."""
    parts = []
    first = 0
    for number, repetition in enumerate(repetitions, 1):
        length = len(repetition.reference_us)
        middle = frame.x(first + (length - 1) / 2)
        if first:
            x = frame.x(first - 0.5)
            parts.append(f'<path class="repetition" d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}"/>')
        label = f"repetition {number}" if len(repetitions) <= 5 else str(number)
        parts.append(f'<text x="{middle:.1f}" y="{HEIGHT - 8}" text-anchor="middle">{label}</text>')
        first += length
    return "".join(parts)


def _num_pairs(repetitions: Sequence[Repetition]) -> int:
    return sum(len(repetition.reference_us) for repetition in repetitions)


def _rounded_up(value: float) -> float:
    """Return the next value of 1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8 times a power of ten. Their
    quarters, where the grid lines are, have few digits.
    """
    power = 10.0 ** math.floor(math.log10(value))
    steps = (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10)
    return power * next(step for step in steps if step >= value / power * (1 - 1e-9))
