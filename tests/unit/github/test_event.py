"""Which commit and pull request is meant: the event's word, and nobody else's."""

from __future__ import annotations

import json

import pytest

from cudal1_ci.errors import ConfigError
from cudal1_ci.github.event import occasion

SHA = "a" * 40
HEAD = {"sha": SHA, "ref": "feature", "repo": {"full_name": "o/r"}}
BASE = {"sha": "b" * 40, "ref": "main", "repo": {"full_name": "o/r"}}
PULL = {"number": 7, "head": HEAD, "base": BASE}
PUSH = {"before": "b" * 40, "after": SHA}
RUN = {"id": 5, "head_sha": SHA, "event": "pull_request", "head_branch": "feature"}
FORK = {"full_name": "stranger/r"}


@pytest.fixture
def environ(tmp_path):
    def make(name, payload, **more):
        path = tmp_path / "event.json"
        path.write_text(payload if isinstance(payload, str) else json.dumps(payload))
        return {
            "GITHUB_EVENT_NAME": name,
            "GITHUB_EVENT_PATH": str(path),
            "GITHUB_REPOSITORY": "o/r",
            "GITHUB_RUN_ID": "9",
            "GITHUB_SHA": "c" * 40,
            "GITHUB_TOKEN": "secret",
            **more,
        }

    return make


def test_a_pull_request_is_its_head_and_not_the_merge_that_is_checked_out(environ):
    found = occasion(environ("pull_request", {"pull_request": PULL}))
    assert (found.number, found.head_sha, found.run_id, found.attempt) == (7, SHA, 9, 1)
    assert not found.is_looked_up
    assert found.api_url == "https://api.github.com"
    assert "secret" not in repr(found)


def test_on_a_server_of_ones_own_links_lead_there(environ):
    more = {
        "GITHUB_API_URL": "https://ghe.example/api/v3",
        "GITHUB_SERVER_URL": "https://ghe.example",
    }
    found = occasion(environ("pull_request", {"pull_request": PULL}, **more))
    assert found.api_url == "https://ghe.example/api/v3"
    assert found.run_url == "https://ghe.example/o/r/actions/runs/9"


def test_a_run_of_another_workflow_is_what_that_measured(environ):
    run = {**RUN, "run_attempt": 4, "head_repository": FORK, "pull_requests": [{"number": 1}]}
    found = occasion(environ("workflow_run", {"workflow_run": run}))
    assert (found.number, found.run_id, found.attempt) == (None, 5, 4)
    assert (found.head_repository, found.head_branch) == ("stranger/r", "feature")
    assert found.is_looked_up


@pytest.mark.parametrize("run", [{**RUN, "event": "push", "head_repository": FORK}, RUN])
def test_a_run_that_was_of_no_pull_request_is_not_looked_up(environ, run):
    assert not occasion(environ("workflow_run", {"workflow_run": run})).is_looked_up


@pytest.mark.parametrize("name", ["push", "schedule", "workflow_dispatch", "issue_comment"])
def test_other_events_have_a_commit_and_no_pull_request(environ, name):
    payload = {"pull_request": PULL, "issue": {"number": 7}, **PUSH}
    found = occasion(environ(name, payload))
    assert (found.number, found.head_sha) == (None, "c" * 40)
    assert not found.is_looked_up


def test_a_request_names_its_pull_request_and_the_commit(environ):
    inputs = {"pull-request": "7", "sha": SHA, "base": "b", "optimize": "true"}
    found = occasion(environ("workflow_dispatch", {"inputs": inputs}))
    assert (found.number, found.head_sha, found.run_id) == (7, SHA, 9)
    assert not found.is_looked_up
    other = occasion(environ("push", {**PUSH, "inputs": inputs}))
    assert (other.number, other.head_sha) == (None, "c" * 40), "anybody's event but that one"
    own = occasion(environ("workflow_dispatch", {"inputs": {"level": "debug"}}))
    assert (own.number, own.head_sha) == (None, "c" * 40)


@pytest.mark.parametrize(
    ("name", "payload", "more", "words"),
    [
        ("workflow_dispatch", {"inputs": {"pull-request": "7"}}, {}, "expected a full sha"),
        (
            "workflow_dispatch",
            {"inputs": {"pull-request": "7/../8", "sha": SHA}},
            {},
            "input `pull-request`",
        ),
        ("pull_request", {}, {}, "expected the event of `pull_request`"),
        ("pull_request", {"pull_request": None}, {}, "expected the event of `pull_request`"),
        ("workflow_run", {"pull_request": PULL}, {}, "expected the event of `workflow_run`"),
        ("pull_request", "{", {}, "no event of GitHub"),
        ("pull_request", "[" * 5000, {}, "no event of GitHub"),
        ("pull_request", {"pull_request": {**PULL, "number": "7"}}, {}, "number"),
        ("push", {"after": SHA}, {}, "event of `push`, got another one: it has no before"),
        ("push", PUSH, {"GITHUB_SHA": "main"}, "expected a full sha"),
        ("push", PUSH, {"GITHUB_REPOSITORY": "o/r?x"}, "expected owner/name"),
        ("push", PUSH, {"GITHUB_RUN_ID": "٣"}, "expected a number"),
        ("push", PUSH, {"GITHUB_API_URL": "file:///etc"}, "expected a URL"),
        ("push", PUSH, {"GITHUB_API_URL": "https://u:p@x"}, "expected a URL"),
        ("push", PUSH, {"GITHUB_EVENT_NAME": ""}, "GITHUB_EVENT_NAME"),
    ],
)
def test_what_is_wrong_is_named(environ, name, payload, more, words):
    with pytest.raises(ConfigError, match=words):
        occasion(environ(name, payload, **more))
