"""Post what a sweep has found: draft pull requests where wanted, and the rolling issue.

The drafts come first, as the issue links to them. A draft that GitHub refuses is not in the issue,
and stops nothing. `sweep_issue` and `drafts` decide what is posted; this module reads what is
there, and keeps the order.

    known = known_of(client)
    prepared = prepare(document, run, known, Options(max_open_prs=1))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from cudal1_ci.github.answer import Made, Refusal
from cudal1_ci.github.branches import Proposed
from cudal1_ci.github.client import Client
from cudal1_ci.github.decision import MAY
from cudal1_ci.github.drafts import (
    Drafts,
    address_of,
    branch_of,
    chosen,
    drafts_of,
    marked,
    title_of,
)
from cudal1_ci.github.event import Occasion
from cudal1_ci.github.fetch_facts import permission_of
from cudal1_ci.github.marker import Comment
from cudal1_ci.github.posts import Plan
from cudal1_ci.github.sweep_issue import (
    MARKER_BYTES,
    MAX_BODY_BYTES,
    Found,
    Stamp,
    Thread,
    Written,
    asked_in,
    dismissed_in,
    found_issue,
    plan_issue,
)
from cudal1_ci.records import Record, Report
from cudal1_ci.render.gains import Gain, gains_of
from cudal1_ci.render.issue import NUM_ITEMS, About, issue, pull_request

PAGE = 100
MOST_PAGES = 100


class Options(Record, frozen=True, kw_only=True):
    """Hold the command line's options."""

    max_items: int = NUM_ITEMS
    max_open_prs: int = 0


class Known(Record, frozen=True, kw_only=True):
    """Hold what is on GitHub already; empty without a request."""

    default_branch: str | None = None
    issue: Found | None = None
    drafts: Drafts = Drafts()
    dismissed: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    """Proposals of which people want the pull request."""


class Prepared(Record, frozen=True, kw_only=True):
    """Hold a report, and what of it may be posted."""

    document: Report
    occasion: Occasion
    known: Known
    max_items: int
    gains: tuple[Gain, ...]
    """Proposals that were not dismissed."""
    drafts: tuple[tuple[Gain, Proposed], ...]
    """Those to be opened."""


# --- what is there ---------------------------------------------------------------------------


def known_of(client: Client) -> Known:
    """Return what is on GitHub.

    Raises:
        Refusal: GitHub does not say.
    """
    login = client.login()
    repository = client.read("").get("default_branch")
    listed = _pages(client, "issues", creator=login, state="all", sort="created", direction="asc")
    threads = [_thread(each) for each in listed]
    found = found_issue(threads, login)
    dismissed: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    if found is not None:
        comments = [_comment(each) for each in _pages(client, f"issues/{found.number}/comments")]
        may_write = _writers(client)
        dismissed = dismissed_in(found, comments, may_write)
        asked = asked_in(found, comments, may_write)
    return Known(
        default_branch=repository,
        issue=found,
        drafts=drafts_of(threads, login),
        dismissed=dismissed,
        asked=asked,
    )


def _pages(client: Client, path: str, **query: str) -> Iterator[dict[str, Any]]:
    """Yield a list's items; it ends at an empty page, as a shorter page may not be the last."""
    for page in range(1, MOST_PAGES + 1):
        listed = client.read(path, **query, per_page=PAGE, page=page)
        if not listed:
            return
        yield from listed


def _thread(each: dict[str, Any]) -> Thread:
    user = each.get("user") or {}
    return Thread(
        number=each["number"],
        author=user.get("login") or "",
        is_pull=each.get("pull_request") is not None,
        is_open=each["state"] == "open",
        body=each.get("body") or "",
    )


def _comment(each: dict[str, Any]) -> Comment:
    user = each.get("user") or {}
    return Comment(id=each["id"], author=user.get("login") or "", body=each.get("body") or "")


def _writers(client: Client) -> Callable[[str], bool]:
    """Return a function that says who may write, with one request a login; unknown may not."""
    known: dict[str, bool] = {}

    def may_write(login: str) -> bool:
        if login not in known:
            try:
                known[login] = permission_of(client, login) in MAY
            except Refusal:
                known[login] = False
        return known[login]

    return may_write


# --- what to post ----------------------------------------------------------------------------


def prepare(
    document: Report, occasion: Occasion, branch: str, known: Known, options: Options
) -> Prepared:
    """Choose what of a report is worth posting; `branch` is the branch of its commit."""
    gains = [gain for gain in gains_of(document) if gain.id not in known.dismissed]
    about = _about(occasion, Stamp(run=occasion.run_id, attempt=1, sha=occasion.head_sha))
    drafts = [
        (
            gain,
            Proposed(
                patch=gain.evaluation.candidate.patch or "",
                base_sha=occasion.head_sha,
                base_branch=branch,
                branch=branch_of(gain),
                title=title_of(gain),
                body=marked(gain, pull_request(document, gain, about)),
            ),
        )
        for gain in chosen(gains, known.drafts, options.max_open_prs, known.asked)
    ]
    return Prepared(
        document=document,
        occasion=occasion,
        known=known,
        max_items=options.max_items,
        gains=tuple(gains),
        drafts=tuple(drafts),
    )


def planned(prepared: Prepared, opened: Sequence[str]) -> Plan:
    """Plan the issue, after the drafts of these proposals were opened."""
    known, occasion = prepared.known, prepared.occasion
    address = f"{occasion.server_url}/{occasion.repository}"
    ids = (*known.drafts.opened, *opened)
    drafts = {id_: address_of(address, id_) for id_ in ids}

    def text(stamp: Stamp) -> str:
        about = _about(occasion, stamp, drafts)
        return issue(
            prepared.document,
            prepared.gains,
            about,
            max_items=prepared.max_items,
            max_bytes=MAX_BODY_BYTES - MARKER_BYTES,
        )

    written = Written(text=text, dismissed=known.dismissed)
    errand, why = plan_issue(known.issue, written, occasion)
    return Plan(errands=(errand,) if errand else (), remarks=(why,) if why else ())


def summary_of(prepared: Prepared) -> str:
    """Return the same list for the summary of the step."""
    occasion = prepared.occasion
    stamp = Stamp(
        run=occasion.run_id,
        attempt=occasion.attempt,
        sha=occasion.head_sha,
        dismissed=prepared.known.dismissed,
    )
    return issue(prepared.document, prepared.gains, _about(occasion, stamp))


def _about(occasion: Occasion, stamp: Stamp, drafts: dict[str, str] | None = None) -> About:
    return About(
        run_url=f"{occasion.server_url}/{occasion.repository}/actions/runs/{stamp.run}",
        sha=stamp.sha,
        num_dismissed=len(stamp.dismissed),
        drafts=drafts or {},
    )


def printed_draft(proposed: Proposed) -> str:
    """Return a draft as it would be read."""
    return (
        f"=== draft pull request: {proposed.branch} into {proposed.base_branch} at "
        f"{proposed.base_sha}\n{proposed.title}\n\n{proposed.body}\n{proposed.patch}\n"
    )


# --- posting ---------------------------------------------------------------------------------


def open_drafts(
    prepared: Prepared, open_pull: Callable[[Proposed], Made]
) -> tuple[dict[str, Made], list[tuple[str, Refusal]]]:
    """Open the drafts; return those opened, by proposal id, and those that GitHub refused."""
    made: dict[str, Made] = {}
    refused: list[tuple[str, Refusal]] = []
    for gain, proposed in prepared.drafts:
        try:
            made[gain.id] = open_pull(proposed)
        except Refusal as refusal:
            refused.append((f"draft pull request {proposed.branch}", refusal))
    return made, refused
