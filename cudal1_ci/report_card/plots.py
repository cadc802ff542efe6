"""Draw a card as inline SVG. Geometry only: colors and fonts are the page's CSS.

Both have logarithmic axes of speedups, so that 2x and 8x are as far apart as 0.5x and 2x.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from cudal1_ci.render.plots import RatioAxis
from cudal1_ci.render.wording import ratio_text

WIDTH = 640
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 10, 30
CURVE_HEIGHT = 300
STRIP_LEFT = 190
STRIP_STEP = 30
"""Pixels of one column's strip."""
LEAST_INTENSITY, MOST_INTENSITY = 0.1, 2000.0
"""Operations a byte; a task without products is drawn at the left end."""
LEAST_SHARE, MOST_SHARE = 0.0001, 3.0
"""What fits into the L2 cache may be above the roofline, which is of the memory."""
NARROWEST = 2.0
"""Of the axis: noise of a percent must not fill the drawing."""


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A column in a drawing."""

    solver: str
    number: int
    """Of its color."""
    speedups: tuple[tuple[str, float, bool], ...]
    """Task, speedup, whether it is right."""
    quartiles: tuple[float, float, float]


def curves(columns: Sequence[Drawn]) -> Markup:
    """Draw the share of tasks that are right and more than p times as fast, from p = 1 on."""
    top = max((one for column in columns for _, one, _ in column.speedups), default=NARROWEST)
    axis = RatioAxis(low=1.0, high=max(top * 1.05, NARROWEST))

    def x(p: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * axis.percent(p) / 100

    def y(share: float) -> float:
        return CURVE_HEIGHT - BOTTOM - (CURVE_HEIGHT - TOP - BOTTOM) * share

    line = Markup(
        '<path class="grid" d="M{} {:.1f}H{}"/>'
        '<text x="{}" y="{:.1f}" text-anchor="end">{:.0f} %</text>'
    )
    parts = [*_vertical(axis, x, CURVE_HEIGHT)]
    parts += [
        line.format(LEFT, y(share), WIDTH - RIGHT, LEFT - 6, y(share) + 4, share * 100)
        for share in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]
    for column in columns:
        right = sorted(one for _, one, is_right in column.speedups if is_right and one > 1)
        total = len(column.speedups)
        path = f"M{x(1):.1f} {y(len(right) / total):.1f}" + "".join(
            f"H{x(speedup):.1f}V{y((len(right) - number) / total):.1f}"
            for number, speedup in enumerate(right, 1)
        )
        parts.append(
            Markup('<path class="curve s{}" d="{}"><title>{}</title></path>').format(
                column.number, path, column.solver
            )
        )
    return _svg("curves", CURVE_HEIGHT, "Share of tasks above a speedup, by column", parts)


def strips(columns: Sequence[Drawn]) -> Markup:
    """Draw every task as a dot, one strip a column, with the quartiles."""
    every = [one for column in columns for _, one, _ in column.speedups]
    axis = RatioAxis(low=min([*every, 1.0]) / 1.05, high=max([*every, NARROWEST / 1.05]) * 1.05)
    height = TOP + STRIP_STEP * len(columns) + BOTTOM

    def x(ratio: float) -> float:
        return STRIP_LEFT + (WIDTH - STRIP_LEFT - RIGHT) * axis.percent(ratio) / 100

    parts = [*_vertical(axis, x, height)]
    for row, column in enumerate(columns):
        y = TOP + STRIP_STEP * (row + 0.5)
        low, middle, high = column.quartiles
        parts.append(
            Markup(
                '<text x="{}" y="{:.1f}" text-anchor="end">{}</text>'
                '<path class="box s{}" d="M{:.1f} {:.1f}H{:.1f}"/>'
            ).format(STRIP_LEFT - 12, y + 4, column.solver, column.number, x(low), y, x(high))
        )
        for number, (task, speedup, is_right) in enumerate(column.speedups):
            # Neighbors would lie on each other; a fixed spread needs no randomness.
            offset = ((number * 7) % 11 - 5) * 0.9
            parts.append(
                Markup(
                    '<circle class="task s{}{}" cx="{:.1f}" cy="{:.1f}" r="2.6">'
                    "<title>{}</title></circle>"
                ).format(
                    column.number,
                    "" if is_right else " failed",
                    x(speedup),
                    y + offset,
                    f"{task}: {ratio_text(speedup) if is_right else 'failed, counts 1.00x'}",
                )
            )
        parts.append(
            Markup('<path class="middle" d="M{:.1f} {:.1f}V{:.1f}"/>').format(
                x(middle), y - 10, y + 10
            )
        )
    return _svg("strips", height, "Speedup of every task, by column", parts)


@dataclass(frozen=True, kw_only=True)
class RoofPoint:
    """A task, by operations a byte and the share of the roofline that it reaches."""

    task: str
    intensity: float
    before: float
    after: float


def roofline(points: Sequence[RoofPoint]) -> Markup:
    """Draw what share of the device's roofline each task reaches, before and after; empty where no
    bound is known.
    """
    if not points:
        return Markup()
    x_axis = RatioAxis(low=LEAST_INTENSITY, high=MOST_INTENSITY)
    y_axis = RatioAxis(low=LEAST_SHARE, high=MOST_SHARE)

    def x(intensity: float) -> float:
        percent = x_axis.percent(max(intensity, LEAST_INTENSITY))
        return LEFT + (WIDTH - LEFT - RIGHT) * percent / 100

    def y(share: float) -> float:
        percent = y_axis.percent(max(share, LEAST_SHARE))
        return CURVE_HEIGHT - BOTTOM - (CURVE_HEIGHT - TOP - BOTTOM) * percent / 100

    vertical = Markup(
        '<path class="grid" d="M{:.1f} {}V{}"/>'
        '<text x="{:.1f}" y="{}" text-anchor="middle">{:g}</text>'
    )
    level = Markup(
        '<path class="grid{}" d="M{} {:.1f}H{}"/>'
        '<text x="{}" y="{:.1f}" text-anchor="end">{:g} %</text>'
    )
    parts = [
        vertical.format(x(tick), TOP, CURVE_HEIGHT - BOTTOM, x(tick), CURVE_HEIGHT - 10, tick)
        for tick in (0.1, 1, 10, 100, 1000)
    ]
    for share in (0.0001, 0.001, 0.01, 0.1, 1):
        one, at, end = " one" if share == 1 else "", y(share), WIDTH - RIGHT
        parts.append(level.format(one, LEFT, at, end, LEFT - 6, at + 4, 100 * share))
    for point in points:
        at = x(point.intensity)
        parts.append(
            Markup(
                '<g class="roof-task"><title>{}: {:.1f} % of the roofline before, {:.1f} % after'
                '</title><path d="M{:.1f} {:.1f}V{:.1f}"/>'
                '<circle class="before" cx="{:.1f}" cy="{:.1f}" r="2.4"/>'
                '<circle class="after" cx="{:.1f}" cy="{:.1f}" r="2.8"/></g>'
            ).format(
                point.task,
                100 * point.before,
                100 * point.after,
                at,
                y(point.before),
                y(point.after),
                at,
                y(point.before),
                at,
                y(point.after),
            )
        )
    return _svg("curves", CURVE_HEIGHT, "Share of the roofline that each task reaches", parts)


def _vertical(axis: RatioAxis, x: Callable[[float], float], height: int) -> Iterator[Markup]:
    for tick in axis.ticks:
        yield Markup(
            '<path class="grid{}" d="M{:.1f} {}V{}"/>'
            '<text x="{:.1f}" y="{}" text-anchor="middle">{:g}x</text>'
        ).format(
            " one" if tick == 1 else "", x(tick), TOP, height - BOTTOM, x(tick), height - 10, tick
        )


def _svg(name: str, height: int, title: str, parts: Sequence[Markup]) -> Markup:
    return Markup('<svg class="{}" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        name, WIDTH, height, title, Markup("").join(parts)
    )
