"""`/cudal1 ...` against a GitHub on this machine: what is done, for whom, and what is not."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from cudal1_ci.cli import main
from cudal1_ci.errors import ConfigError, ForgeError
from cudal1_ci.github import client
from cudal1_ci.github.acknowledgements import agreements_of
from cudal1_ci.github.action.admission import PHRASE
from cudal1_ci.github.action.commands import commands
from cudal1_ci.github.command_effects import ON_REQUEST
from cudal1_ci.github.marker import marker_of
from cudal1_ci.records import Report
from cudal1_ci.records.published import to_json
from cudal1_ci.render.digest import digest
from tests.github_fake import ACTIONS, MAIN, READ_ONLY, TOKEN, GitHub
from tests.reports import (
    DIFF,
    HEAD,
    MODEL,
    PATCH,
    a_report,
    a_target,
    agreed,
    compared,
    lacking,
    proposed,
    written,
)

ROOT = Path(__file__).parents[2]
NEXT = "2" * 40
RUN = 100
REGRESSION = a_report(compared("regression"))
PROPOSAL = a_report(proposed())
ID = str(digest(PROPOSAL).proposals[0].id)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(client, "SECONDS_BETWEEN_WRITES", 0)


@pytest.fixture
def github(served) -> Iterator[GitHub]:
    read = yaml.safe_load((ROOT / "templates" / "workflows" / ON_REQUEST).read_text("utf-8"))
    with served(GitHub(permissions={"me": "write"})) as fake:
        fake.git.put("main", {}, "b" * 40)
        fake.git.put("feature", {"pkg/model.py": ("100644", "\n".join(MODEL) + "\n")}, HEAD)
        fake.workflows[ON_REQUEST] = set(read[True]["workflow_dispatch"]["inputs"])
        fake.add_pull(7, HEAD)
        fake.tick(60)
        yield fake


@dataclass
class Rig:
    """A repository in which reports are posted and comments are answered."""

    github: GitHub
    folder: Path

    def environment(self, event: str, payload: Any, run: int, workflow: str) -> dict[str, str]:
        path = self.folder / "event.json"
        path.write_text(json.dumps(payload))
        return {
            "GITHUB_EVENT_NAME": event,
            "GITHUB_EVENT_PATH": str(path),
            "GITHUB_REPOSITORY": "o/r",
            "GITHUB_RUN_ID": str(run),
            "GITHUB_WORKFLOW": workflow,
            "GITHUB_SHA": "f" * 40,
            "GITHUB_API_URL": self.github.url,
            "GITHUB_TOKEN": TOKEN,
            "GITHUB_ACTIONS": "true",
            "GITHUB_OUTPUT": str(self.folder / "output"),
            "RUNNER_TEMP": str(self.folder),
        }

    def publish(
        self,
        report: Report,
        sha: str = HEAD,
        run: int = RUN,
        words: tuple[str, ...] = (),
        **more: str,
    ) -> None:
        """As the measuring workflow does, a minute before anybody reads it."""
        report = msgspec.structs.replace(report, head_sha=sha)
        file = written(self.folder / "posted.json", report)
        head = {"sha": sha, "ref": "feature", "repo": {"full_name": "o/r"}}
        base = {"sha": "b" * 40, "ref": "main", "repo": MAIN}
        base["ref"] = self.github.pulls[7]["base"]["ref"]
        event = {"pull_request": {"number": 7, "head": head, "base": base}, "repository": MAIN}
        environ = self.environment("pull_request", event, run, more.pop("workflow", "cudal1-ci"))
        known: dict[str, str | None] = {n: None for n in os.environ if n.startswith("GITHUB_")}
        all_words = ["publish", str(file), "--commands", "--no-suggestions", *words]
        done = CliRunner().invoke(main, all_words, env={**known, **environ})
        assert done.exit_code == 0, done.output
        self.github.tick(60)

    def artifact(self, report: Report | str) -> None:
        """What actions/download-artifact finds of the run."""
        folder = self.folder / "cudal1-ci" / "reports" / "cudal1-ci-gpu"
        folder.mkdir(parents=True, exist_ok=True)
        if isinstance(report, str):
            (folder / "report.json").write_text(report)
        else:
            written(folder / "report.json", report)

    def event(self, body: str, author: str = "me", **more: Any) -> dict[str, Any]:
        """A comment, made now."""
        number = self.github.add_comment(7, body, author)
        comment = {**self.github.comments[number], **more}
        comment["user"] = {"login": author, "type": "User", **more.get("user", {})}
        self.github.tick(5)
        return {
            "action": "created",
            "issue": {"number": 7, "pull_request": {"url": "u"}},
            "comment": comment,
            "repository": MAIN,
        }

    def answer(self, event: dict[str, Any], **inputs: str) -> int:
        """Both steps of the action; the second only where the first wants a report."""
        environ = self.environment("issue_comment", event, 500, "cudal1-ci commands")
        output = self.folder / "output"
        output.unlink(missing_ok=True)
        code = commands({**environ, **inputs})
        wanted = output.read_text() if output.exists() else ""
        if wanted:
            assert wanted == f"report-run={RUN}\n"
            code = commands({**environ, **inputs, "REPORT_RUN": str(RUN)})
        return code

    def say(self, body: str, author: str = "me", **inputs: str) -> int:
        return self.answer(self.event(body, author), **inputs)

    @property
    def replies(self) -> list[str]:
        ours = [c["body"] for c in self.github.comments.values() if c["user"]["login"] == ACTIONS]
        return [body for body in ours if marker_of(body) is None]

    @property
    def report_comment(self) -> str:
        bodies = [c["body"] for c in self.github.comments.values()]
        (body,) = [body for body in bodies if marker_of(body)]
        return body

    @property
    def reactions(self) -> list[str]:
        return [content for all_of in self.github.reactions.values() for content in all_of]


@pytest.fixture
def rig(github, tmp_path) -> Rig:
    return Rig(github, tmp_path)


def test_a_command_in_the_thread_of_a_suggestion_is_answered_there(rig, github):
    github.files[7] = [{"filename": "pkg/model.py", "status": "modified", "patch": DIFF}]
    rig.publish(a_report(proposed()))
    github.review_comments[900] = {
        "id": 900,
        "pull": 7,
        "path": "pkg/model.py",
        "line": 6,
        "side": "RIGHT",
        "body": "/cudal1 help",
        "user": {"login": "me"},
        "updated_at": github.stamp,
    }
    event = rig.event("unused")
    comment = {**event["comment"], "id": 900, "body": "/cudal1 help"}
    in_review = {
        **{name: event[name] for name in ("action", "repository")},
        "comment": comment,
        "pull_request": {"number": 7},
    }
    environ = rig.environment("pull_request_review_comment", in_review, 500, "cudal1-ci commands")
    for _ in range(2):
        assert commands(environ) == 0
    answers = [c["body"] for c in github.review_comments.values() if "/cudal1 apply" in c["body"]]
    assert len(answers) == 1, "a run that is started again answers no second time"
    assert rig.replies == []


def test_what_was_lost_is_agreed_to_and_the_check_is_a_success(rig, github):
    report = a_report(lacking("lost"), compared("same", 1.0, target=a_target("other")))
    rig.publish(report, words=("--fail-on", "regression"))
    rig.artifact(report)
    assert rig.say("/cudal1 ack pool nothing uses it any more", INPUT_FAIL_ON="regression") == 0
    assert [c["conclusion"] for c in github.checks.values()] == ["failure", "success"]
    assert "that it was not measured is acknowledged by me" in rig.report_comment


# --- run, optimize, skip, help -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "include", "optimize"),
    [
        ("/cudal1 run", "", "false"),
        (f"/cudal1 run {HEAD}", "", "false"),
        ("/cudal1 optimize", "", "true"),
        ("/cudal1 optimize src/**/*.py", "src/**/*.py", "true"),
    ],
)
def test_a_measurement_is_started_on_the_default_branch(rig, github, body, include, optimize):
    assert rig.say(body) == 0
    ((file, inputs),) = github.dispatched
    assert file == ON_REQUEST
    assert inputs == {
        "pull-request": "7",
        "sha": HEAD,
        "base": "b" * 40,
        "include": include,
        "optimize": optimize,
    }
    assert rig.reactions == ["rocket"]
    assert not rig.replies


@pytest.mark.parametrize("body", ["/cudal1 run", f"/cudal1 run {HEAD}"])
def test_the_requests_own_run_is_started_again_where_there_is_one(rig, github, body):
    """On the default branch it would write the cache that later jobs of that branch read."""
    rig.publish(REGRESSION)
    assert rig.say(body) == 0
    assert github.run_again_ids == [RUN]
    assert not github.dispatched
    assert rig.reactions == ["rocket"]


def test_a_run_of_an_older_head_is_not_started_again(rig, github):
    rig.publish(REGRESSION)
    github.push(7, NEXT)
    github.tick(60)
    assert rig.say(f"/cudal1 run {NEXT}") == 0
    assert not github.run_again_ids
    ((_, inputs),) = github.dispatched
    assert inputs["sha"] == NEXT


def test_what_is_measured_on_request_is_posted_where_the_request_says(rig, github):
    rig.publish(REGRESSION)
    file = written(rig.folder / "again.json", a_report(compared("same", 1.0)))
    event = {"inputs": {"pull-request": "7", "sha": HEAD, "optimize": "false"}}
    environ = rig.environment("workflow_dispatch", event, 200, "cudal1-ci on request")
    words = ["publish", str(file), "--workflow", "cudal1-ci", "--commands"]
    done = CliRunner().invoke(main, words, env=environ)
    assert done.exit_code == 0, done.output
    assert marker_of(rig.report_comment).run == 200, "one comment, edited"


def test_a_report_beside_the_usual_one_has_its_own_comment_and_no_check(rig, github):
    rig.publish(REGRESSION)
    checks = len(github.checks)
    file = written(rig.folder / "optimized.json", PROPOSAL)
    event = {"inputs": {"pull-request": "7", "sha": HEAD, "optimize": "true"}}
    environ = rig.environment("workflow_dispatch", event, 200, "cudal1-ci on request")
    words = ["publish", str(file), "--workflow", "cudal1-ci optimize", "--no-check"]
    assert CliRunner().invoke(main, words, env=environ).exit_code == 0
    assert len(github.checks) == checks
    markers = [marker_of(c["body"]) for c in github.comments.values()]
    assert [(m.run, m.verdict) for m in markers] == [(RUN, "regression"), (200, "same")]


def test_skip_puts_the_label_on_and_help_is_one_reply(rig, github):
    assert rig.say("/cudal1 skip") == 0
    assert github.labels[7] == ["cudal1:skip"]
    assert rig.say("/cudal1 help") == 0
    (reply,) = rig.replies
    assert "/cudal1 ack <target> <reason>" in reply
    assert rig.reactions == ["rocket"]


def test_a_command_that_nobody_knows_is_told_so_once_and_starts_nothing(rig, github):
    event = rig.event("/cudal1 run @everyone $(id) `x`")
    assert rig.answer(event) == 0
    assert rig.answer(event) == 0, "the run was started again"
    (reply,) = rig.replies
    assert "there is no such command" in reply
    assert "@everyone" not in re.sub(r"``.*?``", "", reply), "in code it calls nobody"
    assert not github.dispatched
    assert rig.reactions == ["confused", "confused"]


# --- who, and which comment ----------------------------------------------------------------------


@pytest.mark.parametrize("permission", ["read", "triage", "none", "WRITE", ""])
@pytest.mark.parametrize("body", ["/cudal1 run", "/cudal1 help", "/cudal1 nonsense"])
def test_who_may_not_write_gets_a_reaction_and_no_reply(rig, github, permission, body):
    github.permissions["stranger"] = permission
    event = rig.event(body, "stranger")
    event["comment"]["author_association"] = "OWNER"
    assert rig.answer(event) == 0
    assert rig.reactions == ["confused"]
    assert not rig.replies
    assert not github.dispatched
    assert not [r for r in github.requests if "/pulls/" in r.path], "nothing else is asked"


def test_somebody_unknown_is_nobody(rig, github):
    github.refuse("GET", "/permission", 404, "Not Found")
    assert rig.say("/cudal1 run", "ghost") == 0
    assert not github.dispatched


@pytest.mark.parametrize("permission", ["maintain", "admin"])
def test_maintainers_and_admins_are_obeyed(rig, github, permission):
    github.permissions["boss"] = permission
    assert rig.say("/cudal1 run", "boss") == 0
    assert len(github.dispatched) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"comment": {"updated_at": "2026-01-01T23:00:00Z"}},
        {"action": "edited"},
        {"action": "deleted"},
        {"issue": {"pull_request": None}},
        {"comment": {"user": {"login": "app[bot]", "type": "Bot"}}},
        {"comment": {"user": {"login": "me/../x", "type": "User"}}},
        {"comment": {"user": None}},
        {"comment": {"body": None}},
        {"comment": {"body": "Try\n```\n/cudal1 run\n```\n> /cudal1 run\n /cudal1 run"}},
    ],
)
def test_a_comment_that_is_not_obeyed_asks_nobody(rig, github, change):
    event = rig.event("/cudal1 run")
    for key, value in change.items():
        event[key] = {**event[key], **value} if isinstance(value, dict) else value
    assert rig.answer(event) == 0
    assert not github.requests


def test_another_event_is_an_error(rig):
    environ = rig.environment("push", {"before": "b" * 40, "after": HEAD}, 1, "x")
    with pytest.raises(ConfigError, match="issue_comment"):
        commands(environ)


def test_the_token_is_in_nothing_that_is_printed_or_sent(rig, github, capsys):
    github.refuse("POST", "/dispatches", 500, "broken")
    assert rig.say("/cudal1 run") == 5
    printed = capsys.readouterr()
    assert TOKEN not in printed.out + printed.err
    assert not any(TOKEN in request.body for request in github.requests)


# --- which commit --------------------------------------------------------------------------------


@pytest.mark.parametrize("body", ["/cudal1 run", "/cudal1 optimize", "/cudal1 ack pool because"])
def test_a_push_between_the_comment_and_its_run_is_not_acted_on(rig, github, body):
    rig.publish(REGRESSION)
    event = rig.event(body)
    github.push(7, NEXT)
    before = rig.report_comment
    assert rig.answer(event) == 0
    assert not github.dispatched
    assert rig.report_comment == before
    (reply,) = rig.replies
    assert f"repeat the command with its sha: `{NEXT}`" in reply


def test_a_sha_that_is_not_the_head_is_refused_however_old_it_is(rig, github):
    event = rig.event(f"/cudal1 run {HEAD}")
    github.push(7, NEXT)
    assert rig.answer(event) == 0
    assert not github.dispatched
    assert NEXT in rig.replies[0]


def test_the_sha_of_the_head_is_enough_where_github_knows_no_suite(rig, github):
    github.suites[HEAD] = []
    assert rig.say("/cudal1 run") == 0
    assert not github.dispatched
    assert rig.say(f"/cudal1 run {HEAD}") == 0
    assert len(github.dispatched) == 1


def test_a_suite_of_the_same_second_is_not_older(rig, github):
    event = rig.event("/cudal1 run")
    github.pulls[7]["head"]["sha"] = NEXT
    github.suites[NEXT] = [msgspec.convert(event["comment"]["created_at"], type(github.now))]
    assert rig.answer(event) == 0
    assert not github.dispatched


def test_a_closed_pull_request_is_not_measured(rig, github):
    github.pulls[7]["state"] = "closed"
    assert rig.say("/cudal1 run") == 0
    assert "closed" in rig.replies[0]
    assert not github.dispatched


# --- forks ---------------------------------------------------------------------------------------


def from_a_fork(github: GitHub, repository: str | None = "stranger/r") -> None:
    repo = {"full_name": repository} if repository else None
    github.pulls[7]["head"]["repo"] = repo


@pytest.mark.parametrize("repository", ["stranger/r", None])
@pytest.mark.parametrize("body", ["/cudal1 run", f"/cudal1 optimize {HEAD}"])
def test_code_of_a_fork_is_not_measured_on_request(rig, github, repository, body):
    from_a_fork(github, repository)
    assert rig.say(body) == 0
    assert not github.dispatched
    assert "comes from another repository" in rig.replies[0]


def test_the_phrase_lets_code_of_a_fork_run_and_no_other_does(rig, github):
    from_a_fork(github)
    with pytest.raises(ConfigError, match="allow-fork-code"):
        rig.say("/cudal1 run", INPUT_ALLOW_FORK_CODE="yes")
    assert rig.say("/cudal1 run", INPUT_ALLOW_FORK_CODE=PHRASE) == 0
    assert len(github.dispatched) == 1


@pytest.mark.parametrize("permission", ["admin", "maintain", "write"])
@pytest.mark.parametrize("verb", ["run", "optimize"])
def test_a_maintainer_vouches_for_a_forks_commit_by_its_sha(rig, github, permission, verb):
    from_a_fork(github)
    github.permissions["boss"] = permission
    assert rig.say(f"/cudal1 {verb}", "boss") == 0
    assert f"/cudal1 {verb} {HEAD}" in rig.replies[0]
    assert not github.dispatched
    assert rig.say(f"/cudal1 {verb} {HEAD}", "boss") == 0
    measured = [inputs["sha"] for _, inputs in github.dispatched]
    assert measured == ([] if permission == "write" else [HEAD])
    assert not github.run_again_ids, "that would be the fork's own workflow"


def test_nothing_is_written_into_a_fork(rig, github):
    rig.publish(PROPOSAL)
    rig.artifact(PROPOSAL)
    from_a_fork(github)
    assert rig.say(f"/cudal1 apply {ID}") == 0
    assert "git apply" in rig.replies[0]
    assert len(github.pulls) == 1


# --- ack -----------------------------------------------------------------------------------------


def acknowledged(rig: Rig, body: str = "/cudal1 ack pkg/model.py:pool safer --> <b> @me") -> None:
    rig.publish(REGRESSION)
    rig.artifact(REGRESSION)
    assert rig.say(body, INPUT_FAIL_ON="regression") == 0
    assert not rig.replies


@pytest.mark.parametrize("event", ["pull_request", "workflow_dispatch", None])
def test_to_agree_does_not_vouch_for_a_forks_report(rig, github, event):
    """What was measured on request, here, is believed; what the fork's own job says is not."""
    from_a_fork(github)
    github.contents["b" * 40, "pyproject.toml"] = GATE
    if event is not None:
        github.runs[RUN], github.run_events[RUN] = "completed", event
    acknowledged(rig, f"/cudal1 ack pool {HEAD} safer")
    is_vouched = event == "workflow_dispatch"
    assert last_check(github) == (HEAD, "success" if is_vouched else "failure")
    assert ("Unverified: a job of the fork" in rig.report_comment) == (not is_vouched)


GATE = "[tool.cudal1-ci]\nfail-on = 'regression'\n"
LENIENT = "[tool.cudal1-ci]\nfail-on = 'never'\n"
OPEN = (compared("regression"), compared("regression", target=a_target("other")))


@pytest.mark.parametrize("declared", [False, True])
def test_the_gate_of_an_agreement_is_not_that_of_the_folder_a_report_names(rig, github, declared):
    github.contents["b" * 40, "pyproject.toml"] = GATE
    github.contents["b" * 40, "examples/pyproject.toml"] = LENIENT
    report = msgspec.structs.replace(a_report(*OPEN), folder="examples")
    rig.publish(report)
    rig.artifact(report)
    inputs = {"INPUT_PROJECTS": '["examples"]'} if declared else {}
    assert rig.say("/cudal1 ack examples/pkg/model.py:pool fine", **inputs) == 0
    assert "is acknowledged by me" in rig.report_comment
    assert last_check(github)[1] == ("neutral" if declared else "failure")


def test_a_project_that_has_left_no_report_is_missed_where_another_is_agreed_to(rig, github):
    report = msgspec.structs.replace(REGRESSION, folder="a")
    rig.publish(report, words=("--fail-on", "regression", "--project", "a", "--project", "b"))
    rig.artifact(report)
    projects = {"INPUT_FAIL_ON": "regression", "INPUT_PROJECTS": '["a", "b"]'}
    assert rig.say("/cudal1 ack pool fine", **projects) == 0
    last = {check["name"]: check["conclusion"] for check in github.checks.values()}
    assert last == {"cudal1-ci (a)": "success", "cudal1-ci (b)": "failure"}


def test_a_report_agrees_to_nothing_where_the_settings_of_the_base_cannot_be_read(rig, github):
    github.contents["b" * 40, "pyproject.toml"] = "[tool.cudal1-ci.gate]\nmachines = 3\n"
    forged = compared("regression", acknowledged=agreed(9.0), target=a_target("other"))
    report = a_report(compared("regression"), forged)
    rig.publish(report, words=("--fail-on", "regression"))
    rig.artifact(report)
    assert last_check(github)[1] == "failure"
    assert rig.say("/cudal1 ack pkg/model.py:pool fine", INPUT_FAIL_ON="regression") == 0
    assert last_check(github)[1] == "failure"


def last_check(github: GitHub) -> tuple[str, str]:
    check = github.checks[max(github.checks)]
    return check["head_sha"], check["conclusion"]


@pytest.mark.parametrize("target", ["pkg/model.py:pool", "pool", f"pool {HEAD}"])
def test_a_regression_is_agreed_to_in_the_comment_and_the_check(rig, github, target):
    acknowledged(rig, f"/cudal1 ack {target} safer --> <b> @me")
    (agreed,) = agreements_of(rig.report_comment)
    assert (agreed.target, agreed.owner) == ("pkg/model.py:pool", "me")
    assert agreed.max_slowdown == pytest.approx(1.53), "the upper end of what was measured"
    assert agreed.reason == "safer --> <b> @\u200bme"
    body = rig.report_comment
    assert marker_of(body).verdict == "acknowledged"
    assert (marker_of(body).run, marker_of(body).sha) == (RUN, HEAD)
    assert "is acknowledged by me until this pull request is closed" in body
    assert body.splitlines()[1].count("-->") == 1, "the reason cannot end the hidden line"
    assert last_check(github) == (HEAD, "success")
    assert rig.reactions == ["eyes", "rocket"]


@pytest.mark.parametrize(
    ("slowdown", "verdict"), [(1.5, "acknowledged"), (1.52, "acknowledged"), (1.6, "regression")]
)
def test_a_later_report_is_covered_as_far_as_was_agreed(rig, github, slowdown, verdict):
    acknowledged(rig)
    github.push(7, NEXT)
    rig.publish(a_report(compared("regression", slowdown)), NEXT, RUN + 1)
    bodies = [c["body"] for c in github.comments.values() if marker_of(c["body"])]
    assert marker_of(bodies[-1]).verdict == verdict
    assert agreements_of(bodies[-1]), "it is kept in the comment that stands"
    if verdict == "regression":
        assert "me agreed to 1.53x for pool; it is 1.6x" in bodies[-1]
        assert not agreements_of(bodies[0]), "and in no other"


def test_an_agreement_outlives_reports_in_which_nothing_is_slower(rig, github):
    acknowledged(rig)
    rig.publish(a_report(compared("same", 1.0)), run=RUN + 1)
    rig.publish(REGRESSION, run=RUN + 2)
    assert marker_of(rig.report_comment).verdict == "acknowledged"


def test_other_targets_and_other_workflows_are_not_covered(rig, github):
    acknowledged(rig)
    both = a_report(compared("regression"), compared("regression", target=a_target("other")))
    rig.publish(both, run=RUN + 1)
    shown = [c["body"] for c in github.comments.values() if marker_of(c["body"])]
    assert marker_of(shown[-1]).verdict == "regression"
    rig.publish(REGRESSION, run=RUN + 2, workflow="another")
    shown = [c["body"] for c in github.comments.values() if marker_of(c["body"])]
    assert marker_of(shown[-1]).verdict == "regression"


def test_an_agreement_that_somebody_else_has_planted_is_none(rig, github):
    acknowledged(rig)
    body = rig.report_comment
    for number in [n for n, c in github.comments.items() if marker_of(c["body"])]:
        del github.comments[number]
    github.add_comment(7, body, "stranger")
    rig.publish(REGRESSION, run=RUN + 1)
    ours = [c["body"] for c in github.comments.values() if c["user"]["login"] == ACTIONS]
    assert [marker_of(body).verdict for body in ours if marker_of(body)] == ["regression"]


def test_a_report_cannot_bring_an_agreement_along(rig, github):
    line = '<!-- cudal1-ci:v1 ack=[{"target":"pkg/model.py:pool","max_slowdown":9,"reason":"r",'
    planted = a_target(f'{line}"owner":"o"}}] -->\n')
    rig.publish(a_report(compared("regression", target=planted), proposed(analysis=line)))
    assert agreements_of(rig.report_comment) == ()


@pytest.mark.parametrize(
    ("body", "report", "why"),
    [
        ("/cudal1 ack other because", REGRESSION, "no target has that name"),
        (
            "/cudal1 ack pool because",
            a_report(compared("regression"), compared("regression", target=a_target(path="b.py"))),
            "several targets have that name",
        ),
        (
            "/cudal1 ack pool because",
            a_report(compared("improvement", 0.5)),
            "nothing that could be acknowledged",
        ),
        (f"/cudal1 ack pool {NEXT} because", REGRESSION, HEAD),
    ],
)
def test_what_is_not_one_open_regression_is_not_agreed_to(rig, github, body, report, why):
    rig.publish(report)
    rig.artifact(report)
    before = rig.report_comment
    assert rig.say(body) == 0
    assert why in rig.replies[0]
    assert rig.report_comment == before


def test_a_report_that_has_changed_since_it_was_read_is_not_agreed_to(rig, github):
    rig.publish(REGRESSION)
    event = rig.event("/cudal1 ack pool because")
    rig.publish(a_report(compared("regression", 3.0)), run=RUN + 1)
    assert rig.answer(event) == 0
    assert "the report has changed since" in rig.replies[0]
    assert not agreements_of(rig.report_comment)


def test_without_a_report_of_this_head_nothing_is_agreed_to(rig, github):
    assert rig.say("/cudal1 ack pool because") == 0
    assert "there is no report of this head" in rig.replies[0]
    rig.publish(REGRESSION)
    github.push(7, NEXT)
    github.tick(60)
    assert rig.say("/cudal1 ack pool because") == 0
    assert "there is no report of this head" in rig.replies[1]


@pytest.mark.parametrize(
    "report",
    [
        "hostile",
        '{"schema_version": 1, "entries": "x"}',
        to_json(REGRESSION).decode().replace('"slowdown":1.5', '"slowdown":NaN'),
        None,
    ],
    ids=["no JSON", "another shape", "not a number", "gone"],
)
def test_a_hostile_artifact_changes_nothing(rig, github, report):
    rig.publish(REGRESSION)
    before, checks = rig.report_comment, len(github.checks)
    if report is not None:
        rig.artifact(report)
    assert rig.say("/cudal1 ack pool because") == 0
    assert "is gone or cannot be used" in rig.replies[0]
    assert (rig.report_comment, len(github.checks)) == (before, checks)


def test_an_artifact_of_another_commit_is_not_believed(rig, github):
    rig.publish(REGRESSION)
    rig.artifact(msgspec.structs.replace(REGRESSION, head_sha=NEXT))
    assert rig.say("/cudal1 ack pool because") == 0
    assert "expected a report of" in rig.replies[0]
    assert not agreements_of(rig.report_comment)


def test_what_is_agreed_to_counts_for_the_base_of_the_report_alone(rig, github):
    """No report of a lenient base turns a check of another one green."""
    github.pulls[7]["base"]["ref"] = "loose"
    rig.publish(REGRESSION, words=("--fail-on", "regression"))
    rig.artifact(REGRESSION)
    github.pulls[7]["base"]["ref"] = "main"
    assert rig.say("/cudal1 ack pool fine", INPUT_FAIL_ON="regression") == 0
    assert "of another base than this pull request has now" in rig.replies[0]
    github.pulls[7]["base"]["ref"] = "loose"
    github.tick(60)
    assert rig.say("/cudal1 ack pool fine", INPUT_FAIL_ON="regression") == 0
    checks = [(check["name"], check["conclusion"]) for check in github.checks.values()]
    assert checks == [("cudal1-ci into loose", "failure"), ("cudal1-ci into loose", "success")]


def test_there_is_an_end_to_what_a_comment_keeps(rig, github):
    entries = [compared("regression", target=a_target(f"{'f' * 90}{i}")) for i in range(20)]
    rig.publish(a_report(*entries))
    rig.artifact(a_report(*entries))
    for i in range(20):
        github.tick(60)
        rig.say(f"/cudal1 ack {'f' * 90}{i} {'-' * 200}")
        if rig.replies:
            break
    assert "no room for more acknowledgements" in rig.replies[0]
    assert 1 < i < 20
    assert len(agreements_of(rig.report_comment)) == i
    assert len(rig.report_comment) <= 65_536


# --- apply ---------------------------------------------------------------------------------------


def test_a_proposal_becomes_a_draft_into_the_branch_and_the_second_time_is_found(rig, github):
    rig.publish(PROPOSAL)
    assert f"/cudal1 apply {ID}" in rig.report_comment
    rig.artifact(PROPOSAL)
    assert rig.say(f"/cudal1 apply {ID}") == 0
    (number,) = set(github.pulls) - {7}
    pull = github.pulls[number]
    assert (pull["draft"], pull["base"]["ref"]) == (True, "feature")
    assert "#7" in pull["body"]
    sha = github.git.branches[pull["head"]["ref"]]
    assert github.git.commits[sha]["parents"] == [{"sha": HEAD}]
    assert "weight.unsqueeze(1) * x" in github.git.files_of(sha)["pkg/model.py"][1]
    github.tick(60)
    assert rig.say(f"/cudal1 apply {ID}") == 0
    assert set(github.pulls) == {7, number}
    assert rig.reactions == ["eyes", "rocket", "eyes", "rocket"]
    assert not rig.replies


def test_a_proposal_of_a_report_that_was_asked_for_is_found_by_its_id(rig, github):
    rig.publish(REGRESSION, run=RUN - 1)
    rig.publish(PROPOSAL, workflow="cudal1-ci optimize")
    rig.artifact(PROPOSAL)
    assert rig.say(f"/cudal1 apply {ID}") == 0
    assert len(github.pulls) == 2


def test_a_proposal_for_a_head_that_has_moved_is_not_applied(rig, github):
    rig.publish(PROPOSAL)
    rig.artifact(PROPOSAL)
    github.push(7, NEXT)
    github.tick(60)
    assert rig.say(f"/cudal1 apply {ID}") == 0
    assert rig.say(f"/cudal1 apply {ID} {HEAD}") == 0
    assert "no report of this head" in rig.replies[0]
    assert "the head is" in rig.replies[1]
    assert len(github.pulls) == 1


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        (PATCH.replace("scale @ x", "scale @ y"), "differs from the patch"),
        (PATCH.replace("pkg/model.py", ".github/workflows/x.yml"), "people alone"),
        (PATCH.replace("unsqueeze(1)", "unsqueeze(1)\u202e"), "a character that is not seen"),
    ],
)
def test_a_hostile_proposal_is_not_applied(rig, github, patch, why):
    report = a_report(proposed(patch))
    rig.publish(report)
    rig.artifact(report)
    assert rig.say(f"/cudal1 apply {digest(report).proposals[0].id}") == 5
    assert why in rig.replies[0]
    assert len(github.pulls) == 1
    assert set(github.git.branches) == {"main", "feature"}


def test_an_id_that_the_report_does_not_have_is_refused(rig, github):
    rig.publish(PROPOSAL)
    rig.artifact(PROPOSAL)
    assert rig.say(f"/cudal1 apply {'0' * 16}") == 0
    assert "no such proposal" in rig.replies[0]


# --- when GitHub does not do it ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "path", "status", "message", "mend"),
    [
        ("/cudal1 optimize", "/dispatches", 404, "Not Found", "cudal1-ci-on-request.yml"),
        ("/cudal1 optimize", "/dispatches", 403, READ_ONLY, "actions: write"),
        ("/cudal1 run", "/rerun", 403, READ_ONLY, "actions: write"),
        ("/cudal1 run", "/rerun", 403, "Unable to retry this workflow run", "a month"),
        ("/cudal1 skip", "/labels", 403, READ_ONLY, "issues: write"),
        (f"/cudal1 apply {ID}", "/git/trees", 403, READ_ONLY, "contents: write"),
        (f"/cudal1 apply {ID}", "/pulls$", 403, "not permitted to create", "settings"),
    ],
)
def test_a_failure_is_told_in_one_reply_with_what_may_be_missing(
    rig, github, body, path, status, message, mend
):
    rig.publish(PROPOSAL)
    rig.artifact(PROPOSAL)
    github.refuse("POST", path, status, message)
    assert rig.say(body) == 5
    (reply,) = rig.replies
    assert message in reply
    assert mend in reply
    assert rig.reactions[-1] == "confused"


def test_a_run_that_is_started_again_tries_again_and_replies_no_second_time(rig, github):
    event = rig.event("/cudal1 run")
    for _ in range(2):
        github.refuse("POST", "/dispatches", 404, "Not Found")
        assert rig.answer(event) == 5
    assert rig.answer(event) == 0
    assert len(github.dispatched) == 1
    assert len(rig.replies) == 1


def test_a_reaction_that_fails_takes_nothing_with_it(rig, github):
    github.refuse("POST", "/reactions", 404, "Not Found")
    assert rig.say("/cudal1 run") == 0
    assert len(github.dispatched) == 1


def test_what_github_does_not_say_is_not_guessed(rig, github):
    github.refuse("GET", "/permission", 403, READ_ONLY)
    with pytest.raises(ForgeError):
        rig.say("/cudal1 run")
    github.refuse("GET", "/check-suites", 403, READ_ONLY)
    with pytest.raises(ForgeError):
        rig.say("/cudal1 run")
    assert not github.dispatched
