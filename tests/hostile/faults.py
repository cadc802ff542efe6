"""Publish while GitHub fails: one request of a publication gets another answer, or none.

    trial("a regression", "cut after", at=4, folder=folder)

A fault comes before the request has an effect, or after: then the effect is there and its answer is
lost. `cancelled` ends the publisher at that request, as a cancelled run does. Afterwards the same
job runs again, as people do.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from cudal1_ci.github import client, rate_limit
from tests.github_fake import READ_ONLY, Answer, Cut, GitHub, Request, serving
from tests.github_git import Refused
from tests.publishing import REGRESSION, Workflow, workflow_run
from tests.reports import BASE, DIFF, HEAD, a_report, compared, proposed

BETTER = a_report(compared("improvement", 0.5), proposed())
WORDS = ("--fail-on", "regression", "--comment", "always")
TIMEOUT_S = 1
"""Of the client, so that a server that sends no answer does not take long."""
SECONDARY = "You have exceeded a secondary rate limit"


class Cancelled(BaseException):
    """End the publisher."""


FAULTS: dict[str, Any] = {
    "500": Refused(500, "broken"),
    "502": Refused(502, "Bad Gateway"),
    "503 page": (503, Cut("<html><body>Unicorn!</body></html>")),
    "401": Refused(401, "Bad credentials"),
    "403 read only": Refused(403, READ_ONLY),
    "403 secondary": Refused(403, SECONDARY),
    "403 primary": Refused(403, "API rate limit exceeded", {"x-ratelimit-remaining": "0"}),
    "404": Refused(404, "Not Found"),
    "409": Refused(409, "Conflict"),
    "410": Refused(410, "Gone"),
    "422": Refused(422, "Validation Failed"),
    "429": Refused(429, SECONDARY, {"retry-after": "1"}),
    "200 page": (200, Cut("<html>login</html>")),
    "200 empty": (200, {}),
    "200 list": (200, []),
    "cut": ConnectionResetError(),
    "late": None,
    "cancelled": Cancelled(),
    "500 after": Refused(500, "broken"),
    "half after": Cut(),
    "cut after": ConnectionResetError(),
    "late after": None,
    "cancelled after": Cancelled(),
    "comment deleted": "deleted",
    "comment of a later run": "later",
}
LATER = "<!-- cudal1-ci:v1 key={key} run=900 attempt=1 sha={sha} verdict=same -->\nlater"


@dataclass
class Faulty(GitHub):
    """A GitHub with one fault."""

    at: int = -1
    fault: str = ""
    count: int = 0
    cancels: bool = False

    def answer(self, request: Request, query: dict[str, str], token: str) -> Answer:
        self.count += 1
        if self.count != self.at:
            return super().answer(request, query, token)
        fault, after = FAULTS[self.fault], None
        if isinstance(fault, str):
            self.meddle(fault)
            return super().answer(request, query, token)
        if self.fault.endswith("after"):
            after = super().answer(request, query, token)
        if isinstance(fault, Cancelled):
            self.cancels = True
            fault = ConnectionResetError()
        if fault is None:
            threading.Event().wait(1.3 * TIMEOUT_S)  # as `sleep` does nothing here
            fault = ConnectionResetError()
        if isinstance(fault, Cut) and after is not None:
            return after[0], Cut(after[1], keeps=0.5)
        if isinstance(fault, Exception):
            raise fault
        answer: Answer = fault
        return answer

    def meddle(self, how: str) -> None:
        """Change our comment between what was read and what is written."""
        for number, comment in list(self.comments.items()):
            if how == "deleted":
                del self.comments[number]
            else:
                key = comment["body"].partition("key=")[2].split()[0]
                comment["body"] = LATER.format(key=key, sha=HEAD)


def prepared(flow: str, **fields: Any) -> Faulty:
    """Return a GitHub with the pull request of a flow."""
    github = Faulty(**fields)
    github.add_pull(7, HEAD)
    github.pulls[7]["base"]["sha"] = BASE
    github.files[7] = [{"filename": "pkg/model.py", "status": "modified", "patch": DIFF}]
    for branch, sha in (("main", BASE), ("feature", HEAD)):
        github.git.put(branch, {"pkg/model.py": ("100644", "x")}, sha)
    if flow.startswith("a fork"):
        github.pulls[7]["head"]["repo"] = {"full_name": "stranger/r"}
    return github


FLOWS: dict[str, tuple[Any, dict[str, Any]]] = {
    "a regression": (REGRESSION, {}),
    "an improvement": (BETTER, {}),
    "a fork's improvement": (BETTER, {"event": "workflow_run", "payload": workflow_run()}),
    "no report": (None, {}),
}
MUST_NOT_SUCCEED = ("a regression", "a fork's improvement", "no report")
FINDING = ("slower", "faster", "1 of 1")


@dataclass
class Row:
    """What came of one fault."""

    flow: str
    fault: str
    at: int
    code: int | None = None
    """Exit code; None of a run that was cancelled."""
    conclusions: list[str | None] = field(default_factory=list)
    after_rerun: str | None = None
    comments: int = 0
    wrong: list[str] = field(default_factory=list)


def skip(seconds: float) -> None:
    """Wait no time."""


@contextlib.contextmanager
def quick() -> Iterator[None]:
    """Make the client's pauses short: what is tried is what it does after them."""
    with (
        mock.patch.object(client, "SECONDS_BETWEEN_WRITES", 0),
        mock.patch.object(client, "TIMEOUT_S", TIMEOUT_S),
        mock.patch.object(client, "Patience", functools.partial(rate_limit.Patience, sleep=skip)),
        mock.patch.object(rate_limit.time, "sleep", skip),
    ):
        yield


def publish(github: Faulty, folder: Path, flow: str) -> tuple[int | None, str]:
    """Run the publishing job. A cancelled one ends with its next step: no code, and no words."""
    report, given = FLOWS[flow]
    (folder / "summary.md").unlink(missing_ok=True)
    ask = rate_limit.Patience.ask

    def asked(self: Any, request: Callable[[], Any], *, is_repeatable: bool) -> Any:
        try:
            return ask(self, lambda: checked(request), is_repeatable=is_repeatable)
        finally:
            if github.cancels:
                raise Cancelled

    def checked(request: Callable[[], Any]) -> Any:
        if github.cancels:
            raise Cancelled
        return request()

    try:
        with mock.patch.object(rate_limit.Patience, "ask", asked):
            words = WORDS if report is not None else ("--abandon", *WORDS)
            result = Workflow(github, folder).publish(report, *words, **given)
    except Cancelled:
        return None, ""
    if isinstance(result.exception, Cancelled):
        return None, ""
    return result.exit_code, result.output


def whole(flow: str, folder: Path) -> tuple[set[str | None], int]:
    """Return the conclusions without a fault, and how many requests that takes."""
    with quick(), serving(prepared(flow)) as github:
        code, said = publish(github, folder, flow)  # type: ignore[arg-type]
        assert code == 0, said
        return {one["conclusion"] for one in github.checks.values()}, github.count  # type: ignore[attr-defined]


def trial(flow: str, fault: str, at: int, folder: Path, expected: set[str | None]) -> Row:
    """Publish with a fault, and again without; return what is wrong then."""
    row = Row(flow, fault, at)
    github = prepared(flow, at=at, fault=fault)
    if isinstance(FAULTS[fault], str):  # there must be a comment to meddle with
        github.at = -1
        with quick(), serving(github):
            publish(github, folder, flow)
        github.at, github.count = at, 0
    with quick(), serving(github):
        row.code, said = publish(github, folder, flow)
        if row.code not in (0, 5, None):
            row.wrong.append(f"exit code {row.code}: {said[-300:]}")
        summary = folder / "summary.md"
        text = summary.read_text() if summary.exists() else ""
        if row.code is not None and flow != "no report" and not any(w in text for w in FINDING):
            row.wrong.append("the summary lacks the measurement")
        row.conclusions = [one.get("conclusion") for one in github.checks.values()]
        if not set(row.conclusions) <= {*expected, None, "failure", "neutral"}:
            row.wrong.append(f"a check says {row.conclusions}")
        if flow in MUST_NOT_SUCCEED and "success" in row.conclusions:
            row.wrong.append("a success")
        github.at, github.cancels = -1, False
        code, said = publish(github, folder, flow)
        if code != 0:
            row.wrong.append(f"the job that runs again: exit code {code}: {said[-300:]}")
        if github.checks:
            row.after_rerun = github.checks[max(github.checks)].get("conclusion")
        if {row.after_rerun} != expected:
            row.wrong.append(f"after it runs again the check says {row.after_rerun}")
        row.comments = len(github.comments)
        if row.comments != (flow != "no report"):
            row.wrong.append(f"{row.comments} comments")
    return row


def as_json(row: Row) -> dict[str, Any]:
    return asdict(row)
