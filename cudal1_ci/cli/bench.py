"""`cudal1-ci bench`: tasks by columns, one verifier, a report card."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
from click.shell_completion import CompletionItem

from cudal1_ci.cli.bench_flags import columns_of, seconds_of, shard_of
from cudal1_ci.cli.devices import KEYS as DEVICE_KEYS
from cudal1_ci.cli.devices import (
    Placed,
    address_option,
    placed,
    progress_for,
    with_shared_gpu,
)
from cudal1_ci.cli.execution import (
    DEVICES_OPTION,
    PYTHON_HELP,
    SANDBOX_OPTION,
    TEXT_KEYS,
    cluster_options,
    precision_option,
    session_of,
    settings_of,
)
from cudal1_ci.cli.group import EXIT_BUDGET, EXIT_DONE, EXIT_INTERRUPTED, GroupedCommand
from cudal1_ci.cli.model import (
    optimizer_of,
    refuse_a_key_for_a_url_in_a_file,
    refuse_a_model_that_disturbs,
)
from cudal1_ci.cli.outputs import refuse_unwritable
from cudal1_ci.config import Settings
from cudal1_ci.errors import ConfigError, UnsupportedError
from cudal1_ci.optimize.context import RunContext
from cudal1_ci.pool import Pool
from cudal1_ci.propose.llm.servers.opening import opened
from cudal1_ci.records.archive import Archive
from cudal1_ci.render.progress import Progress
from cudal1_ci.report_card.columns import COLUMNS, CONTRASTIVE, DEFAULT, CardConfig
from cudal1_ci.report_card.merge import merge
from cudal1_ci.report_card.page import render_page
from cudal1_ci.report_card.reading import read_run
from cudal1_ci.report_card.run import run
from cudal1_ci.report_card.shape import RunDocument
from cudal1_ci.report_card.table import render_table
from cudal1_ci.report_card.tasks import Choice, tasks_at

EPILOG = """\b
Examples:
  cudal1-ci bench KernelBench --level 1 --solvers eager,compile,playbook,best --output run.json
  cudal1-ci bench CUDA-L1/optimized_cuda_code/h100.json --budget 8h --output run.json --html run.html
  cudal1-ci bench ... --resume                        after a kill or a spent budget
  cudal1-ci bench KernelBench --shard 2/4 ...         one machine of four
  cudal1-ci bench --merge a.json b.json --html all.html

A task: `Model`, `get_inputs()` and, if Model takes arguments, `get_init_inputs()`.
"""  # noqa: E501 (an example is one line)

KEYS = {
    **TEXT_KEYS,
    **DEVICE_KEYS,
    "rounds": "review.num-rounds",
    "model": "model.model",
    "adapter": "model.adapter",
}
"""Flags that stand for a setting."""


def solver_names(
    _context: click.Context, _option: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the last name of a list of solvers."""
    before, comma, begun = incomplete.rpartition(",")
    given = before.split(",")
    names = [name for name in COLUMNS if name.startswith(begun) and name not in given]
    return [CompletionItem(f"{before}{comma}{name}") for name in names]


@click.command("bench", cls=GroupedCommand, epilog=EPILOG)
@click.argument(
    "paths", metavar="FOLDER|FILE...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option(
    "--solvers",
    callback=columns_of,
    shell_complete=solver_names,
    default=",".join(DEFAULT),
    show_default=True,
    help=f"Columns: any of {', '.join(COLUMNS)}.",
)
@click.option("--merge", "merges", is_flag=True, help="Merge several run files into one report.")
@click.option("--level", type=int, multiple=True, help="Only this level (repeatable).")
@click.option(
    "--task",
    multiple=True,
    metavar="GLOB",
    help="Only these tasks, such as level1/1* (repeatable).",
)
@click.option(
    "--shard",
    callback=shard_of,
    default="1/1",
    metavar="I/N",
    help="Run only this part of the chosen tasks: 2/4.",
)
@click.option(
    "--policy",
    type=click.Choice(["strict", "cuda-l1"]),
    default="strict",
    show_default=True,
    help="cuda-l1: also show the figures under the rules of CUDA-L1's paper.",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, writable=True, allow_dash=True),
    metavar="FILE|-",
    help="Write the run as JSON (docs/bench.md).",
)
@click.option(
    "--html",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Write the report card as one HTML file.",
)
@click.option("--budget", callback=seconds_of, help="Stop after 90s, 10m, 8h; --resume continues.")
@click.option("--resume", is_flag=True, help="Resume the last unfinished run of these tasks.")
@click.option("--fresh", is_flag=True, help="Measure again what the archive already knows.")
@DEVICES_OPTION
@SANDBOX_OPTION
@cluster_options
@address_option
@click.option("--python", help=PYTHON_HELP)
@click.option("--threads", type=click.IntRange(min=1), help="CPU threads of torch [default: 1].")
@click.option("--seed", type=int, help="Seed of the inputs [default: 0].")
@click.option(
    "--weights",
    type=click.Choice(["checkpoint", "seed"]),
    default="seed",
    show_default=True,
    help="seed: a candidate with another state_dict is compared with the weights that both draw "
    "under one seed, as KernelBench does.",
)
@precision_option
@click.option("--rounds", type=click.IntRange(min=1), help="Rounds of proposals [default: 4].")
@click.option("--model", metavar="MODEL", help="For `contrastive`: weights, or a server's URL.")
@click.option("--adapter", metavar="FOLDER", help="LoRA adapter for the weights, or `none`.")
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
def bench_verb(paths: tuple[Path, ...], **flags: Any) -> None:
    """Run solvers on folders of tasks and create a report card.

    Exit code 0 when every column was tried on every task, 6 when the budget was spent first, 130
    when interrupted. Finished work is kept; --resume continues from it.
    """
    refuse_unwritable(flags["output"], flags["html"])
    if flags["merges"]:
        told(merge([read_run(path) for path in paths]), flags)
        return
    document = measured(paths, flags)
    told(document, flags)
    codes = {"done": EXIT_DONE, "budget": EXIT_BUDGET, "interrupted": EXIT_INTERRUPTED}
    sys.exit(codes[document.ended])


def told(document: RunDocument, flags: dict[str, Any]) -> None:
    """Write the results, files first, so that a closed stdout loses none of them."""
    encoded = msgspec.json.encode(document).decode() + "\n"
    output, page = flags["output"], flags["html"]
    if output not in (None, "-"):
        write(Path(output), encoded)
    if page is not None:
        write(page, render_page(document))
    click.echo(encoded if output == "-" else render_table(document), nl=False)


def write(path: Path, text: str) -> None:
    """Write text as a whole or not at all.

    Raises:
        UnsupportedError: The disk is full, say.
    """
    partial = path.with_name(f"{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise UnsupportedError(
            f"{path}: cannot be written: {error.strerror or error}; fix that and run again "
            "without --resume: finished trials are kept"
        ) from error


def measured(paths: tuple[Path, ...], flags: dict[str, Any]) -> RunDocument:
    """Run the report card once, with an archive in the working directory as memory."""
    settings = settings_of(Path.cwd(), flags, {**KEYS, "weights": "trial.weights"})
    columns: tuple[str, ...] = flags["solvers"]
    if CONTRASTIVE in columns and settings.model.model is None:
        raise ConfigError("`contrastive` needs a model: --model, or leave it out of --solvers")
    settings = with_shared_gpu(settings)
    choice = Choice(levels=flags["level"], globs=flags["task"], shard=flags["shard"])
    found = tasks_at(paths, choice)
    progress = progress_for(settings, sys.stderr, os.environ, quiet=flags["quiet"])
    for line in found.left_out:
        progress.notice(f"not a task: {line}")
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(placed(settings))
        folder = Path.cwd() / settings.state_dir
        archive = stack.enter_context(Archive.open(folder / "bench.sqlite"))
        run_id = begun(archive, paths, choice, settings, flags)
        context = stack.enter_context(context_of(place, flags, progress, archive, run_id))
        stack.enter_context(progress)
        config = CardConfig(
            columns=columns,
            policy=flags["policy"],
            precision=settings.trial.precision,
            playbook=settings.playbook,
        )
        document = run(found, context, config)
        if document.ended == "done":
            archive.finish_run(run_id)
    return document


def begun(
    archive: Archive,
    paths: tuple[Path, ...],
    choice: Choice,
    settings: Settings,
    flags: dict[str, Any],
) -> str:
    """Return the id of a new run, or of the one that this run continues.

    Raises:
        ConfigError: There is none to continue.
    """
    arguments = {
        "bench": [str(path.resolve()) for path in paths],
        "choice": msgspec.to_builtins(choice),
        "solvers": flags["solvers"],
        "policy": flags["policy"],
        "judge": settings.trial.policy,
    }
    unfinished = archive.unfinished_run(arguments) if flags["resume"] else None
    if flags["resume"] and unfinished is None:
        raise ConfigError(
            f"{archive.path}: there is no unfinished run of these tasks and solvers to resume, by "
            "the same policy and settings of the verifier (`trial`, also of the environment); run "
            "without --resume (verdicts that hold are re-used anyway)"
        )
    return unfinished.id if unfinished else archive.start_run(arguments)


@contextlib.contextmanager
def context_of(
    place: Placed, flags: dict[str, Any], progress: Progress, archive: Archive, run_id: str
) -> Iterator[RunContext]:
    """Yield what the run works with; a model is served while this lasts."""
    settings, backend = place
    since = archive.run_started_at(run_id)
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(Pool(backend, notice=progress.notice)) if backend else None
        session = pool.first if pool else stack.enter_context(session_of(settings))
        optimizer = None
        if CONTRASTIVE in flags["solvers"]:
            if pool is not None:
                refuse_a_model_that_disturbs(settings, settings.model)
            refuse_a_key_for_a_url_in_a_file(settings, "model", settings.model)
            model = stack.enter_context(opened(settings.model, told=progress.notice))
            optimizer = optimizer_of(model, settings, since=since)
        yield RunContext(
            session=session,
            pool=pool,
            strategies=(),
            archive=archive,
            progress=progress,
            config=msgspec.structs.replace(settings.review, budget_s=flags["budget"]),
            policy=settings.trial.policy,
            since=since,
            may_reuse=not flags["fresh"],
            optimizer=optimizer,
        )
