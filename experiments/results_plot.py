"""Draw fast_p as a separate file: the drawing of the card's page, with its colors and a legend
inside, because a picture in Markdown has no style sheet.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from markupsafe import Markup

from cudal1_ci.render.html import asset
from cudal1_ci.report_card.columns import BEST
from cudal1_ci.report_card.plots import CURVE_HEIGHT, LEFT, RIGHT, WIDTH, Drawn, curves

FONT = 'system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, "DejaVu Sans", sans-serif'
CHARACTER = 7.2
"""Pixels that one of the legend takes at most, about."""
SWATCH, GAP = 16, 18
LINE = 20


def picture(drawn: Sequence[Drawn]) -> str:
    """Return an SVG file of columns. Expects one task at least."""
    entries, height = legend(drawn)
    full = CURVE_HEIGHT + height
    size = f'width="{WIDTH}" height="{full}"'
    lines = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {WIDTH} {full}">',
        f"<style>\n{style(drawn)}\n</style>",
        f'<rect class="paper" {size}/>',
        f'<svg width="{WIDTH}" height="{CURVE_HEIGHT}">',
        str(curves(drawn)).replace("><path", ">\n<path"),
        "</svg>",
        *entries,
        "</svg>",
    )
    return "\n".join(map(str, lines)) + "\n"


def legend(columns: Sequence[Drawn]) -> tuple[list[Markup], int]:
    """Draw colors with their columns below the drawing; return the height that they take."""
    parts: list[Markup] = []
    x, y = float(LEFT), CURVE_HEIGHT + LINE // 2
    for column in columns:
        width = SWATCH + CHARACTER * len(column.solver) + GAP
        if x + width > WIDTH - RIGHT and x > LEFT:
            x, y = float(LEFT), y + LINE
        parts.append(
            Markup(
                '<path class="curve s{}" d="M{:.1f} {}h{}"/><text x="{:.1f}" y="{}">{}</text>'
            ).format(column.number, x, y, SWATCH - 5, x + SWATCH, y + 4, column.solver)
        )
        x += width
    return parts, y + LINE - CURVE_HEIGHT


def style(columns: Sequence[Drawn]) -> str:
    """Return the page's style in its light colors, without variables: few programs except browsers
    support them.
    """
    ink = {name: hue(asset("report.css"), name) for name in ("paper", "line", "muted")}
    rules = [
        f"text {{ font: 12px {FONT}; fill: {ink['muted']}; }}",
        f".paper {{ fill: {ink['paper']}; }}",
        f".grid {{ stroke: {ink['line']}; fill: none; }}",
        f".grid.one {{ stroke: {ink['muted']}; }}",
        ".curve { fill: none; stroke-width: 2; stroke-linejoin: round; }",
    ]
    for one in columns:
        bold = " stroke-width: 3;" if one.solver == BEST else ""
        rules.append(
            f".s{one.number} {{ stroke: {hue(asset('bench.css'), f's{one.number}')};{bold} }}"
        )
    return "\n".join(rules)


def hue(sheet: str, name: str) -> str:
    """Return the first value of a color in a style sheet."""
    found = re.search(rf"--{name}: (#[0-9a-f]{{6}});", sheet)
    assert found is not None, name
    return found[1]
