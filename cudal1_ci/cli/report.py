"""`cudal1-ci report`: merge reports, one of each GPU or machine, and render them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cudal1_ci.cli.outputs import FILES, output_options, write_document
from cudal1_ci.cli.trend import append, show
from cudal1_ci.errors import ConfigError
from cudal1_ci.records import Report
from cudal1_ci.render.combine import combine
from cudal1_ci.render.digest import digest
from cudal1_ci.render.merge import merge
from cudal1_ci.render.reading import read_report

EPILOG = """\b
Examples:
  cudal1-ci report report.json --html report.html
  cudal1-ci report h100.json l40.json --format md
  cudal1-ci report report.json --select 1,3 --patch chosen.patch
  cudal1-ci report report.json --format comment --template comment.md.j2
  cudal1-ci report h100.json l40.json --history-append history.jsonl --checkout .
  cudal1-ci report --history history.jsonl --html site/index.html
"""


@click.command(epilog=EPILOG, short_help="Merge report.json files and render them, or a history.")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--template",
    "template_path",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Your template for --format comment; it can replace blocks of the built-in one.",
)
@click.option(
    "--history",
    "history",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Render a history (JSONL) of speed over commits; --json FILE then writes the last commit "
    "for github-action-benchmark.",
)
@click.option(
    "--history-append",
    "append_path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Append FILES to a history; render nothing.",
)
@click.option(
    "--checkout",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="FOLDER",
    help="With a history: a clone with its commits, for their order and dates.",
)
@click.option(
    "--select",
    "selected",
    metavar="NUMBERS",
    help="With --patch: only these proposals, by number: 1,3.",
)
@click.option(
    "--patch",
    "patch_path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write the proposals as one patch for `git apply`.",
)
@output_options
def report(
    files: tuple[Path, ...],
    template_path: Path | None,
    history: Path | None,
    append_path: Path | None,
    checkout: Path | None,
    selected: str | None,
    patch_path: Path | None,
    **flags: Any,
) -> None:
    """Merge FILES (report.json of the same commit) and render them, or a history of many."""
    _refuse_both(files, history, append_path, flags)
    if history is not None:
        show(history, checkout, flags)
        return
    if append_path is not None:
        append([read_report(file) for file in files], append_path, checkout)
        return
    if checkout is not None:
        raise ConfigError("--checkout is about a history: add --history")
    template = _template(template_path, flags["stdout_format"])
    documents = [read_report(file) for file in files]
    flags["patch_folder"] = None
    shown = documents[0] if len(documents) == 1 else merge(documents)
    if selected is not None and patch_path is None:
        raise ConfigError("--select is about a patch: add --patch FILE")
    if patch_path is not None:
        write_patch(shown, patch_path, selected)
    write_document(shown, flags, template)


def write_patch(shown: Report, path: Path, selected: str | None) -> None:
    """Write all proposals, or those of some numbers, as one patch.

    Raises:
        ConfigError: A number is that of no proposal.
    """
    proposals = {one.number: one for one in digest(shown).proposals}
    try:
        numbers = [int(one) for one in selected.split(",")] if selected else list(proposals)
    except ValueError as error:
        raise ConfigError(f"--select: expected numbers as in 1,3, got {selected!r}") from error
    for number in numbers:
        if number not in proposals:
            raise ConfigError(
                f"--select: expected a proposal from 1 to {len(proposals)}, got {number}"
            )
    chosen = [proposals[number] for number in numbers]
    patched = [(one, one.evaluation.candidate.patch) for one in chosen]
    known = [(one, text) for one, text in patched if text]
    combined = combine([text for _, text in known])
    for number, other in combined.conflicts.items():
        names = [known[each][0].entry.target.qualname for each in (number, other)]
        click.echo(f"left out {names[0]}: it changes the same lines as {names[1]}", err=True)
    path.write_text(combined.patch, encoding="utf-8", newline="")


def _refuse_both(
    files: tuple[Path, ...], history: Path | None, append_path: Path | None, flags: dict[str, Any]
) -> None:
    if history is None and not files:
        raise click.UsageError("expected a report, got none: name FILES, or --history FILE")
    if history is not None and (files or append_path is not None):
        raise ConfigError(
            "--history renders what is in a history already: append to it first (`report FILES "
            "--history-append FILE`), then render it"
        )
    asked = [f"--{name}" for name in FILES if flags[f"{name}_path"]]
    if append_path is not None and asked:
        raise ConfigError(f"--history-append renders nothing: leave out {', '.join(asked)}")


def _template(path: Path | None, stdout_format: str) -> str | None:
    if path is None:
        return None
    if stdout_format != "comment":
        raise ConfigError("--template is for the comment: add `--format comment`")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: expected UTF-8, got other bytes: {error.reason}") from error
