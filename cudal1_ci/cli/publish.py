"""`cudal1-ci publish`: post reports to the pull request that the run is about."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from cudal1_ci.errors import (
    ConfigError,
    CudaL1Error,
    ForgeError,
    ReportError,
    UnsupportedError,
)
from cudal1_ci.forge.acknowledgements import Agreed, covered
from cudal1_ci.forge.answer import Refusal
from cudal1_ci.forge.event import Occasion, occasion
from cudal1_ci.forge.plain import log_line
from cudal1_ci.forge.plan import Known, Options, Plan, Texts, plan, plan_abandoned, plan_start
from cudal1_ci.forge.publication import (
    about,
    carry_out,
    kept,
    printed,
    refuse_another_commit,
    unread,
    write_summary,
)
from cudal1_ci.report.comment import comment, summary
from cudal1_ci.report.merge import merge
from cudal1_ci.report.reading import read_document
from cudal1_ci.report.shape import ReportDocument

if TYPE_CHECKING:
    from cudal1_ci.forge.client import Client

EPILOG = """\b
Examples:
  cudal1-ci publish --start                      the check run, in progress
  cudal1-ci publish h100.json l40.json           check run, comment, suggestions
  cudal1-ci publish report.json --dry-run        print what would be posted

What is posted where is decided by the event that started the workflow, never by a report. The
token is read from GITHUB_TOKEN.
"""


@click.command(epilog=EPILOG)
@click.argument("reports", nargs=-1, metavar="[REPORT]...", type=click.Path(path_type=Path))
@click.option("--start", is_flag=True, help="Only say that measuring has begun; no REPORT.")
@click.option(
    "--fail-on",
    type=click.Choice(["never", "regression", "inconclusive"]),
    default="never",
    show_default=True,
    help="What makes the check run fail.",
)
@click.option(
    "--comment",
    "comment_when",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="When there is none yet: only with news, in any case, or not at all.",
)
@click.option(
    "--suggestions/--no-suggestions",
    default=True,
    show_default=True,
    help="Suggest the best proposals in the diff.",
)
@click.option(
    "--check/--no-check",
    default=True,
    show_default=True,
    help="Whether there is a check run; none for a report that is beside the usual one.",
)
@click.option(
    "--workflow", metavar="NAME", help="Whose comment is edited [the workflow that runs]."
)
@click.option("--commands", is_flag=True, help="Name the commands at the end of the comment.")
@click.option("--artifact-url", metavar="URL", help="Where the whole report can be downloaded.")
@click.option("--dry-run", is_flag=True, help="Print what would be posted, post nothing.")
def publish(reports: tuple[Path, ...], **flags: Any) -> None:
    """Post REPORTs (report.json of one commit) to GitHub.

    Exit code 0 when posted, also where the token may only read; 5 when something could not be, or
    when the reports are of another commit than the event's.
    """
    if bool(reports) == flags["start"]:
        raise ConfigError("expected REPORTs, or --start and none")
    if (url := flags["artifact_url"]) and not url.startswith("https://"):
        raise ConfigError(f"--artifact-url: expected https://..., got {url!r}")
    environ = os.environ
    run = occasion(environ)
    if name := flags["workflow"]:
        run = msgspec.structs.replace(run, workflow=name)
    if flags["start"]:
        _post(plan_start(run), _client(run, environ, flags), flags)
        return
    try:
        document = merge([read_document(file) for file in reports])
        refuse_another_commit(document, run)
    except (ReportError, ForgeError):
        _abandon(run, environ, flags)
        raise
    options = Options(
        fail_on=flags["fail_on"],
        comment=flags["comment_when"],
        suggestions=flags["suggestions"],
        check=flags["check"],
    )
    try:
        client = _client(run, environ, flags)
        known = _known(client, run, options)
    except CudaL1Error:
        # What was measured is told, whatever GitHub says.
        _summarize(_texts(document, run, flags, ()), environ)
        raise
    agreements = kept(known, run)
    document = covered(document, agreements)
    texts = _texts(document, run, flags, agreements)
    _summarize(texts, environ)
    _post(plan(document, texts, run, options, known), client, flags)


def _texts(
    document: ReportDocument,
    run: Occasion,
    flags: Mapping[str, Any],
    agreements: tuple[Agreed, ...],
) -> Texts:
    of_run = msgspec.structs.replace(
        about(document, run, flags["fail_on"], flags["artifact_url"]), commands=flags["commands"]
    )
    return Texts(
        comment=comment(document, of_run),
        summary=summary(document, of_run),
        agreements=agreements,
    )


def _summarize(texts: Texts, environ: Mapping[str, str]) -> None:
    if path := environ.get("GITHUB_STEP_SUMMARY"):
        write_summary(Path(path), texts.summary, texts.comment)


def _abandon(run: Occasion, environ: Mapping[str, str], flags: Mapping[str, Any]) -> None:
    """End the check run that was started, if one was; why is said by whoever calls."""
    if flags["dry_run"] or not environ.get("GITHUB_TOKEN"):
        return
    client = _client(run, environ, flags)
    try:
        check_id = client.started_check() if client else None
        if client and check_id is not None:
            carry_out(plan_abandoned(run, check_id), client, _tell, _notice)
    except ForgeError as error:
        _tell(f"the check run was left in progress: {error}")


def _client(run: Occasion, environ: Mapping[str, str], flags: Mapping[str, Any]) -> Client | None:
    """GitHub; None for a dry run without a token, which asks nobody.

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
        from cudal1_ci.forge.client import with_token
    except ImportError as error:
        raise UnsupportedError(f"publish needs PyGithub: pip install PyGithub ({error})") from error
    return with_token(token, run, _tell)


def _known(client: Client | None, run: Occasion, options: Options) -> Known:
    """What is on GitHub; nothing where nobody is asked, or where the token may not read it.

    Raises:
        ForgeError: It cannot be read.
    """
    if client is None:
        _tell("no GITHUB_TOKEN: as if the pull request had no comment and its diff were unknown")
        return unread(run)
    try:
        return client.known(wants_diff=options.suggestions)
    except Refusal as refusal:
        if not refusal.is_read_only:
            raise ForgeError(f"could not read what is on GitHub: {refusal}") from refusal
        _notice(f"the pull request cannot be read with this token: {refusal}")
        return Known()


def _post(plan: Plan, client: Client | None, flags: Mapping[str, Any]) -> None:
    for remark in plan.remarks:
        _tell(remark)
    if flags["dry_run"]:
        _print(printed(plan))
    elif client is not None:
        for what, made in carry_out(plan, client, _tell, _notice):
            click.echo(f"{what}: {made.url}" if made.url else what)


def _print(text: str) -> None:
    """In a workflow a printed line may be a command to its runner: none is while this is."""
    if not os.environ.get("GITHUB_ACTIONS"):
        click.echo(text, nl=False)
        return
    word = secrets.token_hex(16)
    click.echo(f"::stop-commands::{word}")
    click.echo(text, nl=False)
    click.echo(f"::{word}::")


def _tell(message: str) -> None:
    click.echo(log_line(message), err=True)


def _notice(message: str) -> None:
    mark = "::notice::" if os.environ.get("GITHUB_ACTIONS") else "notice: "
    click.echo(mark + log_line(message), err=True)
