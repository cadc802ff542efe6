"""In which order commits came.

A checkout knows; without one they are in the order in which they were first written, which is that
of their pushes where a job appends them. Commits that a checkout does not reach from its HEAD, such
as those of pull requests that were squashed, have no place in a line of history and are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from cudal1_ci.trend.record import History, Run


@dataclass(frozen=True, kw_only=True)
class Commit:
    """A commit of the history, at its place."""

    sha: str
    date: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Commits:
    """Commits that were measured, the oldest first."""

    all: tuple[Commit, ...]
    left_out: tuple[str, ...] = ()
    places: dict[str, int] = field(default_factory=dict)

    def place(self, sha: str | None) -> int | None:
        """Index into `all`, None for one that was not measured."""
        return None if sha is None else self.places.get(sha)


def commits_of(history: History, known: Iterable[Commit] = ()) -> Commits:
    """The commits of a history. `known` are those of a checkout, the oldest first."""
    dates: dict[str, datetime | None] = {}
    for run in history.of(Run):
        dates[run.commit] = dates.get(run.commit) or run.date
    lineage = list(known) or [Commit(sha=sha, date=date) for sha, date in dates.items()]
    measured = tuple(commit for commit in lineage if commit.sha in dates)
    places = {commit.sha: place for place, commit in enumerate(measured)}
    left_out = tuple(sha for sha in dates if sha not in places)
    return Commits(all=measured, left_out=left_out, places=places)
