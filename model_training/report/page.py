"""The report as one HTML file that asks nobody for anything: table, curves, cost and samples.

What a model wrote is hostile. In the file it is compressed and in base64 (browser.py), on the page
it is text; a content security policy allows the page's own script and no request, so that text that
slipped through could not run or call home either. Base style and theme are those of the product's
report.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from cudal1_ci import __version__
from cudal1_ci.render.templates import templates_folder
from model_training.report import words
from model_training.report.browser import Browser
from model_training.report.cost import StageCost
from model_training.report.curves import Curve
from model_training.report.rewrites import Rewrites
from model_training.report.rows import Row, sampled
from model_training.report.run_folder import Run

HERE = Path(__file__).parent


def page_text(
    runs: Sequence[Run],
    rows: Sequence[Row],
    greedy: Sequence[Row],
    rewrites: Sequence[Rewrites],
    curves: Sequence[Curve],
    costs: Sequence[StageCost],
    browser: Browser,
) -> str:
    """The whole page."""
    script = (HERE / "page.js").read_text(encoding="utf-8")
    base = (templates_folder() / "report.css").read_text(encoding="utf-8")
    return (
        page_environment()
        .get_template("page.html.j2")
        .render(
            runs=runs,
            rows=rows,
            columns=words.columns(rows[0].table.k) if rows else (),
            results=[(row.label, *words.cells(row.table)) for row in rows],
            greedy_columns=words.columns(greedy[0].table.k) if greedy else (),
            greedy=[(row.label, *words.cells(row.table)) for row in greedy],
            rewrite_columns=words.rewrite_columns(rewrites[0].row.table.k) if rewrites else (),
            rewrites=[(one.row.label, *words.rewrite_cells(one)) for one in rewrites],
            curves=curves,
            costs=costs,
            cost_lines=[words.cost_cells(one) for one in costs],
            browser=browser,
            environments=[
                (
                    f"{run.name}, {'begun' if number == 0 else f'taken up again ({number})'}",
                    flat(one),
                )
                for run in runs
                for number, one in enumerate(run.environments)
            ],
            words=words,
            style=Markup(base + (HERE / "page.css").read_text(encoding="utf-8")),
            script=Markup(script),
            script_hash=integrity(script),
            version=__version__,
        )
    )


def page_environment() -> Environment:
    """Whatever a template shows is escaped."""
    environment = Environment(
        loader=FileSystemLoader(HERE),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        percent=words.percent,
        ratio=words.ratio,
        statuses=sampled,
        differences=words.differences,
        lines=in_lines,
        drawing=Markup,
        groupby_stage=lambda curves: [
            (stage, list(some)) for stage, some in groupby(curves, key=lambda one: one.stage)
        ],
    )
    return environment


def in_lines(cell: str) -> Markup:
    """A number with its interval below it."""
    number, _, interval = cell.partition(" [")
    if not interval:
        return escape(cell)
    return Markup('{}<span class="place">[{}</span>').format(number, interval)


def integrity(script: str) -> str:
    """The hash by which the policy knows the script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def flat(found: dict[str, Any]) -> list[tuple[str, str]]:
    """What a record says, a line each."""
    return [
        (key, value if isinstance(value, str) else msgspec.json.encode(value).decode())
        for key, value in found.items()
        if value is not None
    ]
