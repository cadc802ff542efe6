"""A job as a runner starts it: a checkout with a base and a head, an event, the variables, verbs
that only note what they were asked."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cudal1_ci.records import (
    Comparison,
    Device,
    Entry,
    Report,
)
from cudal1_ci.render import render
from tests import reports

OWN, FORK = "own/repository", "stranger/repository"
SLOW = "def f(x):\n    return x @ x\n"


def git(root: Path, *words: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"]
    done = subprocess.run(
        ["git", *identity, *words], cwd=root, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def commit(root: Path, files: Mapping[str, str], message: str = "one") -> str:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    git(root, "add", "-A")
    git(root, "commit", "-qm", message)
    return git(root, "rev-parse", "HEAD")


def an_entry(qualname: str, verdict: str | None, **comparison: Any) -> Entry:
    return Entry(
        target=reports.a_target(qualname, "model.py", 1),
        evaluations=(),
        comparison=Comparison(verdict=verdict, **comparison) if verdict else None,
    )


def a_report(*entries: Entry, **fields: Any) -> Report:
    device = Device(kind="cpu", name="Some CPU")
    known = {"repository": OWN, "base_sha": None, "head_sha": None, "device": device}
    return reports.a_report(*entries, **(known | {"devices": (device,)} | fields))


class Job:
    """A checkout of two commits, and the job of an event in it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "workspace"
        self.root.mkdir(parents=True)
        self.temp = folder / "temp"
        self.temp.mkdir()
        git(self.root, "init", "-q")
        self.base = commit(self.root, {"model.py": "def f(x):\n    return x\n"})
        git(self.root, "checkout", "-q", "-b", "topic")
        self.head = commit(self.root, {"model.py": SLOW}, "two")
        self.asked: list[tuple[list[str], dict[str, str]]] = []
        self.codes: dict[str, int] = {}
        self.reports: dict[str, Report] = {
            "compare": a_report(an_entry("f", "same")),
            "scan": a_report(an_entry("f", None)),
        }

    def pull_request(self, head_repository: str | None = OWN) -> dict[str, Any]:
        repo = {"full_name": head_repository} if head_repository else None
        return {
            "number": 7,
            "repository": {"full_name": OWN},
            "pull_request": {
                "number": 7,
                "base": {"sha": self.base, "ref": "main", "repo": {"full_name": OWN}},
                "head": {"sha": self.head, "ref": "topic", "repo": repo},
            },
        }

    def environment(
        self, event: Mapping[str, Any] | None = None, name: str = "pull_request", **more: str
    ) -> dict[str, str]:
        (self.temp / "event.json").write_text(json.dumps(event or self.pull_request()))
        return {
            "PATH": "/usr/bin",
            "RUNNER_TEMP": str(self.temp),
            "RUNNER_ENVIRONMENT": "self-hosted",
            "GITHUB_WORKSPACE": str(self.root),
            "GITHUB_EVENT_NAME": name,
            "GITHUB_EVENT_PATH": str(self.temp / "event.json"),
            "GITHUB_REPOSITORY": OWN,
            "GITHUB_OUTPUT": str(self.temp / "output"),
            "GITHUB_STEP_SUMMARY": str(self.temp / "summary"),
            **more,
        }

    def run(
        self, words: Sequence[str], *, cwd: Path, environment: Mapping[str, str], limit_s: float
    ) -> int:
        """In place of `children.run_verb`."""
        self.asked.append((list(words), dict(environment)))
        code = self.codes.get(words[0], 0)
        if "--json" in words and words[0] in self.reports and code in (0, 1, 3, 6):
            file = Path(words[words.index("--json") + 1])
            file.write_text(render(self.reports[words[0]], "json"))
        return code

    @property
    def verbs(self) -> list[str]:
        return [words[0] for words, _ in self.asked]

    @property
    def outputs(self) -> dict[str, str]:
        lines = (self.temp / "output").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)

    @property
    def summary(self) -> str:
        return (self.temp / "summary").read_text()
