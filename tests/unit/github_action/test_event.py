"""What is read from an event, whose code may run where, and whose settings count."""

from __future__ import annotations

import json

import pytest

from cudal1_ci.errors import ConfigError
from cudal1_ci.github.action.admission import PHRASE, configuration_changed, refusal
from cudal1_ci.github.action.event import Event, event_of, read_event
from cudal1_ci.github.payload import payload_of
from tests.unit.github_action.jobs import FORK, OWN, commit, git


def event(name: str, **payload):
    raw = json.dumps({"repository": {"full_name": OWN}, **payload}).encode()
    return event_of(name, payload_of(name, raw))


def pull_request(head_repository: str | None):
    repo = {"full_name": head_repository} if head_repository else None
    return event(
        "pull_request",
        pull_request={
            "number": 7,
            "base": {"sha": "b", "ref": "main", "repo": {"full_name": OWN}},
            "head": {"sha": "h", "ref": "topic", "repo": repo},
        },
    )


def test_a_pull_request_is_compared_with_its_base():
    read = pull_request(OWN)
    assert (read.number, read.base_sha, read.head_sha) == (7, "b", "h")
    assert not read.is_of_a_fork


@pytest.mark.parametrize("head_repository", [FORK, None], ids=["a fork", "a fork that is gone"])
def test_a_head_from_elsewhere_is_of_a_fork(head_repository):
    assert pull_request(head_repository).is_of_a_fork


def test_a_merge_group_and_a_push_say_what_was_before():
    group = event("merge_group", merge_group={"base_sha": "b", "head_sha": "h"})
    assert (group.base_sha, group.head_sha) == ("b", "h")
    assert event("push", before="b", after="h").base_sha == "b"


@pytest.mark.parametrize(
    ("name", "payload"),
    [("push", {"before": 40 * "0", "after": "h"}), ("schedule", {}), ("workflow_dispatch", {})],
)
def test_some_events_name_nothing_to_compare_with(name, payload):
    assert event(name, **payload).base_sha is None


def test_outside_of_a_workflow_the_verbs_are_named():
    with pytest.raises(ConfigError, match="cudal1-ci compare"):
        read_event({})


# --- admission ---------------------------------------------------------------------------------


def test_code_of_the_repository_runs_on_any_runner():
    assert refusal(pull_request(OWN), "self-hosted", None) is None
    assert refusal(event("schedule"), "self-hosted", None) is None


@pytest.mark.parametrize("runner", ["self-hosted", "", "something-else"])
@pytest.mark.parametrize("head_repository", [FORK, None])
def test_code_of_a_fork_does_not_run_on_a_machine_that_is_kept(runner, head_repository):
    reason = refusal(pull_request(head_repository), runner, None)
    assert reason is not None
    assert "Nothing was measured" in reason


def test_code_of_a_fork_runs_on_a_machine_of_githubs_or_after_the_phrase():
    assert refusal(pull_request(FORK), "github-hosted", None) is None
    assert refusal(pull_request(FORK), "self-hosted", PHRASE) is None


@pytest.mark.parametrize("phrase", ["true", "yes", PHRASE.upper(), PHRASE[:-1]])
def test_a_phrase_that_is_nearly_right_is_an_error_before_a_fork_comes(phrase):
    with pytest.raises(ConfigError, match="word for word"):
        refusal(pull_request(OWN), "self-hosted", phrase)


@pytest.mark.parametrize("phrase", [None, PHRASE])
@pytest.mark.parametrize("name", ["pull_request_target", "workflow_run", "issue_comment", "fork"])
def test_nothing_runs_with_the_rights_of_the_base(name, phrase):
    with pytest.raises(ConfigError, match="rights of the base"):
        refusal(Event(name=name, repository=OWN), "github-hosted", phrase)


@pytest.mark.parametrize(
    ("files", "is_changed"),
    [
        ({"model.py": "x = 1\n"}, False),
        ({"pyproject.toml": '[project]\nname = "b"\n[tool.cudal1-ci]\nbudget = "1m"\n'}, False),
        ({"pyproject.toml": '[tool.cudal1-ci]\nbudget = "1m"\npython = "./evil"\n'}, True),
        ({"pyproject.toml": "not toml ["}, True),
        ({".github/cudal1-ci.toml": 'python = "./evil"\n'}, True),
    ],
    ids=["code", "other tables", "the table", "broken", "the file"],
)
def test_settings_that_the_change_has_written_are_noticed(job, files, is_changed):
    settings = '[project]\nname = "a"\n[tool.cudal1-ci]\nbudget = "1m"\n'
    base = commit(job.root, {"pyproject.toml": settings}, "settings")
    commit(job.root, files, "change")
    assert configuration_changed(job.root, base) is is_changed


def test_settings_of_the_folder_that_is_measured_are_those_that_count(job):
    base = commit(job.root, {"sub/pyproject.toml": "[tool.cudal1-ci]\n"}, "settings")
    commit(job.root, {"sub/.github/cudal1-ci.toml": "budget = '1s'\n"}, "change")
    assert configuration_changed(job.root / "sub", base)
    git(job.root, "rm", "-q", "-r", "sub")
    commit(job.root, {"sub/model.py": ""}, "gone")
    assert configuration_changed(job.root / "sub", base)
