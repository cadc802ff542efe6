"""`cudal1-ci trace`: run a command of the user, or what the repository shows of its own use, and
record how code is called."""

from __future__ import annotations

import dataclasses
import os
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from cudal1_ci.cli.device import measures_on_gpu
from cudal1_ci.cli.traces_near import keep, near
from cudal1_ci.config import Settings, load_settings
from cudal1_ci.config.model_keys import keep_model_keys_apart
from cudal1_ci.discover import discover
from cudal1_ci.discover.launchers import functions_to_trace
from cudal1_ci.discover.traces import Traces, read_traces
from cudal1_ci.errors import ConfigError, UnsupportedError
from cudal1_ci.optimize.harvest import FOLDER, Harvest, harvest, read_harvest
from cudal1_ci.optimize.harvest_order import NOTHING_NEW
from cudal1_ci.processes.interpreter import find_interpreter
from cudal1_ci.processes.tracing import run_trace
from cudal1_ci.records import Change, Notice
from cudal1_ci.records.archive import make_folder
from cudal1_ci.render.progress import Progress, progress_on
from cudal1_ci.render.wording import count_text, duration_text, recorded_text
from cudal1_ci.sandboxed.wire.harvest import ABSENT

EPILOG = """\b
Examples:
  cudal1-ci trace -- pytest -q
  cudal1-ci trace ../model -- python train.py --steps 3
  cudal1-ci trace                  runs the README, docs, examples and tests of the repository
Shapes, dtypes, value ranges and plain constructor arguments are recorded; contents are not.
"""

TIMEOUT_S = 1800.0
"""Default for a command without its own."""
HARVEST_S = 600.0
"""For the harvest of a scan."""
MOST_REASONS, MOST_CHARS = 8, 100
CUT = 124
"""Exit code of a command that was stopped."""
CUT_SHORT = (
    "`{command}` was stopped after {limit:.0f} s, its part of the budget: later calls are missing "
    "(use a shorter `trace` command or a longer budget)"
)
NEW = "traces-new"
"""Next to the folder of traces, until the command has ended."""
NOTHING_CALLED = (
    "nothing was recorded: the command must call modules or functions of this folder, and must "
    "keep the PYTHONPATH that it is given (set your own before `cudal1-ci trace`)"
)
OF_PYTEST = {
    2: "nothing was recorded: pytest could not import some test files and ran none (see above). "
    "Install what they need, or add `--continue-on-collection-errors` to run the others",
    5: "nothing was recorded: pytest found no test here. Name a command that calls the code, or "
    "remove `trace` from the configuration",
}
"""What its exit codes mean where no test ran."""
FAILED_BEFORE = (
    "nothing was recorded, and the command ended with exit code {code}: see its output above (if "
    "it does not find this folder's modules, try `python -m pytest` instead of `pytest`; if it "
    "called them, it lost the PYTHONPATH that it was given)"
)


@click.command(
    epilog=EPILOG,
    short_help="Run COMMAND and record how it calls modules and functions.",
    context_settings={"ignore_unknown_options": True},
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    default=TIMEOUT_S,
    show_default=True,
    help="Time limit in seconds for the command or the scripts; calls recorded by then are kept.",
)
@click.option("--python", help="Interpreter whose folder is put first on the command's PATH.")
@click.option(
    "--harvest/--no-harvest",
    "is_harvest",
    default=None,
    help="Run the repository's own scripts [default: without a command].",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[PATH] [-- COMMAND...]")
def trace(
    timeout_s: float, python: str | None, is_harvest: bool | None, words: tuple[str, ...]
) -> None:
    """Run COMMAND in PATH and record the workloads of the modules and functions that it calls.

    Without COMMAND, and without a `trace` command in the configuration, the repository's own
    scripts run: code blocks of its README and docs, examples, notebooks, docstrings and tests. Each
    runs without network, with limited time and memory, and with the checkout read-only.

    Exit code 0 when something was recorded, whatever COMMAND returned, else 1.
    """
    path, command = split(words)
    if not path.is_dir():
        raise ConfigError(f"{path}: expected the folder of a project (a command goes after `--`)")
    given = {} if python is None else {"python": python}
    settings = load_settings(path, overrides=given)
    keep_model_keys_apart(settings)
    progress = progress_on(sys.stderr, os.environ)
    harvests = is_harvest or (is_harvest is None and not (command or settings.trace))
    if harvests and command:
        raise ConfigError("--harvest runs the repository's own scripts: leave the command out")
    if harvests:
        found = harvested(path, settings, timeout_s, progress)
    else:
        command = command or shlex.split(settings.trace or "")
        if not command:
            raise ConfigError("nothing to run: give a command after `--`, or harvest")
        found = record(path, settings, command, timeout_s, progress)
    num_calls = sum(map(len, found.calls.values()))
    share = found.train_share
    in_training = f", {100 * share:.0f} % of them in training" if share else ""
    if harvests and not found.calls:
        progress.notice(HARVESTED)
    click.echo(f"{recorded_text(num_calls, len(found.calls))}{in_training}")
    sys.exit(0 if found.calls else 1)


def split(words: tuple[str, ...]) -> tuple[Path, list[str]]:
    """Split words into PATH and COMMAND. click has removed the `--`, so a first word that is a
    folder is PATH where the command line has it before the `--`.
    """
    arguments = sys.argv
    if "--" in arguments:
        command = arguments[arguments.index("--") + 1 :]
        before = words[: len(words) - len(command)]
        return Path(before[0] if before else "."), list(command)
    return Path(words[0] if words else "."), list(words[1:])


def record(
    path: Path, settings: Settings, command: list[str], timeout_s: float, progress: Progress
) -> Traces:
    """Run a command with the tracer, and read what it left."""
    functions = functions_to_trace(discover(path, settings.discover))
    make_folder(path / settings.state_dir)
    folder = path / settings.state_dir / "traces"
    progress.notice(f"tracing `{shlex.join(command)}` in {path}")
    fresh = folder.with_name(NEW)
    try:
        python = settings.python or find_interpreter(path, os.environ).python
        code = run_trace(
            command,
            path,
            fresh,
            functions,
            timeout_s,
            python,
            hidden=(fresh.parent,),
            config=settings.commands,
            notice=progress.notice,
        )
        found, before = read_traces(fresh), read_traces(folder)
        if code == CUT:
            said = CUT_SHORT.format(command=shlex.join(command), limit=timeout_s)
            found = dataclasses.replace(
                found, notices=(*found.notices, Notice(path=".", message=said))
            )
            progress.notice(said)
        elif code and found.calls:
            progress.notice(f"the command ended with exit code {code}; what it called is used")
        elif not found.calls:
            of_pytest = OF_PYTEST if "pytest" in " ".join(command) else {}
            failed = of_pytest.get(code, FAILED_BEFORE.format(code=code))
            progress.notice(failed if code else NOTHING_CALLED)
        if found.calls or not before.calls:
            shutil.rmtree(folder, ignore_errors=True)
            fresh.rename(folder)
        num_before = sum(map(len, before.calls.values()))
        if num_before:
            fate = "replaced" if found.calls else "kept"
            progress.notice(f"of an earlier trace {count_text(num_before, 'call')}: {fate}")
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return found


def harvested(
    path: Path,
    settings: Settings,
    budget_s: float,
    progress: Progress,
    before: Harvest | None = None,
) -> Traces:
    """Run the repository's own scripts, and read what they left. A harvest before that had no time
    for all of them is continued."""
    make_folder(path / settings.state_dir)
    state = path / settings.state_dir
    python = settings.python or find_interpreter(path, os.environ).python
    found = harvest(
        discover(path, settings.discover),
        state,
        python=python,
        budget_s=budget_s,
        say=progress.notice,
        has_gpu=measures_on_gpu(settings.device),
        before=before,
    )
    for line in summary_lines(found):
        progress.notice(line)
    return read_traces(state / FOLDER)


def summary_lines(found: Harvest) -> Iterator[str]:
    """Yield what ran, what is not installed, and the most frequent reasons of what did not run."""
    kinds = found.num_scripts.items()
    ran = ", ".join(count_text(count, KIND_WORDS.get(kind, kind)) for kind, count in kinds)
    num_called = len({name for names in found.targets.values() for name in names})
    called = f"{count_text(num_called, 'target')} called by {ran}" if ran else "no target called"
    yield f"harvest: {called}, in {duration_text(found.elapsed_s)}"
    notes = {note for notes in found.notes.values() for note in notes if note.startswith(ABSENT)}
    absent = sorted(note.removeprefix(ABSENT) for note in notes)
    if absent:
        yield (
            f"harvest: not installed: {', '.join(absent)}. Calls that need them cannot be "
            "measured; install them and run `cudal1-ci trace` again"
        )
    left = [one for one in found.left if one.reason != NOTHING_NEW]
    reasons = Counter(cut_short(one.reason.partition(" (")[0]) for one in left)
    if reasons:
        yield f"harvest: {len(left)} of all scripts and cells did not run to the end:"
    for reason, count in reasons.most_common(MOST_REASONS):
        yield f"  {count} x {reason}"


def cut_short(reason: str) -> str:
    return reason if len(reason) <= MOST_CHARS else f"{reason[:MOST_CHARS]}..."


CONTINUED = (
    "run again: the harvest had no time for all scripts, and continues. Or declare a workload "
    "(docs/workloads.md)"
)
"""What helps a target without a workload."""
HARVESTED = (
    "no README, docs, example or test called it: run your own code under `cudal1-ci trace -- "
    "COMMAND`, or declare a workload (docs/workloads.md)"
)
"""What helps after a harvest of everything."""
KIND_WORDS = {
    "readme": "README block",
    "docs": "block of the docs",
    "main": "`__main__` block",
    "config": "default configuration",
}
"""What a script is called where its kind says too little."""


class Before(NamedTuple):
    """Traces of another commit, and what changed since."""

    folder: Path
    change: Change


def traces_for(
    path: Path,
    settings: Settings,
    progress: Progress,
    *,
    again: bool,
    before: Before | None = None,
) -> Traces:
    """Return the traces of a tree. They are recorded first, by the configured command and by the
    harvest where it is wanted, where they were not yet, or on request; with those of `before` only
    the tests near the change run.
    """
    state = path / settings.state_dir
    if again and not settings.trace and not settings.harvest:
        raise ConfigError("--retrace: there is no `trace` command in the configuration to run")
    notices: tuple[Notice, ...] = ()
    folder = state / "traces"
    if settings.trace and (again or not any(folder.glob("trace-*.jsonl"))):
        command: list[str] | None = shlex.split(settings.trace)
        assert command is not None
        known = near(command, path, before.change, before.folder) if before else None
        if known is not None:
            command = known.command
            what = f"`{shlex.join(command)}` runs again" if command else "no test runs again"
            progress.notice(f"{count_text(len(known.kept), 'call')} recorded before; {what}")
        found = Traces()
        if command is not None:
            limit_s = trace_limit_s(settings)
            try:
                found = record(path, settings, command, limit_s, progress)
            except ConfigError as error:
                raise ConfigError(f"{settings.file or 'the settings'}: `trace`: {error}") from error
        if known is not None:
            keep(known.kept, folder)
        notices = tuple(one for one in found.notices if one.path == ".")
    known_harvest = None if again else read_harvest(state)
    if settings.harvest and (known_harvest is None or not known_harvest.is_complete):
        limit_s = min(HARVEST_S, trace_limit_s(settings))
        try:
            harvested(path, settings, limit_s, progress, known_harvest)
        except UnsupportedError as error:
            progress.notice(f"harvest: {error}")
    kept = kept_traces(path, settings)
    return dataclasses.replace(kept, notices=(*kept.notices, *notices))


def trace_limit_s(settings: Settings) -> float:
    """Return how long a trace may last: half of the budget, since measuring comes after it."""
    budget_s = settings.review.budget_s
    return TIMEOUT_S if budget_s is None else min(TIMEOUT_S, budget_s / 2)


def kept_traces(path: Path, settings: Settings) -> Traces:
    """Return the traces that were recorded before; run nothing."""
    state = path / settings.state_dir
    found = read_traces(state / "traces", state / FOLDER)
    known = read_harvest(state)
    if known is None:
        return found
    return dataclasses.replace(
        found,
        hint=HARVESTED if known.is_complete else CONTINUED,
        failed_defaults={one.place: one.reason for one in known.left if one.kind == "config"},
    )
