"""Histories that several tests look at."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cudal1_ci.records import Report
from cudal1_ci.trend.record import History
from cudal1_ci.trend.report_lines import lines_of
from cudal1_ci.trend.series import commits_of
from cudal1_ci.trend.view import View, view
from tests.unit.trend.samples import a_line


def history_of(*documents: Report) -> History:
    return History(entries=tuple(line for one in documents for line in lines_of(one)))


def view_of(*documents: Report) -> View:
    history = history_of(*documents)
    return view(history, commits_of(history))


@pytest.fixture(scope="session")
def line() -> View:
    """Thirty commits with a regression, its undoing, another one, and a new driver."""
    return view_of(*a_line())


Commit = Callable[[dict[str, str]], str]


@pytest.fixture
def checkout(tmp_path: Path) -> tuple[Path, Commit]:
    """A repository, and how something is committed in it; the answer is its sha."""
    folder = tmp_path / "checkout"
    folder.mkdir()

    def git(*words: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        done = subprocess.run(
            ["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def commit(files: dict[str, str]) -> str:
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        git("add", "-A")
        git("commit", "-q", "--allow-empty", "-m", "change")
        return git("rev-parse", "HEAD")

    git("init", "-q", "-b", "main")
    return folder, commit
