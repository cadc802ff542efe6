"""Change a report of a folder to paths from the repository's top.

A project may be below the top. Then that folder was scanned: its configuration and imports begin
there, and so do the paths of its report. GitHub names files from the top. Every command that posts,
therefore, first moves the report there; pure.

    from_top(read_report(Path("report.json")))
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TypeVar

import msgspec

from cudal1_ci.errors import ForgeError
from cudal1_ci.github.sanitize import ordinary_path
from cudal1_ci.records import Entry, Evaluation, Report

T = TypeVar("T", bound=msgspec.Struct)
_HUNK = re.compile(r"@@ -\d+(?:,(?P<old>\d+))? \+\d+(?:,(?P<new>\d+))? @@")
_FILE = re.compile(r"(?P<mark>(?:---|\+\+\+) [ab]/)(?P<path>.+)")


def from_top(document: Report) -> Report:
    """Return the report with paths from the top; a report of the top stays as it is.

    Raises:
        ForgeError: The report names a folder that cannot be one.
    """
    folder = document.folder
    if folder == ".":
        return document
    if ordinary_path(folder) is None:
        raise ForgeError(
            f"the report's folder: expected a path of ordinary characters, got {folder[:200]!r}"
        )
    return msgspec.structs.replace(
        document,
        folder=".",
        entries=tuple(_entry(entry, folder) for entry in document.entries),
        warnings=tuple(_move(notice, folder) for notice in document.warnings),
    )


def _entry(entry: Entry, folder: str) -> Entry:
    return msgspec.structs.replace(
        entry,
        target=_move(entry.target, folder),
        evaluations=tuple(_evaluation(one, folder) for one in entry.evaluations),
    )


def _evaluation(evaluation: Evaluation, folder: str) -> Evaluation:
    patch = evaluation.candidate.patch
    if patch is None:
        return evaluation
    candidate = msgspec.structs.replace(evaluation.candidate, patch=moved_patch(patch, folder))
    return msgspec.structs.replace(evaluation, candidate=candidate)


def _move(named: T, folder: str) -> T:
    """Return a record with its `path` moved."""
    path: str = getattr(named, "path")  # noqa: B009 - records of several kinds have one
    return msgspec.structs.replace(named, path=(PurePosixPath(folder) / path).as_posix())


def moved_patch(patch: str, folder: str) -> str:
    """Move a patch's file names, which are before a hunk; lines of a hunk may look like them."""
    lines = []
    old = new = 0
    for line in patch.splitlines(keepends=True):
        if old > 0 or new > 0:
            old -= line[:1] in (" ", "-", "\n")
            new -= line[:1] in (" ", "+", "\n")
        elif found := _HUNK.match(line):
            old, new = int(found["old"] or 1), int(found["new"] or 1)
        elif found := _FILE.match(line):
            line = f"{found['mark']}{folder}/{line[found.start('path') :]}"
        lines.append(line)
    return "".join(lines)
