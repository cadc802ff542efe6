"""Place proposals at the code that they change: as suggestions, or as comments on files.

A proposal is a suggestion where it can be one (suggestion.py). A proposal that changes a file of
the diff in several places, or outside of its hunks, is a comment on that file with the patch to
read. All others are in the report alone. Each is made once: a comment of ours holds the hash of its
change.

    plan_review(document, occasion, pull, login)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cudal1_ci.github.event import Occasion
from cudal1_ci.github.marker import suggestion_digest, suggestion_marker
from cudal1_ci.github.posts import Errand, Post, Pull
from cudal1_ci.github.sanitize import one_line
from cudal1_ci.github.suggestion import Suggestion, Whole, fenced, suggestion, whole
from cudal1_ci.records import Record, Report
from cudal1_ci.render import markup
from cudal1_ci.render.digest import Proposal, digest, worth
from cudal1_ci.render.markup import code
from cudal1_ci.render.wording import at_least_gain_text

MAX_PROPOSALS = 3
MAX_PATCH_LINES = 120
MAX_PATCH_CHARS = 12_000
"""Of a patch that is shown on a file: a few screens, and far below what a comment may have."""

BEYOND = "It reaches beyond one hunk of the diff, so it cannot be suggested"
REFUSED = "GitHub does not take it as a suggestion"

Payload = dict[str, Any]


class Placed(Record, frozen=True, kw_only=True):
    """Hold new comments, and count the proposals without one."""

    in_hunks: tuple[tuple[Payload, Payload], ...] = ()
    """Suggestions, each with the comment on its file that replaces it if GitHub refuses it."""
    on_files: tuple[Payload, ...] = ()
    num_unplaced: int = 0


def plan_review(
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


def placed(
    document: Report, diff: Mapping[str, str], known: set[str | None], run_url: str
) -> Placed:
    """Place the best proposals; `known` are the hashes of those that are placed already."""
    in_hunks: list[tuple[Payload, Payload]] = []
    on_files: list[Payload] = []
    num_unplaced = 0
    for proposal in digest(document).proposals[:MAX_PROPOSALS]:
        patch = proposal.evaluation.candidate.patch
        if not patch or worth(proposal.evaluation) <= 1:
            num_unplaced += 1
        elif (found := suggestion(patch, diff)) is not None:
            if found.digest not in known:
                known = known | {found.digest}
                refused = _on_file(found, REFUSED, patch, proposal, run_url)
                in_hunks.append((_in_hunk(found, proposal), refused))
        elif (change := whole(patch, diff)) is not None:
            if change.digest not in known:
                known = known | {change.digest}
                on_files.append(_on_file(change, BEYOND, patch, proposal, run_url))
        else:
            num_unplaced += 1
    return Placed(in_hunks=tuple(in_hunks), on_files=tuple(on_files), num_unplaced=num_unplaced)


def _in_hunk(found: Suggestion, proposal: Proposal) -> Payload:
    _, marker = suggestion_marker(found.path, found.old, found.new)
    where: Payload = {"path": found.path, "line": found.last_line, "side": "RIGHT"}
    if found.first_line != found.last_line:
        where |= {"start_line": found.first_line, "start_side": "RIGHT"}
    return {**where, "body": f"{marker}\n{_claim(proposal)} with this.\n\n{fenced(found.new)}"}


def _on_file(
    change: Whole | Suggestion, why: str, patch: str, proposal: Proposal, run_url: str
) -> Payload:
    _, marker = suggestion_marker(change.path, change.old, change.new)
    is_short = patch.count("\n") <= MAX_PATCH_LINES and len(patch) <= MAX_PATCH_CHARS
    if is_short:
        rest = f"with this change. {why}; `git apply` takes it.\n\n{markup.fenced(patch, 'diff')}"
    else:
        rest = (
            f"with a change of {patch.count(chr(10))} lines, which is too long to be shown here: "
            f"it is in the report of [the run]({run_url})."
        )
    body = f"{marker}\n{_claim(proposal)} {rest}"
    return {"path": change.path, "subject_type": "file", "body": body}


def _claim(proposal: Proposal) -> str:
    name = code(one_line(proposal.entry.target.qualname, 200))
    gain = at_least_gain_text(worth(proposal.evaluation))
    return f"{name} computes the same and takes {gain}"
