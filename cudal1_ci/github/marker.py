"""Mark our comments with hidden markers, which name the run that wrote them.

A marker alone proves nothing, since anyone can write one. A comment is ours when it begins with a
marker and its author is our login. The marker must be at the very beginning. So a marker in text of
others that a bot of the same name repeats does not count.

    marked(Marker(key="Bench", run=7, attempt=1, sha=sha, verdict="same"), "Nothing changed.")
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from urllib.parse import quote

from cudal1_ci.records import Record, content_hash

SUPERSEDED = "superseded"
"""Verdict in the marker of a comment that another one has replaced."""
_MARKER = re.compile(
    r"<!-- cudal1-ci:v1 key=(?P<key>[\w.%~-]{1,900}) run=(?P<run>\d{1,19}) "
    r"attempt=(?P<attempt>\d{1,9}) sha=(?P<sha>[0-9a-f]{40,64}) verdict=(?P<verdict>[a-z]{1,20}) "
    r"-->\r?\n?",
    re.ASCII,
)
_SUGGESTION = re.compile(r"<!-- cudal1-ci:v1 suggestion=(?P<digest>[0-9a-f]{16}) -->", re.ASCII)


class Marker(Record, frozen=True, kw_only=True):
    """Describe a comment's last writer: the workflow, its run, and that run's verdict."""

    key: str
    run: int
    attempt: int
    sha: str
    verdict: str

    @property
    def order(self) -> tuple[int, int]:
        """Return a sort key: the later of two runs has the greater one."""
        return self.run, self.attempt


class Comment(Record, frozen=True, kw_only=True):
    """Hold a comment as GitHub has it."""

    id: int
    author: str
    body: str
    updated_at: datetime | None = None
    """When it was last edited, or made; by GitHub's clock."""


def key_of(workflow: str) -> str:
    """Return a workflow's name as in a marker; no name can end the HTML comment."""
    return quote(workflow[:200], safe="").replace("-", "%2D")[:900]


def marked(marker: Marker, text: str) -> str:
    """Return a text under its marker."""
    return (
        f"<!-- cudal1-ci:v1 key={marker.key} run={marker.run} attempt={marker.attempt} "
        f"sha={marker.sha} verdict={marker.verdict} -->\n{text}"
    )


def marker_of(body: str) -> Marker | None:
    """Return the marker at the beginning of a comment; None where there is none."""
    found = _MARKER.match(body)
    if found is None:
        return None
    return Marker(
        key=found["key"],
        run=int(found["run"]),
        attempt=int(found["attempt"]),
        sha=found["sha"],
        verdict=found["verdict"],
    )


def ours(comments: Iterable[Comment], key: str, login: str | None) -> list[tuple[Comment, Marker]]:
    """Return our comments of a workflow, in the order in which they were made."""
    found = [
        (comment, marker)
        for comment in comments
        if comment.author == login and (marker := marker_of(comment.body)) is not None
    ]
    return sorted((pair for pair in found if pair[1].key == key), key=lambda pair: pair[0].id)


def current(
    comments: Iterable[Comment], key: str, login: str | None
) -> tuple[Comment, Marker] | None:
    """Return our last comment that no other has replaced."""
    pairs = [pair for pair in ours(comments, key, login) if pair[1].verdict != SUPERSEDED]
    return pairs[-1] if pairs else None


def unmarked(body: str) -> str:
    """Return the text under the marker."""
    return _MARKER.sub("", body, count=1)


def suggestion_marker(path: str, old: str, new: str) -> tuple[str, str]:
    """Return a suggestion's hash, independent of its place, and the marker that holds it."""
    digest = content_hash((path, old, new))
    return digest, f"<!-- cudal1-ci:v1 suggestion={digest} -->"


def suggestion_digest(body: str) -> str | None:
    """Return the hash in a review comment of ours."""
    found = _SUGGESTION.match(body)
    return found["digest"] if found else None
