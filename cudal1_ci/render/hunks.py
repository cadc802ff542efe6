"""Parse a unified diff, to show it or to turn it into edits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from unidiff.errors import UnidiffParseError
from unidiff.patch import Hunk as ParsedHunk
from unidiff.patch import PatchSet

from cudal1_ci.errors import ReportError


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line with its mark (" ", "-" or "+") and its end; the last of a file may have none."""

    mark: str
    text: str
    old_number: int | None
    new_number: int | None


@dataclass(frozen=True, kw_only=True)
class Hunk:
    """Neighboring changes. A hunk that removes nothing inserts after line `old_start`."""

    old_start: int
    old_length: int
    lines: tuple[Line, ...]


@dataclass(frozen=True, kw_only=True)
class FileDiff:
    """Describe what is done to one file."""

    path: str
    is_new: bool
    hunks: tuple[Hunk, ...]

    @property
    def num_added(self) -> int:
        return sum(line.mark == "+" for hunk in self.hunks for line in hunk.lines)

    @property
    def num_removed(self) -> int:
        return sum(line.mark == "-" for hunk in self.hunks for line in hunk.lines)


@lru_cache(maxsize=256)
def files_of(patch: str) -> tuple[FileDiff, ...]:
    """Return the files of a patch. They are cached because reading, HTML and SARIF each need them.

    Raises:
        ReportError: It is not a unified diff.
    """
    try:
        parsed = PatchSet(patch)
    except (UnidiffParseError, ValueError) as error:
        raise ReportError(f"expected a unified diff: {str(error)[:200]}") from error
    files = tuple(
        FileDiff(
            path=file.path,
            is_new=file.is_added_file,
            hunks=tuple(
                Hunk(
                    old_start=hunk.source_start,
                    old_length=hunk.source_length,
                    lines=_lines(hunk),
                )
                for hunk in file
            ),
        )
        for file in parsed
    )
    if not files and patch.strip():
        raise ReportError("expected a unified diff, got text that changes no file")
    return files


def _lines(hunk: ParsedHunk) -> tuple[Line, ...]:
    lines: list[Line] = []
    for line in hunk:
        if line.line_type == "\\":  # "No newline at end of file" speaks of the line before it
            lines[-1:] = [replace(last, text=last.text.removesuffix("\n")) for last in lines[-1:]]
            continue
        lines.append(
            Line(
                mark=line.line_type or " ",
                text=line.value,
                old_number=line.source_line_no,
                new_number=line.target_line_no,
            )
        )
    return tuple(lines)
