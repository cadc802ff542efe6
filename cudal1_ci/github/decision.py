"""Decide whether a command is carried out, from the comment and GitHub's facts. Pure.

A person with write access may command, as GitHub says now. The comment's own claim about its
author's association is not used. All others get a reaction, for which no mail is sent.

A command acts on the head that the author has seen. That holds where the command names the head in
full, or where GitHub had a check suite for it before the comment was made: a committer can choose a
commit's dates, but not those of a suite. Covered is a push between the comment and its run. Not
covered is a commit that GitHub has seen long before and that is pushed once more in that moment;
the sha in the command covers that too.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from cudal1_ci.github.base_settings import BaseSettings
from cudal1_ci.github.branches import Proposed
from cudal1_ci.github.command import Command
from cudal1_ci.github.comment_event import Asked
from cudal1_ci.github.event import Occasion
from cudal1_ci.github.marker import Comment
from cudal1_ci.github.posts import Errand
from cudal1_ci.github.projects import Expected
from cudal1_ci.github.provenance import Provenance
from cudal1_ci.github.reply import HELP, Reaction
from cudal1_ci.records import Record
from cudal1_ci.stats.gate import Policy

MAY = ("admin", "maintain", "write")
"""Permissions of people whose commands are carried out."""


class Head(Record, frozen=True, kw_only=True):
    """Describe a pull request as it is now."""

    sha: str
    branch: str
    repository: str | None
    """None once a fork is deleted."""
    base_sha: str
    into: str | None = None
    """Name of its base; None for the default branch."""
    is_open: bool


class Facts(Record, frozen=True, kw_only=True):
    """Hold GitHub's facts. Without write access, no other fact is requested."""

    permission: str
    login: str | None = None
    """Our own login."""
    head: Head | None = None
    first_seen: datetime | None = None
    """When the first check suite of the head was made."""
    comments: tuple[Comment, ...] = ()
    bases: Mapping[str, BaseSettings] = {}
    """What the base says of each project's gate, once its reports are there."""
    is_of_a_request: bool = True
    """Whether the pull request's own workflow has measured, and none of the default branch."""
    is_of_this_base: bool = True
    """Whether the run of the reports has made checks for the base that the pull request has now."""
    origin: Provenance | None = None
    """Who made the reports, once they are there."""


class Rules(Record, frozen=True, kw_only=True):
    """Hold the workflow's rules."""

    occasion: Occasion
    """This run; its commit is not the pull request's."""
    workflow: str = "cudal1-ci"
    """Whose comment and check are meant."""
    policy: Policy = Policy()
    """Where the base is silent."""
    expected: Expected = Expected()
    may_run_forks: bool = False


class Decision(Record, frozen=True, kw_only=True):
    """Describe what to do: requests, a pull request, a reply; or first to fetch a run's report."""

    reaction: Reaction | None = None
    reply: str | None = None
    errands: tuple[Errand, ...] = ()
    proposed: Proposed | None = None
    report_run: int | None = None


def gate(asked: Asked, command: Command, facts: Facts) -> Decision | None:
    """Return the decision that needs no look at the verb; None where the verb may be handled."""
    if facts.permission not in MAY or facts.head is None:
        return Decision(reaction="confused")
    if command.verb == "help":
        return Decision(reply=HELP)
    if command.verb is None:
        return refused(f"there is no such command.\n\n{HELP}")
    if not facts.head.is_open:
        return refused("this pull request is closed.")
    return None if command.verb == "skip" else _refuse_unseen(asked, command, facts, facts.head)


def refused(text: str) -> Decision:
    """Return a reply with the reason for a refusal."""
    return Decision(reaction="confused", reply=text)


def _refuse_unseen(asked: Asked, command: Command, facts: Facts, head: Head) -> Decision | None:
    """Refuse a command for a head that its author may not have seen."""
    if command.sha is not None and command.sha != head.sha:
        return refused(f"the head is `{head.sha}` by now, and nothing was done for the one named.")
    is_seen = facts.first_seen is not None and facts.first_seen < asked.made_at
    if command.sha is None and not is_seen:
        return refused(
            "it is not certain that this head was there when the comment was written. Look at it, "
            f"and repeat the command with its sha: `{head.sha}`"
            f"{' after the target' if command.verb == 'ack' else ''}."
        )
    return None
