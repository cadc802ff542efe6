"""Make one patch of several that were made from the same files.

    combined = combine([patch, other])
    combined.patch, combined.taken, combined.conflicts

Earlier patches come first: a later one that changes the same lines is left out as a whole. Equal
changes are made once, and insertions at one place follow each other. Deleting an import that
another patch uses is left out by itself. Works on patches alone, so a report needs no checkout.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cudal1_ci.errors import ReportError
from cudal1_ci.render.hunks import FileDiff, files_of
from cudal1_ci.render.patch import MISSING_NEWLINE, NUM_CONTEXT_LINES, header_name, lines_of


@dataclass(frozen=True)
class Change:
    """Lines `start` to `end` (exclusive, from 1) of a file become `new`."""

    start: int
    end: int
    new: tuple[str, ...]

    def overlaps(self, other: Change) -> bool:
        """Return whether both change the same lines differently."""
        if self == other:
            return False
        if self.start == self.end or other.start == other.end:
            inner, outer = (self, other) if self.start == self.end else (other, self)
            return outer.start < inner.start < outer.end
        return self.start < other.end and other.start < self.end


@dataclass
class FileChanges:
    """What is done to a file, and the old lines that patches show of it."""

    path: str
    is_new: bool
    changes: list[Change] = field(default_factory=list)
    known: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Combined:
    """One patch, the numbers of those that it is made of, and why others were left out."""

    patch: str
    taken: tuple[int, ...]
    conflicts: Mapping[int, int]
    """A patch that was left out, and the earlier one that changes the same lines."""
    files: tuple[FileChanges, ...]


def combine(patches: Sequence[str]) -> Combined:
    """Combine patches, those that come first before others. Raises: ReportError."""
    every = [[changes_of(file) for file in files_of(patch)] for patch in patches]
    taken: list[int] = []
    conflicts: dict[int, int] = {}
    for number, files in enumerate(every):
        other = next((one for one in taken if conflict(every[one], files)), None)
        if other is None:
            taken.append(number)
        else:
            conflicts[number] = other
    merged: dict[str, FileChanges] = {}
    for number in taken:
        for file in every[number]:
            into = merged.setdefault(file.path, FileChanges(file.path, file.is_new))
            into.known |= file.known
            others = [f for one in taken if one != number for f in every[one] if f is not file]
            wanted = [c for c in file.changes if not deletes_what_is_used(c, file, others)]
            into.changes += [one for one in wanted if one not in into.changes]
    for file in merged.values():
        file.changes.sort(key=lambda one: (one.start, one.end))
    found = tuple(file for file in merged.values() if file.changes)
    return Combined(
        patch="".join(map(written, found)), taken=tuple(taken), conflicts=conflicts, files=found
    )


def changes_of(file: FileDiff) -> FileChanges:
    """Return the changes of one file of a patch."""
    found = FileChanges(file.path, file.is_new)
    for hunk in file.hunks:
        old = hunk.old_start if hunk.old_length else hunk.old_start + 1
        start = old
        new: list[str] = []
        is_open = False
        for line in hunk.lines:
            if line.mark == " ":
                if is_open:
                    found.changes.append(Change(start, old, tuple(new)))
                    is_open, new = False, []
                found.known[old] = line.text
                old += 1
                continue
            if not is_open:
                start, is_open = old, True
            if line.mark == "-":
                found.known[old] = line.text
                old += 1
            else:
                new.append(line.text)
        if is_open:
            found.changes.append(Change(start, old, tuple(new)))
    return found


def conflict(ours: Sequence[FileChanges], theirs: Sequence[FileChanges]) -> bool:
    """Return whether two patches cannot both be made."""
    for file in ours:
        for other in theirs:
            if file.path != other.path:
                continue
            if (file.is_new or other.is_new) and file.changes != other.changes:
                return True
            if any(a.overlaps(b) for a in file.changes for b in other.changes):
                return True
    return False


def deletes_what_is_used(change: Change, file: FileChanges, others: Sequence[FileChanges]) -> bool:
    """Return whether a change only deletes imports, of which another patch adds a use."""
    if change.new or not file.path.endswith(".py"):
        return False
    names = imported("".join(file.known[n] for n in range(change.start, change.end)))
    if not names:
        return False
    used = re.compile(r"\b(" + "|".join(map(re.escape, names)) + r")\b")
    return any(
        used.search(line)
        for other in others
        if other.path == file.path
        for one in other.changes
        for line in one.new
    )


def imported(text: str) -> list[str]:
    """Return the names that import statements bind; empty for any other text."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError):
        return []
    names: list[str] = []
    for node in body:
        if not isinstance(node, ast.Import | ast.ImportFrom):
            return []
        names += [(one.asname or one.name).partition(".")[0] for one in node.names]
    return names


def applied(combined: Combined, read: Callable[[str], str | None]) -> dict[str, str]:
    """Return the new texts of all files by path; `read` returns a file's old text.

    Raises:
        ReportError: A file is not the one that the patches were made from.
    """
    texts = {}
    for file in combined.files:
        old = lines_of(read(file.path) or "")
        if any(number > len(old) or old[number - 1] != line for number, line in file.known.items()):
            raise ReportError(f"{file.path}: changed since the scan; scan again")
        new: list[str] = []
        position = 1
        for change in file.changes:
            new += old[position - 1 : change.start - 1]
            new += change.new
            position = max(position, change.end)
        texts[file.path] = "".join([*new, *old[position - 1 :]])
    return texts


def written(file: FileChanges) -> str:
    """Return the changes of a file as a unified diff."""
    old_name = "/dev/null" if file.is_new else header_name(f"a/{file.path}")
    hunks = [f"--- {old_name}\n+++ {header_name(f'b/{file.path}')}\n"]
    added = 0
    for group in groups(file.changes):
        first = group[0].start
        while first > 1 and first > group[0].start - NUM_CONTEXT_LINES and first - 1 in file.known:
            first -= 1
        last = group[-1].end
        while last < group[-1].end + NUM_CONTEXT_LINES and last in file.known:
            last += 1
        body: list[str] = []
        position, num_new = first, 0
        for change in group:
            body += [" " + file.known[n] for n in range(position, change.start)]
            body += ["-" + file.known[n] for n in range(change.start, change.end)]
            body += ["+" + line for line in change.new]
            num_new += len(change.new) - (change.end - change.start)
            position = max(position, change.end)
        body += [" " + file.known[n] for n in range(position, last)]
        length = last - first
        old_span = span(first, length)
        new_span = span(first + added, length + num_new)
        added += num_new
        hunks.append(f"@@ -{old_span} +{new_span} @@\n{''.join(map(ended, body))}")
    return "".join(hunks)


def groups(changes: Sequence[Change]) -> Iterator[list[Change]]:
    """Yield changes whose context lines meet, together."""
    group: list[Change] = []
    for change in changes:
        if group and change.start - group[-1].end > 2 * NUM_CONTEXT_LINES:
            yield group
            group = []
        group.append(change)
    if group:
        yield group


def span(first: int, length: int) -> str:
    """Return a range of lines as a hunk names it; of none, the line before it."""
    return f"{first if length else first - 1},{length}"


def ended(line: str) -> str:
    """Return a line of a hunk; the last one of a file may have no end."""
    return line if line.endswith("\n") else f"{line}\n{MISSING_NEWLINE}"
