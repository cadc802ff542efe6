"""Events as GitHub has recorded them: each is understood or refused with what is wrong, never a
crash.

Read by both doors: what the measuring job is told (`action.event`), and where results are posted
(`forge.event`). GitHub has recorded no schedule, which has no payload of its own, and no pull
request of a fork; of one of the repository the fork's is made here as GitHub documents it.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from cudal1_ci.errors import ConfigError
from cudal1_ci.github.action.admission import EVENTS, refusal
from cudal1_ci.github.action.event import Event, read_event
from cudal1_ci.github.comment_event import asked
from cudal1_ci.github.event import Occasion, occasion
from cudal1_ci.github.payload import OWN
from tests.github_judge import recorded

NAMES = (
    *("check_run", "check_suite", "create", "delete", "deployment_status", "issue_comment"),
    *("issues", "merge_group", "pull_request", "pull_request_review", "push", "release"),
    *("pull_request_review_comment", "repository_dispatch", "status", "workflow_dispatch"),
    "workflow_run",
)
NONE = "0" * 40
SHA = "c" * 40


class Run:
    """A job that an event has started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def environ(self, name: str, payload: Any) -> dict[str, str]:
        (self.folder / "event.json").write_text(json.dumps(payload))
        return {
            "GITHUB_EVENT_NAME": name,
            "GITHUB_EVENT_PATH": str(self.folder / "event.json"),
            "GITHUB_REPOSITORY": payload.get("repository", {}).get("full_name", "o/r"),
            "GITHUB_RUN_ID": "9",
            "GITHUB_SHA": SHA,
        }

    def read(self, name: str, payload: Any) -> tuple[Event, Occasion]:
        environ = self.environ(name, payload)
        return read_event(environ), occasion(environ)


@pytest.fixture
def run(tmp_path) -> Run:
    return Run(tmp_path)


def of_a_fork(payload: Any) -> Any:
    """The same, from a fork."""
    changed = copy.deepcopy(payload)
    changed["pull_request"]["head"]["repo"]["full_name"] = "stranger/fork"
    return changed


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_event_is_read_as_what_it_is(run, name):
    examples = recorded(name)
    assert examples
    for example in examples:
        event, known = run.read(name, example)
        assert event.repository == known.repository == example["repository"]["full_name"]
        pull = example["pull_request"] if name == "pull_request" else None
        if pull is not None:
            assert event.number == known.number == pull["number"]
            assert event.head_sha == known.head_sha == pull["head"]["sha"]
            assert event.base_sha == pull["base"]["sha"]
            assert (event.is_of_a_fork, known.is_looked_up) == (False, False)
            assert known.head_branch == pull["head"]["ref"]
            continue
        assert event.number is known.number is None, "of no pull request, whatever is in it"
        if name == "workflow_run":
            assert known.head_sha == example["workflow_run"]["head_sha"]
            assert known.run_id == example["workflow_run"]["id"]
        elif name == "merge_group":
            group = example["merge_group"]
            assert (event.base_sha, event.head_sha) == (group["base_sha"], group["head_sha"])
            assert known.head_sha == group["head_sha"]
        elif name == "push":
            told = [None if sha == NONE else sha for sha in (example["before"], example["after"])]
            assert [event.base_sha, event.head_sha] == told
            assert known.head_sha == SHA
        else:
            assert event.base_sha is event.head_sha is None
            assert known.head_sha == SHA


def test_every_action_of_a_pull_request_is_among_them():
    actions = {example["action"] for example in recorded("pull_request")}
    assert {"opened", "reopened", "synchronize", "ready_for_review", "labeled"} <= actions


def test_a_pull_request_from_a_fork_is_one_for_both(run):
    for example in recorded("pull_request"):
        event, known = run.read("pull_request", of_a_fork(example))
        assert event.is_of_a_fork
        assert event.head_repository == known.head_repository == "stranger/fork"
        assert "stranger/fork" in str(refusal(event, "self-hosted", None))
        example["pull_request"]["head"]["repo"] = None  # the fork was deleted since
        event, known = run.read("pull_request", example)
        assert event.is_of_a_fork
        assert known.head_repository is known.head_branch is None


def test_a_run_of_a_forks_pull_request_is_looked_up_and_others_are_not(run):
    for example in recorded("workflow_run"):
        _, known = run.read("workflow_run", example)
        assert not known.is_looked_up, example["workflow_run"]["event"]
        example["workflow_run"]["event"] = "pull_request"
        example["workflow_run"]["head_repository"]["full_name"] = "stranger/fork"
        _, known = run.read("workflow_run", example)
        assert known.is_looked_up
        assert known.head_repository == "stranger/fork"
        assert known.head_branch == example["workflow_run"]["head_branch"]


def test_a_comment_is_read_as_it_was_written(run):
    for example in recorded("issue_comment"):
        comment = asked(run.environ("issue_comment", example))
        assert comment.number == example["issue"]["number"]
        assert (comment.comment_id, comment.body) == (
            example["comment"]["id"],
            example["comment"]["body"],
        )
        assert comment.author == example["comment"]["user"]["login"]
        assert comment.default_branch == example["repository"]["default_branch"]
        assert not comment.is_obeyable, "all of them stand below issues"
        example["issue"]["pull_request"] = {"url": "u"}
        below = asked(run.environ("issue_comment", example))
        written_now = example["comment"]["created_at"] == example["comment"]["updated_at"]
        assert below.is_obeyable == (example["action"] == "created" and written_now)


def test_a_schedule_has_nothing_of_its_own(run):
    (example, *_) = recorded("workflow_dispatch")
    event, known = run.read("schedule", {**example, "schedule": "17 3 * * 1"})
    assert (event.base_sha, event.number, known.head_sha) == (None, None, SHA)


@pytest.mark.parametrize("name", ["pull_request", "workflow_run", "merge_group", "push"])
def test_an_event_under_the_name_of_another_is_refused_by_both(run, name):
    num_refused = 0
    for other in NAMES:
        for example in recorded(other):
            # A review has its pull request in it, a push to one the commits before and after.
            if all(example.get(field) is not None for field in OWN[name]):
                continue
            environ = run.environ(name, example)
            for read in (read_event, occasion):
                with pytest.raises(ConfigError, match=f"GITHUB_EVENT_PATH: .*`{name}`"):
                    read(environ)
            num_refused += 1
    assert num_refused > 50


@pytest.mark.parametrize("name", sorted(set(NAMES) - EVENTS))
def test_what_has_the_rights_of_the_base_is_measured_nowhere(run, name):
    for example in recorded(name):
        event, _ = run.read(name, example)
        with pytest.raises(ConfigError, match="rights of the base"):
            refusal(event, "github-hosted", None)
