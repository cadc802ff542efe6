"""Read task files of others from a local checkout: none of their text is in this package.

    numbered(Path("KernelBench"))          KernelBench: folders `level1` to `level4` of `12_name.py`
    release(Path("h100.json"))             CUDA-L1: a reference and a kernel for it in every row

Knows the forms in which they were published, old and new. Knows nothing of what a task is worth,
nor whether its text can be run.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cudal1_ci.errors import ConfigError
from cudal1_ci.records import Record

LEVEL = re.compile(r"level_?(\d+)", re.IGNORECASE)
"""Of a folder's name: `level1`, and `level_1` as some copies have it."""
MARK = "\ufeff"
"""A byte order mark, which Python skips at the beginning of a file and nowhere else."""
NUMBER = re.compile(r"(\d+)[_.-]")


class NumberedFile(Record, frozen=True, kw_only=True):
    """A file of a KernelBench checkout."""

    level: int
    number: int
    """0 where its name has none."""
    path: Path


class ReleasedRow(Record, frozen=True, kw_only=True):
    """A task of CUDA-L1's release."""

    level: int
    number: int
    reference: str
    code: str | None
    """None where it was withdrawn: the text `None` there, with its score left standing."""
    claimed_speedup: float | None


def numbered(root: Path) -> list[NumberedFile]:
    """Return the tasks of a KernelBench checkout, of its inner folder, or of one level, in their
    order. Empty where there are none.
    """
    folders = {
        folder: int(found[1])
        for place in (root / "KernelBench", root, root.parent)
        if place.is_dir()
        for folder in sorted(place.iterdir())
        if (found := LEVEL.fullmatch(folder.name)) and folder.is_dir()
        if place != root.parent or folder == root
    }
    files = [
        NumberedFile(level=level, number=number_of(path), path=path)
        for folder, level in folders.items()
        for path in folder.glob("*.py")
    ]
    return sorted(files, key=lambda one: (one.level, one.number, one.path.name))


def number_of(file: Path) -> int:
    """Return 12 for `12_Matmul_with_diagonal_matrices_.py`; 0 where there is no number."""
    found = NUMBER.match(file.name)
    return int(found[1]) if found else 0


def release(file: Path) -> Iterator[ReleasedRow]:
    """Yield the rows of a release that have a reference: JSON lines, or the older form with one
    object by level.

    Raises:
        ConfigError: The file cannot be read, or is neither.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: expected a release in UTF-8: {error}") from error
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error
    for place, row in rows_of(file, text):
        try:
            level, number = int(row["level_id"]), int(row["task_id"])
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise ConfigError(f"{place}: expected a row of the release: {error}") from error
        reference, code = row.get("ref_code"), row.get("custom_code")
        if is_code(reference):
            yield ReleasedRow(
                level=level,
                number=number,
                reference=str(reference).removeprefix(MARK),
                code=str(code).removeprefix(MARK) if is_code(code) else None,
                claimed_speedup=number_or_none(row.get("score_default", row.get("score"))),
            )


def rows_of(file: Path, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each row with its place."""
    whole = json_or_none(text)
    if isinstance(whole, dict) and whole and all(isinstance(x, list) for x in whole.values()):
        for level, rows in whole.items():
            for row in rows:
                if not isinstance(row, dict):
                    raise ConfigError(f"{file}: level {level}: expected rows that are JSON objects")
                yield f"{file}: level {level}", {"level_id": level, **row}
        return
    # Not `splitlines`: a text in a row may hold U+2028 and others that it takes for ends of lines.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            row = json_or_none(line)
            if not isinstance(row, dict):
                raise ConfigError(
                    f"{file}:{number}: expected a row of the release, a JSON object a line"
                )
            yield f"{file}:{number}", row


def json_or_none(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def is_code(value: Any) -> bool:
    return isinstance(value, str) and value.strip() not in ("", "None")


def number_or_none(value: Any) -> float | None:
    """Parse a number that the release writes as text; None for `None` or an empty value."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if 0 < number < math.inf else None
