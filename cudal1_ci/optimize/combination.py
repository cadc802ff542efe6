"""Lay all proposals over one tree.

    tree = combination(root, proposals)     # those that save most come first
    tree.candidate(problem)

Proposals that change the same lines as a better one are left out (`render/combine.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from cudal1_ci.errors import ReportError
from cudal1_ci.records import (
    Candidate,
    Entry,
    LeftOut,
    OverlayFile,
    Problem,
    TreeProgram,
    content_hash,
)
from cudal1_ci.render.combine import Combined, applied, combine
from cudal1_ci.render.patch import patch

PROPOSER = "together"
CONFLICT = "it changes the same lines as {other}, which saves more"


@dataclass(frozen=True)
class Tree:
    """The files of all proposals that fit together."""

    patch: str
    overlay: tuple[OverlayFile, ...]
    entries: tuple[Entry, ...]
    """Of the proposals that are part of it."""
    left_out: tuple[LeftOut, ...]

    def candidate(self, problem: Problem) -> Candidate:
        """Return the tree as a candidate for the reference of a root, whatever else is laid over
        that."""
        reference = problem.reference
        assert isinstance(reference, TreeProgram)
        overlay = (*reference.overlay, *self.overlay)
        program = msgspec.structs.replace(reference, overlay=overlay)
        return Candidate(problem_id=problem.id, program=program, proposer=PROPOSER)


def combination(root: Path, entries: Sequence[Entry]) -> Tree:
    """Return all proposals as one tree; earlier ones come before others."""
    patched: list[tuple[Entry, str]] = []
    left_out: list[LeftOut] = []
    for entry in entries:
        assert entry.best is not None
        try:
            text = patch(entry.evaluations[entry.best].candidate.program, root)
        except ReportError as error:
            left_out.append(LeftOut(what=entry.target.address, reason=str(error)))
            continue
        if text:
            patched.append((entry, text))
    read = reader(root)
    combined = combine([text for _, text in patched])
    for number, other in combined.conflicts.items():
        reason = CONFLICT.format(other=patched[other][0].target.qualname)
        left_out.append(LeftOut(what=patched[number][0].target.address, reason=reason))
    return Tree(
        patch=combined.patch,
        overlay=overlay_of(combined, read),
        entries=tuple(patched[number][0] for number in combined.taken),
        left_out=tuple(left_out),
    )


def overlay_of(combined: Combined, read: Callable[[str], str | None]) -> tuple[OverlayFile, ...]:
    """Return the files that a combined patch changes."""
    found = []
    for path, text in applied(combined, read).items():
        before = read(path)
        digest = None if before is None else content_hash(before)
        found.append(OverlayFile(path=path, text=text, base_digest=digest))
    return tuple(found)


def reader(root: Path) -> Callable[[str], str | None]:
    """Return what reads a file of a checkout, with its line ends; None where there is no file."""

    def read(path: str) -> str | None:
        try:
            return (root / path).read_bytes().decode()
        except FileNotFoundError:
            return None

    return read
