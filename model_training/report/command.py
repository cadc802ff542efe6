"""`python -m model_training report RUN [RUN ...] --output FOLDER`, and `card`."""

from __future__ import annotations

from pathlib import Path

import click

from model_training.report.browser import browser_of
from model_training.report.card import card_text
from model_training.report.cost import costs_of
from model_training.report.curves import curves, standalone
from model_training.report.markdown import report_text
from model_training.report.page import page_text
from model_training.report.rows import rows_of
from model_training.report.run_folder import read_run


@click.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--output",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for report.md, report.html and curves/.",
)
def report(runs: tuple[Path, ...], output: Path) -> None:
    """The table, the curves, the cost and the samples of RUNS as Markdown and as one page."""
    for path in write_report(runs, output):
        click.echo(path)


@click.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--adapter", required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--base-model", required=True, help="Id on the hub of what it is an adapter of.")
@click.option("--evaluation", required=True, help="Its row of the table, such as contrastive.")
@click.option("--license", "license_name", default="apache-2.0", show_default=True)
def card(
    runs: tuple[Path, ...], adapter: Path, base_model: str, evaluation: str, license_name: str
) -> None:
    """The model card of an adapter that RUNS have trained, as README.md in its folder."""
    found = [read_run(folder) for folder in runs]
    text = card_text(
        found, adapter, base_model=base_model, evaluation=evaluation, license_name=license_name
    )
    (adapter / "README.md").write_text(text, encoding="utf-8")
    click.echo(adapter / "README.md")


def write_report(folders: tuple[Path, ...], output: Path) -> list[Path]:
    """The files that were written, the page and the text first."""
    found = [read_run(folder) for folder in folders]
    rows, drawings, costs = rows_of(found), curves(found), costs_of(found)
    (output / "curves").mkdir(parents=True, exist_ok=True)
    figures = [output / "curves" / f"{file_name(f'{one.stage}-{one.key}')}.svg" for one in drawings]
    for path, one in zip(figures, drawings, strict=True):
        path.write_text(standalone(one.svg), encoding="utf-8")
    text, page = output / "report.md", output / "report.html"
    shown = [f"curves/{path.name}" for path in figures]
    text.write_text(report_text(rows, costs, shown), encoding="utf-8")
    page.write_text(page_text(found, rows, drawings, costs, browser_of(found)), encoding="utf-8")
    return [page, text, *figures]


def file_name(key: str) -> str:
    """A name as a part of a path."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in key)
