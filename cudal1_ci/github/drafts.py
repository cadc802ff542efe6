"""Choose the draft pull requests to open, one proposal each, and name them. Pure.

The number of open drafts is limited; the best proposals come first. A proposal that had a draft
gets none again: an open one is there, a merged one is in the code, a closed one was rejected. Our
drafts are recognized by author and by the marker at the beginning of their text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from cudal1_ci.errors import ForgeError
from cudal1_ci.github.edit import files_to_edit
from cudal1_ci.github.sanitize import one_line
from cudal1_ci.github.sweep_issue import Thread
from cudal1_ci.records import Record
from cudal1_ci.render.gains import Gain
from cudal1_ci.render.wording import at_least_gain_text

BRANCHES = "cudal1-ci/sweep"
_MARKER = re.compile(r"<!-- cudal1-ci:v1 proposal=(?P<id>[0-9a-f]{16}) -->", re.ASCII)


class Drafts(Record, frozen=True, kw_only=True):
    """Hold our existing drafts, by the id of their proposal."""

    opened: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    """Merged, or closed."""


def drafts_of(threads: Iterable[Thread], login: str | None) -> Drafts:
    """Return our drafts among what GitHub lists."""
    ours = [
        (found["id"], thread.is_open)
        for thread in threads
        if thread.is_pull and thread.author == login and (found := _MARKER.match(thread.body))
    ]
    return Drafts(
        opened=tuple(id_ for id_, is_open in ours if is_open),
        ended=tuple(id_ for id_, is_open in ours if not is_open),
    )


def chosen(
    gains: Sequence[Gain], drafts: Drafts, most: int, asked: Sequence[str] = ()
) -> list[Gain]:
    """Return the undismissed proposals that get a draft now: all that people have asked for, and
    more up to the limit.
    """
    had = {*drafts.opened, *drafts.ended}
    open_to = [gain for gain in gains if gain.id not in had and is_placeable(gain)]
    wanted = [gain for gain in open_to if gain.id in asked]
    others = [gain for gain in open_to if gain.id not in asked]
    return wanted + others[: max(0, most - len(drafts.opened) - len(wanted))]


def is_placeable(gain: Gain) -> bool:
    """Return whether we commit a proposal's patch: lines of ordinary files, nothing hidden."""
    patch = gain.evaluation.candidate.patch
    if patch is None:
        return False
    try:
        return not any(file.is_new for file in files_to_edit(patch))
    except ForgeError:
        return False


def branch_of(gain: Gain) -> str:
    return f"{BRANCHES}-{gain.id}"


def title_of(gain: Gain) -> str:
    return one_line(f"Faster {gain.entry.target.qualname}: {at_least_gain_text(gain.low)}", 200)


def marked(gain: Gain, text: str) -> str:
    """Return a pull request's text under its marker."""
    return f"<!-- cudal1-ci:v1 proposal={gain.id} -->\n{text}"


def address_of(repository_url: str, proposal_id: str) -> str:
    """Return the address of a draft, also before it has a number."""
    branch = f"{BRANCHES}-{proposal_id}".replace("/", "%2F")
    return f"{repository_url}/pulls?q=is%3Apr+head%3A{branch}"
