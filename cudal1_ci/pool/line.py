"""What a schedule keeps of candidates, problems and seats."""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass, field


@dataclass
class Item:
    """A candidate that has no verdict yet."""

    id: str
    is_built: bool = False
    """Whether it compiles something when it is imported, which can go on beside others."""
    num_deaths: int = 0
    failed_on: set[str] = field(default_factory=set)
    is_suspect: bool = False
    """Whether a seat was lost with it and others."""


@dataclass
class Line:
    """What waits of one problem."""

    problem_id: str
    kind: str | None
    """Of the devices that it is judged on; None before it is begun."""
    waiting: deque[Item]
    holders: set[str] = field(default_factory=set)
    """Seats whose judge has its reference."""
    owner: str | None = None
    """The seat that it is for, by its hash."""


@dataclass
class Place:
    """A seat that is there."""

    kind: str
    problem_id: str | None = None
    """The last one that it took."""
    batch: dict[str, Item] = field(default_factory=dict)
    """What it has, by the candidate's id."""


@dataclass(frozen=True)
class Batch:
    """Candidates of one problem, for one seat: a single one, or several that are built."""

    problem_id: str
    candidate_ids: tuple[str, ...]


def weight(problem_id: str, seat: str) -> bytes:
    """What decides whose a problem is. Source: Thaler & Ravishankar, IEEE/ACM ToN 6 (1998)."""
    return hashlib.sha256(f"{problem_id} {seat}".encode()).digest()
