"""What `publish` asks of GitHub, and what the fake answers, are what GitHub's description says.

PyGithub speaks over HTTP through Prism to the fake. So these stories fail where a request of ours
is none of GitHub's, and where the fake says what GitHub would not; and so do all others in which a
GitHub answers that was `served` (conftest.py). In the end the judge itself is judged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from github import Auth, Github, GithubException

from cudal1_ci.github import client
from cudal1_ci.github.marker import marker_of
from tests.github_fake import READ_ONLY, REPOSITORY, ROUTES, TOKEN, GitHub
from tests.github_judge import DESCRIPTION, needs_rig
from tests.publishing import (
    NEXT,
    PROPOSAL,
    REGRESSION,
    SAME,
    Workflow,
    at,
    bodies,
    posted,
    the_check,
)
from tests.reports import DIFF, HEAD, a_report, a_target, compared, proposed


@pytest.fixture
def github(judge, monkeypatch) -> Iterator[GitHub]:
    """A GitHub whose every word is judged."""
    monkeypatch.setattr(client, "SECONDS_BETWEEN_WRITES", 0)
    with judge.serving(GitHub()) as fake:
        fake.add_pull(7, HEAD)
        fake.files[7] = [{"filename": "pkg/model.py", "status": "modified", "patch": DIFF}]
        yield fake


@pytest.fixture
def workflow(github, tmp_path) -> Workflow:
    return Workflow(github, tmp_path)


@pytest.fixture
def api(github) -> Github:
    """The library alone, for requests that the product does not make."""
    return Github(base_url=github.url, auth=Auth.Token(TOKEN), retry=None, seconds_between_writes=0)


# --- stories -----------------------------------------------------------------------------------


def test_a_regression_with_a_proposal_gets_comment_check_and_review(github, workflow):
    result = workflow.publish(a_report(compared("regression"), proposed()))
    assert result.exit_code == 0, result.output
    assert len(github.comments) == 1
    assert (the_check(github)["status"], len(the_check(github)["notes"])) == ("completed", 2)
    assert len(github.review_comments) == 1
    assert f"comment: https://github.com/{REPOSITORY}/pull/7#issuecomment-" in result.stdout


def test_a_push_that_mends_it_edits_the_comment_and_a_new_regression_makes_another(
    github, workflow
):
    assert workflow.publish(REGRESSION, run=100).exit_code == 0
    github.push(7, NEXT)
    assert workflow.publish(at(SAME, NEXT), sha=NEXT, run=101).exit_code == 0
    assert [marker_of(body).verdict for body in bodies(github)] == ["same"]
    assert workflow.publish(at(REGRESSION, NEXT), sha=NEXT, run=102).exit_code == 0
    assert [marker_of(body).verdict for body in bodies(github)] == ["superseded", "regression"]


def test_61_annotations_go_in_two_requests(github, workflow):
    entries = [compared("regression", target=a_target(f"f{i}", line=i + 1)) for i in range(61)]
    assert workflow.publish(a_report(*entries)).exit_code == 0
    assert len(the_check(github)["notes"]) == 61
    assert len(posted(github, "check-runs")) == 2


def test_a_check_is_started_and_concluded(github, workflow):
    assert workflow.publish(None, "--start").exit_code == 0
    assert the_check(github)["status"] == "in_progress"
    assert workflow.publish(REGRESSION, "--fail-on", "regression").exit_code == 0
    assert the_check(github)["conclusion"] == "failure"


def test_a_token_that_may_not_write_is_no_failure(github, workflow):
    github.may_write = False
    result = workflow.publish(REGRESSION)
    assert result.exit_code == 0
    assert "check run, comment" in result.stderr


def test_a_token_that_may_not_read_and_one_that_is_none(github, workflow):
    github.refuse("GET", "/issues/7/comments", 403, READ_ONLY)
    assert workflow.publish(REGRESSION).exit_code == 0
    workflow.token = "expired"
    result = workflow.publish(REGRESSION)
    assert result.exit_code == 5
    assert "Bad credentials" in result.stderr


def test_a_refused_review_is_tried_comment_by_comment(github, workflow):
    github.refuse("POST", "/reviews", 422, "Unprocessable Entity")
    assert workflow.publish(PROPOSAL).exit_code == 0
    assert len(github.review_comments) == 1


# --- the judge judges --------------------------------------------------------------------------

CHECK = {"name": "c", "head_sha": HEAD, "status": "in_progress"}
NOTE = {
    "path": "m.py",
    "start_line": 1,
    "end_line": 1,
    "annotation_level": "notice",
    "message": "m",
}
OUTPUT = {"title": "t", "summary": "s"}


@pytest.mark.parametrize(
    ("path", "payload"),
    [
        ("issues/7/comments", {}),
        ("issues/7/comments", {"body": 7}),
        ("pulls/7/reviews", {"event": "PRAISE", "body": "b"}),
        ("pulls/7/reviews", {"event": "COMMENT", "body": "b", "comments": [{"path": "m.py"}]}),
        ("check-runs", {**CHECK, "output": {**OUTPUT, "annotations": [NOTE] * 51}}),
        ("check-runs", {**CHECK, "output": {**OUTPUT, "summary": "s" * 65_536}}),
        ("check-runs", {"name": "c"}),
        ("no-such-thing", {}),
    ],
    ids=["no body", "a number", "event", "no words", "51 notes", "long", "no sha", "path"],
)
def test_a_wrong_request_never_arrives(github, judge, api, path, payload):
    with pytest.raises(GithubException):
        api.requester.requestJsonAndCheck("POST", f"/repos/{REPOSITORY}/{path}", input=payload)
    assert not github.requests
    (objection,) = judge.objections()
    assert objection.startswith(f"post /repos/{REPOSITORY}/{path}: ")


def test_an_answer_that_lacks_a_field_is_no_answer(github, judge, workflow, monkeypatch):
    def forgetful(fake: GitHub, given: dict[str, str], number: str) -> object:
        status, comment = fake.create_comment(given, number)
        return status, {name: value for name, value in comment.items() if name != "user"}

    routes = [(m, p, forgetful if h is GitHub.create_comment else h) for m, p, h in ROUTES]
    monkeypatch.setattr("tests.github_fake.ROUTES", routes)
    assert workflow.publish(REGRESSION).exit_code == 5
    (objection,) = judge.objections()
    assert objection.startswith(f"post /repos/{REPOSITORY}/issues/7/comments: ")


def test_without_the_description_ci_fails_and_elsewhere_it_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr("tests.github_judge.PRISM", tmp_path / "prism")
    for ci, outcome in (("true", pytest.fail.Exception), ("", pytest.skip.Exception)):
        monkeypatch.setenv("CI", ci)
        with pytest.raises(outcome, match=r"no prism.*: run \.ci/github-rig, which needs npm"):
            needs_rig()


def test_all_that_the_fake_answers_can_be_judged():
    """A new route needs its path in `.ci/rig/slim.py`."""
    needs_rig()
    described = {
        (method.upper(), re.sub(r"\{\w+\}", r"[\\w./]+", path))
        for path, operations in json.loads(DESCRIPTION.read_text())["paths"].items()
        for method in operations
    }
    for method, pattern, _ in ROUTES:
        asked = pattern.replace("R", f"/repos/{REPOSITORY}", 1)
        asked = re.sub(r"\([^)]*\)", "1", asked)
        found = [path for m, path in described if m == method and re.fullmatch(path, asked)]
        assert found, f"{method} {asked}: not in the description"
