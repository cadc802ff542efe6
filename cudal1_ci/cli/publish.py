"""`cudal1-ci publish`: post reports to the pull request that the run is about."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from cudal1_ci.cli.github import client_of, notice, post, tell
from cudal1_ci.cli.publish_sweep import publish_sweep
from cudal1_ci.errors import ConfigError, CudaL1Error, ForgeError, ReportError
from cudal1_ci.github.acknowledgements import Agreed, covered
from cudal1_ci.github.answer import Refusal
from cudal1_ci.github.event import Occasion, occasion
from cudal1_ci.github.plan import Known, Options, Texts, plan, plan_abandoned, plan_start
from cudal1_ci.github.provenance import labeled, provenance
from cudal1_ci.github.publication import (
    about,
    carry_out,
    kept,
    refuse_another_commit,
    unread,
    write_summary,
)
from cudal1_ci.github.rebase_paths import from_top
from cudal1_ci.records import Report
from cudal1_ci.render.comment import comment, summary
from cudal1_ci.render.merge import merge
from cudal1_ci.render.reading import read_report

if TYPE_CHECKING:
    from cudal1_ci.github.client import Client

EPILOG = """\b
Examples:
  cudal1-ci publish --start                      the check run, in progress
  cudal1-ci publish h100.json l40.json           check run, comment, suggestions
  cudal1-ci publish report.json --dry-run        print what would be posted
  cudal1-ci publish --sweep report.json          the rolling issue of a sweep

What is posted where is decided by the event that started the workflow, never by a report. The
token is read from GITHUB_TOKEN.
"""


@click.command(epilog=EPILOG)
@click.argument("reports", nargs=-1, metavar="[REPORT]...", type=click.Path(path_type=Path))
@click.option("--start", is_flag=True, help="Only say that measuring has begun; no REPORT.")
@click.option(
    "--abandon", is_flag=True, help="Only end the check run that --start has begun; no REPORT."
)
@click.option(
    "--fail-on",
    type=click.Choice(["never", "regression", "contract", "inconclusive"]),
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
    help="Suggest the best proposals in the diff, or tell of them on its files.",
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
@click.option("--sweep", is_flag=True, help="Reports of a sweep: the rolling issue instead.")
@click.option(
    "--max-items",
    type=click.IntRange(1, 100),
    default=20,
    show_default=True,
    help="With --sweep: proposals in the issue.",
)
@click.option(
    "--max-open-prs",
    type=click.IntRange(0, 100),
    default=0,
    show_default=True,
    help="With --sweep: draft pull requests that are open at a time.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be posted, post nothing.")
def publish(reports: tuple[Path, ...], **flags: Any) -> None:
    """Post REPORTs (report.json of one commit) to GitHub.

    Exit code 0 when posted, also where the token may only read; 5 when something could not be, or
    when the reports are of another commit than the event's.
    """
    alone = [flag for flag in ("start", "abandon") if flags[flag]]
    if bool(reports) == bool(alone) or len(alone) > 1 or (flags["sweep"] and alone):
        raise ConfigError("expected REPORTs, or one of --start and --abandon and none")
    if (url := flags["artifact_url"]) and not url.startswith("https://"):
        raise ConfigError(f"--artifact-url: expected https://..., got {url!r}")
    if flags["sweep"]:
        publish_sweep(reports, flags)
        return
    environ = os.environ
    run = occasion(environ)
    if name := flags["workflow"]:
        run = msgspec.structs.replace(run, workflow=name)
    if flags["start"]:
        post(plan_start(run), client_of(run, environ, flags), flags)
        return
    if flags["abandon"]:
        _abandon(run, environ, flags)
        return
    try:
        document = from_top(merge([read_report(file) for file in reports]))
        refuse_another_commit(document, run)
    except (ReportError, ForgeError):
        _abandon(run, environ, flags)
        raise
    options = Options(
        fail_on=flags["fail_on"],
        comment=flags["comment_when"],
        suggestions=flags["suggestions"] and not run.is_of_a_fork,
        check=flags["check"],
        is_verified=not run.is_of_a_fork,
    )
    try:
        client = client_of(run, environ, flags)
        known = _read_state(client, run, options)
    except CudaL1Error:
        # What was measured is reported, whatever GitHub says.
        _summarize(_texts(document, run, flags, ()), environ)
        raise
    origin = provenance(client, run, known.pull.number if known.pull else None, [document.folder])
    agreements = kept(known, run)
    document = covered(labeled(document, origin), agreements)
    texts = _texts(document, run, flags, agreements)
    _summarize(texts, environ)
    post(plan(document, texts, run, options, known), client, flags)


def _texts(
    document: Report,
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
    """End the check run, if one was started; the caller reports the reason."""
    if flags["dry_run"] or not environ.get("GITHUB_TOKEN"):
        return
    client = client_of(run, environ, flags)
    try:
        check_id = client.started_check() if client else None
        if client and check_id is not None:
            carry_out(plan_abandoned(run, check_id), client, tell, notice)
    except ForgeError as error:
        tell(f"the check run was left in progress: {error}")


def _read_state(client: Client | None, run: Occasion, options: Options) -> Known:
    """Read the state of GitHub; return nothing without a client or without read permission.

    Raises:
        ForgeError: It cannot be read.
    """
    if client is None:
        tell("no GITHUB_TOKEN: as if the pull request had no comment and its diff were unknown")
        return unread(run)
    try:
        return client.known(wants_diff=options.suggestions)
    except Refusal as refusal:
        if not refusal.is_read_only:
            raise ForgeError(f"could not read what is on GitHub: {refusal}") from refusal
        notice(f"the pull request cannot be read with this token: {refusal}")
        return Known()
