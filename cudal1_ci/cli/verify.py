"""`cudal1-ci verify`: one Trial of files or of `file.py:Name`, answered as docs/report.md says."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from cudal1_ci.cli.device import measures_on_gpu, require
from cudal1_ci.cli.execution import (
    ONE_DEVICE_OPTION,
    PYTHON_HELP,
    SANDBOX_OPTION,
    TEXT_KEYS,
    executor_of,
    executor_options,
    precision_option,
    refuse_several,
    settings_of,
)
from cudal1_ci.cli.group import (
    EXIT_DONE,
    EXIT_INCONCLUSIVE,
    EXIT_NO,
    EXIT_UNSUPPORTED,
    GroupedCommand,
)
from cudal1_ci.cli.outputs import refuse_unwritable, write_lines
from cudal1_ci.cli.scope import file_and_name, root_of
from cudal1_ci.cli.trace import kept_traces
from cudal1_ci.config import Settings
from cudal1_ci.discover import discover
from cudal1_ci.discover.declared import declarations
from cudal1_ci.discover.ladder import Evidence
from cudal1_ci.discover.plan import planned
from cudal1_ci.errors import ConfigError, DiscoveryError
from cudal1_ci.records import Candidate, Evaluation, Problem, TextProgram
from cudal1_ci.render.published import verdict_of
from cudal1_ci.render.text import print_verification
from cudal1_ci.verification import Session, cuda_l1
from cudal1_ci.verification.pairs import named_candidate, named_target
from cudal1_ci.verification.verify import candidate_of, text_problem, with_own_names

EPILOG = """\b
Examples:
  cudal1-ci verify model.py faster.py
  cudal1-ci verify model.py a.py b.py c.py --json -      one object a line
  cudal1-ci verify model.py:Attention faster.py:Attention

Without names REFERENCE defines `Model`, `get_inputs()` and, if Model takes arguments,
`get_init_inputs()`; each CANDIDATE defines `ModelNew` (or `Model`) with the same constructor and
state_dict keys. With names, the declared or traced workloads of REFERENCE are used.
"""


@click.command(
    cls=GroupedCommand,
    epilog=EPILOG,
    short_help="Verify that CANDIDATE computes the same as REFERENCE, and faster.",
)
@click.argument("reference")
@click.argument("candidates", metavar="CANDIDATE...", nargs=-1, required=True)
@click.option(
    "--json",
    "json_path",
    type=click.Path(dir_okay=False, writable=True, allow_dash=True),
    metavar="FILE|-",
    help="Write the verdict as JSON.",
)
@click.option("--mode", type=click.Choice(["infer", "train"]), default="infer", show_default=True)
@click.option("--seed", type=int, help="Seed of the inputs [default: 0].")
@ONE_DEVICE_OPTION
@SANDBOX_OPTION
@click.option(
    "--require-kernel",
    is_flag=True,
    help="A candidate must do its work in Triton or CUDA kernels of its own (GPU only).",
)
@executor_options
@click.option("--python", help=PYTHON_HELP)
@click.option("--threads", type=click.IntRange(min=1), help="CPU threads of torch [default: 1].")
@click.option(
    "--policy",
    type=click.Choice(["strict", "cuda-l1"]),
    default="strict",
    show_default=True,
    help="cuda-l1: inconclusive where the paper's rules discard the times.",
)
@click.option(
    "--weights",
    type=click.Choice(["checkpoint", "seed"]),
    help="seed: a candidate with another state_dict is compared with the weights that both draw "
    "under one seed, as KernelBench does [default: checkpoint].",
)
@precision_option
@click.option("--timeout", help="Time limit of one request's calls: 90s, 2m [default: 60s].")
def verify(
    reference: str, candidates: tuple[str, ...], json_path: str | None, mode: str, **flags: Any
) -> None:
    """Verify whether CANDIDATE computes the same as REFERENCE, and how much faster it is.

    Exit code 0 for passed, 3 for inconclusive, 1 for every other verdict, 4 when the verifier
    itself could not run; of several candidates the worst counts.
    """
    paths = [file_and_name(text) for text in (reference, *candidates)]
    is_named = any(name for _, name in paths)
    root = root_of([path for path, _ in paths]) if is_named else Path()
    settings = settings_of(root, flags, KEYS)
    refuse_unwritable(json_path)
    refuse_several(settings)
    require(settings.device)
    problem, read = trial_of(paths, root, settings, mode)
    judged: dict[int, Evaluation] = {}
    best: float | None = None
    with Session(
        settings.trial,
        device=settings.device,
        require_sandbox=settings.require_sandbox,
        require_kernel=flags["require_kernel"],
        builds=settings.builds,
        executor=executor_of(settings, root.resolve()),
    ) as session:
        # A single one is built as fast by the verifier.
        if len(read) > 1 and session.check(problem).status == "passed":
            session.build_ahead(problem, read)
        numbers = {id(candidate): number for number, candidate in enumerate(read)}
        for candidate in session.in_turn(read):
            number = numbers[id(candidate)]
            if flags["policy"] == "cuda-l1":
                evaluation = cuda_l1.evaluate(session, problem, candidate, best)
                found = [one for one in cuda_l1.speedups(evaluation) if one is not None]
                best = max([*found, best or 0.0]) or None
            else:
                evaluation = session.evaluate(problem, candidate)
            evaluation = session.examine_contract(problem, evaluation)
            if isinstance(evaluation.candidate.program, TextProgram):
                evaluation = with_own_names(evaluation, paths[0][0], paths[number + 1][0])
            judged[number] = verdict_of(evaluation)
            if json_path is None:
                print_verification(judged[number], title=str(candidates[number]))
    documents = [judged[number] for number in sorted(judged)]
    if json_path is not None:
        write_lines(json_path, documents)
    sys.exit(max((exit_code(d.status) for d in documents), key=SEVERITY.index))


def trial_of(
    paths: Sequence[tuple[Path, str | None]], root: Path, settings: Settings, mode: str
) -> tuple[Problem, list[Candidate]]:
    """Return the problem of the first of these, and the others as its candidates.

    Raises:
        ConfigError: Some have a name and some do not, or one does not state what it must.
        DiscoveryError: Nothing says how the reference is called.
    """
    names = [name for _, name in paths]
    if not any(names):
        problem = text_problem(paths[0][0], mode)
        return problem, [candidate_of(problem, path) for path, _ in paths[1:]]
    if not all(names):
        bare = next(path for path, name in paths if name is None)
        raise ConfigError(f"{bare}: expected `{bare}:Name`, as for the others")
    places = [(path.resolve().relative_to(root.resolve()).as_posix(), name) for path, name in paths]
    (path, name), *others = places
    target = named_target(root, path, str(name))
    file = settings.file.relative_to(root).as_posix() if settings.file else "the configuration"
    evidence = Evidence(
        declared=declarations(settings.workloads, file), traces=kept_traces(root, settings)
    )
    discovery = discover(root, settings.discover)
    on_gpu = measures_on_gpu(settings.device)
    posed = planned(root, target, discovery, evidence, on_gpu)
    if posed.problem is None:
        hint = f"; {posed.hint}" if posed.hint else ""
        raise DiscoveryError(f"{path}:{name}: {posed.reason}{hint}")
    problem = posed.problem
    return problem, [
        named_candidate(problem, root, other, str(qualname), discovery)
        for other, qualname in others
    ]


KEYS = {
    **TEXT_KEYS,
    "timeout": "trial.call",
    "weights": "trial.weights",
}
SEVERITY = [EXIT_DONE, EXIT_INCONCLUSIVE, EXIT_NO, EXIT_UNSUPPORTED]


def exit_code(status: str) -> int:
    """Return the exit code that contracts.md gives a status."""
    by_status = {
        "passed": EXIT_DONE,
        "inconclusive": EXIT_INCONCLUSIVE,
        "harness_error": EXIT_UNSUPPORTED,
    }
    return by_status.get(status, EXIT_NO)
