"""Write results: the result to stdout, and further requested outputs to files."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from cudal1_ci.cli.web_address import web_address
from cudal1_ci.discover.plan import Plan
from cudal1_ci.errors import ConfigError, UnsupportedError
from cudal1_ci.records import Evaluation, Explanation, Listing, Report
from cudal1_ci.records.published import to_json
from cudal1_ci.render import FORMATS, LISTING_FORMATS, render
from cudal1_ci.render.chrome_trace import traces_of
from cudal1_ci.render.comment import About, comment
from cudal1_ci.render.patch import best_patches
from cudal1_ci.render.published import listing
from cudal1_ci.render.text import print_listing, print_report, render_text
from cudal1_ci.render.wording import count_text

FILES = {
    "json": "JSON; `-` writes it to stdout instead of --format",
    "html": "one self-contained HTML file",
    "md": "Markdown",
    "sarif": "SARIF 2.1.0",
}


def output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of verbs that write a report."""
    patches = click.option(
        "--patches",
        "patch_folder",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="FOLDER",
        help="Also write each best proposal as a patch for `git apply`.",
    )
    command = patches(command)
    for name, text in reversed(FILES.items()):
        command = click.option(
            f"--{name}",
            f"{name}_path",
            type=click.Path(dir_okay=False, writable=True, allow_dash=True),
            metavar="FILE",
            help=f"Also write {text}.",
        )(command)
    stdout = click.option(
        "--format",
        "stdout_format",
        type=click.Choice(FORMATS),
        default="text",
        show_default=True,
        help="What is written to stdout.",
    )
    return stdout(command)


def refuse_unwritable(*paths: str | Path | None) -> None:
    """Make the folders of output files, before anything is measured for them.

    Raises:
        UnsupportedError: One cannot be made, or written into.
    """
    for path in paths:
        if path in (None, "-"):
            continue
        folder = Path(path).parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
            reason = "" if os.access(folder, os.W_OK | os.X_OK) else "it is read-only"
        except OSError as error:
            reason = error.strerror or str(error)
        if reason:
            raise UnsupportedError(f"{path}: cannot be written into {folder}: {reason}")


def refuse_unwritable_outputs(flags: dict[str, Any]) -> None:
    """Check the options of `output_options` in the same way. Raises: UnsupportedError."""
    refuse_unwritable(*(flags[f"{name}_path"] for name in FILES))


def write_file(file: Path, text: str, newline: str | None = None) -> None:
    """Write a file and its folders. Raises: UnsupportedError, which names the file."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8", newline=newline)
    except OSError as error:
        raise UnsupportedError(
            f"{file}: cannot be written ({error.strerror}); make room or name another place, and "
            "run the same command again: measurements are kept"
        ) from error


def write_report(shown: Report, flags: dict[str, Any]) -> None:
    """Write a report wherever the flags say; next to its file the patch of all proposals, and the
    traces of calls before and after."""
    write_document(shown, flags)
    write_beside(shown, flags)
    folder: Path | None = flags["patch_folder"]
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in best_patches(shown).items():
            write_file(folder / name, text, newline="")


def write_beside(shown: Report, flags: dict[str, Any]) -> None:
    """Write what belongs to a report, next to its JSON or HTML file."""
    paths = (flags["json_path"], flags["html_path"])
    beside = next((Path(one) for one in paths if one not in (None, "-")), None)
    if beside is None or shown.together is None:
        return
    file = beside.with_suffix(".patch")
    write_file(file, shown.together.patch, newline="")
    number = len(shown.together.included)
    click.echo(f"wrote {file}: {count_text(number, 'proposal')} in one patch", err=True)
    for name, text in traces_of(shown).items():
        write_file(beside.with_suffix(f".{name}"), text)


def write_lines(target: str, documents: Sequence[Evaluation | Explanation]) -> None:
    """Write one JSON object a line, to a file or, for `-`, to stdout."""
    text = b"\n".join(to_json(document) for document in documents).decode() + "\n"
    if target == "-":
        click.echo(text, nl=False)
    else:
        write_file(Path(target), text)


def write_listing(plan: Plan, flags: dict[str, Any]) -> None:
    """Write what discovery found.

    Raises:
        ConfigError: A format was asked for that cannot hold a listing.
    """
    for name in set(FORMATS) - set(LISTING_FORMATS):
        if flags.get(f"{name}_path") or flags["stdout_format"] == name:
            raise ConfigError(
                f"--list with {name}: a listing is written as {', '.join(LISTING_FORMATS)}"
            )
    write_document(listing(plan), flags)


def write_document(
    shown: Report | Listing, flags: dict[str, Any], template: str | None = None
) -> None:
    """Write the document, files first, so that a closed stdout loses none of them. `template` is a
    user's own, of the comment.
    """
    on_stdout = flags["stdout_format"]
    unwritten: list[UnsupportedError] = []
    for name in FILES:
        path = flags[f"{name}_path"]
        if path == "-":
            on_stdout = name
        elif path is not None:
            try:
                write_file(Path(path), _rendered(shown, name))
            except UnsupportedError as error:  # stdout still gets the result
                unwritten.append(error)
    if on_stdout == "text" and sys.stdout.isatty():
        console = Console()
        if isinstance(shown, Listing):
            print_listing(shown, console)
        else:
            print_report(shown, console, why=flags.get("why", False))
    elif on_stdout == "text" and isinstance(shown, Report):
        click.echo(render_text(shown, why=flags.get("why", False)), nl=False)
    elif template is not None and on_stdout == "comment" and isinstance(shown, Report):
        click.echo(comment(shown, About(), template=template), nl=False)
    else:
        click.echo(_rendered(shown, on_stdout), nl=False)
    if unwritten:
        raise unwritten[0]


def _rendered(shown: Report | Listing, output_format: str) -> str:
    """Render a document; the page has links to the files of its commit."""
    address = web_address(shown.repository) if output_format == "html" else None
    return render(shown, output_format, address)


def apply_best(shown: Report, root: Path) -> None:
    """Apply the best proposals to the working tree: those that were measured together as one
    patch, else one after the other.

    Raises:
        UnsupportedError: git is not installed.
    """
    patches = best_patches(shown)
    if shown.together is not None:
        number = len(shown.together.included)
        patches = {f"{count_text(number, 'proposal')} together": shown.together.patch}
        for one in shown.together.left_out:
            click.echo(f"not applied {one.what}: {one.reason}", err=True)
    for name, text in patches.items():
        what = name.removesuffix(".patch")
        try:
            done = subprocess.run(
                ["git", "apply", "--whitespace=nowarn", "-"],
                input=text.encode(),
                cwd=root,
                capture_output=True,
                check=False,
                timeout=60,
            )
        except FileNotFoundError as error:
            raise UnsupportedError("--apply needs git: `apt-get install git`") from error
        if done.returncode == 0:
            click.echo(f"applied {what}", err=True)
            continue
        reason = done.stderr.decode(errors="replace").strip().splitlines()
        click.echo(
            f"not applied {what}: it conflicts with one applied before "
            f"({reason[0] if reason else 'git gave no reason'}); scan again",
            err=True,
        )
