"""`cudal1-ci publish --sweep`: the rolling issue of a repository, and draft pull requests."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cudal1_ci.cli.github import client_of, notice, post, show, tell
from cudal1_ci.errors import ConfigError, CudaL1Error, ForgeError
from cudal1_ci.github.answer import Refusal
from cudal1_ci.github.event import Occasion, occasion
from cudal1_ci.github.publication import refuse_another_commit, write_summary
from cudal1_ci.github.rebase_paths import from_top
from cudal1_ci.render.merge import merge
from cudal1_ci.render.reading import read_report

if TYPE_CHECKING:
    from cudal1_ci.github.client import Client
    from cudal1_ci.github.sweeps import Known, Prepared

EVENTS = ("push", "repository_dispatch", "schedule", "workflow_dispatch")
"""In which the commit is the repository's own."""


def publish_sweep(reports: Sequence[Path], flags: Mapping[str, Any]) -> None:
    """Post the reports of a sweep.

    Raises:
        ConfigError: The event is none of a sweep.
        ForgeError: The reports are of another commit, or something could not be posted.
    """
    # Here, as it needs PyGithub, and the rest of the tool does without.
    from cudal1_ci.github.sweeps import Known, Options, prepare, summary_of

    run = occasion(os.environ)
    branch = branch_of(run, os.environ)
    document = from_top(merge([read_report(file) for file in reports]))
    refuse_another_commit(document, run)
    options = Options(max_items=flags["max_items"], max_open_prs=flags["max_open_prs"])
    try:
        client = client_of(run, os.environ, flags)
        known = Known() if client is None else _read_state(client)
    except CudaL1Error:
        # What was measured is reported, whatever GitHub says.
        _summarize(summary_of(prepare(document, run, branch, Known(), options)))
        raise
    prepared = prepare(document, run, branch, known or Known(), options)
    _summarize(summary_of(prepared))
    if known is None:
        return
    if known.default_branch not in (None, branch):
        tell(f"nothing is posted: the issue is about {known.default_branch}, this run of {branch}")
        return
    if client is None:
        tell("no GITHUB_TOKEN: as if there were no issue and no pull request")
    try:
        _post(prepared, client, flags)
    finally:
        if client is not None and not flags["dry_run"]:
            _end_stale(client)


def _end_stale(client: Client) -> None:
    """End the checks that a dead runner has left in progress, where the token may."""
    from cudal1_ci.github.base_settings import BaseSettings, settings_of_projects
    from cudal1_ci.github.stale import stale_checks

    def settings_at(base: str, folder: str) -> BaseSettings:
        return settings_of_projects(client, base, [folder])[folder]

    try:
        for ended in stale_checks(client, settings_at):
            click.echo(f"a stale check was ended: {client.send(ended).url}")
    except (Refusal, ConfigError) as error:
        tell(f"stale checks are left in progress (`actions: read`, `checks: write`): {error}")


def _summarize(text: str) -> None:
    if path := os.environ.get("GITHUB_STEP_SUMMARY"):
        write_summary(Path(path), text, text)


def branch_of(run: Occasion, environ: Mapping[str, str]) -> str:
    """Return the branch that the event is about.

    Raises:
        ConfigError: It is about none, or about a pull request.
    """
    if run.event not in EVENTS or run.number is not None:
        raise ConfigError(
            f"--sweep: expected one of the events {', '.join(EVENTS)}, got {run.event}; without "
            "--sweep a report is posted to its pull request"
        )
    ref = environ.get("GITHUB_REF", "")
    if not ref.startswith("refs/heads/"):
        raise ConfigError(f"GITHUB_REF: expected a branch, refs/heads/..., got {ref!r}")
    return ref.removeprefix("refs/heads/")


def _read_state(client: Client) -> Known | None:
    """Read the state of GitHub; return None where the token may not read it.

    Raises:
        ForgeError: It cannot be read.
    """
    from cudal1_ci.github.sweeps import known_of

    try:
        return known_of(client)
    except Refusal as refusal:
        if not refusal.is_read_only:
            raise ForgeError(f"could not read what is on GitHub: {refusal}") from refusal
        notice(f"issues cannot be read with this token: {refusal}")
        return None


def _post(prepared: Prepared, client: Client | None, flags: Mapping[str, Any]) -> None:
    """Post drafts first, because the issue links to them.

    Raises:
        ForgeError: Something could not be posted; all else was.
    """
    from cudal1_ci.github.branches import open_pull
    from cudal1_ci.github.sweeps import open_drafts, planned, printed_draft

    if flags["dry_run"]:
        show("".join(printed_draft(proposed) for _, proposed in prepared.drafts))
        post(planned(prepared, [gain.id for gain, _ in prepared.drafts]), client, flags)
        return
    assert client is not None
    made, refused = open_drafts(prepared, lambda proposed: open_pull(client, proposed))
    for one in made.values():
        click.echo(f"draft pull request: {one.url}")
    for what, refusal in refused:
        tell(f"not posted: {what}: {refusal}")
    post(planned(prepared, list(made)), client, flags)
    failed = [(what, refusal) for what, refusal in refused if not refusal.is_read_only]
    if failed:
        reasons = "; ".join(f"the {what} ({refusal})" for what, refusal in failed)
        raise ForgeError(f"could not post {reasons}. What was measured is kept")
