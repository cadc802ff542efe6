"""Apply a patch to whole texts of the files that it changes, or refuse. Pure.

A patch of a report is hostile data, and its result here is committed. So it is applied to exactly
the lines that it names, at exactly that place: no offset, no fuzz. It holds only files and hunks. A
header that a reader skips, such as a mode or a rename, would stay unchecked. The patch changes
neither `.github` nor files that git itself reads, and writes no hidden character.

    edited(files_to_edit(patch)[0], before)
"""

from __future__ import annotations

from cudal1_ci.errors import ForgeError, ReportError
from cudal1_ci.github.sanitize import ordinary_path
from cudal1_ci.github.suggestion import is_shown_as_it_is
from cudal1_ci.render.hunks import FileDiff, Hunk, files_of

MAX_FILES = 20
MAX_PATCH = 2**20
"""Characters; no person reads more of a change before accepting it."""


def files_to_edit(patch: str) -> tuple[FileDiff, ...]:
    """Return the files of a patch, whose paths are those in the repository.

    Raises:
        ForgeError: It is no patch, or does more than change lines of ordinary files.
    """
    if len(patch) > MAX_PATCH:
        raise ForgeError(f"the patch: expected at most {MAX_PATCH} characters, got {len(patch)}")
    try:
        files = files_of(patch)
    except ReportError as error:
        raise ForgeError(f"the patch: {error}") from error
    if not 0 < len(files) <= MAX_FILES:
        raise ForgeError(f"the patch: expected 1 to {MAX_FILES} files, got {len(files)}")
    if len({file.path for file in files}) < len(files) or not _is_all_read(patch, files):
        raise ForgeError("the patch: expected files and hunks, got more than that")
    for file in files:
        _refuse_place(file.path)
        for line in (line for hunk in file.hunks for line in hunk.lines if line.mark == "+"):
            if not is_shown_as_it_is(line.text.replace("\r\n", "\n")):
                raise ForgeError(
                    f"{file.path}: line {line.new_number} has a character that is not seen"
                )
    return files


def edited(file: FileDiff, before: str | None) -> str:
    """Return a file after the patch; `before` is None where there is no file yet.

    Raises:
        ForgeError: The patch was made for another text.
    """
    if file.is_new != (before is None):
        there = "is there already" if file.is_new else "is not there"
        raise ForgeError(f"{file.path}: {there}, so the patch was made for another tree")
    lines = _lines(before or "")
    made: list[str] = []
    position = 0
    for hunk in file.hunks:
        start = hunk.old_start - (1 if hunk.old_length else 0)
        if start < position:
            raise ForgeError(f"{file.path}: hunks of the patch are not in order")
        made += lines[position:start]
        position = _follow(hunk, file.path, lines, start, made)
    return "".join([*made, *lines[position:]])


def _follow(hunk: Hunk, path: str, lines: list[str], position: int, made: list[str]) -> int:
    """Write the hunk's lines; return where the hunk ends in the old file."""
    for line in hunk.lines:
        if line.mark == "+":
            made.append(line.text)
            continue
        if position >= len(lines) or lines[position] != line.text:
            raise ForgeError(f"{path}: line {position + 1} differs from the patch")
        if line.mark == " ":
            made.append(line.text)
        position += 1
    return position


def _refuse_place(path: str) -> None:
    """Refuse a path outside the project's own code. Raises: ForgeError."""
    if ordinary_path(path) is None:
        raise ForgeError(f"{path[:200]!r}: expected a path of ordinary characters in the patch")
    if any(part.lower().startswith(".git") for part in path.split("/")):
        raise ForgeError(f"{path}: workflows and files of git are changed by people alone")


def _is_all_read(patch: str, files: tuple[FileDiff, ...]) -> bool:
    """Return whether each line of the patch belongs to what was parsed."""
    hunks = [hunk for file in files for hunk in file.hunks]
    lines = [line for hunk in hunks for line in hunk.lines]
    cut = sum(not line.text.endswith("\n") for line in lines)
    read = 2 * len(files) + len(hunks) + len(lines) + cut
    return bool(lines) and patch.endswith("\n") and patch.count("\n") == read


def _lines(text: str) -> list[str]:
    """Return the lines with their ends, split where git splits them."""
    pieces = text.split("\n")
    lines = [f"{piece}\n" for piece in pieces[:-1]]
    return [*lines, pieces[-1]] if pieces[-1] else lines
