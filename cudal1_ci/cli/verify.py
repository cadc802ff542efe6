"""`cudal1-ci verify`: one Trial of KernelBench-form files, answered as docs/report.md says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from cudal1_ci.cli.device import require
from cudal1_ci.cli.execution import (
    PYTHON_HELP,
    TEXT_KEYS,
    executor_of,
    executor_options,
    one_device,
    precision_option,
    refuse_several,
    settings_of,
)
from cudal1_ci.cli.group import EXIT_DONE, EXIT_INCONCLUSIVE, EXIT_NO, EXIT_UNSUPPORTED
from cudal1_ci.cli.outputs import refuse_unwritable, write_lines
from cudal1_ci.records import Evaluation
from cudal1_ci.render.published import verdict_of
from cudal1_ci.render.text import print_verification
from cudal1_ci.verification import Session, cuda_l1
from cudal1_ci.verification.verify import candidate_of, text_problem, with_own_names

EPILOG = """\b
Examples:
  cudal1-ci verify model.py faster.py
  cudal1-ci verify model.py a.py b.py c.py --json -      one object a line
REFERENCE defines `Model`, `get_inputs()` and, if Model takes arguments, `get_init_inputs()`;
each CANDIDATE defines `ModelNew` (or `Model`) with the same constructor and state_dict keys.
"""


@click.command(
    epilog=EPILOG, short_help="Judge whether CANDIDATE is the same as REFERENCE, and faster."
)
@click.argument("reference", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument(
    "candidates",
    metavar="CANDIDATE...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@click.option(
    "--json",
    "json_path",
    type=click.Path(dir_okay=False, writable=True, allow_dash=True),
    metavar="FILE|-",
    help="Write the verdict as JSON.",
)
@click.option("--mode", type=click.Choice(["infer", "train"]), default="infer", show_default=True)
@click.option("--seed", type=int, help="Seed of the judge's inputs [default: 0].")
@click.option(
    "--device",
    callback=one_device,
    help="cpu, cuda, cuda:N, auto (a GPU where there is one) [default: auto].",
)
@click.option(
    "--require-sandbox", is_flag=True, default=None, help="Refuse to run where it is incomplete."
)
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
    help="cuda-l1: inconclusive where the paper's rules throw the times away.",
)
@click.option(
    "--weights",
    type=click.Choice(["checkpoint", "seed"]),
    help="seed: a candidate with another state_dict is compared with the weights that both draw "
    "under one seed, as KernelBench does [default: checkpoint].",
)
@precision_option
@click.option(
    "--timeout", help="How long the calls of one request may take: 90s, 2m [default: 60s]."
)
def verify(
    reference: Path, candidates: tuple[Path, ...], json_path: str | None, mode: str, **flags: Any
) -> None:
    """Verify whether CANDIDATE computes the same as REFERENCE, and how much faster it is.

    Exit code 0 for passed, 3 for inconclusive, 1 for every other verdict, 4 when the verifier
    itself could not run; of several candidates the worst counts.
    """
    settings = settings_of(Path.cwd(), flags, KEYS)
    refuse_unwritable(json_path)
    refuse_several(settings)
    require(settings.device)
    problem = text_problem(reference, mode)
    judged: dict[int, Evaluation] = {}
    best: float | None = None
    with Session(
        settings.trial,
        device=settings.device,
        require_sandbox=settings.require_sandbox,
        require_kernel=flags["require_kernel"],
        builds=settings.builds,
        executor=executor_of(settings),
    ) as session:
        read = [candidate_of(problem, path) for path in candidates]
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
            judged[number] = verdict_of(with_own_names(evaluation, reference, candidates[number]))
            if json_path is None:
                print_verification(judged[number], title=str(candidates[number]))
    documents = [judged[number] for number in sorted(judged)]
    if json_path is not None:
        write_lines(json_path, documents)
    sys.exit(max((exit_code(d.status) for d in documents), key=SEVERITY.index))


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
