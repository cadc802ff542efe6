"""Share what every verb has: lazy import, exit codes for failures, suggestions for mistyped names.

Knows click; knows nothing of what the verbs do. Exit codes are those of docs/exit-codes.md.
Imports click, the standard library and nothing of the tool but its errors: see `VERBS`.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import os
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from cudal1_ci.errors import CudaL1Error

EXIT_DONE = 0
EXIT_NO = 1
EXIT_INCONCLUSIVE = 3
EXIT_UNSUPPORTED = 4
EXIT_BUDGET = 6
EXIT_INTERRUPTED = 130


class Verb(NamedTuple):
    """A verb before its module is imported."""

    name: str
    place: str
    """Of its command: `module:attribute`."""
    short_help: str


GROUPS: dict[str, tuple[str, ...]] = {
    "What to look at": (
        *("changed", "list_only", "include", "exclude", "path", "config_from", "wanted", "mode"),
        *("level", "task", "shard", "solvers", "retrace", "harvest", "traces"),
    ),
    "How to propose": ("rounds", "compile", "cuda_graph", "triton"),
    "Model": ("model", "adapter", "no_model"),
    "How to measure": (
        *("device", "threads", "seed", "budget", "resume", "fresh", "threshold", "policy"),
        *("precision", "weights", "timeout", "require_kernel", "dry_run"),
    ),
    "Where to run": ("python", "executor", "container_image", "address", "require_sandbox"),
    "Output": (
        *("stdout_format", "json_path", "html_path", "md_path", "sarif_path", "patch_folder"),
        *("output", "html", "merges", "why", "apply_them", "quiet"),
    ),
    "CI": ("fail_on",),
}
"""Headings of a long list of options, and the parameters below each; others come last."""
MOST_UNGROUPED = 10


class GroupedCommand(click.Command):
    """A command whose help lists its options under headings, where they are many."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options."""
        rows = [
            (param.name, row)
            for param in self.get_params(ctx)
            if isinstance(param, click.Option) and (row := param.get_help_record(ctx)) is not None
        ]
        if len(rows) <= MOST_UNGROUPED:
            super().format_options(ctx, formatter)
            return
        placed = {name: heading for heading, names in GROUPS.items() for name in names}
        for heading in (*GROUPS, "Other"):
            listed = [row for name, row in rows if placed.get(name or "", "Other") == heading]
            if listed:
                with formatter.section(heading):
                    formatter.write_dl(listed)


def report_error(message: str) -> None:
    """Write an error to stderr, as an annotation in GitHub Actions."""
    if os.environ.get("GITHUB_ACTIONS"):
        from cudal1_ci.render.workflow_log import workflow_command

        click.echo(workflow_command("error", message), err=True)
    else:
        click.echo(f"{click.style('error', fg='red', bold=True)}: {message}", err=True)


class Verbs(click.Group):
    """A group of verbs that are imported when they are called."""

    def __init__(self, *args: Any, verbs: Sequence[Verb], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.verbs = {verb.name: verb for verb in verbs}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self.verbs)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002
        cmd_name: str,
    ) -> click.Command | None:
        """Import the verb."""
        verb = self.verbs.get(cmd_name)
        return verb and pkgutil.resolve_name(verb.place)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the list of verbs; imports none of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(verb.name, verb.short_help) for verb in self.verbs.values()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the verbs and options that begin so; imports no verb."""
        verbs = [
            CompletionItem(verb.name, help=verb.short_help)
            for verb in self.verbs.values()
            if verb.name.startswith(incomplete)
        ]
        return [*verbs, *click.Command.shell_complete(self, ctx, incomplete)]

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

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with one_voice():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with one_voice(ctx):
                return super().invoke(ctx)
        except CudaL1Error as error:
            report_error(str(error))
            sys.exit(error.exit_code)
        except BrokenPipeError:
            raise
        except OSError as error:
            if error.errno == errno.ENOSPC:
                report_error(f"{error.filename or 'a file'}: {error.strerror}; make room on disk")
                sys.exit(EXIT_UNSUPPORTED)
            if error.filename is None:  # a bug, whose place is worth more than a sentence
                raise
            report_error(f"{error.filename}: {error.strerror}")
            sys.exit(EXIT_UNSUPPORTED)
        except KeyboardInterrupt:
            click.echo("interrupted; finished evaluations are kept", err=True)
            sys.exit(EXIT_INTERRUPTED)


@contextlib.contextmanager
def one_voice(ctx: click.Context | None = None) -> Iterator[None]:
    """Report click's errors of usage as the tool reports its own."""
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:
        raise
    except click.UsageError as error:
        verb = "cudal1-ci"
        if error.ctx:
            verb = error.ctx.command_path
        elif ctx:  # of the verb whose option lacks its argument
            verb = f"{ctx.command_path} {ctx.invoked_subcommand}"
        is_argument = isinstance(getattr(error, "param", None), click.Argument)
        said = error.message if error.message and is_argument else error.format_message()
        message = said.rstrip(".")
        link = " See" if message.endswith("?") else "; see"
        report_error(f"{message[:1].lower()}{message[1:]}{link} `{verb} --help`")
        sys.exit(error.exit_code)
