"""Plan what to post, from a report, the run's event and what is on GitHub already. Pure.

A plan is the requests themselves, so that a dry run prints exactly what would be sent. Each errand
may fail without the others: the check run of each project, the comment, a review with suggestions,
and comments on files.

The comment is edited in place, since an edit notifies no one. A new comment is made only when the
verdict turns to a regression. What a later run has written is left unchanged, the check too. A
check that this run has started ends in every case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

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
from cudal1_ci.stats.gate import Finding, Policy

REPLACED = "> **Replaced by a newer comment of this workflow, further down.**\n\n"
MAX_BODY = 65_536
"""Characters of a comment that GitHub takes."""

CommentWhen = Literal["auto", "always", "never"]


class Options(Record, frozen=True, kw_only=True):
    """Hold the command line's options."""

    policy: Policy = Policy()
    comment: CommentWhen = "auto"
    suggestions: bool = True
    check: bool = True
    """Whether there is a check run; an extra report on request has none."""


class Pull(Record, frozen=True, kw_only=True):
    """Hold a pull request as it is now, and its contents."""

    number: int
    head_sha: str
    base_sha: str | None = None
    is_open: bool = True
    comments: tuple[Comment, ...] = ()
    review_comments: tuple[Comment, ...] = ()
    diff: Mapping[str, str] = {}
    """Hunks of each file, by its path after the change."""


class CheckState(Record, frozen=True, kw_only=True):
    """Hold what is known of the checks of one name at the commit."""

    started: int | None = None
    """Id of the one that this run has started and not completed."""
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

    name: str = check.CHECK_NAME
    """Of its check."""
    document: Report | None = None
    """None where it has left no report."""
    texts: Texts | None = None
    policy: Policy = Policy()
    missing: tuple[Finding, ...] = ()
    why: str = "there is no report"
    """Of a project without a report."""


def plan_start(occasion: Occasion, names: Sequence[str] = (check.CHECK_NAME,)) -> Plan:
    """Plan check runs in progress."""
    path = f"/repos/{occasion.repository}/check-runs"
    posts = [Post(method="POST", path=path, payload=check.started(occasion, n)) for n in names]
    return Plan(errands=tuple(Errand(what="check run", posts=(post,)) for post in posts))


def plan_checks(projects: Sequence[Project], occasion: Occasion, known: Known) -> Plan:
    """Plan the ends of the checks of projects, with or without a report."""
    errands, remarks = [], []
    for project in projects:
        state = known.checks.get(project.name, CheckState())
        if state.later is None:
            errands.append(_check(project, occasion, state))
            continue
        remarks.append(f"{project.name}: that of the later run {state.later} is left as it is")
        if state.started is not None:
            conclusion = state.conclusion or project.policy.conclusion_of("no_report")
            ended = check.superseded(occasion, project.name, state.later, conclusion)
            errands.append(_check_errand([ended], occasion, state))
    return Plan(errands=tuple(errands), remarks=tuple(remarks))


def plan(
    document: Report,
    texts: Texts,
    occasion: Occasion,
    options: Options,
    known: Known,
    projects: Sequence[Project] = (),
) -> Plan:
    """Plan the posts for a report of the event's own commit. `projects` have a check each; without,
    the report is that of the only one.
    """
    parts = projects or (Project(document=document, texts=texts, policy=options.policy),)
    missing = tuple(one for part in parts for one in part.missing)
    judged = [standing(part.document, part.policy, part.missing) for part in parts if part.document]
    said = standing(document, options.policy, missing)
    has_news = said.has_news or any(one.has_news for one in judged)
    said = msgspec.structs.replace(said, has_news=has_news)
    checks = plan_checks(parts, occasion, known) if options.check else Plan(errands=())
    errands, remarks = list(checks.errands), list(checks.remarks)
    pull = known.pull
    why = _silence(occasion, pull, key_of(occasion.workflow), known.login)
    if why is not None or pull is None:
        return Plan(errands=tuple(errands), remarks=(*remarks, why) if why else tuple(remarks))
    comment = _comment(said, texts, occasion, options, pull, known.login)
    if comment is not None:
        errands.append(comment)
    elif options.comment == "auto":
        remarks.append("no comment: nothing to report")
    if options.suggestions and pull.is_open:
        reviews, unplaced = _review(document, occasion, pull, known.login)
        remarks += unplaced
        errands += reviews
    return Plan(errands=tuple(errands), remarks=tuple(remarks))


def _silence(occasion: Occasion, pull: Pull | None, key: str, login: str | None) -> str | None:
    """Return why neither a comment nor a review is posted; None where they may be."""
    if pull is None:
        return (
            "no comment: this run is of no open pull request whose head is that commit, or of "
            "several of one branch; the check is at the commit"
        )
    if pull.head_sha != occasion.head_sha:
        return (
            f"no comment: pull request {pull.number} has moved on to {pull.head_sha[:12]}, and the "
            f"report is of {occasion.head_sha[:12]}"
        )
    newest = max((marker.order for _, marker in ours(pull.comments, key, login)), default=(0, 0))
    if newest > (occasion.run_id, occasion.attempt):
        return f"no comment: the one of the later run {newest[0]} is kept"
    return None


def _check(project: Project, occasion: Occasion, state: CheckState) -> Errand:
    """Plan the end of one check."""
    if project.document is None or project.texts is None:
        ended = check.unmeasured(occasion, project.name, project.policy, project.why)
        return _check_errand([ended], occasion, state)
    payloads = check.completed(
        occasion,
        project.name,
        standing(project.document, project.policy, project.missing),
        (project.texts.summary, project.texts.comment),
        check.annotations_of(project.document),
    )
    return _check_errand(payloads, occasion, state)


def _check_errand(
    payloads: Sequence[dict[str, Any]], occasion: Occasion, state: CheckState
) -> Errand:
    first, *others = payloads
    runs = f"/repos/{occasion.repository}/check-runs"
    if state.started is None:
        post = Post(method="POST", path=runs, payload=first)
    else:
        kept = {name: value for name, value in first.items() if name != "head_sha"}
        post = Post(method="PATCH", path=f"{runs}/{state.started}", payload=kept)
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
