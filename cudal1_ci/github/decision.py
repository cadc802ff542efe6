"""Whether a command is obeyed: decided from the comment and from what GitHub says. Pure.

Who may is who may write to the repository, as GitHub says it now; what the comment says of its
author's association is not asked. All others get a reaction, and no mail is sent of it.

What is acted on is the head that the author has seen. That is so where the command names it in
full, or where GitHub had a check suite for it before the comment was made: dates of commits are
whatever who commits likes, those of suites are GitHub's own. Covered is a push between the comment
and its run. Not covered is a commit that GitHub has seen long before and that is pushed once more
in that moment; the sha in the command covers that too.
"""

from __future__ import annotations

from datetime import datetime

from cudal1_ci.github.branches import Proposed
from cudal1_ci.github.command import Command
from cudal1_ci.github.comment_event import Asked
from cudal1_ci.github.event import Occasion
from cudal1_ci.github.marker import Comment
from cudal1_ci.github.plan import Errand, FailOn
from cudal1_ci.github.reply import HELP, Reaction
from cudal1_ci.records import Record

MAY = ("admin", "maintain", "write")
"""Permissions of those who are obeyed."""


class Head(Record, frozen=True, kw_only=True):
    """A pull request as it is now."""

    sha: str
    branch: str
    repository: str | None
    """None once a fork is deleted."""
    base_sha: str
    is_open: bool


class Facts(Record, frozen=True, kw_only=True):
    """What GitHub says. Of who may not write, nothing else is asked."""

    permission: str
    login: str | None = None
    """Who we are."""
    head: Head | None = None
    first_seen: datetime | None = None
    """When the first check suite of the head was made."""
    comments: tuple[Comment, ...] = ()


class Rules(Record, frozen=True, kw_only=True):
    """What the workflow says."""

    occasion: Occasion
    """This run; its commit is not the pull request's."""
    workflow: str = "cudal1-ci"
    """Whose comment and check are meant."""
    fail_on: FailOn = "never"
    may_run_forks: bool = False


class Decision(Record, frozen=True, kw_only=True):
    """What to do: requests, a pull request, a reply; or first to get the report of a run."""

    reaction: Reaction | None = None
    reply: str | None = None
    errands: tuple[Errand, ...] = ()
    proposed: Proposed | None = None
    report_run: int | None = None


def gate(asked: Asked, command: Command, facts: Facts) -> Decision | None:
    """What is decided without a look at what the command wants; None where it may have that."""
    if facts.permission not in MAY or facts.head is None:
        return Decision(reaction="confused")
    if command.verb == "help":
        return Decision(reply=HELP)
    if command.verb is None:
        return refused(f"there is no such command.\n\n{HELP}")
    if not facts.head.is_open:
        return refused("this pull request is closed.")
    return None if command.verb == "skip" else _unsure(asked, command, facts, facts.head)


def refused(text: str) -> Decision:
    """A reply that says why not."""
    return Decision(reaction="confused", reply=text)


def _unsure(asked: Asked, command: Command, facts: Facts, head: Head) -> Decision | None:
    """Refuses a command for a head that its author may not have seen."""
    if command.sha is not None and command.sha != head.sha:
        return refused(f"the head is `{head.sha}` by now, and nothing was done for the one named.")
    is_seen = facts.first_seen is not None and facts.first_seen < asked.made_at
    if command.sha is None and not is_seen:
        return refused(
            "it is not certain that this head was there when the comment was written. Look at it, "
            f"and repeat the command with its sha: `{head.sha}`"
            f"{' behind the target' if command.verb == 'ack' else ''}."
        )
    return None
