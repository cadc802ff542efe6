"""Kills and faults of the API: no measurement is lost, and no check says what was not measured."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cudal1_ci.github import client, rate_limit
from tests.github_fake import READ_ONLY, Answer, GitHub, Request, serving
from tests.github_git import Refused
from tests.publishing import REGRESSION, Workflow, workflow_run
from tests.reports import BASE, DIFF, HEAD, a_report, compared, proposed

ROOT = Path(__file__).parents[2]
BETTER = a_report(compared("improvement", 0.5), proposed())
KILLS = {"archive": 150, "report": 100, "trees": 40, "command": 20}
SLOW = pytest.mark.slow
FAULTS: dict[str, Any] = {
    "broken once": Refused(500, "broken"),
    "a gateway": Refused(502, "Bad Gateway"),
    "read only": Refused(403, READ_ONLY),
    "not found": Refused(404, "Not Found"),
    "unprocessable": Refused(422, "Validation Failed"),
    "gone": Refused(410, "Gone"),
    "a limit": Refused(429, "You have exceeded a secondary rate limit", {"retry-after": "1"}),
    "a cut line": ConnectionResetError(),
    "an empty answer": (200, {}),
    "a list": (200, []),
}


@dataclass
class Faulty(GitHub):
    """A GitHub one of whose answers is another one."""

    at: int = -1
    fault: Any = None
    count: int = 0

    def answer(self, request: Request, query: dict[str, str], token: str) -> Answer:
        self.count += 1
        if self.count == self.at:
            if isinstance(self.fault, Exception):
                raise self.fault
            return self.fault
        return super().answer(request, query, token)


def prepared(**fields: Any) -> Faulty:
    github = Faulty(**fields)
    github.add_pull(7, HEAD)
    github.pulls[7]["base"]["sha"] = BASE
    github.files[7] = [{"filename": "pkg/model.py", "status": "modified", "patch": DIFF}]
    for branch, sha in (("main", BASE), ("feature", HEAD)):
        github.git.put(branch, {"pkg/model.py": ("100644", "x")}, sha)
    return github


def of_a_fork(github: Faulty) -> Faulty:
    github.pulls[7]["head"]["repo"] = {"full_name": "stranger/r"}
    return github


WORDS = ("--fail-on", "regression", "--comment", "always")
FLOWS: dict[str, tuple[Any, dict[str, Any], Callable[[Faulty], Faulty]]] = {
    "a regression": (REGRESSION, {}, lambda it: it),
    "an improvement": (BETTER, {}, lambda it: it),
    "a fork's improvement": (
        BETTER,
        {"event": "workflow_run", "payload": workflow_run()},
        of_a_fork,
    ),
}
MUST_NOT_SUCCEED = ("a regression", "a fork's improvement")


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(client, "SECONDS_BETWEEN_WRITES", 0)
    monkeypatch.setattr(rate_limit.time, "sleep", lambda _: None)


def posted(github: Faulty, folder: Path, flow: str) -> tuple[int, str]:
    report, given, _ = FLOWS[flow]
    (folder / "summary.md").unlink(missing_ok=True)
    result = Workflow(github, folder).publish(report, *WORDS, **given)
    return result.exit_code, result.output


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize(
    "fault", [one if one == "a gateway" else pytest.param(one, marks=SLOW) for one in FAULTS]
)
def test_no_fault_of_the_api_loses_a_measurement_or_makes_a_check_lie(tmp_path, capfd, flow, fault):
    """Each request of a publication in turn gets this answer instead of its own."""
    with serving(FLOWS[flow][2](prepared())) as whole:
        assert posted(whole, tmp_path, flow)[0] == 0
        expected = {one["conclusion"] for one in whole.checks.values()}
        num_requests = whole.count
    assert num_requests >= 5
    for at in range(1, num_requests + 1):
        github = FLOWS[flow][2](prepared(at=at, fault=FAULTS[fault]))
        with serving(github):
            code, said = posted(github, tmp_path, flow)
            assert code in (0, 5), (at, code, said)
            summary = (tmp_path / "summary.md").read_text()
            assert "1 of 1" in summary or "faster" in summary or "slower" in summary, (at, summary)
            found = {one.get("conclusion") for one in github.checks.values()}
            assert found <= {*expected, None, "failure", "neutral"}, (at, found)
            if flow in MUST_NOT_SUCCEED:
                assert "success" not in found, (at, found)
            github.at = -1  # and then the job is run again
            code, said = posted(github, tmp_path, flow)
            assert code == 0, (at, said)
            last = github.checks[max(github.checks)]
            assert {last["conclusion"]} == expected, (at, last)
            assert len(github.comments) == 1, at
    capfd.readouterr()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KILLS)
def test_a_kill_at_any_moment_loses_nothing_that_was_acknowledged(tmp_path, kind):
    words = [sys.executable, "-m", "tests.hostile.killed", kind, str(KILLS[kind]), str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=250)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
