"""Use traces that were recorded before, on another commit, and run again only the tests near a
change.

A test is near if it was changed itself, or if it called something in a changed file when it was
recorded. What it called is recorded again; all other calls stay as they were. The whole command
runs where that cannot be known: it is not pytest, a `conftest.py` changed, or nothing was recorded.

    words = command_near(["pytest", "-q"], root, change, folder)    # pytest -q tests/test_model.py
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cudal1_ci.git import repository_top
from cudal1_ci.records import Change
from cudal1_ci.records.archive import make_folder

TEST_FILE = re.compile(r"(test_[^/]*|[^/]*_test)\.py")
PYTHON = re.compile(r"python(3(\.\d+)?)?")
KEPT = "trace-before.jsonl"
"""In the folder of traces: what was recorded before and is not recorded again."""
MOST_BYTES = 64 * 2**20


class Near(NamedTuple):
    """What runs again, and what was recorded before by all other tests."""

    command: list[str] | None
    """None where nothing is to run."""
    kept: list[str]


def near(command: Sequence[str], root: Path, change: Change, folder: Path) -> Near | None:
    """Return what to run for a change, and the lines of a folder of traces that stay; None where
    the whole command has to run.
    """
    split = pytest_words(command, root)
    lines = list(lines_of(folder))
    names = {Path(file.path).name for file in change.files}
    if split is None or not lines or "conftest.py" in names:
        return None
    options, places = split
    changed = {path for file in change.files for path in (file.path, file.previous_path) if path}
    tests = {file for file in changed if TEST_FILE.fullmatch(Path(file).name)}
    for _, line in lines:
        if line.get("target", "").rpartition(":")[0] in changed:
            tests.add(test_file(line, root) or "")
    if "" in tests:
        return None  # a call outside of a test, which no part of the command repeats
    kept = [text for text, line in lines if test_file(line, root) not in tests]
    there = sorted(
        test
        for test in tests
        if (root / test).is_file()
        and (not places or any(Path(test).is_relative_to(place) for place in places))
    )
    return Near([*options, *there] if there else None, kept)


def pytest_words(command: Sequence[str], root: Path) -> tuple[list[str], list[str]] | None:
    """Return a pytest command without the places that it names, and those; None for another."""
    words = list(command)
    start = 1 if words and Path(words[0]).name in ("pytest", "py.test") else 0
    if not start and len(words) > 2 and PYTHON.fullmatch(Path(words[0]).name):
        start = 3 if words[1:3] == ["-m", "pytest"] else 0
    if not start:
        return None
    places = [
        word.partition("::")[0]
        for word in words[start:]
        if not word.startswith("-") and (root / word.partition("::")[0]).exists()
    ]
    kept = [word for word in words[start:] if word.partition("::")[0] not in places]
    return [*words[:start], *kept], places


def test_file(line: dict[str, Any], root: Path) -> str | None:
    """Return the file of the test that made a call, relative to `root`; pytest names it relative to
    a folder of its own, which may be above. None for a call of no test.
    """
    name = (line.get("source") or "").partition("::")[0]
    if not name:
        return None
    root, top = root.resolve(), repository_top(root).resolve()
    for base in (root, *root.parents):
        if (base / name).is_relative_to(root) and (base / name).is_file():
            return (base / name).relative_to(root).as_posix()
        if base == top:
            break
    return name


def lines_of(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the calls of a folder of traces, as text and as what that says."""
    for file in sorted(folder.glob("trace-*.jsonl")):
        if file.is_symlink() or file.stat().st_size > MOST_BYTES:
            continue
        for text in file.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue
            if isinstance(line, dict) and isinstance(line.get("target"), str):
                yield text, line


def keep(lines: Sequence[str], folder: Path) -> None:
    """Write calls that were recorded before into the folder of traces."""
    make_folder(folder)
    (folder / KEPT).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
