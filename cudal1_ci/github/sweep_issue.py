"""Find the one rolling issue of a repository, read its dismissals, and write its text. Pure.

The issue is recognized by author and by the marker at its beginning, as comments are (marker.py).
The marker holds the last run that had news, and the ids that people have dismissed. A dismissal
lasts as long as the issue. A ticked box asks for a draft pull request: only those who may write (or
triage) can edit another user's issue. So does a line of a comment by someone who may write, and
such a line dismisses too.

    plan_issue(found, written, occasion)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import msgspec

from cudal1_ci.github.event import Occasion
from cudal1_ci.github.marker import Comment
from cudal1_ci.github.posts import Errand, Post
from cudal1_ci.records import Record

TITLE = "Faster code that cudal1-ci has proven"
LABEL = "cudal1-ci"
MAX_DISMISSED = 1000
"""Ids that a marker has room for; beyond it the oldest are forgotten."""
MARKER_BYTES = 200 + 17 * MAX_DISMISSED
"""Of a body, kept free for the marker."""
MAX_BODY_BYTES = 60_000

_MARKER = re.compile(
    r"<!-- cudal1-ci:v1 sweep run=(?P<run>\d{1,19}) attempt=(?P<attempt>\d{1,9}) "
    r"sha=(?P<sha>[0-9a-f]{40,64}) dismissed=(?P<dismissed>[0-9a-f,]*) -->\n?",
    re.ASCII,
)
_ITEM = re.compile(r"^- \[(?P<box>[ xX])\] `(?P<id>[0-9a-f]{16})` ", re.MULTILINE)
_COMMAND = re.compile(r"^/cudal1 (?P<verb>apply|dismiss) (?P<id>[0-9a-f]{16})[ \t]*$", re.MULTILINE)


class Thread(Record, frozen=True, kw_only=True):
    """Hold an issue or a pull request, as GitHub lists both."""

    number: int
    author: str
    is_pull: bool = False
    is_open: bool = True
    body: str = ""


class Stamp(Record, frozen=True, kw_only=True):
    """Hold the marker of the issue."""

    run: int
    attempt: int
    sha: str
    dismissed: tuple[str, ...] = ()
    """The oldest first."""

    @property
    def order(self) -> tuple[int, int]:
        return self.run, self.attempt


class Found(Record, frozen=True, kw_only=True):
    """Hold the existing issue."""

    number: int
    is_open: bool
    body: str
    stamp: Stamp

    @property
    def listed(self) -> frozenset[str]:
        """Return the ids of the items that the issue shows."""
        return items_in(self.body)

    @property
    def ticked(self) -> tuple[str, ...]:
        return tuple(found["id"] for found in _ITEM.finditer(self.body) if found["box"] != " ")


class Written(Record, frozen=True, kw_only=True):
    """Hold the text to write and the dismissed ids."""

    text: Callable[[Stamp], str]
    """Return the text under a marker; the text names the marker's run and commit."""
    dismissed: tuple[str, ...] = ()


def found_issue(threads: Iterable[Thread], login: str | None) -> Found | None:
    """Return our oldest issue."""
    for thread in sorted(threads, key=lambda thread: thread.number):
        body = thread.body.replace("\r\n", "\n")
        stamp = stamp_of(body)
        if stamp is not None and thread.author == login and not thread.is_pull:
            return Found(number=thread.number, is_open=thread.is_open, body=body, stamp=stamp)
    return None


def items_in(text: str) -> frozenset[str]:
    """Return the ids of the items that a text shows."""
    return frozenset(found["id"] for found in _ITEM.finditer(text))


def stamp_of(body: str) -> Stamp | None:
    """Return the marker at the beginning of an issue; None where there is none."""
    found = _MARKER.match(body)
    if found is None:
        return None
    ids = [one for one in found["dismissed"].split(",") if re.fullmatch(r"[0-9a-f]{16}", one)]
    return Stamp(
        run=int(found["run"]),
        attempt=int(found["attempt"]),
        sha=found["sha"],
        dismissed=tuple(ids),
    )


def stamped(stamp: Stamp, text: str) -> str:
    """Return a text under its marker."""
    return (
        f"<!-- cudal1-ci:v1 sweep run={stamp.run} attempt={stamp.attempt} sha={stamp.sha} "
        f"dismissed={','.join(stamp.dismissed)} -->\n{text}"
    )


def dismissed_in(
    found: Found, comments: Iterable[Comment], may_write: Callable[[str], bool]
) -> tuple[str, ...]:
    """Return all that people have dismissed, the oldest first.

    `may_write` is called only for the authors of the command.
    """
    known = found.stamp.dismissed
    return (*known, *_named("dismiss", comments, known, may_write))[-MAX_DISMISSED:]


def asked_in(
    found: Found, comments: Iterable[Comment], may_write: Callable[[str], bool]
) -> tuple[str, ...]:
    """Return the proposals of which people want the pull request."""
    return (*found.ticked, *_named("apply", comments, found.ticked, may_write))


def _named(
    verb: str,
    comments: Iterable[Comment],
    known: Sequence[str],
    may_write: Callable[[str], bool],
) -> tuple[str, ...]:
    """Return the ids that a command of people names, without those that are known."""
    ids: dict[str, None] = {}
    for comment in comments:
        lines = _COMMAND.finditer(comment.body.replace("\r\n", "\n"))
        named = {line["id"] for line in lines if line["verb"] == verb} - ids.keys() - {*known}
        if named and may_write(comment.author):
            ids |= dict.fromkeys(sorted(named))
    return tuple(ids)


def plan_issue(
    found: Found | None, written: Written, occasion: Occasion
) -> tuple[Errand | None, str | None]:
    """Return what to post, or why nothing is posted.

    A text equal to the issue's text is not posted, whatever run it is of.
    """
    now = Stamp(
        run=occasion.run_id,
        attempt=occasion.attempt,
        sha=occasion.head_sha,
        dismissed=written.dismissed,
    )
    issues = f"/repos/{occasion.repository}/issues"
    text = written.text(now)
    if found is None:
        if not items_in(text):
            return None, "no issue: nothing to report"
        payload = {"title": TITLE, "body": stamped(now, text), "labels": [LABEL]}
        return _errand(Post(method="POST", path=issues, payload=payload)), None
    why = _silence(found, written, now, text)
    if why is not None:
        return None, f"no issue: {why}"
    change = {"body": stamped(now, text)}
    if not found.is_open:
        change |= {"state": "open"}
    elif not items_in(text):
        change |= {"state": "closed", "state_reason": "completed"}
    return _errand(Post(method="PATCH", path=f"{issues}/{found.number}", payload=change)), None


def _silence(found: Found, written: Written, now: Stamp, text: str) -> str | None:
    """Return why an issue stays as it is; None where it changes."""
    if found.stamp.order > now.order:
        return f"that of the later run {found.stamp.run} is left as it is"
    if not found.is_open:
        is_news = bool(items_in(text) - found.listed)
        return None if is_news else f"{found.number} is closed, and there is nothing new"
    same = msgspec.structs.replace(found.stamp, dismissed=written.dismissed)
    is_same = found.body.strip() == stamped(same, written.text(same)).strip()
    return f"{found.number} is up to date" if is_same else None


def _errand(post: Post) -> Errand:
    return Errand(what="issue", posts=(post,))
