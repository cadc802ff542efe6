"""Draw a series as inline SVG. Geometry only: colors and fonts are the page's CSS.

The axis of time is logarithmic, so that a tenth more looks the same everywhere; that of commits has
the same places in every drawing, so that one looks across. Of many commits the last ones are drawn
one by one, each a link to its commit; earlier ones are thinned to the medians of neighbors, and the
levels, steps and breaks, which are what is looked for, are always all there.
"""

from __future__ import annotations

import itertools
import math
import operator
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from cudal1_ci.render.wording import ratio_change_text, time_text
from cudal1_ci.trend.series import Commit, Level, Point, Series

WIDTH, HEIGHT = 640, 190
LEFT, RIGHT, TOP, BOTTOM = 82, 14, 26, 26
"""Pixels around the drawing: room for its labels, which are larger on a small screen."""
NUM_SINGLE = 60
"""The last points, which are drawn one by one."""
NUM_SHA = 7
NUM_THINNED = 150
"""What earlier points are thinned to, at most."""
SMALLEST_SPAN = math.log(1.25)
"""Of the axis of time: noise of a percent must not fill the drawing."""

Link = Callable[[str], str | None]
"""The address of a commit; None where it is not known."""


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Map a commit and a time to the drawing."""

    num_places: int
    low: float
    high: float

    def x(self, place: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (place + 0.5) / self.num_places

    def y(self, time_us: float) -> float:
        height = HEIGHT - TOP - BOTTOM
        return HEIGHT - BOTTOM - height * (math.log(time_us) - self.low) / (self.high - self.low)


def draw(
    series: Series,
    commits: Sequence[Commit],
    link: Link,
    title: str,
) -> Markup:
    """Draw times of every session, levels, steps and breaks."""
    frame = _frame([point.time_us for point in series.points], len(commits))
    parts = [
        *_grid(frame),
        *_ends(commits),
        *_breaks(series, frame),
        _levels(series, frame),
        _thinned(series.points[:-NUM_SINGLE], frame),
        *_single(series.points[-NUM_SINGLE:], commits, link, frame),
        *_steps(series, commits, frame),
    ]
    return Markup(
        '<svg class="history" viewBox="0 0 {} {}" role="img" aria-label="{}">'
        "<title>{}</title>{}</svg>"
    ).format(WIDTH, HEIGHT, title, title, Markup("").join(parts))


def spark(series: Series, num_places: int) -> Markup:
    """Draw the steps alone, small, on the same places as `draw`. Where the machine changed, the
    line stays level, so unchanged code is flat.
    """
    places = [series.points[level.start].place for level in series.levels]
    steps = {step.place: step.ratio for step in series.steps}
    heights = list(itertools.accumulate((steps.get(p, 1.0) for p in places), operator.mul))
    frame = _frame(heights, num_places)
    parts: list[str] = []
    for level, height in zip(series.levels, heights, strict=True):
        first, last = series.points[level.start].place, series.points[level.end - 1].place
        join = "M" if not parts else "L"
        y = frame.y(height)
        parts.append(f"{join}{frame.x(first - 0.5):.0f} {y:.0f}L{frame.x(last + 0.5):.0f} {y:.0f}")
    return Markup(
        '<svg class="spark" viewBox="{} {} {} {}" preserveAspectRatio="none" role="img" '
        'aria-label="{}: steps over {} commits"><path class="level" d="{}"/></svg>'
    ).format(
        LEFT,
        TOP,
        WIDTH - LEFT - RIGHT,
        HEIGHT - TOP - BOTTOM,
        series.target,
        num_places,
        "".join(parts),
    )


def _frame(times_us: Sequence[float], num_places: int) -> Frame:
    low, high = math.log(min(times_us)), math.log(max(times_us))
    missing = max(0.0, SMALLEST_SPAN - (high - low)) / 2
    air = 0.08 * (high - low + 2 * missing)
    return Frame(num_places=num_places, low=low - missing - air, high=high + missing + air)


def _grid(frame: Frame) -> Iterator[Markup]:
    for time_us in ticks(math.exp(frame.low), math.exp(frame.high)):
        y = frame.y(time_us)
        yield Markup('<path class="grid" d="M{} {:.1f}H{}"/>').format(LEFT, y, WIDTH - RIGHT)
        yield Markup('<text x="{}" y="{:.1f}" text-anchor="end">{}</text>').format(
            LEFT - 7, y + 4, time_text(time_us)
        )


def ticks(low: float, high: float) -> list[float]:
    """Return two to five times with few digits within the bounds."""
    for digits in (
        (1,),
        (1, 3),
        (1, 2, 5),
        (1, 1.5, 2, 3, 5, 7),
        tuple(x / 10 for x in range(10, 100, 2)),
    ):
        power = 10.0 ** math.floor(math.log10(low))
        found = [f * d * power for f in (1, 10, 100, 1000) for d in digits]
        inside = [value for value in found if low <= value <= high]
        if len(inside) >= 2:
            return inside[:: math.ceil(len(inside) / 5)]
    return [math.sqrt(low * high)]


def _ends(commits: Sequence[Commit]) -> Iterator[Markup]:
    """Draw the first and the last commit, below, with their days."""
    for place, anchor in ((0, "start"), (len(commits) - 1, "end")):
        commit = commits[place]
        day = f" {commit.date:%Y-%m-%d}" if commit.date else ""
        x = LEFT if anchor == "start" else WIDTH - RIGHT
        yield Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>').format(
            x, HEIGHT - 7, anchor, commit.sha[:NUM_SHA] + day
        )
        if len(commits) == 1:
            return


def _breaks(series: Series, frame: Frame) -> Iterator[Markup]:
    for one in series.breaks:
        x = frame.x(one.place - 0.5)
        yield Markup('<g class="break"><title>{}</title><path d="M{:.1f} {}V{}"/></g>').format(
            one.what, x, TOP - 4, HEIGHT - BOTTOM
        )


def _levels(series: Series, frame: Frame) -> Markup:
    def ends(level: Level) -> tuple[float, float]:
        first, last = series.points[level.start], series.points[level.end - 1]
        return frame.x(first.place - 0.5), frame.x(last.place + 0.5)

    path = "".join(
        f"M{ends(level)[0]:.1f} {frame.y(level.time_us):.1f}H{ends(level)[1]:.1f}"
        for level in series.levels
    )
    return Markup('<path class="level" d="{}"/>').format(path)


def _thinned(points: Sequence[Point], frame: Frame) -> Markup:
    if not points:
        return Markup()
    size = math.ceil(len(points) / NUM_THINNED)
    groups = [points[i : i + size] for i in range(0, len(points), size)]
    dots = "".join(
        f"M{frame.x(statistics.fmean(p.place for p in group)):.1f} "
        f"{frame.y(statistics.median(p.time_us for p in group)):.1f}h0"
        for group in groups
    )
    return Markup('<path class="dots" d="{}"/>').format(dots)


def _single(
    points: Sequence[Point], commits: Sequence[Commit], link: Link, frame: Frame
) -> Iterator[Markup]:
    for point in points:
        commit = commits[point.place]
        day = f" {commit.date:%Y-%m-%d}" if commit.date else ""
        said = f"{commit.sha[:10]}{day}: {time_text(point.time_us)}{_paired(point)}"
        mark = {"regression": " slower", "improvement": " faster"}.get(point.row.verdict or "", "")
        dot = Markup(
            '<circle class="dot{}" cx="{:.1f}" cy="{:.1f}" r="3"><title>{}</title></circle>'
        )
        dot = dot.format(mark, frame.x(point.place), frame.y(point.time_us), said)
        address = link(commit.sha)
        yield dot if address is None else Markup('<a href="{}">{}</a>').format(address, dot)


def _paired(point: Point) -> str:
    row = point.row
    return "" if row.slowdown is None else f", {ratio_change_text(row.slowdown)} paired with base"


def _steps(series: Series, commits: Sequence[Commit], frame: Frame) -> Iterator[Markup]:
    for step in series.steps:
        x = frame.x(step.place - 0.5)
        is_slower = step.ratio > 1
        said = f"{ratio_change_text(step.ratio)} at {commits[step.place].sha[:NUM_SHA]}"
        anchor = "end" if x > WIDTH - 90 else "start" if x < LEFT + 80 else "middle"
        yield Markup(
            '<g class="step {}"><path d="M{:.1f} {:.1f}V{:.1f}"/>'
            '<text x="{:.1f}" y="{}" text-anchor="{}">{}{}</text></g>'
        ).format(
            "slower" if is_slower else "faster",
            x,
            frame.y(step.before_us),
            frame.y(step.after_us),
            x,
            TOP - 10,
            anchor,
            "▲ " if is_slower else "▼ ",
            said,
        )
