"""Show a history: one HTML file that makes no request, and a few lines for a log.

The page is under the policy of the report's page (render/html.py). Its links lead to commits, where
the address of the repository is known: that comes from the workflow and never from the history.
"""

from __future__ import annotations

import math

from markupsafe import Markup

from cudal1_ci import __version__
from cudal1_ci.render.html import asset, integrity, page_environment
from cudal1_ci.render.wording import count_text, interval_text, one_line, ratio_text, time_text
from cudal1_ci.stats.regression import RELATIVE
from cudal1_ci.trend.drawing import draw
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
    environment.filters.update(how=how, told=told)
    return environment.get_template("trend.html.j2").render(
        view=view,
        link=link,
        drawing=drawing,
        ratio=interval_text,
        style=Markup(asset("report.css") + asset("trend.css")),
        script=Markup(script),
        script_hash=integrity(script),
        version=__version__,
    )


def how(ratio: float) -> str:
    """Format `1.12x slower`, `1.30x faster`."""
    return f"{ratio_text(ratio)} slower" if ratio > 1 else f"{ratio_text(1 / ratio)} faster"


def told(series: Series) -> str:
    """Format `12.3 us now; 1.12x slower by steps`, where the steps do not undo one another."""
    now = f"{time_text(series.points[-1].time_us)} now"
    if not series.steps:
        return f"{now}; no step"
    is_undone = abs(math.log(series.change)) < math.log1p(RELATIVE[series.machine.kind])
    steps = "steps that undo one another" if is_undone else f"{how(series.change)} by steps"
    return f"{now}; {steps}"


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
            f"left out: {count_text(len(view.commits.left_out), 'commit')} beside the line"
        )
    if view.steps:
        lines += ["", f"Steps ({len(view.steps)})"]
        lines += [f"  {step_text(view, seen)}" for seen in view.steps[:MAX_LINES]]
    if len(view.steps) > MAX_LINES:
        lines.append(f"  ... and {len(view.steps) - MAX_LINES} more")
    return "\n".join(lines) + "\n"


def step_text(view: View, seen: Seen) -> str:
    """Format `1.12x slower pkg/model.py:Block base, NVIDIA H200 at 5f3c2a9d41 (10.0 us -> 11.2
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
