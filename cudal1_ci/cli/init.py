"""Write a working configuration and workflows, and name the next step: `cudal1-ci init`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from cudal1_ci.cli.adopting import Adoption, default_branch, open_pull_request
from cudal1_ci.cli.workflows import (
    ALSO,
    GONE,
    Choice,
    Machine,
    machine_of_label,
    machine_of_runs_on,
    own_action,
    renewed,
    workflow_files,
)
from cudal1_ci.errors import ConfigError, DiscoveryError, UnsupportedError
from cudal1_ci.git import repository_top

CONFIG = """\
# cudal1-ci: see docs/configuration.md. Every key is optional.

# The command whose calls of your modules become workloads: `cudal1-ci trace` runs it.
{trace}

# Also run the code blocks of README and docs, examples, notebooks and tests for their calls,
# each confined: no network, limited time and memory, the checkout read-only.
harvest = true

# Seconds ("90s"), minutes ("10m") or hours after which a scan stops and can be resumed.
budget = "30m"

[discover]
# exclude = ["experiments/**"]

# Declare how a module is called where no test calls it:
# [[workload]]
# target = "src/model.py:Attention"
# init = ["dim=256", "num_heads=8"]
# inputs = ["float32[8, 128, 256]"]
"""

TESTS = "pytest -q"
NO_TESTS = '# (No test was found here.)\n# trace = "python demo.py"'

EPILOG = """\b
Examples:
  cudal1-ci init
  cudal1-ci init --trace "python -m pytest -q tests/unit"
  cudal1-ci init --workflows --gpu h100 --gpu l40
  cudal1-ci init --workflows --runs-on arc-gpu-set --also commands --also merge-queue
  cudal1-ci init --pull-request --runs-on self-hosted,linux,h100
  cudal1-ci init --upgrade
"""

UNNAMED = """\
`gpu` is a guess: jobs wait until a self-hosted runner has this label. Name yours with --gpu LABEL
or --runs-on NAME; --runs-on ubuntu-latest measures CPU times."""

FORKS = """\
Is this repository public? Then anyone can request a workflow run on your runner. Read "Forks" in
docs/github.md of cudal1-ci before you register one.
"""


@click.command(epilog=EPILOG, short_help="Write a configuration, and workflows for GitHub.")
@click.argument("path", default=".", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--trace",
    "trace_command",
    help="Command whose calls become workloads [default: `pytest -q` if there are tests].",
)
@click.option("--workflows", is_flag=True, help="Also write .github/workflows/cudal1-ci.yml.")
@click.option(
    "--gpu",
    "gpus",
    multiple=True,
    metavar="LABEL",
    help="Label of a runner (repeatable) [default: gpu].",
)
@click.option(
    "--also", multiple=True, type=click.Choice(tuple(ALSO)), help="More workflows (repeatable)."
)
@click.option(
    "--runs-on",
    multiple=True,
    metavar="LABEL[,LABEL...]",
    help="Runner as in `runs-on`: a scale set, a larger runner, labels, group=NAME.",
)
@click.option(
    "--action", metavar="OWNER/NAME@COMMIT", help="Address of the Action [default: this clone's]."
)
@click.option("--upgrade", is_flag=True, help="Update workflows that an older version wrote.")
@click.option(
    "--pull-request",
    is_flag=True,
    help="Push the files to a branch and open a pull request that lists what would be measured.",
)
@click.option("--dry-run", is_flag=True, help="Print the files instead of writing them.")
def init(path: Path, trace_command: str | None, **flags: Any) -> None:
    """Write .github/cudal1-ci.toml for the repository at PATH, and workflows for GitHub."""
    about = ("gpus", "runs_on", "also", "action", "upgrade", "pull_request")
    workflows = flags["workflows"] or flags["upgrade"] or flags["pull_request"]
    if not workflows and any(flags[name] for name in about):
        raise ConfigError("--gpu, --runs-on, --also and --action need --workflows")
    found = configuration_of(path)
    if found is not None and not workflows:
        raise ConfigError(f"{found}: this repository is already configured; edit that file")
    top = top_of(path)
    choice = chosen(path, top, flags) if workflows else None
    if flags["upgrade"]:
        assert choice is not None
        upgrade(top, choice, dry_run=flags["dry_run"])
        return
    files = {}
    if found is None:
        trace_command = trace_command or (TESTS if has_tests(path) else None)
        files[path / ".github" / "cudal1-ci.toml"] = CONFIG.format(trace=trace_line(trace_command))
    if choice is not None:
        folder = top / ".github" / "workflows"  # GitHub reads no other
        files |= {folder / name: text for name, text in workflow_files(choice).items()}
    if flags["pull_request"]:
        click.echo(open_pull_request(Adoption(path, files), dry_run=flags["dry_run"]), nl=False)
        return
    write(files, dry_run=flags["dry_run"])
    if flags["dry_run"]:
        return
    if choice is not None:
        click.echo(
            f"next: commit these files, open a pull request    (runners: {names_of(choice)})"
        )
        if not flags["gpus"] and not flags["runs_on"]:
            click.echo(UNNAMED)
        click.echo(FORKS, nl=False)
    else:
        runs = f"`{trace_command}`" if trace_command else "README, docs and examples"
        click.echo(f"next: cudal1-ci trace {path}    (runs {runs} and records the calls)")
        click.echo(f"      cudal1-ci scan {path}")


def has_tests(path: Path) -> bool:
    """Return whether a folder has files that pytest reads."""
    from cudal1_ci.discover.files import TEST_FILE, DiscoveryConfig, source_files

    names = (Path(file.path).name for file in source_files(path, DiscoveryConfig(tests=True)).files)
    return any(TEST_FILE.fullmatch(name) and name != "conftest.py" for name in names)


def trace_line(command: str | None) -> str:
    """Return the line of the configuration that names a command, or a comment without one."""
    if command is None:
        return NO_TESTS
    escaped = command.replace("\\", "\\\\").replace('"', '\\"')
    return f'trace = "{escaped}"'


def top_of(path: Path) -> Path:
    """Return the top of the repository of a folder, from the working directory; the folder itself
    where it is in none."""
    try:
        return path / os.path.relpath(repository_top(path), path.resolve())
    except DiscoveryError:
        return path


def chosen(path: Path, top: Path, flags: dict[str, Any]) -> Choice:
    """Return what the flags say of the workflows."""
    machines: list[Machine] = [machine_of_label(label) for label in flags["gpus"]]
    machines += [machine_of_runs_on(text) for text in flags["runs_on"]]
    return Choice(
        action=flags["action"] or own_action(),
        machines=machines or [machine_of_label("gpu")],
        also=flags["also"],
        branch=default_branch(path),
        project=path.resolve().relative_to(top.resolve()).as_posix(),
        has_submodules=(top / ".gitmodules").is_file(),
    )


def upgrade(top: Path, choice: Choice, *, dry_run: bool) -> None:
    """Renew the workflows that are there, with the projects that they have. Raises: ConfigError
    where there is none."""
    choice = choice._replace(project=".", has_submodules=False)
    folder = top / ".github" / "workflows"
    known = {name for names in ALSO.values() for name in names} | {"cudal1-ci.yml", *GONE}
    there = [name for name in sorted(known) if (folder / name).is_file()]
    if not there:
        raise ConfigError(f"{folder}: no workflow of cudal1-ci to renew; leave --upgrade out")
    also = tuple(dict.fromkeys([*choice.also, *(one for one in ALSO if is_there(one, there))]))
    for name in there:
        file = folder / name
        if name in GONE:
            click.echo(f"{'would remove' if dry_run else 'removed'} {file}: cudal1-ci.yml does it")
            if not dry_run:
                file.unlink()
            continue
        old = file.read_text(encoding="utf-8")
        new = renewed(name, old, choice._replace(also=also))
        if dry_run:
            click.echo(new.text, nl=False)
        elif new.text != old:
            file.write_text(new.text, encoding="utf-8")
            click.echo(f"renewed {file}")
        for step in new.lost:
            click.echo(f"  of your own, not carried over; the input `setup` takes it: {step}")


def is_there(also: str, there: list[str]) -> bool:
    """Return whether the repository has what `--also` would add."""
    names = GONE if also == "merge-queue" else ALSO[also]
    return any(name in there for name in names)


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
            raise ConfigError(
                f"{file}: is there already; edit it (a further project belongs into its input "
                "`projects`), or remove it first"
            )
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


def names_of(choice: Choice) -> str:
    return ", ".join(one["name"] for one in choice.machines)
