"""Small checkouts, and the command line in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.github_fake import GitHub, serving
from tests.github_judge import Judge, has_rig, needs_rig
from tests.report_schema import validated

QUICK = {
    "CUDAL1_CI_TRIAL_NUM_ROUNDS": "4",
    "CUDAL1_CI_TRIAL_BATCH_US": "1500",
    "CUDAL1_CI_TRIAL_MEASURE": "1.5s",
    "CUDAL1_CI_TRIAL_CALL": "5s",
    "CUDAL1_CI_TRIAL_LOAD": "40s",
}
"""Trials that last a second or two: what they find is coarse, which these tests do not mind."""
ONE_LAUNCH = {"CUDAL1_CI_TRIAL_NUM_LAUNCHES": "1"}
"""For tests of what becomes of verdicts, whichever they are: a quarter of the time."""


@dataclass(frozen=True)
class Ran:
    """A finished command."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        found = json.loads(self.stdout)
        if isinstance(found, dict) and "totals" in found:
            validated(self.stdout)
        return found


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "cudal1_ci", *map(str, words)]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, **QUICK, **more}


def run(*words: object, cwd: Path | None = None, **more: str) -> Ran:
    done = subprocess.run(
        command(*words),
        cwd=cwd,
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def attempts(most: int = 10) -> Iterator[int]:
    """Tries of what a busy machine cannot prove, farther and farther apart: it is busy for minutes,
    not for a moment."""
    for number in range(most):
        time.sleep(min(2.0 * number, 10.0))
        yield number


def run_until(is_settled: Callable[[Ran], bool], *words: object, **more: str) -> Ran:
    """The command, again while the machine is too busy for it to prove what is there."""
    for _ in attempts():
        ran = run(*words, **more)
        if is_settled(ran):
            break
    return ran


@pytest.fixture(scope="session")
def judge() -> Iterator[Judge]:
    """GitHub's own description of its API, in front of whichever fake it is shown."""
    needs_rig()
    with Judge() as judge:
        yield judge


@pytest.fixture
def served(
    request: pytest.FixtureRequest,
) -> Callable[[GitHub], AbstractContextManager[GitHub]]:
    """How a GitHub of the test answers: judged where the judge is installed, as it is in CI."""
    if not has_rig():
        return serving
    judge: Judge = request.getfixturevalue("judge")
    return judge.serving


@pytest.fixture
def checkout(tmp_path) -> Callable[[Mapping[str, str]], Path]:
    """Makes a git checkout of the given files."""

    def make(files: Mapping[str, str]) -> Path:
        root = tmp_path / "project"
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
        for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
            subprocess.run(["git", *identity, *words], cwd=root, check=True)
        return root

    return make
