"""Parse the used part of the event file that the runner writes for GitHub.

Two readers use it: measuring needs the commit to compare with (action/event.py), publishing the
pull request (event.py). Some events carry more than their own data: a review has a pull request in
it, a push to one has the commits before and after. Data that is not the event's own is left out, so
that no reader confuses the two.

    read_payload("pull_request", path).pull_request.head.sha
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from cudal1_ci.errors import ConfigError

PULL_REQUEST = ("pull_request", "pull_request_target")
MAX_EVENT_BYTES = 32 * 2**20
"""GitHub's own events end at 25 MB."""


class Repository(msgspec.Struct, frozen=True):
    full_name: str
    default_branch: str | None = None


class Side(msgspec.Struct, frozen=True):
    """Describe one side of a pull request: its base or its head."""

    sha: str
    ref: str
    repo: Repository | None = None
    """None once a fork is deleted."""


class PullRequest(msgspec.Struct, frozen=True):
    number: int
    base: Side
    head: Side


class WorkflowRun(msgspec.Struct, frozen=True):
    """Describe a run of another workflow, after which this one was started."""

    id: int
    head_sha: str
    event: str
    run_attempt: int = 1
    head_branch: str | None = None
    head_repository: Repository | None = None


class MergeGroup(msgspec.Struct, frozen=True):
    """Describe what the merge queue would merge, and into what."""

    base_sha: str
    head_sha: str
    base_ref: str = ""
    """`refs/heads/main`"""
    head_ref: str = ""
    """`refs/heads/gh-readonly-queue/main/pr-12-SHA`: GitHub names the branch."""


class Inputs(msgspec.Struct, frozen=True):
    """Hold the inputs of the workflow that measures on request; other workflows' are not read."""

    number: str | None = msgspec.field(default=None, name="pull-request")
    sha: str | None = None


class Payload(msgspec.Struct, frozen=True):
    """Hold an event's own data; None is what events of its name do not have."""

    repository: Repository | None = None
    pull_request: PullRequest | None = None
    workflow_run: WorkflowRun | None = None
    merge_group: MergeGroup | None = None
    inputs: Inputs | None = None
    before: str | None = None
    after: str | None = None


OWN: dict[str, tuple[str, ...]] = {
    "pull_request": ("pull_request",),
    "pull_request_target": ("pull_request",),
    "workflow_run": ("workflow_run",),
    "merge_group": ("merge_group",),
    "push": ("before", "after"),
}
"""Without these an event is none of its name."""
MAY_HAVE = {"workflow_dispatch": ("repository", "inputs")}
NULL = b"null"


def read_payload(name: str, path: Path) -> Payload:
    """Read the file of an event.

    Raises:
        ConfigError: The file is unreadable, or is not of this event.
    """
    try:
        if path.stat().st_size > MAX_EVENT_BYTES:
            raise ConfigError(f"GITHUB_EVENT_PATH: expected an event, {path} is too large for one")
        return payload_of(name, path.read_bytes())
    except OSError as error:
        raise ConfigError(f"GITHUB_EVENT_PATH: {path} cannot be read: {error.strerror}") from error


def payload_of(name: str, raw: bytes) -> Payload:
    """Parse an event.

    Raises:
        ConfigError: The data is not of an event of this name.
    """
    own = OWN.get(name, ())
    try:
        given = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        if missing := [field for field in own if bytes(given.get(field, NULL)) == NULL]:
            raise ConfigError(
                f"GITHUB_EVENT_PATH: expected the event of `{name}`, got another one: it has no "
                f"{', '.join(missing)}"
            )
        wanted = (*own, *MAY_HAVE.get(name, ("repository",)))
        kept = {field: given[field] for field in wanted if field in given}
        return msgspec.json.decode(msgspec.json.encode(kept), type=Payload)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(
            f"GITHUB_EVENT_PATH: expected the event `{name}`, this is no event of GitHub: {error}"
        ) from error
