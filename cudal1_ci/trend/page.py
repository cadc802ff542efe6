"""A history as one HTML file that asks nobody for anything, under the policy of the report's page
(render/html.py). Its links lead to commits, where the address of the repository is known: that
comes from who renders the page and never from the history.
"""

from __future__ import annotations

import math
from datetime import timedelta

from markupsafe import Markup

from cudal1_ci import __version__
from cudal1_ci.render.html import asset, integrity, page_environment
from cudal1_ci.render.wording import NOT_MEASURED, count_text, interval_text, ratio_text, time_text
from cudal1_ci.stats.regression import RELATIVE
from cudal1_ci.trend.drawing import draw
from cudal1_ci.trend.proposals import Measured
from cudal1_ci.trend.series import Series
from cudal1_ci.trend.view import Drawn, TargetView, View


def render_page(view: View, address: str | None = None) -> str:
    """The whole page. `address` is that of the repository, `https://github.com/o/r`."""
    script = asset("report.js")

    def link(sha: str) -> str | None:
        return None if address is None else f"{address}/commit/{sha}"

    def drawing(target: TargetView, drawn: Drawn) -> Markup:
        series = drawn.series
        title = f"{target.qualname}, {series.workload}, {series.machine.name}: {told(drawn)}"
        here = [
            one
            for one in target.accepted
            if any(m.machine.name == series.machine.name for m in one.measured)
        ]
        return draw(series, drawn.chain, here, view.commits.all, link, title)

    environment = page_environment()
    environment.filters.update(age=age_text, how=how, told=told)
    return environment.get_template("history.html.j2").render(
        view=view,
        link=link,
        drawing=drawing,
        ratio=interval_text,
        saved=saved_text,
        style=Markup(asset("report.css") + asset("history.css")),
        script=Markup(script),
        script_hash=integrity(script),
        version=__version__,
    )


def how(ratio: float) -> str:
    """`1.12x slower`, `1.30x faster`."""
    return f"{ratio_text(ratio)} slower" if ratio > 1 else f"{ratio_text(1 / ratio)} faster"


def told(drawn: Drawn) -> str:
    """`12.3 us now; 1.12x slower over 30 commits by steps; paired 1.10x [1.05, 1.15] ...`."""
    series = drawn.series
    parts = [
        f"{time_text(series.points[-1].time_us)} now",
        steps_text(series),
    ]
    if drawn.chain.links:
        last = drawn.chain.links[-1]
        gaps = drawn.chain.num_gaps
        parts.append(
            f"paired ratios multiply to {interval_text(last.product, last.low, last.high)} of the "
            f"time at first" + (f" ({count_text(gaps, 'gap')})" if gaps else "")
        )
    return "; ".join(parts)


def steps_text(series: Series) -> str:
    """`1.12x slower by steps`, where they do not undo one another."""
    if not series.steps:
        return "no step"
    is_undone = abs(math.log(series.change)) < math.log1p(RELATIVE[series.machine.kind])
    return "steps that undo one another" if is_undone else f"{how(series.change)} by steps"


def saved_text(one: Measured) -> str:
    """`12.3 us a call`, `1.20 ms a training step`."""
    if one.saved_us <= 0:
        return NOT_MEASURED
    is_step = any(gain.calls_per_step is not None for gain in one.gains)
    return f"{time_text(one.saved_us)} a {'training step' if is_step else 'call'}"


def age_text(age: timedelta | None, num_commits: int) -> str:
    """`12 days, 30 commits`."""
    commits = count_text(num_commits, "commit")
    return commits if age is None else f"{count_text(age.days, 'day')}, {commits}"
