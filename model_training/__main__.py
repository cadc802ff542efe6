"""`python -m model_training COMMAND --config FILE`: the pipeline, and each stage alone.

Exit code 0 is a command that came to its end; 75 one that had to stop before (a signal, the time),
and goes on with `--resume`; the others are those of `cudal1_ci.errors`.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from cudal1_ci.errors import CudaL1Error

STOPPED = 75
"""EX_TEMPFAIL of sysexits.h: try again later."""
OTHERS = {
    "report": "model_training.report.command:report",
    "card": "model_training.report.command:card",
    "export": "model_training.export.command:export",
}
"""Commands that are loaded when they are asked for, as they need neither weights nor judge."""


class Commands(click.Group):
    """With those of other rooms."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted([*super().list_commands(context), *filter(is_there, OTHERS)])

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in OTHERS or not is_there(name):
            return super().get_command(context, name)
        module, _, attribute = OTHERS[name].partition(":")
        found: click.Command = getattr(importlib.import_module(module), attribute)
        return found


def is_there(name: str) -> bool:
    module = OTHERS[name].partition(":")[0]
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@click.group(cls=Commands)
def main() -> None:
    """Trains language models to write faster code: the three stages of CUDA-L1."""


def options(command: Callable[..., None]) -> Callable[..., None]:
    """Those of every stage."""
    for option in (
        click.option("--resume", is_flag=True, help="Go on with the run in the folder."),
        click.option("--max-minutes", type=float, help="Stop with a checkpoint after so long."),
        click.option("--folder", help="Of the run, instead of the configuration's."),
        click.option(
            "--config",
            "path",
            required=True,
            type=click.Path(path_type=Path),
            help="TOML file with all settings.",
        ),
    ):
        command = option(command)
    return command


def run(
    path: Path, folder: str | None, max_minutes: float | None, *, resume: bool, work: Any
) -> None:
    """Open the run and do the work; the exit code where it is not 0."""
    from model_training.config import load_config  # here, as torch takes seconds to load
    from model_training.run import Stopped
    from model_training.workplace import opened

    try:
        config = load_config(path, max_minutes=max_minutes, folder=folder)
        with opened(config, is_resumed=resume) as place:
            work(place)
    except Stopped as stopped:
        tell(f"stopped ({stopped}); the same command with --resume goes on")
        sys.exit(STOPPED)
    except CudaL1Error as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)


def tell(text: str) -> None:
    """Progress."""
    click.echo(text, err=True)


@main.command()
@options
def pipeline(path: Path, folder: str | None, max_minutes: float | None, resume: bool) -> None:
    """All stages, with an evaluation after each."""
    from model_training import pipeline as stages

    run(path, folder, max_minutes, resume=resume, work=lambda place: stages.pipeline(place, tell))


def stage_command(name: str, summary: str) -> None:
    """A command of one stage."""

    @main.command(name.replace("_", "-"), help=summary)
    @options
    def command(path: Path, folder: str | None, max_minutes: float | None, resume: bool) -> None:
        from model_training import pipeline as stages

        run(path, folder, max_minutes, resume=resume, work=getattr(stages, name))


stage_command("collect", "The data set of stage 1: variants that the judge has passed.")
stage_command("supervised", "Stage 1: learn from validated examples.")
stage_command("self_supervised", "Stage 2: learn from own answers that are right.")
stage_command("contrastive", "Stage 3: contrastive reinforcement learning.")


@main.command()
@options
@click.option("--name", default="base", show_default=True, help="Stage whose weights are asked.")
def evaluate(
    path: Path, folder: str | None, max_minutes: float | None, resume: bool, name: str
) -> None:
    """Samples of the tasks for evaluation, judged: evaluations/NAME.json."""
    from model_training import pipeline as stages

    def work(place: Any) -> None:
        for one in stages.evaluate(place, name):
            click.echo(stages.said(one))

    run(path, folder, max_minutes, resume=resume, work=work)


if __name__ == "__main__":
    main()
