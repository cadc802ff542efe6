"""Write what a candidate changes as a patch for `git apply`.

    patch(program)      the overlay against the files under `program.root`

What was timed is what is shown: a file that is no longer the one from which the overlay was made is
refused, never merged. The patch has no `diff --git` line on purpose: git
takes the paths of such patches from the top of the repository, and those without it from the
current folder, which lets a package inside a larger repository be scanned and patched.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Protocol

from cudal1_ci.errors import ReportError
from cudal1_ci.records import OverlayFile, Program, Report, TextProgram, content_hash

NUM_CONTEXT_LINES = 3
MISSING_NEWLINE = "\\ No newline at end of file\n"

ESCAPES = {"\t": "\\t", "\n": "\\n", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


class AnyTarget(Protocol):
    """A target, as a record or as published."""

    @property
    def path(self) -> str: ...
    @property
    def qualname(self) -> str: ...


def patch(program: Program, root: Path | None = None) -> str | None:
    """Return the unified diff of a candidate against its checkout; None for a program without one.

    Raises:
        ReportError: A file cannot be read, is outside of the checkout, or was changed since the
            overlay was made.
    """
    if isinstance(program, TextProgram):
        return None
    folder = Path(program.root) if root is None else root
    parts = []
    for file in program.overlay:
        before = _current(folder, file)
        if before is not None and file.base_digest is not None:
            _refuse_changed(file, before)
        parts.append(_file_diff(file.path, before, file.text))
    return "".join(parts)


def patch_name(target: AnyTarget) -> str:
    """Return the file in which `--patches` leaves the patch of a target's proposal."""
    return f"{target.path.removesuffix('.py').replace('/', '.')}.{target.qualname}.patch"


def best_patches(shown: Report) -> dict[str, str]:
    """Return the patch of each target's best proposal, by a file name. The report's warnings say
    why a proposal has none.
    """
    patches = {}
    for entry in shown.entries:
        if entry.best is not None:
            text = entry.evaluations[entry.best].candidate.patch
            if text is not None:
                patches[patch_name(entry.target)] = text
    return patches


def _current(root: Path, file: OverlayFile) -> str | None:
    """Read the file's text in the checkout with its line ends; None where there is no file."""
    path = _inside(root, file.path)
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ReportError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ReportError(f"{path}: expected UTF-8, got other bytes: {error.reason}") from error


def _inside(root: Path, path: str) -> Path:
    """Resolve a path of the overlay, following symbolic links.

    Raises:
        ReportError: It leaves the checkout, or is inside of git's own folder.
    """
    parts = PurePosixPath(path).parts
    resolved = (root / path).resolve()
    if not parts or ".git" in parts or not resolved.is_relative_to(root.resolve()):
        raise ReportError(f"{path!r}: expected a path inside of the checkout {root}")
    return resolved


def _refuse_changed(file: OverlayFile, before: str) -> None:
    if file.base_digest is None:
        raise ReportError(
            f"{file.path}: it exists, but the proposal was made without it; scan again"
        )
    if content_hash(before) != file.base_digest:
        raise ReportError(f"{file.path}: changed since the scan; scan again")


def _file_diff(path: str, before: str | None, after: str) -> str:
    old_name = "/dev/null" if before is None else header_name(f"a/{path}")
    new_name = header_name(f"b/{path}")
    old_lines, new_lines = lines_of(before or ""), lines_of(after)
    groups = difflib.SequenceMatcher(None, old_lines, new_lines, autojunk=False)
    body = "".join(
        line
        for group in groups.get_grouped_opcodes(NUM_CONTEXT_LINES)
        for line in _hunk(group, old_lines, new_lines)
    )
    return f"--- {old_name}\n+++ {new_name}\n{body}" if body else ""


def _hunk(
    group: list[tuple[str, int, int, int, int]], old: list[str], new: list[str]
) -> Iterator[str]:
    """Yield one hunk. difflib's writer does not know of a missing last newline, and counts a hunk
    without lines differently from git.
    """
    first, last = group[0], group[-1]
    yield f"@@ -{_span(first[1], last[2])} +{_span(first[3], last[4])} @@\n"
    for tag, old_start, old_end, new_start, new_end in group:
        if tag == "equal":
            yield from (_marked(" ", line) for line in old[old_start:old_end])
            continue
        yield from (_marked("-", line) for line in old[old_start:old_end])
        yield from (_marked("+", line) for line in new[new_start:new_end])


def _span(start: int, end: int) -> str:
    """Format lines `start:end` (0-based) as a hunk header counts them; no lines are after line
    `start`.
    """
    length = end - start
    return f"{start + 1 if length else start},{length}"


def _marked(mark: str, line: str) -> str:
    return f"{mark}{line}" if line.endswith("\n") else f"{mark}{line}\n{MISSING_NEWLINE}"


def lines_of(text: str) -> list[str]:
    """Split text into lines with their ends, at newlines alone: form feeds and lone CRs stay
    inside.
    """
    pieces = text.split("\n")
    lines = [f"{piece}\n" for piece in pieces[:-1]]
    return [*lines, pieces[-1]] if pieces[-1] else lines


def header_name(name: str) -> str:
    """Format a path as git reads it. A path with control characters, quotes or backslashes is
    quoted. A path with a space, which would end it, gets a closing tab.
    """
    if any(character in ESCAPES or ord(character) < 32 for character in name):
        escaped = "".join(
            ESCAPES.get(c) or (c if ord(c) >= 32 else f"\\{ord(c):03o}") for c in name
        )
        return f'"{escaped}"'
    return f"{name}\t" if " " in name else name
