"""Open what people have asked for in the rolling issue of sweeps (actions/commands/action.yml).

A box that somebody has ticked, and the line `/cudal1 apply ID` in a comment of a person with write
access, ask for the draft pull request of a proposal. As with commands the step runs twice: first it
names the run whose report it needs, then it opens the pull requests and writes the issue again.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from cudal1_ci.errors import ConfigError
from cudal1_ci.github.action.outcome import tell
from cudal1_ci.github.answer import Refusal
from cudal1_ci.github.branches import open_pull
from cudal1_ci.github.event import Occasion
from cudal1_ci.github.payload import MAX_EVENT_BYTES
from cudal1_ci.github.projects import Found, whole_of
from cudal1_ci.github.publication import refuse_another_commit, run_errand
from cudal1_ci.github.sanitize import log_line

if TYPE_CHECKING:
    from cudal1_ci.github.client import Client

ASKS = "/cudal1 apply "
FAILED = 5


class _Issue(msgspec.Struct, frozen=True):
    number: int
    pull_request: dict[str, object] | None = None


class _Comment(msgspec.Struct, frozen=True):
    body: str | None = None


class _Event(msgspec.Struct, frozen=True):
    action: str
    issue: _Issue
    comment: _Comment = _Comment()


def issue_of(environment: Mapping[str, str]) -> int | None:
    """Return the number of the issue that was edited, or has a new comment that asks; None for
    another event, and for a pull request.
    """
    name = environment.get("GITHUB_EVENT_NAME", "")
    if name not in ("issues", "issue_comment"):
        return None
    file = Path(environment.get("GITHUB_EVENT_PATH", ""))
    try:
        if file.stat().st_size > MAX_EVENT_BYTES:
            raise ConfigError(f"GITHUB_EVENT_PATH: expected an event, {file} is too large for one")
        event = msgspec.json.decode(file.read_bytes(), type=_Event)
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"GITHUB_EVENT_PATH: {file} is no event of GitHub: {error}") from error
    is_news = event.action == "edited" if name == "issues" else ASKS in (event.comment.body or "")
    return event.issue.number if is_news and event.issue.pull_request is None else None


def open_asked(
    number: int,
    client: Client,
    run: Occasion,
    found: tuple[Found, ...] | None,
    environment: Mapping[str, str],
) -> int:
    """Open what was asked for; return the exit code of the step. `found` are the reports of the run
    that wrote the issue, None before they were fetched.
    """
    from cudal1_ci.github.sweeps import Options, known_of, open_drafts, planned, prepare

    known = known_of(client)
    issue = known.issue
    had = {*known.drafts.opened, *known.drafts.ended}
    if issue is None or issue.number != number or not set(known.asked) - had:
        _say("nothing new is asked for in the issue of sweeps")
        return 0
    if found is None:
        tell({"report-run": str(issue.stamp.run)}, "", environment)
        return 0
    if not found or known.default_branch is None:
        _say("the report of that run is gone; the next sweep opens what was asked for")
        return 0
    swept = msgspec.structs.replace(
        run, run_id=issue.stamp.run, attempt=issue.stamp.attempt, head_sha=issue.stamp.sha
    )
    document = whole_of(found)
    refuse_another_commit(document, swept)
    options = Options(max_items=max(1, len(issue.listed)))
    prepared = prepare(document, swept, known.default_branch, known, options)
    made, refused = open_drafts(prepared, lambda proposed: open_pull(client, proposed))
    try:
        for errand in planned(prepared, list(made)).errands:
            run_errand(errand, client, _say)
    except Refusal as refusal:
        refused.append(("issue", refusal))
    for what, why in refused:
        _say(f"not posted: {what}: {why}")
    for one in made.values():
        _say(f"draft pull request: {one.url}")
    return FAILED if refused else 0


def _say(message: str) -> None:
    sys.stdout.write(log_line(message) + "\n")
