"""Write a working configuration and workflows, and name the next step: `cudal1-ci init`."""

from __future__ import annotations

from pathlib import Path

import click

from cudal1_ci.cli.workflows import ALSO, workflow_files
from cudal1_ci.errors import ConfigError, UnsupportedError

CONFIG = """\
# cudal1-ci: see docs/configuration.md. Every key is optional.

# The command whose calls of your modules become workloads: `cudal1-ci trace` runs it.
trace = "{trace}"

# Also run the code blocks of README and docs, examples, notebooks and tests for their calls,
# each confined: no network, limited time and memory, the checkout read-only.
harvest = true

# Seconds ("90s"), minutes ("10m") or hours after which a scan stops and can be resumed.
budget = "30m"

[discover]
# exclude = ["experiments/**"]

# Say how a module is called where no test does:
# [[workload]]
# target = "src/model.py:Attention"
# init = ["dim=256", "num_heads=8"]
# inputs = ["float32[8, 128, 256]"]
"""

EPILOG = """\b
Examples:
  cudal1-ci init
  cudal1-ci init --trace "python -m pytest -q tests/unit"
  cudal1-ci init --workflows --gpu h100 --gpu l40
  cudal1-ci init --workflows --also commands --also merge-queue
"""

FORKS = """\
This repository is public? Then anyone can ask for a workflow run on your runner: read "Forks" in
docs/github.md of cudal1-ci before you register one.
"""


@click.command(epilog=EPILOG, short_help="Write a configuration, and workflows for GitHub.")
@click.argument("path", default=".", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--trace", "trace_command", default="pytest -q", show_default=True)
@click.option("--workflows", is_flag=True, help="Also write .github/workflows/cudal1-ci.yml.")
@click.option(
    "--gpu", "gpus", multiple=True, metavar="LABEL", help="Label of a runner (repeatable) [gpu]."
)
@click.option(
    "--also", multiple=True, type=click.Choice(tuple(ALSO)), help="More workflows (repeatable)."
)
@click.option("--action", metavar="OWNER/NAME@COMMIT", help="Where the Action is [this clone].")
@click.option("--dry-run", is_flag=True, help="Print the files instead of writing them.")
def init(
    path: Path,
    trace_command: str,
    workflows: bool,
    gpus: tuple[str, ...],
    also: tuple[str, ...],
    action: str | None,
    dry_run: bool,
) -> None:
    """Write .github/cudal1-ci.toml for the repository at PATH, and workflows for GitHub."""
    if not workflows and (gpus or also or action):
        raise ConfigError("--gpu, --also and --action are about workflows: add --workflows")
    found = configuration_of(path)
    if found is not None and not workflows:
        raise ConfigError(f"{found}: this repository is already configured; edit that file")
    files = {}
    if found is None:
        escaped = trace_command.replace("\\", "\\\\").replace('"', '\\"')
        files[path / ".github" / "cudal1-ci.toml"] = CONFIG.format(trace=escaped)
    if workflows:
        written = workflow_files(also, action, gpus or ("gpu",))
        folder = path / ".github" / "workflows"
        files |= {folder / name: text for name, text in written.items()}
    write(files, dry_run=dry_run)
    if dry_run:
        return
    if workflows:
        click.echo(f"next: commit these files, open a pull request    (runners: {gpu_text(gpus)})")
        click.echo(FORKS, nl=False)
    else:
        click.echo(
            f"next: cudal1-ci trace {path}    (runs `{trace_command}` and records the calls)"
        )
        click.echo(f"      cudal1-ci scan {path}")


def configuration_of(path: Path) -> Path | None:
    """Return the file that configures the tree already."""
    from cudal1_ci.config.written import (
        TABLE,
        read_toml,
        refuse_other_spellings,
    )  # imports all rooms

    target = path / ".github" / "cudal1-ci.toml"
    pyproject = path / "pyproject.toml"
    if pyproject.is_file():
        tool = read_toml(pyproject).get("tool")
        if isinstance(tool, dict):
            refuse_other_spellings(pyproject, tool)
            if TABLE in tool:
                return pyproject
    return target if target.exists() else None


def write(files: dict[Path, str], *, dry_run: bool) -> None:
    """Write all files or, where one of them is there already, none.

    Raises:
        ConfigError: One is there with another text.
        UnsupportedError: One cannot be written.
    """
    for file, text in files.items():
        if file.exists() and file.read_text(encoding="utf-8") != text:
            raise ConfigError(f"{file}: is there already; edit it, or remove it first")
    for file, text in files.items():
        if dry_run:
            click.echo(text, nl=False)
            continue
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UnsupportedError(
                f"{file}: cannot be written ({error.strerror}); make the folder writable, or copy "
                "what --dry-run prints to where it can be"
            ) from error
        click.echo(f"wrote {file}")


def gpu_text(gpus: tuple[str, ...]) -> str:
    return ", ".join(f"[self-hosted, {label}]" for label in gpus or ("gpu",))
