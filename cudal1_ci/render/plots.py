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

from cudal1_ci.records import ComparedWorkload, Measurement, Repetition
from cudal1_ci.render.wording import change_text, direction, percent_text, speedup_text, time_text

WIDTH, HEIGHT = 640, 220
LEFT, RIGHT, TOP, BOTTOM = 68, 12, 12, 26
"""Pixels around the plot of times: room for its labels."""
NUM_GRID_LINES = 4
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10_000, 100_000)
MAX_TICKS = 6
LEAST_CHANGE = 1.1
"""What an axis of changes has room for at least, on both sides."""
MOST_SPREAD = 1.0
"""Noise that an axis makes room for; more is cut at its end."""
SERIES = ("reference", "candidate")
FAR = 2.5
"""Times the median beyond which a time is an outlier of a drawing."""


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
    """Return the axis of speedups; it has room for twice as fast."""
    intervals = [(m.speedup_low, m.speedup_high, m.control_spread) for m in measurements]
    axis = _axis(intervals)
    return RatioAxis(low=axis.low, high=max(axis.high, 2.0))


def change_axis(rows: Sequence[ComparedWorkload]) -> RatioAxis:
    """Return the axis of changes: the head's time over the base's."""
    axis = _axis([(row.slowdown_low, row.slowdown_high, row.control_spread) for row in rows])
    return RatioAxis(low=min(axis.low, 1 / LEAST_CHANGE), high=max(axis.high, LEAST_CHANGE))


def _axis(intervals: Sequence[tuple[float | None, float | None, float | None]]) -> RatioAxis:
    """Return the axis that holds every interval and the noise around 1x, with a small margin."""
    noise = [1 + min(spread or 0.0, MOST_SPREAD) for _, _, spread in intervals]
    lows = [1 / x for x in noise] + [low for low, _, _ in intervals if low]
    highs = noise + [high for _, high, _ in intervals if high]
    lowest, highest = min(lows, default=1.0), max(highs, default=1.0)
    return RatioAxis(low=1.0 if lowest >= 1 else lowest / 1.05, high=highest * 1.05)


def bar(measurement: Measurement, axis: RatioAxis) -> Markup:
    """Draw a speedup, as `_bar` does."""
    m = measurement
    if m.speedup is None or m.speedup_low is None or m.speedup_high is None:
        return Markup()
    bounds = (m.speedup, m.speedup_low, m.speedup_high)
    return _bar(bounds, m.control_spread, direction(m), speedup_text(m), axis)


def change_bar(row: ComparedWorkload, axis: RatioAxis) -> Markup:
    """Draw a change, as `_bar` does; to the right is slower."""
    if row.slowdown is None or row.slowdown_low is None or row.slowdown_high is None:
        return Markup()
    bounds = (row.slowdown, row.slowdown_low, row.slowdown_high)
    way = {"regression": "slower", "improvement": "faster"}.get(row.verdict, "unclear")
    return _bar(bounds, row.control_spread, way, change_text(*bounds), axis)


def _bar(
    bounds: tuple[float, float, float],
    spread: float | None,
    direction: str,
    label: str,
    axis: RatioAxis,
) -> Markup:
    """Draw one bar from 1x to a ratio, with its interval as a whisker and the noise (A/A) as a
    band around 1x. It stretches to its place.
    """
    one = axis.percent(1.0)
    end, low, high = map(axis.percent, bounds)
    grid = "".join(f"M{axis.percent(tick):g} 0V20" for tick in axis.ticks)
    noise = 1 + (spread or 0.0)
    return Markup(
        '<svg class="bar" viewBox="0 0 100 20" preserveAspectRatio="none" role="img" '
        'aria-label="{label}"><rect class="noise" x="{left:g}" y="0" width="{band:g}" height="20"/>'
        '<path class="grid" d="{grid}"/>'
        '<rect class="value {direction}" x="{x:g}" y="4" width="{width:g}" height="12"/>'
        '<path class="whisker" d="M{low:g} 10H{high:g}M{low:g} 6V14M{high:g} 6V14"/></svg>'
    ).format(
        label=f"{label}, A/A {percent_text(spread)}",
        left=axis.percent(1 / noise),
        band=axis.percent(noise) - axis.percent(1 / noise),
        direction=direction,
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
    frame = _Frame(top_us=_rounded_up(_top_us(repetitions)), num_pairs=_num_pairs(repetitions))
    parts = [_noise(measurement, frame), _grid(frame), _repetition_lines(repetitions, frame)]
    for series in SERIES:
        times = [t for repetition in repetitions for t in getattr(repetition, f"{series}_us")]
        median_y = frame.y(statistics.median(times))
        dots = "".join(
            f"M{frame.x(i):.0f} {frame.y(t):.1f}h0"
            for i, t in enumerate(times)
            if t <= frame.top_us
        )
        parts.append(f'<path class="median {series}" d="M{LEFT} {median_y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<path class="dots {series}" d="{dots}"/>')
        parts += [
            f'<g class="outlier {series}"><title>{time_text(t)}</title>'
            f'<path d="M{frame.x(i) - 4:.1f} {TOP + 7}l4 -7l4 7z"/></g>'
            for i, t in enumerate(times)
            if t > frame.top_us
        ]
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


def _top_us(repetitions: Sequence[Repetition]) -> float:
    """Return the longest time that is drawn; a rare one that is far from the others does not take
    the axis, but is marked at its top.
    """
    sides: list[list[float]] = [
        [t for r in repetitions for t in getattr(r, f"{x}_us")] for x in SERIES
    ]
    most: float = FAR * max(map(statistics.median, sides))
    return max(t for side in sides for t in side if t <= most)


def _noise(measurement: Measurement, frame: _Frame) -> str:
    """Draw the noise (A/A) as a band around the reference's typical time."""
    spread = measurement.control_spread
    if not spread:
        return ""
    times = [t for repetition in measurement.repetitions for t in repetition.reference_us]
    middle_us = statistics.median(times)
    low, high = middle_us / (1 + spread), min(middle_us * (1 + spread), frame.top_us)
    return (
        f'<rect class="noise" x="{LEFT}" y="{frame.y(high):.1f}" width="{WIDTH - LEFT - RIGHT}" '
        f'height="{frame.y(low) - frame.y(high):.1f}"/>'
    )


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
