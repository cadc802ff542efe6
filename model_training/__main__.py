"""`python -m model_training COMMAND`: a run, each of its stages alone, and what becomes of it.

Exit code 0 is a command that came to its end; 75 one that had to stop before (a signal, the time),
and goes on with `--resume`; the others are those of `cudal1_ci.errors`.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable, Sequence
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
    "bundle": "model_training.bundle:bundle_command",
}
"""Commands that are loaded when they are asked for, as they need neither weights nor judge."""
EPILOG = """\b
The whole of it, with weights that `hf download` has fetched:
  python -m model_training pipeline --config run.toml --max-minutes 27
  python -m model_training pipeline --config run.toml --resume
  python -m model_training report runs/mine --output report
  python -m model_training export adapter runs/mine/checkpoints/contrastive-24 --output adapter
  python -m model_training card runs/mine --adapter adapter --id OWNER/BASE ...
"""


class Commands(click.Group):
    """In the order in which they are needed; failures of the tool become exit codes."""

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
            tell(f"error: {error}")
            sys.exit(error.exit_code)


@click.group(cls=Commands, epilog=EPILOG)
def main() -> None:
    """Train language models to write faster code: the three stages of CUDA-L1."""


def options(command: Callable[..., None]) -> Callable[..., None]:
    """Those of every stage."""
    for option in (
        click.option("--resume", is_flag=True, help="Go on with the run in the folder."),
        click.option("--max-minutes", type=float, help="Stop with a checkpoint after so long."),
        click.option("--folder", help="Of the run, instead of the configuration's."),
        click.option(
            "--set",
            "changes",
            multiple=True,
            metavar="KEY=VALUE",
            help="In place of what the file says: contrastive.engine=frozen (repeatable).",
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
    """Open the run and do the work."""
    from model_training.config import load_config  # here, as torch takes seconds to load
    from model_training.workplace import opened

    def begin() -> None:
        with opened(load_config(path, **given), is_resumed=resume) as place:
            work(place)

    ending(begin)


def ending(work: Callable[[], None]) -> None:
    """Do it; the exit code is `STOPPED` where it had to stop."""
    from model_training.run import Stopped

    shown = logging.StreamHandler()
    shown.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("model_training")
    logger.addHandler(shown)
    logger.setLevel(logging.INFO)
    try:
        work()
    except Stopped as stopped:
        tell(f"stopped ({stopped}); the same command with --resume goes on")
        sys.exit(STOPPED)
    finally:
        logger.removeHandler(shown)


def tell(text: str) -> None:
    """Progress."""
    click.echo(text, err=True)


@main.command()
@options
def pipeline(**given: Any) -> None:
    """All stages of a run, with an evaluation after each."""
    from model_training import pipeline as stages

    run(**given, work=lambda place: stages.pipeline(place, tell))


def stage_command(name: str, summary: str) -> None:
    """A command of one stage."""

    @main.command(name.replace("_", "-"), help=summary)
    @options
    def command(**given: Any) -> None:
        from model_training import pipeline as stages

        run(**given, work=getattr(stages, name))


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
    """Answers to the tasks of evaluation, judged; a table row."""
    from model_training import pipeline as stages

    def work(place: Any) -> None:
        for one in stages.evaluate(place, name):
            click.echo(stages.said(one))

    run(**given, work=work)


@main.command()
@options
@click.option(
    "--variant",
    "variants",
    nargs=2,
    multiple=True,
    required=True,
    metavar="NAME 'KEY=VALUE ...'",
    help="A run by its name and what it sets, nothing for '' (repeatable).",
)
def ablations(
    path: Path, folder: str | None, resume: bool, variants: Sequence[tuple[str, str]], **given: Any
) -> None:
    """Runs to compare, each a variant, with the same judges."""
    from model_training import ablations as runs  # here, as torch takes seconds to load
    from model_training.config import load_config

    wanted = [runs.Variant(name=name, changes=tuple(said.split())) for name, said in variants]
    where = Path(folder or load_config(path, **given).run.folder).expanduser()

    def load(variant: runs.Variant) -> Any:
        changes = (*given["changes"], *variant.changes)
        return load_config(path, changes=changes, max_minutes=given["max_minutes"])

    ending(lambda: runs.ablations(wanted, load, where, is_resumed=resume, tell=tell))


if __name__ == "__main__":
    main()
