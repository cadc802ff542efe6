"""Read the event that started the workflow: whose code it is about, and its base.

Read from the file that the runner wrote (github/payload.py), never from the checkout.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from cudal1_ci.errors import ConfigError
from cudal1_ci.github.payload import Payload, read_payload

NO_COMMIT = "0" * 40
"""What a push says of the commit before a branch's first, and after its last."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the parts of an event that matter here; None where the event has no such part."""

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
    """Return the event of this run. Raises: ConfigError outside of a workflow."""
    name, file = environment.get("GITHUB_EVENT_NAME"), environment.get("GITHUB_EVENT_PATH")
    if not name or not file:
        raise ConfigError(
            "expected GITHUB_EVENT_NAME and GITHUB_EVENT_PATH: this is started by a workflow; "
            "elsewhere use `cudal1-ci compare` and `cudal1-ci scan`"
        )
    return event_of(name, read_payload(name, Path(file)), environment.get("GITHUB_REPOSITORY", ""))


def event_of(name: str, payload: Payload, repository: str = "") -> Event:
    """Build an event from its payload; `repository` is used where the event names none."""
    known = Event(
        name=name,
        repository=payload.repository.full_name if payload.repository else repository,
    )
    if (pull := payload.pull_request) is not None:
        return msgspec.structs.replace(
            known,
            number=pull.number,
            base_sha=pull.base.sha,
            head_sha=pull.head.sha,
            head_repository=pull.head.repo.full_name if pull.head.repo else None,
        )
    if (group := payload.merge_group) is not None:
        return msgspec.structs.replace(known, base_sha=group.base_sha, head_sha=group.head_sha)
    return msgspec.structs.replace(
        known, base_sha=_commit(payload.before), head_sha=_commit(payload.after)
    )


def _commit(sha: str | None) -> str | None:
    return None if sha == NO_COMMIT else sha
