"""`python -m model_training report RUN [RUN ...] --output FOLDER`, and `card`."""

from __future__ import annotations

from pathlib import Path

import click

from model_training.report.browser import browser_of
from model_training.report.card import CARD, LICENSE, card_text
from model_training.report.cost import costs_of
from model_training.report.curves import curves, standalone
from model_training.report.markdown import report_text
from model_training.report.page import page_text
from model_training.report.rewrites import rewrites_of
from model_training.report.rows import greedy_rows_of, rows_of
from model_training.report.run_folder import read_run

PATH = click.Path(path_type=Path)


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=PATH)
@click.option(
    "--output",
    required=True,
    type=PATH,
    help="Folder for report.md, report.html and curves/.",
)
def report(runs: tuple[Path, ...], output: Path) -> None:
    """Write what runs found: table, curves, cost, samples."""
    for path in write_report(runs, output):
        click.echo(path)


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=PATH)
@click.option("--adapter", required=True, type=PATH, help="Folder of `export adapter`.")
@click.option("--id", "base_model", required=True, help="Of the base in the hub.")
@click.option("--evaluation", required=True, help="Its row of the report, such as contrastive.")
@click.option(
    "--license",
    "license_name",
    default=LICENSE,
    show_default=True,
    help="Of the adapter: SPDX.",
)
def card(
    runs: tuple[Path, ...], adapter: Path, base_model: str, evaluation: str, license_name: str
) -> None:
    """Write the model card of an adapter.

    It is README.md in its folder. RUN is the folder of the run that trained it, then those that it
    is compared with.
    """
    found = [read_run(folder) for folder in runs]
    text = card_text(
        found, adapter, base_model=base_model, evaluation=evaluation, license_name=license_name
    )
    (adapter / CARD).write_text(text, encoding="utf-8")
    click.echo(adapter / CARD)


def write_report(folders: tuple[Path, ...], output: Path) -> list[Path]:
    """The files that were written, the page and the text first."""
    found = [read_run(folder) for folder in folders]
    rows, greedy, rewrites = rows_of(found), greedy_rows_of(found), rewrites_of(found)
    drawings, costs = curves(found), costs_of(found)
    (output / "curves").mkdir(parents=True, exist_ok=True)
    figures = [output / "curves" / f"{file_name(f'{one.stage}-{one.key}')}.svg" for one in drawings]
    for path, one in zip(figures, drawings, strict=True):
        path.write_text(standalone(one.svg), encoding="utf-8")
    text, page = output / "report.md", output / "report.html"
    shown = [f"curves/{path.name}" for path in figures]
    text.write_text(report_text(rows, greedy, rewrites, costs, shown), encoding="utf-8")
    page.write_text(
        page_text(found, rows, greedy, rewrites, drawings, costs, browser_of(found)),
        encoding="utf-8",
    )
    return [page, text, *figures]


def file_name(key: str) -> str:
    """A name as a part of a path."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in key)
