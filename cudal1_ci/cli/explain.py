"""`cudal1-ci explain`: what one call of a target does, and where its time goes."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from cudal1_ci.cli.device import measures_on_gpu, require
from cudal1_ci.cli.devices import progress_for
from cudal1_ci.cli.execution import (
    KEYS,
    ONE_DEVICE_OPTION,
    PYTHON_HELP,
    SANDBOX_OPTION,
    executor_options,
    refuse_several,
    session_of,
    settings_of,
)
from cudal1_ci.cli.group import EXIT_DONE, EXIT_UNSUPPORTED, GroupedCommand
from cudal1_ci.cli.outputs import refuse_unwritable, write_lines
from cudal1_ci.cli.scan_options import plan_of
from cudal1_ci.cli.scope import Place, Scope, file_and_name, root_of
from cudal1_ci.config import Settings
from cudal1_ci.errors import ConfigError, DiscoveryError
from cudal1_ci.optimize.strategies import covering, default_strategies, noticed_by, proposed_by
from cudal1_ci.optimize.understanding import understanding_of
from cudal1_ci.propose import Strategy
from cudal1_ci.records import Candidate, Explanation, Problem, Target, Workload
from cudal1_ci.records.recording import Recording
from cudal1_ci.render.text import print_explanation
from cudal1_ci.verification import Session
from cudal1_ci.verification.verify import problem_of, text_of

EPILOG = """\b
Examples:
  cudal1-ci explain src/model.py:Attention      a target of `scan`, with one of its workloads
  cudal1-ci explain task.py                     a KernelBench task: Model and get_inputs()
  cudal1-ci explain src/model.py --json -       all targets of a file, one object a line
"""
MOST_PROPOSED = 100
TREE = (*KEYS.items(), ("seed", "trial.seed"))


@click.command(
    cls=GroupedCommand,
    name="explain",
    epilog=EPILOG,
    short_help="Show what a call of TARGET does and what it costs.",
)
@click.argument("target", metavar="TARGET")
@click.option("--workload", "wanted", metavar="NAME", help="Workload to run [default: the first].")
@click.option(
    "--json",
    "json_path",
    type=click.Path(dir_okay=False, writable=True, allow_dash=True),
    metavar="FILE|-",
    help="Write the result as JSON.",
)
@click.option(
    "--mode",
    type=click.Choice(["infer", "train"]),
    default="infer",
    show_default=True,
    help="Mode for a file that defines Model.",
)
@click.option("--seed", type=int, help="Seed of the inputs [default: 0].")
@ONE_DEVICE_OPTION
@SANDBOX_OPTION
@executor_options
@click.option("--python", help=PYTHON_HELP)
@click.option("--threads", type=click.IntRange(min=1), help="CPU threads of torch [default: 1].")
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
def explain(
    target: str, wanted: str | None, json_path: str | None, mode: str, quiet: bool, **flags: Any
) -> None:
    """Run one call of TARGET in a sandbox and show what each expression costs.

    TARGET is `path.py:Qual.Name`, or a path. Exit code 0 when done, 2 when TARGET or a call of it
    is unknown, 4 when the call could not be recorded.
    """
    path, name = file_and_name(target)
    root = root_of([path])
    settings = settings_of(root, flags, dict(TREE))
    refuse_unwritable(json_path)
    refuse_several(settings)
    require(settings.device)
    found = [*problems(path, name, mode, root, settings, quiet)]
    kind = "cuda" if measures_on_gpu(settings.device) else "cpu"
    strategies = default_strategies(settings.playbook, kind)
    explained = []
    with session_of(settings, root.resolve()) as session:
        for one, problem in found:
            workload = workload_of(problem, wanted)
            explained.append(explanation(session, one, problem, workload, strategies))
            if json_path is None:
                print_explanation(explained[-1])
    if json_path is not None:
        write_lines(json_path, explained)
    is_missing = any(one.understanding is None for one in explained)
    sys.exit(EXIT_UNSUPPORTED if is_missing else EXIT_DONE)


def problems(
    path: Path, name: str | None, mode: str, root: Path, settings: Settings, quiet: bool
) -> Iterator[tuple[Target, Problem]]:
    """Yield what is to be explained.

    Raises:
        DiscoveryError: Nothing is so named, or no call of it is known.
    """
    if name is None and (task := task_of(path, mode)) is not None:
        yield task
        return
    progress = progress_for(settings, sys.stderr, os.environ, quiet=quiet)
    place = Place(path.resolve().relative_to(root.resolve()).as_posix(), name)
    plan = plan_of(Scope(root, (place,)), settings, progress)
    named = [one for one in plan.targets if place.holds(one.target)]
    posed = [(one.target, one.problem) for one in named if one.problem and not one.target.is_kernel]
    if not posed:
        one = named[0]
        reason = "a kernel is measured by what launches it" if one.problem else one.reason
        raise DiscoveryError(
            f"{path}:{one.target.qualname}: {reason}" + (f"; {one.hint}" if one.hint else "")
        )
    yield from posed


def task_of(path: Path, mode: str) -> tuple[Target, Problem] | None:
    """Return the problem of a file in KernelBench form; None for another one."""
    text = text_of(path)
    try:
        problem = problem_of(text, str(path), mode)
    except ConfigError:
        return None
    model = next(
        (n for n in ast.parse(text).body if isinstance(n, ast.ClassDef) and n.name == "Model"), None
    )
    first, last = (1, 1) if model is None else (model.lineno, model.end_lineno or model.lineno)
    target = Target(
        path=path.as_posix(),
        qualname="Model",
        kind="torch_module",
        first_line=first,
        last_line=last,
    )
    return target, problem


def workload_of(problem: Problem, wanted: str | None) -> Workload:
    """Return the workload of a name, or the first. Raises: ConfigError."""
    for one in problem.workloads:
        if wanted in (None, one.name):
            return one
    known = ", ".join(one.name for one in problem.workloads)
    raise ConfigError(f"--workload {wanted}: expected one of {known}")


def explanation(
    session: Session,
    target: Target,
    problem: Problem,
    workload: Workload,
    strategies: Sequence[Strategy],
) -> Explanation:
    """Record a call, and return what it shows."""
    device = session.device()
    found = session.record(problem, workload)
    recording = None if isinstance(found, str) else found
    said = Explanation(
        target=target,
        workload=workload,
        device=device,
        reason=found if isinstance(found, str) else None,
        proposals=proposals_of(strategies, problem, recording),
    )
    if recording is None:
        return said
    understanding = understanding_of(recording, problem, device, target.path)
    noticed = noticed_by(strategies, problem, recording, target.path)
    return msgspec.structs.replace(
        said,
        understanding=understanding,
        near_misses=noticed.near_misses,
        warnings=noticed.failures,
    )


def proposals_of(
    strategies: Sequence[Strategy], problem: Problem, recording: Recording | None
) -> dict[str, tuple[str, ...]]:
    """Return what each strategy would try first, as `scan` hears them."""
    found: dict[str, tuple[str, ...]] = {}
    before: list[Candidate] = []
    for strategy in strategies:
        candidates = proposed_by(strategy, problem, recording, (), MOST_PROPOSED)
        heard = [one for one in candidates if covering(one, before) is None]
        before += heard
        found[strategy.name] = tuple(one.proposer for one in heard)
    return found
