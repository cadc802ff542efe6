"""Plan the one comment of a pull request: made, edited in place, or replaced. Pure.

An edit notifies no one, so a comment is edited. A new one is made only when the verdict turns to a
regression; the old one then says that it was replaced.
"""

from __future__ import annotations

from cudal1_ci.github.acknowledgements import agreements_line, without_agreements
from cudal1_ci.github.conclusion import Standing
from cudal1_ci.github.event import Occasion
from cudal1_ci.github.marker import SUPERSEDED, Comment, Marker, key_of, marked, ours, unmarked
from cudal1_ci.github.posts import Errand, Post, Pull, Texts

REPLACED = "> **Replaced by a newer comment of this workflow, further down.**\n\n"
MAX_BODY = 65_536
"""Characters of a comment that GitHub takes."""


def plan_comment(
    said: Standing,
    texts: Texts,
    occasion: Occasion,
    pull: Pull,
    login: str | None,
    *,
    always: bool,
) -> Errand | None:
    """Plan the comment; None where there is none yet and nothing to say. `always` makes one all
    the same."""
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
        return Errand(what="comment", posts=(create,)) if always or said.has_news else None
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
            payload={"body": superseded_body(old, m)},
        )
        for old, m in kept
    ]
    return Errand(what="comment", posts=(written, *replaced))


def superseded_body(comment: Comment, marker: Marker) -> str:
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
