"""Small checkouts, and the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cudal1_ci.cli import main
from cudal1_ci.verification import Session
from tests import told
from tests.github_fake import GitHub, serving
from tests.github_judge import Judge, has_rig
from tests.kept import Verifiers
from tests.report_schema import validated

ROOT = Path(__file__).parents[2]
QUICK = {
    "CUDAL1_CI_TRIAL_NUM_ROUNDS": "4",
    "CUDAL1_CI_TRIAL_BATCH_US": "1500",
    "CUDAL1_CI_TRIAL_MEASURE": "1.5s",
    "CUDAL1_CI_TRIAL_CALL": "5s",
    "CUDAL1_CI_TRIAL_LOAD": "40s",
    "CUDAL1_CI_PLAYBOOK_COMPILE": "false",
}
"""Trials that last a second or two: what they find is coarse, which these tests do not mind. No
candidate compiles; a test of those is marked `compiles`."""
ONE_LAUNCH = {"CUDAL1_CI_TRIAL_NUM_LAUNCHES": "1"}
"""For tests of what becomes of verdicts, whichever they are: a quarter of the time."""
UNREVIEWED = {
    "CUDAL1_CI_TRIAL_CONTRACT": "0s",
    "CUDAL1_CI_REVIEW_ACCEPT": "0s",
    "CUDAL1_CI_REVIEW_IMPACT_SHARE": "0",
}
"""For tests that ask nothing of what follows a verdict: the contract, the repository's own tests,
and all proposals on one tree. The first test of test_scan.py has all three."""
VERDICTS_ALONE = {**ONE_LAUNCH, **UNREVIEWED}


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
    """The command line of another process, with the times of this one's `clock`."""
    return [sys.executable, "-m", program(), *map(str, words)]


def program() -> str:
    return "tests.told" if Session._evaluated is told.evaluated else "cudal1_ci"


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, **QUICK, "PYTHONPATH": str(ROOT), **more}


def run(*words: object, cwd: Path | None = None, **more: str) -> Ran:
    """Run the command line in this process."""
    with chdir(cwd or Path.cwd()):
        done = CliRunner().invoke(main, [*map(str, words)], env={**QUICK, **more})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Ran(done.exit_code, done.stdout, done.stderr)


@pytest.fixture(
    scope="module", params=["told", pytest.param("real", marks=pytest.mark.times)], ids=str
)
def clock(request: pytest.FixtureRequest, verifiers: Verifiers) -> Iterator[str]:
    """Whose times decide: told ones, or what this machine measures."""
    if request.param == "real":
        yield "real"
        return
    with told.told_times(), verifiers.serving():
        yield "told"


def attempts(most: int = 10) -> Iterator[int]:
    """Tries of what a busy machine cannot prove, farther and farther apart: it is busy for minutes,
    not for a moment."""
    is_told = Session._evaluated is told.evaluated
    for number in range(1 if is_told else most):
        time.sleep(min(2.0 * number, 10.0))
        yield number


def run_until(is_settled: Callable[[Ran], bool], *words: object, **more: str) -> Ran:
    """The command, again while the machine is too busy for it to prove what is there."""
    for _ in attempts():
        ran = run(*words, **more)
        if is_settled(ran):
            break
    return ran


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
