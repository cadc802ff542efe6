"""Plan what to post, from a report, the run's event and what is on GitHub already. Pure.

A plan is the requests themselves, so that a dry run prints exactly what would be sent. It has four
errands at most, each of which may fail without the others: the check run, the comment, a review
with suggestions, and comments on files.

The comment is edited in place, since an edit notifies no one. A new comment is made only when the
verdict turns to a regression. A later run's comment is left unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from cudal1_ci.github import check
from cudal1_ci.github.acknowledgements import Agreed, agreements_line, without_agreements
from cudal1_ci.github.conclusion import Standing, standing
from cudal1_ci.github.event import Occasion
from cudal1_ci.github.marker import (
    SUPERSEDED,
    Comment,
    Marker,
    key_of,
    marked,
    ours,
    suggestion_digest,
    unmarked,
)
from cudal1_ci.github.review import placed
from cudal1_ci.records import Record, Report

REPLACED = "> **Replaced by a newer comment of this workflow, further down.**\n\n"
MAX_BODY = 65_536
"""Characters of a comment that GitHub takes."""

CommentWhen = Literal["auto", "always", "never"]
FailOn = Literal["never", "regression", "contract", "inconclusive"]


class Options(Record, frozen=True, kw_only=True):
    """Hold the command line's options."""

    fail_on: FailOn = "never"
    comment: CommentWhen = "auto"
    suggestions: bool = True
    check: bool = True
    """Whether there is a check run; an extra report on request has none."""
    is_verified: bool = True
    """Whether only this repository's people control the job that measured."""


class Pull(Record, frozen=True, kw_only=True):
    """Hold a pull request as it is now, and its contents."""

    number: int
    head_sha: str
    is_open: bool = True
    comments: tuple[Comment, ...] = ()
    review_comments: tuple[Comment, ...] = ()
    diff: Mapping[str, str] = {}
    """Hunks of each file, by its path after the change."""


class Known(Record, frozen=True, kw_only=True):
    """Hold what was read from GitHub."""

    login: str | None = None
    """Our own login; None without a request to GitHub."""
    pull: Pull | None = None
    check_id: int | None = None
    """Of the check run that this run has started."""


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


def plan_start(occasion: Occasion) -> Plan:
    """Plan a check run in progress."""
    path = f"/repos/{occasion.repository}/check-runs"
    post = Post(method="POST", path=path, payload=check.started(occasion))
    return Plan(errands=(Errand(what="check run", posts=(post,)),))


def plan_abandoned(occasion: Occasion, check_id: int) -> Plan:
    """Plan the end of a check run without a report."""
    path = f"/repos/{occasion.repository}/check-runs/{check_id}"
    post = Post(method="PATCH", path=path, payload=check.abandoned(occasion))
    return Plan(errands=(Errand(what="check run", posts=(post,)),))


def plan(
    document: Report, texts: Texts, occasion: Occasion, options: Options, known: Known
) -> Plan:
    """Plan the posts for a report of the event's own commit."""
    said = standing(document)
    errands = [_check(document, said, texts, occasion, options, known)] if options.check else []
    pull = known.pull
    why = _silence(occasion, pull, key_of(occasion.workflow), known.login)
    if why is not None or pull is None:
        return Plan(errands=tuple(errands), remarks=(why,) if why else ())
    remarks: list[str] = []
    comment = _comment(said, texts, occasion, options, pull, known.login)
    if comment is not None:
        errands.append(comment)
    elif options.comment == "auto":
        remarks.append("no comment: there is nothing to say")
    if options.suggestions and pull.is_open:
        reviews, unplaced = _review(document, occasion, pull, known.login)
        remarks += unplaced
        errands += reviews
    return Plan(errands=tuple(errands), remarks=tuple(remarks))


def _silence(occasion: Occasion, pull: Pull | None, key: str, login: str | None) -> str | None:
    """Return why neither a comment nor a review is posted; None where they may be."""
    if pull is None:
        return "no comment: this run is of no open pull request whose head is that commit"
    if pull.head_sha != occasion.head_sha:
        return (
            f"no comment: pull request {pull.number} has moved on to {pull.head_sha[:12]}, and the "
            f"report is of {occasion.head_sha[:12]}"
        )
    newest = max((marker.order for _, marker in ours(pull.comments, key, login)), default=(0, 0))
    if newest > (occasion.run_id, occasion.attempt):
        return f"no comment: that of the later run {newest[0]} is left as it is"
    return None


def _check(
    document: Report,
    said: Standing,
    texts: Texts,
    occasion: Occasion,
    options: Options,
    known: Known,
) -> Errand:
    first, *others = check.completed(
        occasion,
        said,
        options.fail_on,
        (texts.summary, texts.comment),
        check.annotations_of(document),
    )
    if not options.is_verified:
        if first["conclusion"] == "success":
            is_lax = options.fail_on == "never"
            first["conclusion"] = "neutral" if is_lax else "failure"
        first["output"]["title"] = f"Unverified: {first['output']['title']}"[: check.MAX_TITLE]
    runs = f"/repos/{occasion.repository}/check-runs"
    if known.check_id is None:
        post = Post(method="POST", path=runs, payload=first)
    else:
        del first["head_sha"]
        post = Post(method="PATCH", path=f"{runs}/{known.check_id}", payload=first)
    more = [Post(method="PATCH", path=f"{runs}/{{id}}", payload=batch) for batch in others]
    return Errand(what="check run", posts=(post, *more))


def _comment(
    said: Standing,
    texts: Texts,
    occasion: Occasion,
    options: Options,
    pull: Pull,
    login: str | None,
) -> Errand | None:
    if options.comment == "never":
        return None
    key = key_of(occasion.workflow)
    body = marked(
        Marker(
            key=key,
            run=occasion.run_id,
            attempt=occasion.attempt,
            sha=occasion.head_sha,
            verdict=said.overall,
        ),
        agreements_line(texts.agreements) + texts.comment,
    )
    issues = f"/repos/{occasion.repository}/issues"
    create = Post(method="POST", path=f"{issues}/{pull.number}/comments", payload={"body": body})
    standing_ones = [
        pair for pair in ours(pull.comments, key, login) if pair[1].verdict != SUPERSEDED
    ]
    if not standing_ones:
        needed = options.comment == "always" or said.has_news
        return Errand(what="comment", posts=(create,)) if needed else None
    comment, marker = standing_ones[-1]
    flips = said.overall == "regression" and marker.verdict != "regression"
    kept = standing_ones if flips else standing_ones[:-1]
    written = (
        create
        if flips
        else Post(method="PATCH", path=f"{issues}/comments/{comment.id}", payload={"body": body})
    )
    replaced = [
        Post(
            method="PATCH",
            path=f"{issues}/comments/{old.id}",
            payload={"body": _superseded_body(old, m)},
        )
        for old, m in kept
    ]
    return Errand(what="comment", posts=(written, *replaced))


def _superseded_body(comment: Comment, marker: Marker) -> str:
    """Return a replaced comment: its own words under a line that says so."""
    now = Marker(
        key=marker.key,
        run=marker.run,
        attempt=marker.attempt,
        sha=marker.sha,
        verdict=SUPERSEDED,
    )
    whole = marked(now, REPLACED + without_agreements(unmarked(comment.body)))
    return whole if len(whole) <= MAX_BODY else marked(now, REPLACED)


def _review(
    document: Report, occasion: Occasion, pull: Pull, login: str | None
) -> tuple[list[Errand], list[str]]:
    """Plan the proposals that are not in the diff yet; return remarks on those not shown there.

    No review takes a comment on a file, so each of these is sent by itself.
    """
    known = {suggestion_digest(c.body) for c in pull.review_comments if c.author == login}
    found = placed(document, pull.diff, known, occasion.run_url)
    remarks = []
    if found.num_unplaced:
        remarks.append(
            f"{found.num_unplaced} of the best proposals cannot be suggested in the diff; their "
            "patches are in the report"
        )
    pulls = f"/repos/{occasion.repository}/pulls/{pull.number}"

    def single(comment: dict[str, Any], refused: dict[str, Any] | None = None) -> Post:
        return Post(
            method="POST",
            path=f"{pulls}/comments",
            payload={"commit_id": occasion.head_sha, **comment},
            otherwise=single(refused) if refused else None,
        )

    errands = []
    if found.in_hunks:
        review = {
            "commit_id": occasion.head_sha,
            "event": "COMMENT",
            "body": "Faster versions of what this pull request changes, measured by cudal1-ci.",
            "comments": [comment for comment, _ in found.in_hunks],
        }
        posts = (Post(method="POST", path=f"{pulls}/reviews", payload=review),)
        singly = tuple(single(comment, refused) for comment, refused in found.in_hunks)
        errands.append(Errand(what="suggestions", posts=posts, singly=singly))
    if found.on_files:
        singly = tuple(single(comment) for comment in found.on_files)
        errands.append(Errand(what="comments on files", singly=singly))
    return errands, remarks
