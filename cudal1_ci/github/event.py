"""Read what started this run: it alone names the commit and the pull request.

Reads the environment and the event's file. The runner writes both; the measured code does not. A
report never says where it is posted. A `workflow_run` event has a commit and the branch it came
from; the pull request must be looked up (`Occasion.is_looked_up`). A `workflow_dispatch` event may
name both: the person who starts it may write to the repository.

    occasion(os.environ).number
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from cudal1_ci.errors import ConfigError
from cudal1_ci.github.payload import PULL_REQUEST, read_payload
from cudal1_ci.records import Record

_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_QUEUE = re.compile(r"refs/heads/gh-readonly-queue/.{1,255}/pr-(?P<number>\d{1,9})-[0-9a-f]{40,64}")
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
_URL = re.compile(r"https?://[^\s/?#@]+(?:/[^\s?#@]*)?")


class Occasion(Record, frozen=True, kw_only=True):
    """Describe a run and its subject. Holds no secret."""

    event: str
    repository: str
    """`owner/name`, where results are posted."""
    head_sha: str
    """The commit that was to be measured."""
    number: int | None = None
    """Of the pull request, where the event says it."""
    head_repository: str | None = None
    head_branch: str | None = None
    is_after_a_pull_request: bool = False
    """Whether a workflow of a pull request has measured, and another one posts."""
    base_sha: str | None = None
    """What it is to be merged into, where the event says it."""
    into: str | None = None
    """Name of that branch; None for the default branch, or where the event does not say."""
    queued_number: int | None = None
    """Of the pull request that the merge queue is about to merge, the last one of a group."""
    workflow: str = "cudal1-ci"
    run_id: int
    """Of the run that measured; a later run has a higher one."""
    attempt: int = 1
    api_url: str
    server_url: str

    @property
    def is_looked_up(self) -> bool:
        """Return whether there may be a pull request that only GitHub can name."""
        return self.number is None and self.head_branch is not None

    @property
    def is_of_a_fork(self) -> bool:
        """Return whether a job of another repository has measured, or of one that is gone."""
        return self.is_after_a_pull_request and self.head_repository != self.repository

    @property
    def run_url(self) -> str:
        return f"{self.server_url}/{self.repository}/actions/runs/{self.run_id}"


def occasion(environ: Mapping[str, str]) -> Occasion:
    """Return what started this run.

    Raises:
        ConfigError: A variable of GitHub Actions is missing or malformed, or the event is no event.
    """
    name = _variable(environ, "GITHUB_EVENT_NAME")
    event = read_payload(name, Path(_variable(environ, "GITHUB_EVENT_PATH")))
    run_id = _number(environ, "GITHUB_RUN_ID")
    attempt = _number(environ, "GITHUB_RUN_ATTEMPT", default="1")
    number: int | None = None
    head = None
    branch: str | None = None
    base: str | None = None
    into = ""
    queued: int | None = None
    is_after = False
    if event.pull_request is not None:
        base, into = event.pull_request.base.sha, event.pull_request.base.ref
        number, head = event.pull_request.number, event.pull_request.head.repo
        sha, branch = event.pull_request.head.sha, event.pull_request.head.ref
    elif event.workflow_run is not None:
        measured = event.workflow_run
        sha, run_id, attempt = measured.head_sha, measured.id, measured.run_attempt
        if measured.event in PULL_REQUEST:
            head, branch = measured.head_repository, measured.head_branch
            is_after = True
    elif event.merge_group is not None:
        sha, base = event.merge_group.head_sha, event.merge_group.base_sha
        into = event.merge_group.base_ref.removeprefix("refs/heads/")
        queue = _QUEUE.fullmatch(event.merge_group.head_ref)
        queued = int(queue["number"]) if queue else None
    elif event.inputs is not None and event.inputs.number:
        number, sha = _pull_number(event.inputs.number), event.inputs.sha or ""
    else:
        sha = _variable(environ, "GITHUB_SHA")
    return Occasion(
        event=name,
        repository=_match_variable(environ, "GITHUB_REPOSITORY", _REPOSITORY, "owner/name"),
        head_sha=_sha(sha),
        number=number,
        head_repository=head.full_name if head else None,
        head_branch=branch if head else None,
        is_after_a_pull_request=is_after,
        base_sha=base if base and _SHA.fullmatch(base) else None,
        into=other_than_default(
            into, event.repository.default_branch if event.repository else None
        ),
        queued_number=queued,
        workflow=environ.get("GITHUB_WORKFLOW") or "cudal1-ci",
        run_id=run_id,
        attempt=attempt,
        api_url=_url(environ, "GITHUB_API_URL", "https://api.github.com"),
        server_url=_url(environ, "GITHUB_SERVER_URL", "https://github.com"),
    )


def other_than_default(branch: str, default: str | None) -> str | None:
    """Return a base branch by which checks are named: None for the default branch."""
    return None if not branch or branch == default else branch


def _variable(environ: Mapping[str, str], name: str, default: str = "") -> str:
    value = environ.get(name) or default
    if not value:
        raise ConfigError(
            f"{name}: expected GitHub Actions to set it, it is not set; `publish` is a step of a "
            "workflow"
        )
    return value


def _match_variable(
    environ: Mapping[str, str], name: str, form: re.Pattern[str], words: str, default: str = ""
) -> str:
    value = _variable(environ, name, default)
    if form.fullmatch(value) is None:
        raise ConfigError(f"{name}: expected {words}, got {value!r}")
    return value


def _url(environ: Mapping[str, str], name: str, default: str) -> str:
    return _match_variable(environ, name, _URL, "a URL", default).rstrip("/")


def _number(environ: Mapping[str, str], name: str, default: str = "") -> int:
    value = _variable(environ, name, default)
    if not (value.isascii() and value.isdigit()):
        raise ConfigError(f"{name}: expected a number, got {value!r}")
    return int(value)


def _pull_number(value: str) -> int:
    if not (value.isascii() and value.isdigit()):
        raise ConfigError(f"input `pull-request`: expected a number, got {value!r}")
    return int(value)


def _sha(value: str) -> str:
    if _SHA.fullmatch(value) is None:
        raise ConfigError(f"the event's commit: expected a full sha, got {value!r}")
    return value
