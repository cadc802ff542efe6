"""Show a history: one HTML file that makes no request, and a few lines for a log.

The page is under the policy of the report's page (render/html.py). Its links lead to commits, where
the address of the repository is known: that comes from the workflow and never from the history.
"""

from __future__ import annotations

import math

from markupsafe import Markup

from cudal1_ci import __version__
from cudal1_ci.render.html import asset, integrity, page_environment
from cudal1_ci.render.wording import (
    change_text,
    count_text,
    one_line,
    ratio_change_text,
    time_text,
)
from cudal1_ci.stats.regression import RELATIVE
from cudal1_ci.trend.drawing import draw, spark
from cudal1_ci.trend.series import Series
from cudal1_ci.trend.view import Seen, TargetView, View

MAX_LINES = 20
"""Of a summary's steps; the page has all of them."""
NUM_SHA = 10


def render_page(view: View, address: str | None = None) -> str:
    """Return the whole page. `address` is that of the repository, `https://github.com/o/r`."""
    script = asset("report.js")

    def link(sha: str) -> str | None:
        return None if address is None else f"{address}/commit/{sha}"

    def drawing(target: TargetView, series: Series) -> Markup:
        title = f"{target.qualname}, {series.workload}, {series.machine.name}: {told(series)}"
        return draw(series, view.commits.all, link, title)

    environment = page_environment()
    environment.filters.update(how=how, net=net, told=told)
    return environment.get_template("trend.html.j2").render(
        view=view,
        link=link,
        drawing=drawing,
        spark=spark,
        mood=mood,
        ratio=change_text,
        style=Markup(asset("report.css") + asset("trend.css")),
        script=Markup(script),
        script_hash=integrity(script),
        version=__version__,
    )


def how(ratio: float) -> str:
    """Format `+12.0 % slower`, `-23.1 % faster`."""
    return f"{ratio_change_text(ratio)} {'slower' if ratio > 1 else 'faster'}"


def mood(view: View, series: Series) -> str:
    """Return `slower` where a step of a series stands, `faster` where its last step was one to
    faster, else `steady`.
    """
    if any(seen.is_standing and seen.series is series for seen in view.steps):
        return "slower"
    is_faster = bool(series.steps) and series.change < 1 / (1 + RELATIVE[series.machine.kind])
    return "faster" if is_faster else "steady"


def told(series: Series) -> str:
    """Format `12.3 us now; +12.0 % slower by steps`."""
    return f"{time_text(series.points[-1].time_us)} now; {net(series)}"


def net(series: Series) -> str:
    """Format `+12.0 % slower by steps`, what all steps together come to."""
    if not series.steps:
        return "no step"
    is_undone = abs(math.log(series.change)) < math.log1p(RELATIVE[series.machine.kind])
    return "steps that undo one another" if is_undone else f"{how(series.change)} by steps"


def render_summary(view: View) -> str:
    """Return plain text, ending in a newline."""
    parts = [
        count_text(len(view.commits.all), "commit"),
        count_text(len(view.targets), "target"),
        " and ".join(map(one_line, view.devices)) or "nothing measured",
        f"{count_text(len(view.standing), 'step')} to slower that nothing has undone",
    ]
    lines = ["; ".join(parts)]
    if view.commits.left_out:
        lines.append(
            f"left out: {count_text(len(view.commits.left_out), 'commit')} on other branches"
        )
    if view.steps:
        lines += ["", f"Steps ({len(view.steps)})"]
        lines += [f"  {step_text(view, seen)}" for seen in view.steps[:MAX_LINES]]
    if len(view.steps) > MAX_LINES:
        lines.append(f"  ... and {len(view.steps) - MAX_LINES} more")
    return "\n".join(lines) + "\n"


def step_text(view: View, seen: Seen) -> str:
    """Format `+12.0 % slower  pkg/model.py:Block  base, NVIDIA H200  at 5f3c2a9d41 (10.0 us -> 11.2
    us)`.
    """
    step, series = seen.step, seen.series
    undone = "" if seen.undone_at is None else f", undone at {_sha(view, seen.undone_at)}"
    return (
        f"{how(step.ratio)}  {one_line(series.target)}  {one_line(series.workload)}, "
        f"{one_line(series.machine.name)}  at {_sha(view, step.place)} "
        f"({time_text(step.before_us)} -> {time_text(step.after_us)}){undone}"
    )


def _sha(view: View, place: int) -> str:
    return view.commit(place).sha[:NUM_SHA]
