"""Publish a report in order, and handle a part that fails.

First comes the summary of the step, which is written even where GitHub does not answer. Then come
the check run, the comment, the review and comments on files. Each is tried whatever the others'
result. A token that may only read is no failure: pull requests from forks have such a token, and
the summary holds everything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from cudal1_ci.errors import ForgeError
from cudal1_ci.github.acknowledgements import Agreed, agreements_of, covered
from cudal1_ci.github.answer import Made, Refusal
from cudal1_ci.github.base_settings import BaseSettings, with_agreements_of
from cudal1_ci.github.event import Occasion
from cudal1_ci.github.marker import current, key_of
from cudal1_ci.github.posts import Errand, Known, Plan, Post, Project, Pull, Texts
from cudal1_ci.github.projects import Expected, Found, Part, projects_of, whole
from cudal1_ci.github.provenance import UNKNOWN, Provenance, labeled
from cudal1_ci.records import Record, Report
from cudal1_ci.render.comment import About, comment, summary
from cudal1_ci.render.comment_template import Check
from cudal1_ci.stats.gate import Finding, Policy, judged

MAX_SUMMARY_BYTES = 2**20
"""GitHub drops a larger summary of a step."""
_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


class Forge(Protocol):
    """Carry out a plan: `client.Client`."""

    def send(self, post: Post, first_id: int | None = None) -> Made: ...


def refuse_another_commit(document: Report, occasion: Occasion) -> None:
    """Raise ForgeError when the report is not of the commit that the event names."""
    if document.head_sha == occasion.head_sha:
        return
    if document.head_sha is None:
        raise ForgeError(
            f"expected a report of {occasion.head_sha}, got one of a working tree with changes of "
            "its own; measure a clean checkout of that commit"
        )
    raise ForgeError(
        f"expected a report of {occasion.head_sha}, the head of the event, got one of "
        f"{document.head_sha[:64]!r}; check out that commit (`ref:` of actions/checkout), not the "
        "merge that is checked out by default"
    )


class Publication(Record, frozen=True, kw_only=True):
    """Hold what a run has measured, and render it: all projects, and each one for its check."""

    occasion: Occasion
    parts: tuple[Part, ...]
    artifact_url: str | None = None
    commands: bool = False
    has_check: bool = True

    @property
    def document(self) -> Report:
        """Return one report of all projects."""
        document = whole(self.parts)
        assert document is not None, "there is a report"
        return document

    @property
    def projects(self) -> tuple[Project, ...]:
        """Return what the check of each project needs."""
        return tuple(map(self._project, self.parts))

    def texts(self, agreements: tuple[Agreed, ...] = ()) -> Texts:
        """Return the comment and the summary of all projects."""
        document = self.document
        of_run = self._about(document, self.parts)
        return Texts(
            comment=comment(document, of_run),
            summary=summary(document, of_run),
            agreements=agreements,
        )

    def _project(self, part: Part) -> Project:
        texts, document = None, part.document
        if document is not None:
            of_run = self._about(document, (part,))
            texts = Texts(comment=comment(document, of_run), summary=summary(document, of_run))
        return Project(
            name=part.name,
            document=document,
            texts=texts,
            policy=part.policy,
            missing=part.missing,
            why=next((one.detail for one in part.missing), ""),
        )

    def _about(self, document: Report, parts: Sequence[Part]) -> About:
        """Return what is known of the run besides its report."""
        run, base_sha = self.occasion, document.base_sha
        return About(
            repository_url=f"{run.server_url}/{run.repository}",
            run_url=run.run_url,
            artifact_url=self.artifact_url or f"{run.run_url}#artifacts",
            head_sha=run.head_sha,
            base_sha=base_sha if base_sha and _SHA.fullmatch(base_sha) else None,
            policy=parts[0].policy,
            missing=tuple(one for part in parts for one in part.missing),
            checks=tuple(
                Check(
                    name=part.name,
                    judgement=judged(part.document, part.policy, part.missing),
                    policy=part.policy,
                )
                for part in parts
            ),
            commands=self.commands,
            has_check=self.has_check,
        )


def parts_of(
    found: Sequence[Found],
    expected: Expected,
    run: Occasion,
    given: Policy,
    bases: Mapping[str, BaseSettings] = {},
    agreements: Sequence[Agreed] = (),
    origin: Provenance | None = None,
) -> tuple[Part, ...]:
    """Return the projects with the policy and the agreements that hold for them.

    Args:
        given: The policy of the workflow, where the base is silent.
        bases: What the base says, by folder; without it a report's own agreements are kept.
        agreements: Those of the pull request.
        origin: Who made the reports; of a fork's nothing more is known without it.

    Raises:
        ReportError: Reports of one project do not fit together.
        ForgeError: A report is of a project that was not declared.
    """

    def policy_of(folder: str) -> Policy:
        return bases[folder].policy(given) if folder in bases else given

    parts = []
    for part in projects_of(found, expected, policy_of):
        document, missing = part.document, part.missing
        if document is not None:
            if run.is_of_a_fork:
                document = labeled(document, origin or UNKNOWN)
            if part.folder in bases:
                document = with_agreements_of(document, bases[part.folder])
            document = covered(document, agreements)
            if run.is_of_a_fork:
                strange = Finding(state="unverified", name=run.head_repository or "")
                missing = (*missing, strange)
        parts.append(msgspec.structs.replace(part, document=document, missing=missing))
    return tuple(parts)


def write_summary(path: Path, text: str, shorter: str) -> None:
    """Append a text to the summary of the step, or the shorter text where it is too large.

    Raises:
        ForgeError: The file cannot be written.
    """
    try:
        used = path.stat().st_size if path.exists() else 0
        chosen = text if used + len(text.encode()) + 2 <= MAX_SUMMARY_BYTES else shorter
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{chosen}\n")
    except OSError as error:
        raise ForgeError(
            f"GITHUB_STEP_SUMMARY: {path} cannot be written: {error.strerror}"
        ) from error


def unread(occasion: Occasion) -> Known:
    """Return what the event alone says, for a dry run that makes no request."""
    if occasion.number is None:
        return Known()
    return Known(pull=Pull(number=occasion.number, head_sha=occasion.head_sha))


def kept(known: Known, occasion: Occasion) -> tuple[Agreed, ...]:
    """Return what was accepted in this pull request, or in the one that is queued, as our comment
    there says.
    """
    comments = known.pull.comments if known.pull is not None else known.queued
    pair = current(comments, key_of(occasion.workflow), known.login)
    return agreements_of(pair[0].body) if pair else ()


def printed(plan: Plan) -> str:
    """Return a plan's requests: comments as they would be read, all else as it would be sent."""
    return "".join(
        f"=== {errand.what}: {post.method} {post.path}\n{_body(post)}\n"
        for errand in plan.errands
        for post in errand.first
    )


def _body(post: Post) -> str:
    return post.payload["body"] if post.payload.keys() == {"body"} else json.dumps(post.payload)


def carry_out(
    plan: Plan, forge: Forge, tell: Callable[[str], None], notice: Callable[[str], None]
) -> list[tuple[str, Made]]:
    """Carry out a plan; return what was posted, by name.

    Raises:
        ForgeError: Something could not be posted; the message names it. All else was posted.
    """
    made: list[tuple[str, Made]] = []
    refused: list[tuple[str, Refusal]] = []
    for errand in plan.errands:
        try:
            made.append((errand.what, run_errand(errand, forge, tell)))
        except Refusal as refusal:
            refused.append((errand.what, refusal))
    if locked := [what for what, refusal in refused if refusal.is_locked]:
        notice(f"not posted: {', '.join(locked)}: the conversation is locked; the check has it all")
    denied = [what for what, refusal in refused if refusal.is_read_only]
    if denied:
        notice(
            f"not posted: {', '.join(denied)}: the token may not write here, as is so for pull "
            "requests from forks; the summary of this run has the report"
        )
    failed = [
        (what, refusal)
        for what, refusal in refused
        if not (refusal.is_read_only or refusal.is_locked)
    ]
    if failed:
        reasons = "; ".join(f"the {what} ({refusal})" for what, refusal in failed)
        raise ForgeError(f"could not post {reasons}. What was measured is kept")
    return made


def run_errand(errand: Errand, forge: Forge, tell: Callable[[str], None]) -> Made:
    """Send an errand; return what its first request has made.

    Raises:
        Refusal: It was not done, or not completed.
    """
    if not errand.posts:
        return _send_singly(errand, forge, tell)
    try:
        first = forge.send(errand.posts[0])
    except Refusal as refusal:
        if not (refusal.is_unprocessable and errand.singly):
            raise
        return _send_singly(errand, forge, tell)
    for post in errand.posts[1:]:
        forge.send(post, first.id)
    return first


def _send_singly(errand: Errand, forge: Forge, tell: Callable[[str], None]) -> Made:
    """Send the requests that GitHub takes; drop the others, which would fail all together."""
    made = Made()
    left = list(errand.singly)
    while left:
        post = left.pop(0)
        try:
            made = forge.send(post)
        except Refusal as refusal:
            if not refusal.is_unprocessable:
                raise
            if post.otherwise is not None:
                left.insert(0, post.otherwise)
            else:
                tell(f"dropped one of the {errand.what}: {refusal}")
    return made
