"""Read the event of a comment: who wrote what on which pull request, and when.

Read from the file that the runner wrote. Times are GitHub's. They show what was there when the
comment was made.

    asked(os.environ).body
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import msgspec

from cudal1_ci.errors import ConfigError
from cudal1_ci.github.payload import MAX_EVENT_BYTES
from cudal1_ci.records import Record

EVENTS = ("issue_comment", "pull_request_review_comment")
_LOGIN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,99})")
_BRANCH = re.compile(r"[^\s~^:?*\[\\]{1,255}")


class Asked(Record, frozen=True, kw_only=True):
    """Hold a comment that may contain a command."""

    number: int
    """Of the pull request."""
    comment_id: int
    author: str
    body: str
    made_at: datetime
    default_branch: str
    is_obeyable: bool
    """Whether a person just made it on a pull request, and it was not edited."""
    is_in_review: bool = False
    """Whether it is in a thread of a review, where the answer belongs too."""


class _User(msgspec.Struct, frozen=True):
    login: str
    type: str = "User"


class _Comment(msgspec.Struct, frozen=True):
    id: int
    body: str | None
    created_at: datetime
    updated_at: datetime
    user: _User | None = None


class _Issue(msgspec.Struct, frozen=True):
    number: int
    pull_request: dict[str, object] | None = None


class _Pull(msgspec.Struct, frozen=True):
    number: int


class _Repository(msgspec.Struct, frozen=True):
    default_branch: str


class _Event(msgspec.Struct, frozen=True):
    action: str
    comment: _Comment
    repository: _Repository
    issue: _Issue | None = None
    pull_request: _Pull | None = None
    """Of a comment in a review."""


def asked(environ: Mapping[str, str]) -> Asked:
    """Return the comment of this run.

    Raises:
        ConfigError: It is a run of another event, or the event is none.
    """
    name, file = environ.get("GITHUB_EVENT_NAME"), environ.get("GITHUB_EVENT_PATH", "")
    if name not in EVENTS:
        raise ConfigError(f"GITHUB_EVENT_NAME: expected {' or '.join(EVENTS)}, got {name!r}")
    try:
        if Path(file).stat().st_size > MAX_EVENT_BYTES:
            raise ConfigError(f"GITHUB_EVENT_PATH: expected an event, {file} is too large for one")
        event = msgspec.json.decode(Path(file).read_bytes(), type=_Event)
    except OSError as error:
        raise ConfigError(f"GITHUB_EVENT_PATH: {file} cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"GITHUB_EVENT_PATH: {file} is no event of GitHub: {error}") from error
    comment, author = event.comment, event.comment.user
    is_in_review = name == "pull_request_review_comment"
    thread = event.pull_request if is_in_review else event.issue
    if thread is None:
        raise ConfigError(f"GITHUB_EVENT_PATH: expected the event of `{name}`, got another one")
    is_of_a_pull = is_in_review or (
        event.issue is not None and event.issue.pull_request is not None
    )
    if _BRANCH.fullmatch(event.repository.default_branch) is None:
        raise ConfigError("GITHUB_EVENT_PATH: expected the name of the default branch")
    return Asked(
        number=thread.number,
        comment_id=comment.id,
        author=author.login if author else "",
        body=comment.body or "",
        made_at=comment.created_at,
        default_branch=event.repository.default_branch,
        is_obeyable=(
            event.action == "created"
            and is_of_a_pull
            and comment.updated_at == comment.created_at
            and author is not None
            and author.type == "User"
            and _LOGIN.fullmatch(author.login) is not None
        ),
        is_in_review=is_in_review,
    )
