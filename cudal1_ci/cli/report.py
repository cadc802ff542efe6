"""`cudal1-ci report`: merge reports, one of each GPU or machine, and render them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cudal1_ci.cli.outputs import output_options, write_document
from cudal1_ci.errors import ConfigError
from cudal1_ci.report.merge import merge
from cudal1_ci.report.reading import read_document

EPILOG = """\b
Examples:
  cudal1-ci report report.json --html report.html
  cudal1-ci report h100.json l40.json --format md
  cudal1-ci report report.json --format comment --template comment.md.j2
"""


@click.command(epilog=EPILOG)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--template",
    "template_path",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Template of your own for --format comment, which may replace blocks of ours.",
)
@output_options
def report(files: tuple[Path, ...], template_path: Path | None, **flags: Any) -> None:
    """Merge FILES (report.json of the same commit) and render them."""
    template = _template(template_path, flags["stdout_format"])
    documents = [read_document(file) for file in files]
    flags["patch_folder"] = None
    shown = documents[0] if len(documents) == 1 else merge(documents)
    write_document(shown, flags, template)


def _template(path: Path | None, stdout_format: str) -> str | None:
    if path is None:
        return None
    if stdout_format != "comment":
        raise ConfigError("--template is for the comment: add `--format comment`")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: expected UTF-8, got other bytes: {error.reason}") from error
