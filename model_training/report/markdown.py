"""The table, its differences and the cost as Markdown, for documents and the model card."""

from __future__ import annotations

from collections.abc import Sequence

from model_training.report import words
from model_training.report.cost import StageCost
from model_training.report.rewrites import Rewrites
from model_training.report.rows import Row


def report_text(
    rows: Sequence[Row],
    greedy: Sequence[Row],
    rewrites: Sequence[Rewrites],
    costs: Sequence[StageCost],
    figures: Sequence[str] = (),
) -> str:
    """The whole report; `figures` are paths of drawings, as seen from the file."""
    parts = ["# Report of a training run", "## Results", results(rows)]
    if any(row.differences for row in rows):
        parts += ["## Differences", differences(rows)]
    if rewrites:
        parts += ["## Rewrites", f"{rewritten(rewrites)}\n\n{words.REWRITES}"]
    if greedy:
        parts += ["## Likeliest answers", f"{table(greedy)}\n\n{words.GREEDY}"]
    if costs:
        parts += ["## Cost", grid(words.COST_COLUMNS, [words.cost_cells(one) for one in costs])]
    if figures:
        parts += ["## Curves", "\n".join(f"![{plain(path)}]({path})" for path in figures)]
    return "\n\n".join(parts) + "\n"


def results(rows: Sequence[Row]) -> str:
    """The table, and the rules that it goes by."""
    if not rows:
        return "Nothing was evaluated."
    seeds = sorted({len(row.seeds) for row in rows})
    drawn = " or ".join(map(str, seeds))
    notes = f"{words.FILL} {words.INTERVALS} {words.HACKS} Seeds of sampling a row: {drawn}."
    return f"{table(rows)}\n\n{notes}"


def table(rows: Sequence[Row]) -> str:
    """Without a word."""
    headings = ("policy", *words.columns(rows[0].table.k))
    return grid(headings, [(row.label, *words.cells(row.table)) for row in rows])


def rewritten(rewrites: Sequence[Rewrites]) -> str:
    """What is more than a recording."""
    headings = ("policy", *words.rewrite_columns(rewrites[0].row.table.k))
    return grid(headings, [(one.row.label, *words.rewrite_cells(one)) for one in rewrites])


def differences(rows: Sequence[Row]) -> str:
    """Of each row to those that it is compared with."""
    lines = [
        (
            f"{row.label} against {found.against}",
            str(found.num_paired),
            *(f"{said}, {verdict}" for said, verdict in words.differences(found)),
        )
        for row in rows
        for found in row.differences
    ]
    headings = ("policy", "tasks", *words.DIFFERENCES.values())
    return f"{grid(headings, lines)}\n\n{words.PAIRED}"


def grid(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table of GitHub's Markdown."""
    rows = [headings, ["---"] * len(headings), *lines]
    return "\n".join(f"| {' | '.join(map(plain, row))} |" for row in rows)


def plain(text: str) -> str:
    """In a cell, as it is: names come from files of a run."""
    flat = " ".join(text.split())
    for mark in "\\`*_<>|":
        flat = flat.replace(mark, f"\\{mark}")
    return flat.replace("](", "]\\(")
