"""Share what verbs use to reach GitHub: the token, the log, and the output of a dry run."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from cudal1_ci.errors import ConfigError, UnsupportedError
from cudal1_ci.github.event import Occasion
from cudal1_ci.github.posts import Plan
from cudal1_ci.github.publication import carry_out, printed
from cudal1_ci.github.sanitize import log_line

if TYPE_CHECKING:
    from cudal1_ci.github.client import Client


def client_of(run: Occasion, environ: Mapping[str, str], flags: Mapping[str, Any]) -> Client | None:
    """Return the client of GitHub; None for a dry run without a token, which sends no request.

    Raises:
        ConfigError: There is no token.
        UnsupportedError: PyGithub is not installed.
    """
    token = environ.get("GITHUB_TOKEN")
    if not token and flags["dry_run"]:
        return None
    if not token:
        raise ConfigError(
            "GITHUB_TOKEN: expected a token in the environment, it is not set; `env: GITHUB_TOKEN: "
            "${{ github.token }}`, or --dry-run"
        )
    try:
        from cudal1_ci.github.client import with_token
    except ImportError as error:
        raise UnsupportedError(f"publish needs PyGithub: pip install PyGithub ({error})") from error
    return with_token(token, run, tell)


def post(plan: Plan, client: Client | None, flags: Mapping[str, Any]) -> None:
    """Carry a plan out, or print it.

    Raises:
        ForgeError: Something could not be posted.
    """
    for remark in plan.remarks:
        tell(remark)
    if flags["dry_run"]:
        show(printed(plan))
    elif client is not None:
        for what, made in carry_out(plan, client, tell, notice):
            click.echo(f"{what}: {made.url}" if made.url else what)


def show(text: str) -> None:
    """Print text so that, in a workflow, none of its lines is a command to the runner."""
    if not os.environ.get("GITHUB_ACTIONS"):
        click.echo(text, nl=False)
        return
    word = secrets.token_hex(16)
    click.echo(f"::stop-commands::{word}")
    click.echo(text, nl=False)
    click.echo(f"::{word}::")


def tell(message: str) -> None:
    click.echo(log_line(message), err=True)


def notice(message: str) -> None:
    mark = "::notice::" if os.environ.get("GITHUB_ACTIONS") else "notice: "
    click.echo(mark + log_line(message), err=True)
