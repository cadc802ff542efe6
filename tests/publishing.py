"""`cudal1-ci publish` as a step of a workflow, and what tests ask of a GitHub after it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from click.testing import CliRunner, Result

from cudal1_ci.cli import main
from cudal1_ci.records import Report
from tests.github_fake import MAIN, TOKEN, GitHub, Request
from tests.reports import BASE, HEAD, a_report, compared, proposed, written

NEXT = "2" * 40
REGRESSION = a_report(compared("regression"))
SAME = a_report(compared("same", 1.0))
PROPOSAL = a_report(proposed())


@dataclass
class Workflow:
    """Runs of one workflow, each with its own environment."""

    github: GitHub
    folder: Path
    token: str | None = TOKEN

    def environment(self, event: str, payload: Any, run: int, attempt: int) -> dict[str, str]:
        path = self.folder / "event.json"
        path.write_text(json.dumps(payload))
        known = {
            "GITHUB_EVENT_NAME": event,
            "GITHUB_EVENT_PATH": str(path),
            "GITHUB_REPOSITORY": "o/r",
            "GITHUB_RUN_ID": str(run),
            "GITHUB_RUN_ATTEMPT": str(attempt),
            "GITHUB_WORKFLOW": "Speed -->",
            "GITHUB_SHA": "f" * 40,
            "GITHUB_API_URL": self.github.url,
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md"),
            "GITHUB_ACTIONS": "true",
        }
        return {**known, "GITHUB_TOKEN": self.token} if self.token else known

    def publish(
        self,
        report: Report | Path | None,
        *words: str,
        sha: str = HEAD,
        run: int = 100,
        attempt: int = 1,
        event: str = "pull_request",
        payload: Any = None,
    ) -> Result:
        if isinstance(report, Report):
            report = written(self.folder / "report.json", report)
        given = payload or pull_request(sha)
        environ = self.environment(event, given, run, attempt)
        files = [str(report)] if report else []
        nothing: dict[str, str | None] = {
            name: None for name in os.environ if name.startswith("GITHUB_")
        }
        return CliRunner().invoke(main, ["publish", *files, *words], env={**nothing, **environ})

    @property
    def summary(self) -> str:
        return (self.folder / "summary.md").read_text()


def pull_request(
    sha: str = HEAD, repository: str = "o/r", *, number: int = 7, base_branch: str = "main"
) -> Any:
    head = {"sha": sha, "ref": "feature", "repo": {"full_name": repository}}
    base = {"sha": BASE, "ref": base_branch, "repo": MAIN}
    pull = {"number": number, "head": head, "base": base}
    return {"action": "synchronize", "number": number, "pull_request": pull, "repository": MAIN}


def workflow_run(sha: str = HEAD, repository: str = "stranger/r", run: int = 55) -> Any:
    return {
        "action": "completed",
        "workflow_run": {
            "id": run,
            "run_attempt": 2,
            "event": "pull_request",
            "head_sha": sha,
            "head_branch": "feature",
            "head_repository": {"full_name": repository},
            "pull_requests": [],
        },
    }


def at(report: Report, sha: str) -> Report:
    return msgspec.structs.replace(report, head_sha=sha)


def bodies(github: GitHub) -> list[str]:
    return [c["body"] for c in github.comments.values()]


def the_check(github: GitHub) -> dict[str, Any]:
    (check,) = github.checks.values()
    return check


def posted(github: GitHub, kind: str) -> list[Request]:
    return [w for w in github.writes if kind in w.path]
