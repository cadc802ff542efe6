"""Name what is known of GitHub, and what is to be posted there. Pure.

Known, Pull, CheckState      what was read
Plan, Errand, Post           what is sent: the requests themselves
Project, Texts               what a check and a comment are about
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from cudal1_ci.github.acknowledgements import Agreed
from cudal1_ci.github.check import CHECK_NAME
from cudal1_ci.github.marker import Comment
from cudal1_ci.records import Record, Report
from cudal1_ci.stats.gate import Finding, Policy


class Pull(Record, frozen=True, kw_only=True):
    """Hold a pull request as it is now, and its contents."""

    number: int
    head_sha: str
    base_sha: str | None = None
    into: str | None = None
    """Name of its base; None for the default branch."""
    is_open: bool = True
    comments: tuple[Comment, ...] = ()
    review_comments: tuple[Comment, ...] = ()
    diff: Mapping[str, str] = {}
    """Hunks of each file, by its path after the change."""


class CheckState(Record, frozen=True, kw_only=True):
    """Hold what is known of the checks of one name at the commit."""

    started: int | None = None
    """Id of the one that this run has started and not completed."""
    is_ended: bool = False
    """Whether this run has completed one."""
    later: int | None = None
    """Newest run of the workflow after this one that has one."""
    conclusion: str | None = None
    """Of that later one; None while it is in progress."""


class Known(Record, frozen=True, kw_only=True):
    """Hold what was read from GitHub."""

    login: str | None = None
    """Our own login; None without a request to GitHub."""
    pull: Pull | None = None
    checks: Mapping[str, CheckState] = {}
    """By the name of the check."""
    queued: tuple[Comment, ...] = ()
    """Comments of the pull request that the merge queue is about to merge."""


class Post(Record, frozen=True, kw_only=True):
    """Hold one request. `{id}` in a path is the id that the errand's first request has made."""

    method: Literal["POST", "PATCH"]
    path: str
    payload: dict[str, Any]
    otherwise: Post | None = None
    """What to send instead if a single request's contents are refused."""


class Errand(Record, frozen=True, kw_only=True):
    """Hold requests that follow one another.

    Without requests, or where GitHub refuses the contents of the first and only one, each of
    `singly` is tried by itself.
    """

    what: str
    posts: tuple[Post, ...] = ()
    singly: tuple[Post, ...] = ()

    @property
    def first(self) -> tuple[Post, ...]:
        """Return what is sent if nothing is refused."""
        return self.posts or self.singly


class Plan(Record, frozen=True, kw_only=True):
    """Hold what to post, and log lines about what is not posted."""

    errands: tuple[Errand, ...]
    remarks: tuple[str, ...] = ()


class Texts(Record, frozen=True, kw_only=True):
    """Hold the report as rendered Markdown, and what its comment keeps besides."""

    comment: str
    summary: str
    agreements: tuple[Agreed, ...] = ()


class Project(Record, frozen=True, kw_only=True):
    """Hold what one check is about: a folder with a configuration of its own."""

    name: str = CHECK_NAME
    """Of its check."""
    document: Report | None = None
    """None where it has left no report."""
    texts: Texts | None = None
    policy: Policy = Policy()
    missing: tuple[Finding, ...] = ()
    why: str = "there is no report"
    """Of a project without a report."""
