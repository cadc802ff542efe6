"""Build GitHub requests for an accepted command. Pure: no request is made.

`run` starts the request's own run again. Where there is none, and for `optimize`, the workflow on
request is started: nothing of a pull request runs where its comments are read. `ack` and `apply`
need the report that the author has seen. Our comment names the run that wrote it, so that run's
report is fetched and the command is decided again. The report is hostile data, and is checked as in
`publish`.

    decide(asked, command, facts, rules)                first; it may want the report of a run
    decide(asked, command, facts, rules, fetched)       then, with that
"""

from __future__ import annotations

import msgspec

from cudal1_ci.errors import ForgeError, ReportError
from cudal1_ci.github.acknowledgements import (
    Agreed,
    agreements_of,
    is_open_regression,
    missing_state,
    with_agreement,
)
from cudal1_ci.github.branches import Proposed
from cudal1_ci.github.command import Command
from cudal1_ci.github.comment_event import Asked
from cudal1_ci.github.decision import Decision, Facts, Head, Rules, gate, refused
from cudal1_ci.github.event import Occasion
from cudal1_ci.github.marker import SUPERSEDED, Comment, Marker, current, key_of, marker_of
from cudal1_ci.github.plan import Options, plan
from cudal1_ci.github.posts import Errand, Known, Post, Pull
from cudal1_ci.github.projects import Found, Part, whole, whole_of
from cudal1_ci.github.publication import Publication, parts_of, refuse_another_commit
from cudal1_ci.github.sanitize import one_line
from cudal1_ci.records import Entry, Record, Report
from cudal1_ci.render.digest import digest
from cudal1_ci.render.markup import code

ON_REQUEST = "cudal1-ci-on-request.yml"
"""The workflow that measures on request."""
SKIP_LABEL = "cudal1:skip"
VOUCHES = ("admin", "maintain")
"""Permissions of people who may let a fork's commit run on a machine that is kept."""
MAX_NAMED = 10
NO_REPORT = "there is no report of this head below this pull request; `/cudal1 run` makes one."
UNUSABLE = "the report of that run is gone or cannot be used; `/cudal1 run` makes another one."


class Fetched(Record, frozen=True, kw_only=True):
    """Hold the reports of a run; none where they were unavailable or are no reports."""

    run: int
    found: tuple[Found, ...] = ()


def decide(
    asked: Asked, command: Command, facts: Facts, rules: Rules, fetched: Fetched | None = None
) -> Decision:
    """Decide what is done about a command."""
    settled = gate(asked, command, facts)
    if settled is not None or facts.head is None:
        return settled or Decision()
    head = facts.head
    if command.verb == "skip":
        return _skip(asked, rules)
    if command.verb in ("run", "optimize"):
        return _measure(asked, command, facts, head, rules)
    if command.verb == "apply" and head.repository != rules.occasion.repository:
        return refused(
            "the branch is of another repository, where nothing can be written from here. Its "
            "owner takes the diff of the report: `git apply FILE.patch`."
        )
    return _use_report(asked, command, facts, rules, fetched)


def _skip(asked: Asked, rules: Rules) -> Decision:
    path = f"/repos/{rules.occasion.repository}/issues/{asked.number}/labels"
    post = Post(method="POST", path=path, payload={"labels": [SKIP_LABEL]})
    return Decision(reaction="rocket", errands=(Errand(what="label", posts=(post,)),))


def _measure(asked: Asked, command: Command, facts: Facts, head: Head, rules: Rules) -> Decision:
    """Measure again. For a head of this repository the request's own run is started again, with
    the rights and the cache of a pull request. Else the workflow on request is, whose jobs have no
    cache: for a fork's commit that a maintainer vouches for, on machines of this repository.
    """
    is_of_a_fork = head.repository != rules.occasion.repository
    is_vouched = command.sha == head.sha and facts.permission in VOUCHES
    if is_of_a_fork and not (rules.may_run_forks or is_vouched):
        return refused(
            "this pull request comes from another repository, and its code is not run on machines "
            "that are kept, unless a maintainer who has read it vouches for the commit: "
            f"`/cudal1 {command.verb} {head.sha}` (docs of cudal1-ci: Forks)."
        )
    known = current(facts.comments, key_of(rules.workflow), facts.login)
    if command.verb == "run" and not is_of_a_fork and known and known[1].sha == head.sha:
        path = f"/repos/{rules.occasion.repository}/actions/runs/{known[1].run}/rerun"
        again = Post(method="POST", path=path, payload={})
        return Decision(reaction="rocket", errands=(Errand(what="measurement", posts=(again,)),))
    inputs = {
        "pull-request": str(asked.number),
        "sha": head.sha,
        "base": head.base_sha,
        "include": command.glob or "",
        "optimize": "true" if command.verb == "optimize" else "false",
    }
    post = Post(
        method="POST",
        path=f"/repos/{rules.occasion.repository}/actions/workflows/{ON_REQUEST}/dispatches",
        payload={"ref": asked.default_branch, "inputs": inputs},
    )
    return Decision(reaction="rocket", errands=(Errand(what="measurement", posts=(post,)),))


# --- what needs the report -----------------------------------------------------------------------


def _use_report(
    asked: Asked, command: Command, facts: Facts, rules: Rules, fetched: Fetched | None
) -> Decision:
    """Request the report of the run that our comment names, or act on that report."""
    assert facts.head is not None
    found = _seen_report(command, facts, facts.head, rules)
    if found is None:
        return refused(NO_REPORT)
    seen, marker = found
    if seen.updated_at is None or seen.updated_at >= asked.made_at:
        return refused("the report has changed since. Look at it, and repeat the command.")
    if fetched is None:
        return Decision(reaction="eyes", report_run=marker.run)
    if fetched.run != marker.run or not fetched.found:
        return refused(UNUSABLE)
    run = measuring_run(asked, facts, marker.run, rules, marker.attempt)
    try:
        for one in fetched.found:
            refuse_another_commit(one.document, run)
        if command.verb == "apply":
            return _apply(command, facts.head, whole_of(fetched.found), asked)
        return _acknowledge(asked, command, facts, rules, run, seen, fetched.found)
    except (ForgeError, ReportError) as error:
        return refused(f"{code(error, 400)}.")


def _seen_report(
    command: Command, facts: Facts, head: Head, rules: Rules
) -> tuple[Comment, Marker] | None:
    """Return our comment with this head's report.

    Another workflow's comment is used where it shows the command's proposal.
    """
    shown = [
        (one, marker)
        for one in facts.comments
        if one.author == facts.login
        and (marker := marker_of(one.body)) is not None
        and marker.verdict != SUPERSEDED
        and marker.sha == head.sha
        and command.id is not None
        and command.id in one.body
    ]
    if shown:
        return max(shown, key=lambda pair: pair[1].order)
    pair = current(facts.comments, key_of(rules.workflow), facts.login)
    return pair if pair is not None and pair[1].sha == head.sha else None


def measuring_run(asked: Asked, facts: Facts, run: int, rules: Rules, attempt: int = 1) -> Occasion:
    """Return the run that wrote our comment; new posts are made in that run's name. A fork's stays
    a fork's, also where a person agrees to something in it.
    """
    head = facts.head
    assert head is not None
    return msgspec.structs.replace(
        rules.occasion,
        head_sha=head.sha,
        number=asked.number,
        head_repository=head.repository,
        head_branch=head.branch,
        workflow=rules.workflow,
        is_after_a_pull_request=facts.is_of_a_request,
        run_id=run,
        attempt=attempt,
    )


def _apply(command: Command, head: Head, document: Report, asked: Asked) -> Decision:
    """Propose a draft pull request with the proposal's patch, into the branch."""
    found = [one for one in digest(document).proposals if one.id == command.id]
    patches = {one.evaluation.candidate.patch for one in found}
    if len(patches) != 1 or (patch := patches.pop()) is None:
        return refused("the report has no such proposal.")
    name = one_line(found[0].entry.target.qualname, 100)
    proposed = Proposed(
        patch=patch,
        base_sha=head.sha,
        base_branch=head.branch,
        branch=f"cudal1-ci/apply-{command.id}-on-{head.sha[:10]}",
        title=one_line(f"Faster {name}", 120),
        body=(
            f"A proposal of cudal1-ci for #{asked.number}, made for {head.sha} and proven there: "
            f"{code(name)}. Asked for by {asked.author}."
        ),
    )
    return Decision(reaction="rocket", proposed=proposed)


def _acknowledge(
    asked: Asked,
    command: Command,
    facts: Facts,
    rules: Rules,
    run: Occasion,
    seen: Comment,
    found: tuple[Found, ...],
) -> Decision:
    """Post the comment and the check again, with one more thing that is agreed to."""

    def judged(agreements: tuple[Agreed, ...]) -> tuple[Part, ...]:
        given = (found, expected, run, rules.policy, facts.bases, agreements, facts.origin)
        return parts_of(*given)

    assert facts.head is not None
    if not facts.is_of_this_base:
        return refused("the report is of another base than this pull request has now.")
    expected = msgspec.structs.replace(rules.expected, into=facts.head.into)

    parts = judged(agreements_of(seen.body))
    document = whole(parts)
    if document is None:
        return refused(UNUSABLE)
    entry = _find_open(command, document)
    if isinstance(entry, Decision):
        return entry
    assert entry.comparison is not None
    state = missing_state(entry.comparison)
    slowest = entry.comparison.slowdown_high or entry.comparison.slowdown
    if state is None and slowest is None:
        return refused("how much slower it is was not measured.")
    new = Agreed(
        target=entry.target.address,
        max_slowdown=1.0 if state is not None or slowest is None else slowest,
        reason=command.reason or "",
        owner=asked.author,
        state=state,
    )
    agreements = with_agreement(agreements_of(seen.body), new)
    parts = judged(agreements)
    of_run = Publication(occasion=run, parts=parts, commands=True)
    pull = Pull(number=asked.number, head_sha=facts.head.sha, comments=facts.comments)
    made = plan(
        of_run.document,
        of_run.texts(agreements),
        run,
        Options(policy=rules.policy, suggestions=False),
        Known(login=facts.login, pull=pull),
        of_run.projects,
    )
    if not any(errand.what == "comment" for errand in made.errands):
        return refused(f"there is nowhere to keep it: {'; '.join(made.remarks)}.")
    # The comment first: no check turns green without a written record.
    comments = [errand for errand in made.errands if errand.what == "comment"]
    others = [errand for errand in made.errands if errand.what != "comment"]
    return Decision(reaction="rocket", errands=(*comments, *others))


def _find_open(command: Command, document: Report) -> Entry | Decision:
    """Return the one target that the command names, with or without the file, and that no one has
    agreed to yet.
    """
    open_ones = [
        one
        for one in document.entries
        if one.comparison and (is_open_regression(one.comparison) or missing_state(one.comparison))
    ]
    named = [one for one in open_ones if one.target.address == command.target]
    named = named or [one for one in open_ones if one.target.qualname == command.target]
    if len(named) == 1:
        return named[0]
    if not open_ones:
        return refused("the report has nothing that could be acknowledged.")
    known = ", ".join(code(one.target.address, 200) for one in open_ones[:MAX_NAMED])
    more = f" and {len(open_ones) - MAX_NAMED} more" if len(open_ones) > MAX_NAMED else ""
    which = "several targets have that name" if named else "no target has that name"
    return refused(f"{which}. There are: {known}{more}.")
