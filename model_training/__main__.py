"""Run `python -m model_training COMMAND`: all stages, one of them, or an export.

Exit code 0 is a command that came to its end; 75 one that had to stop before (a signal, the time)
and continues with `--resume`; the others are those of `cudal1_ci.errors`.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from cudal1_ci.errors import CudaL1Error

STOPPED = 75
"""EX_TEMPFAIL of sysexits.h: try again later."""
OTHERS = {
    "export": "model_training.export.commands:export",
    "bundle": "model_training.export.bundle:bundle_command",
}
"""Commands that are loaded when they are asked for, as they need neither weights nor verifier."""


class Commands(click.Group):
    """List commands in the order of use, and turn failures of the tool into exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [*self.commands, *OTHERS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in OTHERS:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = OTHERS[cmd_name].partition(":")
        found: click.Command = getattr(importlib.import_module(module), attribute)
        return found

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except CudaL1Error as error:
            echo(f"error: {error}")
            sys.exit(error.exit_code)


@click.group(cls=Commands)
def main() -> None:
    """Train language models to write faster code: the three stages of CUDA-L1."""


def options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of every stage."""
    for option in (
        click.option("--resume", is_flag=True, help="Resume the run in the folder."),
        click.option("--max-minutes", type=float, help="Stop with a checkpoint after so long."),
        click.option("--folder", help="Of the run, instead of the configuration's."),
        click.option(
            "--set",
            "changes",
            multiple=True,
            metavar="KEY=VALUE",
            help="Replace what the file says: contrastive.num-steps=4 (repeatable).",
        ),
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


def run(path: Path, resume: bool, work: Any, **given: Any) -> None:
    """Open the run and do the work; the exit code is `STOPPED` where it had to stop."""
    from model_training.config import load_config  # here, as torch takes seconds to load
    from model_training.run import Stopped
    from model_training.run_setup import open_setup

    shown = logging.StreamHandler()
    shown.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("model_training")
    logger.addHandler(shown)
    logger.setLevel(logging.INFO)
    try:
        with open_setup(load_config(path, **given), is_resumed=resume) as setup:
            work(setup)
    except Stopped as stopped:
        echo(f"stopped ({stopped}); the same command with --resume continues")
        sys.exit(STOPPED)
    finally:
        logger.removeHandler(shown)


def echo(text: str) -> None:
    """Write progress."""
    click.echo(text, err=True)


@main.command()
@options
def pipeline(**given: Any) -> None:
    """Run all stages, with an evaluation after each."""
    from model_training import pipeline as stages

    run(**given, work=lambda setup: stages.pipeline(setup, echo))


def stage_command(name: str, summary: str) -> None:
    """Add the command of one stage."""

    @main.command(name.replace("_", "-"), help=summary)
    @options
    def command(**given: Any) -> None:
        from model_training.pipeline import STAGES

        run(**given, work=next(work for stage, work in STAGES.items() if stage == name))


stage_command("collect", "Stage 1's data: variants that the judge has passed.")
stage_command("supervised", "Stage 1: learn from validated examples.")
stage_command("self_supervised", "Stage 2: learn from own answers that are right.")
stage_command("contrastive", "Stage 3: contrastive reinforcement learning.")


@main.command()
@options
@click.option(
    "--name",
    default="base",
    show_default=True,
    help="Whose weights are asked: base, supervised, self_supervised or contrastive. Of a server's "
    "model any name.",
)
def evaluate(name: str, **given: Any) -> None:
    """Sample and score answers to the tasks of evaluation."""
    from model_training import evaluate as evaluation

    def work(setup: Any) -> None:
        for one in evaluation.main(setup, name):
            click.echo(evaluation.summary(one))

    run(**given, work=work)


if __name__ == "__main__":
    main()
