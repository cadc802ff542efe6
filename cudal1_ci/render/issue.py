"""Render proposals as a repository's rolling issue, and one of them as a draft pull request.

    issue(document, gains_of(document), About(run_url=..., sha=...))

The issue works like the comment below a pull request (comment.py): the words are in templates, and
their output is escaped and cut. A long issue loses diffs, then how things were measured, then
items. One line alone names the run, so that a sweep without news writes the same text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jinja2 import TemplateError

from cudal1_ci.errors import ReportError
from cudal1_ci.records import Record, Report
from cudal1_ci.render.comment import MARKER, MAX_COMMENT_BYTES
from cudal1_ci.render.comment_template import MAX_NAME, named_template
from cudal1_ci.render.gains import Gain
from cudal1_ci.render.markup import SPLIT
from cudal1_ci.render.source_link import SHA
from cudal1_ci.render.wording import count_text, device_text

NUM_ITEMS = 20
"""Of an issue, unless another number is asked for; a person reads no more of them."""


class About(Record, frozen=True, kw_only=True):
    """Hold what the report does not know."""

    run_url: str
    sha: str
    num_dismissed: int = 0
    drafts: Mapping[str, str] = {}
    """Addresses of open draft pull requests, by the id of their proposal."""


@dataclass(frozen=True, kw_only=True)
class Room:
    """Hold how much fits."""

    num_items: int
    num_details: int
    num_patches: int


def issue(
    document: Report,
    gains: Sequence[Gain],
    about: About,
    *,
    max_items: int = NUM_ITEMS,
    max_bytes: int = MAX_COMMENT_BYTES,
) -> str:
    """Render Markdown of at most `max_bytes`.

    Raises:
        ReportError: Not even the first line fits.
    """
    first = min(len(gains), max_items)
    whole = Room(num_items=first, num_details=first, num_patches=first)
    told = {**_template_values(document, about), "gains": gains, "drafts": about.drafts}
    for room in _rooms(whole):
        text = _rendered("issue.md.j2", {**told, "room": room, "lost": _omissions(whole, room)})
        if len(text.encode()) <= max_bytes:
            return text
    raise ReportError("expected the first line alone to fit into an issue")


def pull_request(document: Report, gain: Gain, about: About) -> str:
    """Render the body of a draft with one proposal.

    Raises:
        ReportError: It is too long.
    """
    text = _rendered("pull_request.md.j2", {**_template_values(document, about), "gain": gain})
    if len(text.encode()) > MAX_COMMENT_BYTES:
        raise ReportError(f"expected at most {MAX_COMMENT_BYTES} bytes of a pull request's text")
    return text


def _template_values(document: Report, about: About) -> dict[str, Any]:
    names = dict.fromkeys(device_text(device)[:MAX_NAME] for device in document.devices)
    return {
        "document": document,
        "devices": tuple(names) or ("an unknown device",),
        "run_url": about.run_url,
        "sha": about.sha[:10] if SHA.fullmatch(about.sha) else "",
        "num_dismissed": about.num_dismissed,
    }


def _rendered(name: str, told: Mapping[str, Any]) -> str:
    try:
        text = named_template(name).render(told)
    except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise ReportError(f"the template {name} does not work: {error}") from error
    # Code keeps its characters, and so may hold a marker that somebody planted.
    return MARKER.sub(f"<{SPLIT}", text).strip() + "\n"


def _rooms(room: Room) -> Iterator[Room]:
    """Yield smaller and smaller rooms, in the order in which parts are missed least."""
    yield room
    while room.num_patches:
        room = replace(room, num_patches=room.num_patches // 2)
        yield room
    while room.num_details:
        room = replace(room, num_details=room.num_details // 2)
        yield room
    while room.num_items:
        room = replace(room, num_items=room.num_items // 2)
        yield room


def _omissions(whole: Room, room: Room) -> list[str]:
    """Return what did not fit, in words."""
    lost = []
    if room.num_patches < whole.num_patches:
        lost.append(f"the diffs of {_proposals(whole.num_patches - room.num_patches)}")
    if room.num_details < whole.num_details:
        number = whole.num_details - room.num_details
        lost.append(f"how {_proposals(number)} {'was' if number == 1 else 'were'} measured")
    if room.num_items < whole.num_items:
        lost.append(_proposals(whole.num_items - room.num_items))
    return lost


def _proposals(number: int) -> str:
    return count_text(number, "proposal")
