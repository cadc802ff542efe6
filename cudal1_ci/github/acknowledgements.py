"""Keep the slowdowns of one pull request that a person with write access accepted (`/cudal1 ack`).

They are kept in our own comment on the pull request, in a hidden line right under the marker. There
they live as long as the pull request does. No one else can write them, since our comments are also
recognized by their author. Longer-lived ones are in the configuration (compare/agreements.py).

An agreement covers what was measured at that time, up to the upper end of that interval: a second
measurement of the same code is a little slower half of the time. An agreement covers nothing
beyond. One on a target that was not measured covers that it was lost, or skipped, and nothing else.

    covered(document, agreements_of(comment.body))
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from cudal1_ci.errors import ForgeError
from cudal1_ci.github.marker import marker_of, unmarked
from cudal1_ci.records import (
    Acknowledgement,
    Comparison,
    Entry,
    Notice,
    Record,
    Report,
)
from cudal1_ci.stats.gate import STATES, states_of_comparison

MAX_LINE = 4_000
"""Characters of all agreements: a comment has room for its text, its marker and these."""
UNTIL = "this pull request is closed"
_LINE = re.compile(r"<!-- cudal1-ci:v1 ack=(?P<agreed>\[[^<>\r\n]{0,4000}\]) -->\r?\n?")


class Agreed(Record, frozen=True, kw_only=True):
    """Describe an accepted slowdown."""

    target: str
    """`path:qualname`."""
    max_slowdown: float
    reason: str
    owner: str
    """Login of the person who agreed."""
    state: str | None = None
    """What was agreed to, where that is no slowdown: `lost`, `skipped`."""


def agreements_of(body: str) -> tuple[Agreed, ...]:
    """Return the agreements in a comment of ours."""
    found = _LINE.match(unmarked(body))
    if found is None or marker_of(body) is None:
        return ()
    try:
        return msgspec.json.decode(found["agreed"], type=tuple[Agreed, ...])
    except msgspec.DecodeError:
        return ()


def agreements_line(agreements: Sequence[Agreed]) -> str:
    """Return the line for a comment, right under its marker; empty without agreements."""
    if not agreements:
        return ""
    # Only texts have these characters: no number in it is negative or small.
    encoded = msgspec.json.encode(agreements).decode()
    for character in "-<>":
        encoded = encoded.replace(character, f"\\u{ord(character):04x}")
    return f"<!-- cudal1-ci:v1 ack={encoded} -->\n"


def without_agreements(text: str) -> str:
    """Return the text under the marker without that line."""
    return _LINE.sub("", text, count=1) if _LINE.match(text) else text


def with_agreement(known: Sequence[Agreed], new: Agreed) -> tuple[Agreed, ...]:
    """Return all agreements; the newest on a target replaces earlier ones.

    Raises:
        ForgeError: There is no room for it.
    """
    agreements = (*(one for one in known if one.target != new.target), new)
    if len(agreements_line(agreements)) > MAX_LINE:
        raise ForgeError(
            "there is no room for more acknowledgements in the comment; put some into the "
            "configuration (`[[tool.cudal1-ci.ack]]`), or shorten the reason"
        )
    return agreements


def covered(document: Report, agreements: Sequence[Agreed]) -> Report:
    """Return a report with the agreements applied.

    An agreement below the measured slowdown adds a notice. What the configuration has acknowledged
    stays as it is.
    """
    known = {one.target: one for one in agreements}
    entries: list[Entry] = []
    notices: list[Notice] = []
    for entry in document.entries:
        agreed = known.get(entry.target.address)
        comparison = entry.comparison
        if agreed is None or comparison is None:
            entries.append(entry)
        elif agreed.state is not None and agreed.state == missing_state(comparison):
            entries.append(_acknowledge(entry, comparison, agreed))
        elif agreed.state is not None or not is_open_regression(comparison):
            entries.append(entry)
        elif comparison.slowdown is not None and comparison.slowdown <= agreed.max_slowdown:
            entries.append(_acknowledge(entry, comparison, agreed))
        else:
            entries.append(entry)
            notices.append(Notice(path=entry.target.path, message=_excess_text(entry, agreed)))
    return msgspec.structs.replace(
        document, entries=tuple(entries), warnings=(*document.warnings, *notices)
    )


def is_open_regression(comparison: Comparison) -> bool:
    """Return whether a target got slower and has no acknowledgement."""
    return comparison.verdict == "regression" and comparison.acknowledged is None


def missing_state(comparison: Comparison) -> str | None:
    """Return why a target was not measured, unless somebody has agreed to that."""
    states = (one for one in states_of_comparison(comparison) if STATES[one][0] == "on-missing")
    return None if comparison.verdict == "regression" else next(states, None)


def _acknowledge(entry: Entry, comparison: Comparison, agreed: Agreed) -> Entry:
    acknowledged = Acknowledgement(
        target=agreed.target,
        max_slowdown=agreed.max_slowdown,
        reason=agreed.reason,
        owner=agreed.owner,
        expires=UNTIL,
    )
    known = msgspec.structs.replace(comparison, acknowledged=acknowledged)
    return msgspec.structs.replace(entry, comparison=known)


def _excess_text(entry: Entry, agreed: Agreed) -> str:
    slowdown = entry.comparison.slowdown if entry.comparison else None
    now = f"{slowdown:.3g}x" if slowdown is not None else "not known how much"
    return (
        f"{agreed.owner} agreed to {agreed.max_slowdown:.3g}x for {entry.target.qualname}; "
        f"it is {now}"
    )
