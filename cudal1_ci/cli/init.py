"""`cudal1-ci init`: writes a configuration that works and says what to do next."""

from __future__ import annotations

from pathlib import Path

import click

from cudal1_ci.errors import ConfigError

CONFIG = """\
# cudal1-ci: see docs/configuration.md. Every key is optional.

# The command whose calls of your modules become workloads: `cudal1-ci trace` runs it.
trace = "{trace}"

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
"""


@click.command(epilog=EPILOG)
@click.argument("path", default=".", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--trace", "trace_command", default="pytest -q", show_default=True)
@click.option("--dry-run", is_flag=True, help="Print the file instead of writing it.")
def init(path: Path, trace_command: str, dry_run: bool) -> None:
    """Write .github/cudal1-ci.toml for the repository at PATH."""
    text = CONFIG.format(trace=trace_command.replace("\\", "\\\\").replace('"', '\\"'))
    if dry_run:
        click.echo(text, nl=False)
        return
    target = path / ".github" / "cudal1-ci.toml"
    pyproject = path / "pyproject.toml"
    has_table = pyproject.is_file() and "[tool.cudal1-ci" in pyproject.read_text(encoding="utf-8")
    if has_table or target.exists():
        existing = pyproject if has_table else target
        raise ConfigError(f"{existing}: this repository is already configured; edit that file")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    click.echo(f"wrote {target}")
    click.echo(f"next: cudal1-ci trace {path}    (runs `{trace_command}` and records the calls)")
    click.echo(f"      cudal1-ci scan {path}")
