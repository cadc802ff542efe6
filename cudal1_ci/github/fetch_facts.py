"""Fetch from GitHub what decides about a command; fetch as little as possible for strangers.

facts_about(client, asked)
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import msgspec

from cudal1_ci.github.answer import Refusal
from cudal1_ci.github.check import folder_of, run_of
from cudal1_ci.github.comment_event import Asked
from cudal1_ci.github.decision import MAY, Facts, Head
from cudal1_ci.github.event import other_than_default
from cudal1_ci.github.payload import PULL_REQUEST, Side

if TYPE_CHECKING:
    from cudal1_ci.github.client import Client

MAX_PAGES = 10
PAGE = 100

T = TypeVar("T")


class _Pull(msgspec.Struct, frozen=True):
    state: str
    head: Side
    base: Side


class _Permission(msgspec.Struct, frozen=True):
    permission: str


class _Suite(msgspec.Struct, frozen=True):
    created_at: datetime | None = None


class _Suites(msgspec.Struct, frozen=True):
    check_suites: list[_Suite]


def facts_about(client: Client, asked: Asked) -> Facts:
    """Return the facts that decide about a command.

    Raises:
        Refusal: GitHub does not say.
    """
    permission = permission_of(client, asked.author)
    if permission not in MAY:
        return Facts(permission=permission)
    pull = _read_as(client.read(f"pulls/{asked.number}"), _Pull)
    head = Head(
        sha=pull.head.sha,
        branch=pull.head.ref,
        repository=pull.head.repo.full_name if pull.head.repo else None,
        base_sha=pull.base.sha,
        into=other_than_default(
            pull.base.ref, pull.base.repo.default_branch if pull.base.repo else None
        ),
        is_open=pull.state == "open",
    )
    return Facts(
        permission=permission,
        login=client.login(),
        head=head,
        first_seen=_first_seen(client, head.sha),
        comments=client.comments(asked.number, with_reviews=asked.is_in_review),
    )


def is_of_a_request(client: Client, run: int) -> bool:
    """Return whether a run measured a pull request by the pull request's own workflow, a fork's
    too; assumed where GitHub does not say.
    """
    try:
        return str(client.read(f"actions/runs/{run}")["event"]) in PULL_REQUEST
    except (Refusal, KeyError, TypeError):
        return True


def is_of_this_base(client: Client, head: Head, run: int) -> bool:
    """Return whether a run has made a check for the base that a pull request has now; no where
    GitHub does not say.
    """
    try:
        answer = client.read(f"commits/{head.sha}/check-runs", filter="all", per_page=PAGE)
    except Refusal:
        return False
    return any(
        (order := run_of(check.get("external_id") or "")) is not None
        and order[0] == run
        and folder_of(str(check.get("name", "")), head.into) is not None
        for check in answer.get("check_runs", [])
    )


def permission_of(client: Client, login: str) -> str:
    """Return a user's permission in the repository; `none` for a stranger.

    Raises:
        Refusal: GitHub does not say.
    """
    try:
        answer = client.read(f"collaborators/{quote(login, safe='')}/permission")
    except Refusal as refusal:
        if refusal.status == 404:
            return "none"
        raise
    return _read_as(answer, _Permission).permission


def _first_seen(client: Client, sha: str) -> datetime | None:
    """Return when GitHub made the first check suite of a commit."""
    made: list[datetime] = []
    for page in range(1, MAX_PAGES + 1):
        answer = client.read(f"commits/{sha}/check-suites", per_page=PAGE, page=page)
        suites = _read_as(answer, _Suites).check_suites
        made += [one.created_at for one in suites if one.created_at is not None]
        if len(suites) < PAGE:
            break
    return min(made, default=None)


def _read_as(answer: Any, shape: type[T]) -> T:
    try:
        return msgspec.convert(answer, shape)
    except msgspec.ValidationError as error:
        raise Refusal(f"GitHub gave an answer of an unknown shape: {error}") from error
