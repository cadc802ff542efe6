"""Plan what to post, from a report, the run's event and what is on GitHub already. Pure.

A plan is the requests themselves, so that a dry run prints exactly what would be sent. Each errand
may fail without the others: the check run of each project, the comment, a review with suggestions,
and comments on files.

What a later run has written is left unchanged, the check too. A check that this run has started
ends in every case.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from cudal1_ci.github import check
from cudal1_ci.github.comment import plan_comment
from cudal1_ci.github.conclusion import standing
from cudal1_ci.github.event import Occasion
from cudal1_ci.github.marker import key_of, ours
from cudal1_ci.github.posts import CheckState, Errand, Known, Plan, Post, Project, Pull, Texts
from cudal1_ci.github.review import plan_review
from cudal1_ci.records import Record, Report
from cudal1_ci.stats.gate import Policy

CommentWhen = Literal["auto", "always", "never"]


class Options(Record, frozen=True, kw_only=True):
    """Hold the command line's options."""

    policy: Policy = Policy()
    comment: CommentWhen = "auto"
    suggestions: bool = True
    check: bool = True
    """Whether there is a check run; an extra report on request has none."""


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
    comment = None
    if options.comment != "never":
        always = options.comment == "always"
        comment = plan_comment(said, texts, occasion, pull, known.login, always=always)
    if comment is not None:
        errands.append(comment)
    elif options.comment == "auto":
        remarks.append("no comment: nothing to report")
    if options.suggestions and pull.is_open:
        reviews, unplaced = plan_review(document, occasion, pull, known.login)
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
