"""`cudal1-ci report`: merge reports, one of each GPU or machine, and render them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cudal1_ci.cli.outputs import output_options, write_document
from cudal1_ci.report.merge import merge
from cudal1_ci.report.reading import read_document

EPILOG = """\b
Examples:
  cudal1-ci report report.json --html report.html
  cudal1-ci report h100.json l40.json --format md
"""


@click.command(epilog=EPILOG)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@output_options
def report(files: tuple[Path, ...], **flags: Any) -> None:
    """Merge FILES (report.json of the same commit) and render them."""
    documents = [read_document(file) for file in files]
    flags["patch_folder"] = None
    write_document(documents[0] if len(documents) == 1 else merge(documents), flags)
