"""Render a report as the comment below a pull request: the verdict first, then as much as fits.

    comment(document, About(run_url="https://github.com/o/r/actions/runs/1", head_sha="5f3c2a9d41"))

The words are in templates/comment.md.j2, in blocks that a user's own template may replace. Whatever
a template writes is escaped and cut (markup.py), and the sandbox limits a template to its data. A
long comment loses diffs, then tables of workloads, then what was not measured, then rows, then
proposals, then lists: never the verdict. The comment says what it lost. It holds no marker: the
code that posts it adds one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from jinja2 import TemplateError

from cudal1_ci.errors import ReportError
from cudal1_ci.records import Report
from cudal1_ci.render.changes import MEASURED, Changes
from cudal1_ci.render.comment_template import MAX_NAMED, About, template_of, told_of
from cudal1_ci.render.digest import Proposal
from cudal1_ci.render.markup import SPLIT
from cudal1_ci.render.wording import count_text

MAX_COMMENT_BYTES = 60_000
"""GitHub refuses a body of more than 65,536 characters; a marker and a margin are left. Counted in
bytes, which are never fewer than characters."""
MAX_SUMMARY_BYTES = 1_000_000
"""GitHub drops a step summary of more than one MiB."""
MAX_ROWS = 10
"""Targets of one verdict in a comment; a person reads no more of them."""
MAX_PROPOSALS = 3
ALL = 10**6
MARKER = re.compile(r"<(?=!--\s*cudal1-ci)", re.IGNORECASE)
"""The beginning of what only who posts a comment may write into it."""

__all__ = ["About", "comment", "summary"]


@dataclass(frozen=True, kw_only=True)
class Room:
    """Hold how much of each part fits."""

    num_rows: int
    """Targets of one verdict."""
    num_proposals: int
    num_patches: int
    workloads: tuple[str, ...] = MEASURED
    """Verdicts of the targets whose workloads are shown."""
    has_not_measured: bool = True
    num_named: int = MAX_NAMED
    """Any other list that may be long: acknowledgements, outputs, devices."""


FOR_COMMENT = Room(num_rows=MAX_ROWS, num_proposals=MAX_PROPOSALS, num_patches=MAX_PROPOSALS)
FOR_SUMMARY = Room(num_rows=ALL, num_proposals=ALL, num_patches=ALL)


def comment(document: Report, about: About, *, template: str | None = None) -> str:
    """Render Markdown of at most 60,000 characters. `template` is the text of a user's own
    template, which may begin with `{% extends "comment.md.j2" %}`.

    Raises:
        ReportError: The user's template is none, or does not work.
    """
    return _fitted(document, about, FOR_COMMENT, MAX_COMMENT_BYTES, template)


def summary(document: Report, about: About, *, template: str | None = None) -> str:
    """Render every target and every proposal in at most a million bytes.

    Raises:
        ReportError: The user's template is none, or does not work.
    """
    return _fitted(document, about, FOR_SUMMARY, MAX_SUMMARY_BYTES, template)


def _fitted(document: Report, about: About, first: Room, max_bytes: int, own: str | None) -> str:
    told = told_of(document, about)
    found, proposals = told["changes"], told["proposals"]
    for source in (own, None) if own is not None else (None,):
        template = template_of(source)
        for room in _rooms(first, found, proposals):
            lost = _omissions(first, room, found, proposals)
            try:
                text = _unmarked(template.render(told, room=room, lost=lost)).strip() + "\n"
            except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
                raise ReportError(f"the template of the comment does not work: {error}") from error
            if len(text.encode()) <= max_bytes:
                return text
    raise ReportError("expected the verdict alone to fit into a comment")


def _unmarked(text: str) -> str:
    """Remove a marker that somebody planted in code, the one place that keeps its characters."""
    return MARKER.sub(f"<{SPLIT}", text)


def _rooms(first: Room, found: Changes, proposals: Sequence[Proposal]) -> Iterator[Room]:
    """Yield smaller and smaller rooms, in the order in which parts are missed least."""
    room = replace(
        first,
        num_proposals=min(first.num_proposals, len(proposals)),
        num_patches=min(first.num_patches, len(proposals)),
        num_rows=min(first.num_rows, len(found.all)),
    )
    yield room
    while room.num_patches:
        room = replace(room, num_patches=room.num_patches // 2)
        yield room
    for workloads in (first.workloads[:3], ()):
        room = replace(room, workloads=workloads)
        yield room
    room = replace(room, has_not_measured=False)
    yield room
    while room.num_rows:
        room = replace(room, num_rows=room.num_rows // 2)
        yield room
    while room.num_proposals:
        room = replace(room, num_proposals=room.num_proposals // 2)
        yield room
    while room.num_named:
        room = replace(room, num_named=room.num_named // 2)
        yield room


def _omissions(first: Room, room: Room, found: Changes, proposals: Sequence[Proposal]) -> list[str]:
    """Return what did not fit, in words."""
    shown = proposals[: first.num_proposals]
    patches = [p for p in shown[room.num_patches :] if p.evaluation.candidate.patch is not None]
    num_hidden = len(shown[room.num_proposals :])
    lost = []
    if patches:
        lost.append(f"the {'diff' if len(patches) == 1 else 'diffs'} of {_proposals(len(patches))}")
    if found.measured and len(room.workloads) < len(first.workloads):
        which = " of targets that stayed the same" if room.workloads else ""
        lost.append(f"the table of workloads{which}")
    if not room.has_not_measured:
        lost.append("what was not measured")
    if room.num_rows < min(first.num_rows, len(found.all)):
        lost.append("rows of the table")
    if num_hidden:
        lost.append(_proposals(num_hidden))
    if room.num_named < first.num_named:
        lost.append("parts of lists")
    return lost


def _proposals(number: int) -> str:
    return count_text(number, "proposal")
