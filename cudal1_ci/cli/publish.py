"""`cudal1-ci publish`: post reports to the pull request that the run is about."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from cudal1_ci.cli.github import client_of, notice, post, tell
from cudal1_ci.cli.publish_sweep import publish_sweep
from cudal1_ci.errors import ConfigError, CudaL1Error, ForgeError, ReportError
from cudal1_ci.github.answer import Refusal
from cudal1_ci.github.base_settings import BaseSettings, settings_of_projects
from cudal1_ci.github.event import Occasion, occasion
from cudal1_ci.github.plan import Options, plan, plan_checks, plan_start
from cudal1_ci.github.posts import CheckState, Known, Project, Texts
from cudal1_ci.github.projects import Expected, Found, Part, projects_of, whole
from cudal1_ci.github.provenance import provenance
from cudal1_ci.github.publication import (
    Publication,
    kept,
    parts_of,
    refuse_another_commit,
    unread,
    write_summary,
)
from cudal1_ci.github.sanitize import ordinary_path
from cudal1_ci.render.reading import read_report
from cudal1_ci.stats.gate import GateConfig, Policy

if TYPE_CHECKING:
    from cudal1_ci.github.client import Client

EPILOG = """\b
Examples:
  cudal1-ci publish --start                      the check run, in progress
  cudal1-ci publish h100.json l40.json           check run, comment, suggestions
  cudal1-ci publish report.json --dry-run        print what would be posted
  cudal1-ci publish --sweep report.json          the rolling issue of a sweep

The event that started the workflow decides what is posted where; a report never does. The token is
read from GITHUB_TOKEN.
"""


@click.command(epilog=EPILOG)
@click.argument("reports", nargs=-1, metavar="[REPORT]...", type=click.Path(path_type=Path))
@click.option("--start", is_flag=True, help="Only start the check run; takes no REPORT.")
@click.option(
    "--abandon", is_flag=True, help="Only end the check run, with the reason; takes no REPORT."
)
@click.option(
    "--fail-on",
    type=click.Choice(["never", "regression", "contract", "inconclusive"]),
    default="never",
    show_default=True,
    help="What makes the check run fail.",
)
@click.option(
    "--on-missing",
    type=click.Choice(["auto", "neutral", "failure"]),
    default="auto",
    show_default=True,
    help="Conclusion of the check run when something was not measured; `auto` fails unless "
    "--fail-on is `never`.",
)
@click.option(
    "--on-inconclusive",
    type=click.Choice(["auto", "neutral", "failure"]),
    default="auto",
    show_default=True,
    help="Conclusion when a result is inconclusive; `auto` is neutral.",
)
@click.option(
    "--machine",
    "machines",
    metavar="NAME",
    multiple=True,
    help="Machine that must deliver a report: the end of its artifact's name (repeatable).",
)
@click.option(
    "--gpu-machine",
    "gpus",
    metavar="NAME",
    multiple=True,
    help="Machine whose report must be of a GPU; implies --machine (repeatable).",
)
@click.option(
    "--project",
    "projects",
    metavar="FOLDER",
    multiple=True,
    help="Project with its own check (repeatable).",
)
@click.option(
    "--measured",
    type=click.Choice(["success", "failure", "cancelled", "skipped", "unusable"]),
    default="success",
    show_default=True,
    help="How the measuring job ended; explains a missing report.",
)
@click.option(
    "--comment",
    "comment_when",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Create a comment: only with news, always, or never.",
)
@click.option(
    "--suggestions/--no-suggestions",
    default=True,
    show_default=True,
    help="Suggest the best proposals in the diff, or comment on its files instead.",
)
@click.option(
    "--check/--no-check",
    default=True,
    show_default=True,
    help="Write a check run, or none for an additional report.",
)
@click.option(
    "--workflow",
    metavar="NAME",
    help="Workflow whose comment is edited [default: the running one].",
)
@click.option("--commands", is_flag=True, help="List the bot's commands at the end of the comment.")
@click.option("--artifact-url", metavar="URL", help="Address of the full report.")
@click.option(
    "--sweep", is_flag=True, help="The reports are a sweep's: update the rolling issue instead."
)
@click.option(
    "--max-items",
    type=click.IntRange(1, 100),
    default=20,
    show_default=True,
    help="With --sweep: maximum number of proposals in the issue.",
)
@click.option(
    "--max-open-prs",
    type=click.IntRange(0, 100),
    default=0,
    show_default=True,
    help="With --sweep: maximum number of open draft pull requests.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be posted, post nothing.")
def publish(reports: tuple[Path, ...], **flags: Any) -> None:
    """Post REPORTs (report.json of one commit) to GitHub.

    Exit code 0 when posted, or when the token may only read; 5 when posting failed, or when the
    reports are not for the event's commit.
    """
    alone = [flag for flag in ("start", "abandon") if flags[flag]]
    if bool(reports) == bool(alone) or len(alone) > 1 or (flags["sweep"] and alone):
        raise ConfigError("expected REPORTs, or --start or --abandon without REPORT")
    if (url := flags["artifact_url"]) and not url.startswith("https://"):
        raise ConfigError(f"--artifact-url: expected https://..., got {url!r}")
    if flags["sweep"]:
        publish_sweep(reports, flags)
        return
    environ = os.environ
    run = occasion(environ)
    if name := flags["workflow"]:
        run = msgspec.structs.replace(run, workflow=name)
    expected = Expected(
        projects=tuple(map(folder_named, flags["projects"])),
        machines=tuple(flags["machines"]),
        into=run.into,
        measured=flags["measured"],
    )
    if flags["start"]:
        post(plan_start(run, expected.names), client_of(run, environ, flags), flags)
        return
    if flags["abandon"]:
        _abandon(run, expected, environ, flags)
        return
    try:
        found = [Found(artifact=f.absolute().parent.name, document=read_report(f)) for f in reports]
        for one in found:
            refuse_another_commit(one.document, run)
        projects_of(found, expected, lambda _: Policy())  # refuses what does not fit together
    except (ReportError, ForgeError):
        _abandon(run, msgspec.structs.replace(expected, measured="unusable"), environ, flags)
        raise
    options = Options(
        policy=policy_given(flags),
        comment=flags["comment_when"],
        suggestions=flags["suggestions"] and not run.is_of_a_fork,
        check=flags["check"],
    )
    try:
        client = client_of(run, environ, flags)
        known = _read_state(client, run, options)
        expected = _into_base(expected, run, known)
        if options.check and client is not None:
            parts = projects_of(found, expected, lambda _: Policy())
            known = _with_checks(client, known, [part.name for part in parts])
        folders = [one.document.folder for one in found]
        bases = _base_settings(client, run, known, folders, are_declared=bool(expected.projects))
    except CudaL1Error:
        # What was measured is reported, whatever GitHub says.
        parts = parts_of(found, expected, run, options.policy)
        if whole(parts) is not None:
            _summarize(_publication(parts, run, flags).texts(), environ)
        raise
    origin = provenance(client, run, known.pull.number if known.pull else None, folders)
    agreements = kept(known, run)
    parts = parts_of(found, expected, run, options.policy, bases, agreements, origin)
    said = _publication(parts, run, flags)
    if whole(parts) is None:
        for project in said.projects:
            tell(f"{project.name}: nothing was measured: {project.why}")
        _summarize(nothing_measured(said.projects), environ)
        if options.check:
            post(plan_checks(said.projects, run, known), client, flags)
        return
    texts = said.texts(agreements)
    _summarize(texts, environ)
    post(plan(said.document, texts, run, options, known, said.projects), client, flags)


def policy_given(flags: Mapping[str, Any]) -> Policy:
    """Return the policy of the command line, which holds where the base is silent."""
    gate = GateConfig(
        on_missing=flags["on_missing"],
        on_inconclusive=flags["on_inconclusive"],
        machines=tuple(flags["machines"]),
        gpus=tuple(flags["gpus"]),
    )
    return Policy(fail_on=flags["fail_on"], gate=gate)


def folder_named(folder: str) -> str:
    """Return a project's folder as reports name it. Raises: ConfigError."""
    if folder == "." or ordinary_path(folder) is not None:
        return folder
    raise ConfigError(
        f"--project: expected a folder below the top, such as packages/a, got {folder!r}"
    )


def _base_settings(
    client: Client | None,
    run: Occasion,
    known: Known,
    folders: Sequence[str],
    *,
    are_declared: bool = True,
) -> dict[str, BaseSettings]:
    """Return what the base says of the gate of each project; nothing where it is not known. If two
    pull requests have this head, so that no base is known, the default branch says it.

    Raises:
        ForgeError: GitHub does not say.
    """
    base = run.base_sha or (known.pull.base_sha if known.pull else None)
    if client is None or (base is None and not run.is_after_a_pull_request):
        return {}
    try:
        return settings_of_projects(client, base, folders, are_declared=are_declared)
    except Refusal as refusal:
        if not refusal.is_read_only:
            raise ForgeError(f"could not read the settings of the base: {refusal}") from refusal
        notice(
            "the settings of the base cannot be read with this token (`contents: read`): the gate "
            "is the workflow's"
        )
    except ConfigError as error:
        notice(f"the gate is the workflow's: {error}")
    return {folder: BaseSettings(folder=folder) for folder in folders}


def _publication(parts: tuple[Part, ...], run: Occasion, flags: Mapping[str, Any]) -> Publication:
    return Publication(
        occasion=run,
        parts=parts,
        artifact_url=flags["artifact_url"],
        commands=flags["commands"],
        has_check=flags["check"],
    )


def nothing_measured(projects: Sequence[Project]) -> Texts:
    """Return the summary of reports of which none counts."""
    text = "".join(
        f"**{one.name}: nothing was measured.** {one.why[:1].upper()}{one.why[1:]}.\n\n"
        for one in projects
    )
    return Texts(comment=text, summary=text)


def _summarize(texts: Texts, environ: Mapping[str, str]) -> None:
    if path := environ.get("GITHUB_STEP_SUMMARY"):
        write_summary(Path(path), texts.summary, texts.comment)


def _abandon(
    run: Occasion, expected: Expected, environ: Mapping[str, str], flags: Mapping[str, Any]
) -> None:
    """End the checks without a report; one that was not started is made. The caller reports the
    reason.
    """
    if not flags["check"] or not (flags["dry_run"] or environ.get("GITHUB_TOKEN")):
        return
    client = client_of(run, environ, flags)
    try:
        policy, known = policy_given(flags), Known()
        if client is not None:
            known = client.known(wants_diff=False)
            expected = _into_base(expected, run, known)
            known = _with_checks(client, known, expected.names)
        bases = _base_settings(client, run, known, expected.projects or (".",))
        projects = [
            Project(
                name=name,
                policy=bases[folder].policy(policy) if folder in bases else policy,
                why=expected.why,
            )
            for folder, name in zip(expected.projects or (".",), expected.names, strict=True)
            # What this run has concluded stays, whatever failed after it.
            if not known.checks.get(name, CheckState()).is_ended
        ]
        post(plan_checks(projects, run, known), client, flags)
    except ForgeError as error:
        tell(f"the check run was left as it was: {error}")


def _into_base(expected: Expected, run: Occasion, known: Known) -> Expected:
    """Return what is expected with the base branch of the pull request. The event goes first: the
    pull request may have another base by now.
    """
    if run.base_sha is not None or known.pull is None:
        return expected
    return msgspec.structs.replace(expected, into=known.pull.into)


def _with_checks(client: Client, known: Known, names: Sequence[str]) -> Known:
    return msgspec.structs.replace(known, checks=client.checks(names))


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
