"""The event that started the workflow: whose code it is about, and what it is to be compared with.

Read from the file that the runner wrote, never from the checkout. Pure but for that one file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from cudal1_ci.errors import ConfigError

NO_COMMIT = "0" * 40
"""What a push says of the commit before a branch's first."""


class _Repository(msgspec.Struct, frozen=True):
    full_name: str


class _Side(msgspec.Struct, frozen=True):
    sha: str
    repo: _Repository | None = None


class _PullRequest(msgspec.Struct, frozen=True):
    number: int
    base: _Side
    head: _Side


class _MergeGroup(msgspec.Struct, frozen=True):
    base_sha: str
    head_sha: str


class _Payload(msgspec.Struct, frozen=True):
    repository: _Repository | None = None
    pull_request: _PullRequest | None = None
    merge_group: _MergeGroup | None = None
    before: str | None = None
    after: str | None = None


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """What of an event matters here; None where the event does not tell."""

    name: str
    repository: str
    number: int | None = None
    base_sha: str | None = None
    """The commit that the head is to be compared with, or its merge base."""
    head_sha: str | None = None
    head_repository: str | None = None
    """Of a pull request; None also where the fork was deleted since."""

    @property
    def is_of_a_fork(self) -> bool:
        return self.name == "pull_request" and self.head_repository != self.repository


def read_event(environment: Mapping[str, str]) -> Event:
    """The event of this run. Raises: ConfigError outside of a workflow."""
    name, file = environment.get("GITHUB_EVENT_NAME"), environment.get("GITHUB_EVENT_PATH")
    if not name or not file:
        raise ConfigError(
            "expected GITHUB_EVENT_NAME and GITHUB_EVENT_PATH: this is started by a workflow; "
            "elsewhere use `cudal1-ci compare` and `cudal1-ci scan`"
        )
    try:
        return event_of(name, Path(file).read_bytes(), environment.get("GITHUB_REPOSITORY", ""))
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"{file}: expected the event `{name}` as JSON: {error}") from error


def event_of(name: str, payload: bytes, repository: str = "") -> Event:
    """An event from what it carries; `repository` where the event names none."""
    read = msgspec.json.decode(payload, type=_Payload)
    repository = read.repository.full_name if read.repository else repository
    if read.pull_request is not None:
        head = read.pull_request.head
        return Event(
            name=name,
            repository=repository,
            number=read.pull_request.number,
            base_sha=read.pull_request.base.sha,
            head_sha=head.sha,
            head_repository=head.repo.full_name if head.repo else None,
        )
    if read.merge_group is not None:
        group = read.merge_group
        return Event(
            name=name, repository=repository, base_sha=group.base_sha, head_sha=group.head_sha
        )
    if name == "push":
        before = read.before if read.before != NO_COMMIT else None
        return Event(name=name, repository=repository, base_sha=before, head_sha=read.after)
    return Event(name=name, repository=repository)
