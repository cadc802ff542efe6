"""What every verb shares: failures become exit codes, and a mistyped verb a suggestion.

Knows click; knows nothing of what the verbs do. Exit codes are those of docs/exit-codes.md.
"""

from __future__ import annotations

import difflib
import os
import sys
from typing import Any

import click

from cudal1_ci.errors import CudaL1Error
from cudal1_ci.render.workflow_log import workflow_command

EXIT_DONE = 0
EXIT_NO = 1
EXIT_INCONCLUSIVE = 3
EXIT_UNSUPPORTED = 4
EXIT_BUDGET = 6
EXIT_INTERRUPTED = 130


class Verbs(click.Group):
    """A group that suggests the nearest verb and turns the tool's failures into exit codes."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1, cutoff=0.5)
            if near:
                raise click.UsageError(f"{error.message} Did you mean `{near[0]}`?", ctx) from error
            raise

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except CudaL1Error as error:
            if os.environ.get("GITHUB_ACTIONS"):
                click.echo(workflow_command("error", str(error)), err=True)
            else:
                click.echo(f"{click.style('error', fg='red', bold=True)}: {error}", err=True)
            sys.exit(error.exit_code)
        except BrokenPipeError:
            raise
        except OSError as error:
            if error.filename is None:  # a bug, whose place is worth more than a sentence
                raise
            click.echo(
                f"{click.style('error', fg='red', bold=True)}: {error.filename}: {error.strerror}",
                err=True,
            )
            sys.exit(EXIT_UNSUPPORTED)
        except KeyboardInterrupt:
            click.echo("interrupted; finished evaluations are kept", err=True)
            sys.exit(EXIT_INTERRUPTED)
