"""Metrics as drawings: of each stage and number one, with a line for each run.

    for curve in curves(runs): curve.svg

Drawn by matplotlib with text as text. Colors are variables of the page, so that a drawing follows
its theme; as a file of its own a drawing brings values for them, light and dark (`standalone`).
"""

from __future__ import annotations

import io
import re
from collections import defaultdict
from collections.abc import Sequence

from cudal1_ci.records import Record
from model_training.report.run_folder import Run, place_of
from model_training.run_files import EVALUATION

FIRST = (
    "reward",
    "loss",
    "format",
    "executable",
    "correct",
    "fast_",
    "speedup",
    "best",
    "hacks",
    "copies",
    "entropy",
    "divergence",
)
"""What is drawn before all else: numbers whose names begin so."""
INK, MUTED, LINE = "#010101", "#020202", "#030303"
RUNS = ("#0a0001", "#0a0002", "#0a0003", "#0a0004", "#0a0005", "#0a0006")
"""Colors that stand for the page's variables until the drawing is done."""
VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    LINE: "var(--line)",
    **{color: f"var(--run-{number})" for number, color in enumerate(RUNS)},
}
VALUES = """
:root { color-scheme: light dark; --ink: #1b1f24; --muted: #59636e; --line: #dcdfe5;
  --run-0: #0b5cad; --run-1: #b3541e; --run-2: #1a7f37;
  --run-3: #8250df; --run-4: #b3261e; --run-5: #59636e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ee; --muted: #98a3b0; --line: #2f3742;
  --run-0: #6cb2ff; --run-1: #ffa657; --run-2: #56d27b;
  --run-3: #d2a8ff; --run-4: #ff8a80; --run-5: #98a3b0; } }
"""
MAX_MARKED = 40
"""With more steps than that, a line has no dots."""


class Curve(Record, frozen=True, kw_only=True):
    """A drawing."""

    stage: str
    key: str
    is_first: bool
    svg: str
    """An element, for inside of a page that has the variables."""
    last: tuple[tuple[str, float], ...]
    """Of each run the last value, for those who cannot see the drawing."""


def curves(runs: Sequence[Run]) -> list[Curve]:
    """Of all numbers that a stage has at two or more steps."""
    points: dict[tuple[str, str], dict[str, list[tuple[int, float]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for run in runs:
        for row in run.metrics:
            if row.stage.startswith(EVALUATION):  # its steps are seeds
                continue
            for key, value in row.numbers.items():
                points[row.stage, key][run.name].append((row.step, value))
    names = [run.name for run in runs]
    found = []
    for stage, key in sorted(points, key=lambda one: (place_of(one[0]), order_of(one[1]))):
        lines = {name: sorted(points[stage, key][name]) for name in names}
        lines = {name: line for name, line in lines.items() if line}
        if max(map(len, lines.values())) >= 2:
            found.append(
                Curve(
                    stage=stage,
                    key=key,
                    is_first=order_of(key)[0] < len(FIRST),
                    svg=drawn(lines, names, f"{stage}: {key}"),
                    last=tuple((name, line[-1][1]) for name, line in lines.items()),
                )
            )
    return found


def order_of(key: str) -> tuple[int, str]:
    """The known ones first, then by name."""
    places = [place for place, start in enumerate(FIRST) if key.startswith(start)]
    return (places[0] if places else len(FIRST), key)


def drawn(lines: dict[str, list[tuple[int, float]]], names: Sequence[str], title: str) -> str:
    """One drawing of lines by the name of their run; a run has one color in all drawings."""
    # Only here: a report without curves does without it, and importing it takes a second.
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(4.6, 2.3), layout="constrained")
    axes = figure.add_subplot()
    for name, line in lines.items():
        color = RUNS[names.index(name) % len(RUNS)]
        steps, values = zip(*line, strict=True)
        marker = "." if len(line) <= MAX_MARKED else ""
        axes.plot(steps, values, color=color, linewidth=1.6, marker=marker, markersize=4)
    axes.set_xlabel("step", color=MUTED, fontsize=8)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    axes.tick_params(colors=MUTED, labelsize=8, length=0)
    axes.grid(visible=True, color=LINE, linewidth=0.8)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(LINE)
    written = io.StringIO()
    # The salt makes ids of what is drawn alone: the same metrics are the same bytes.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": title}):
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None})
    return for_a_page(written.getvalue(), title)


def for_a_page(svg: str, title: str) -> str:
    """The element alone, with the page's variables, its title and no style of its own: that would
    be one of the whole page."""
    element = svg[svg.index("<svg") :]
    element = re.sub(r"<metadata>.*?</metadata>", "", element, flags=re.DOTALL)
    element = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", element, flags=re.DOTALL)
    for color, variable in VARIABLES.items():
        element = element.replace(color, variable)
    element = re.sub(r"font-family: [^;\"]*", "font-family: system-ui, sans-serif", element)
    element = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", element, count=1, flags=re.DOTALL)
    element = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", element, count=1, flags=re.DOTALL)
    escaped = title.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return element.replace(
        "<svg", f'<svg class="curve" role="img" aria-label="{escaped}"', 1
    ).strip()


def standalone(svg: str) -> str:
    """As a file of its own."""
    opened, _, rest = svg.partition(">")
    return f"{opened}><style>{VALUES}</style>{rest}\n"
