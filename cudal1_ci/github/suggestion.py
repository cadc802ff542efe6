"""Turn a proposal into a suggestion that GitHub can apply, where possible.

A suggestion replaces whole lines of the right side of a pull request's diff, all within one hunk;
GitHub refuses a review with any other. So a proposal becomes a suggestion only if it changes one
file of the diff. All of its changed lines must be in one hunk, and match its text. A patch that
changes two hunks is no suggestion, since half of it might be applied.

`whole` describes a patch that is no suggestion but changes one file of the diff.

A report is hostile data, and a suggestion is one click from being committed. So code with hidden
characters, or with characters that turn text around, is not suggested.

    suggestion(patch, {"pkg/model.py": "@@ -1,3 +1,4 @@ ..."})
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise

from cudal1_ci.errors import ReportError
from cudal1_ci.github.marker import suggestion_marker
from cudal1_ci.github.sanitize import is_visible
from cudal1_ci.records import Record
from cudal1_ci.render.hunks import FileDiff, Hunk, files_of

MAX_LINES = 200
"""A longer suggestion is too long to read in a margin."""
MAX_CODE = 30_000

RightSide = dict[int, str]
"""Lines of a hunk of a diff as they are after the change, by number."""


class Suggestion(Record, frozen=True, kw_only=True):
    """Hold lines `first_line` to `last_line` of a file, and their replacement."""

    path: str
    first_line: int
    last_line: int
    old: str
    new: str

    @property
    def digest(self) -> str:
        """Return a hash that does not depend on the lines' place."""
        return suggestion_marker(self.path, self.old, self.new)[0]


class Whole(Record, frozen=True, kw_only=True):
    """Hold all that a patch removes from a file and adds to it."""

    path: str
    old: str
    new: str

    @property
    def digest(self) -> str:
        """Return the hash of the suggestion with the same lines next to one another."""
        return suggestion_marker(self.path, self.old, self.new)[0]


class _Edit(Record, frozen=True, kw_only=True):
    """Replace lines `start` up to `end` (not included); insert where both are equal."""

    start: int
    end: int
    new: tuple[str, ...]


def suggestion(patch: str, diff: Mapping[str, str]) -> Suggestion | None:
    """Return a patch as a suggestion on a pull request; None where it cannot be one.

    `diff` holds the hunks of each file of the pull request.
    """
    found = _file_of(patch, diff)
    if found is None:
        return None
    file, sides = found
    edits = [edit for hunk in file.hunks for edit in _edits(hunk)]
    if not edits or any(one.end > next_.start for one, next_ in pairwise(edits)):
        return None
    for side in sides:
        covered = _covered_lines(edits, side)
        if covered is None or not _agrees(file.hunks, side):
            continue
        first, last = covered
        old = "".join(f"{side[number]}\n" for number in range(first, last + 1))
        new = _replace(edits, side, first, last)
        if not is_shown_as_it_is(new) or last - first >= MAX_LINES or len(new) > MAX_CODE:
            return None
        return Suggestion(path=file.path, first_line=first, last_line=last, old=old, new=new)
    return None


def whole(patch: str, diff: Mapping[str, str]) -> Whole | None:
    """Return a patch of one file of the diff, wherever in the file its lines are.

    Return None for another state of that file, for more than one file, and for hidden characters.
    """
    found = _file_of(patch, diff)
    if found is None or not is_shown_as_it_is(patch):
        return None
    file, sides = found
    if not all(_agrees(file.hunks, side) for side in sides):
        return None
    lines = [line for hunk in file.hunks for line in hunk.lines]
    old, new = ("".join(f"{_text(x.text)}\n" for x in lines if x.mark == mark) for mark in "-+")
    return Whole(path=file.path, old=old, new=new) if old or new else None


def _file_of(patch: str, diff: Mapping[str, str]) -> tuple[FileDiff, list[RightSide]] | None:
    """Return the one file that a patch changes, and the diff's hunks of that file."""
    try:
        files = files_of(patch)
        if len(files) != 1 or files[0].is_new or files[0].path not in diff:
            return None
        return files[0], right_sides(diff[files[0].path])
    except ReportError:
        return None


def right_sides(hunks: str) -> list[RightSide]:
    """Return the right side of each hunk of a file's diff.

    Raises:
        ReportError: It is not a unified diff.
    """
    return [
        {line.new_number: _text(line.text) for line in hunk.lines if line.new_number is not None}
        for file in files_of(f"--- a/file\n+++ b/file\n{hunks}")
        for hunk in file.hunks
    ]


def _text(line: str) -> str:
    return line.removesuffix("\n")


def _edits(hunk: Hunk) -> list[_Edit]:
    """Return the runs of changed lines of a hunk, in lines of what the patch applies to."""
    edits: list[_Edit] = []
    position = hunk.old_start + (0 if hunk.old_length else 1)
    start = position
    new: list[str] = []
    for line in (*hunk.lines, None):
        if line is None or line.mark == " ":
            if start != position or new:
                edits.append(_Edit(start=start, end=position, new=tuple(new)))
            position += 1
            start, new = position, []
        elif line.mark == "-":
            position += 1
        else:
            new.append(_text(line.text))
    return edits


def _covered_lines(edits: list[_Edit], side: RightSide) -> tuple[int, int] | None:
    """Return the first and last replaced line; None where a line is not of this hunk.

    Lines inserted where none is removed replace a neighbor by itself and them.
    """
    first = min(edit.start for edit in edits)
    last = max(edit.end - 1 for edit in edits)
    if last < first:  # an insertion only
        first = first - 1 if first - 1 in side else first
        last = max(first, last)
    inside = all(number in side for number in range(first, last + 1))
    return (first, last) if inside and side else None


def _agrees(hunks: tuple[Hunk, ...], side: RightSide) -> bool:
    """Return whether the patch was made for these lines."""
    known = [line for hunk in hunks for line in hunk.lines if line.old_number in side]
    return all(_text(line.text) == side[line.old_number or 0] for line in known)


def _replace(edits: list[_Edit], side: RightSide, first: int, last: int) -> str:
    lines: list[str] = []
    number = first
    for edit in edits:
        lines += [side[n] for n in range(number, edit.start)]
        lines += edit.new
        number = max(number, edit.end)
    lines += [side[n] for n in range(number, last + 1)]
    return "".join(f"{line}\n" for line in lines)


def is_shown_as_it_is(code: str) -> bool:
    """Return whether a person sees exactly what would be committed."""
    return all(c in "\n\t" or is_visible(c) for c in code)


def fenced(code: str) -> str:
    """Return code in a block that GitHub offers to apply; no code can end the block."""
    longest = max((len(run) for run in re.findall(r"`+", code)), default=0)
    ticks = "`" * max(3, longest + 1)
    return f"{ticks}suggestion\n{code}{ticks}"
