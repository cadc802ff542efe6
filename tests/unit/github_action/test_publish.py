"""What the publishing job hands to `cudal1-ci publish`."""

from __future__ import annotations

import pytest

from cudal1_ci.errors import ConfigError
from cudal1_ci.github.action.publish import MAX_REPORTS, publish

GLOB = {"INPUT_REPORTS": "reports/**/report.json"}


def leave(job, *names: str) -> None:
    for name in names:
        file = job.root / "reports" / name / "report.json"
        file.parent.mkdir(parents=True)
        file.write_text("hostile")


def test_every_report_is_handed_on_unread(job):
    leave(job, "h100", "a100", "-x")
    inputs = {"INPUT_FAIL_ON": "regression", "INPUT_COMMENT": "always", "INPUT_DRY_RUN": "true"}
    assert publish(job.environment(**GLOB, **inputs), job.run) == 0
    ((words, _),) = job.asked
    options, files = words[: words.index("--")], words[words.index("--") + 1 :]
    expected = ["publish", "--fail-on", "regression", "--comment", "always", "--dry-run"]
    assert options == expected
    assert files == [str(job.root / f"reports/{n}/report.json") for n in ("-x", "a100", "h100")]


def test_what_is_beside_the_usual_report_says_so(job):
    leave(job, "gpu")
    inputs = {"INPUT_WORKFLOW": "cudal1-ci", "INPUT_CHECK": "false", "INPUT_COMMANDS": "true"}
    assert publish(job.environment(**GLOB, **inputs), job.run) == 0
    ((words, _),) = job.asked
    assert words[1:6] == [
        *("--workflow", "cudal1-ci", "--comment", "auto"),
        "--no-check",
    ]


def test_the_publisher_has_the_token_and_no_other_secret(job):
    leave(job, "gpu")
    secrets = {"GITHUB_TOKEN": "t", "ACTIONS_RUNTIME_TOKEN": "a", "OPENAI_API_KEY": "k"}
    publish(job.environment(**GLOB, **secrets), job.run)
    ((_, known),) = job.asked
    assert known["GITHUB_TOKEN"] == "t"
    assert known["GITHUB_EVENT_PATH"]
    assert not {"ACTIONS_RUNTIME_TOKEN", "OPENAI_API_KEY", "INPUT_REPORTS"} & set(known)


def test_no_report_is_no_failure_and_nothing_is_posted(job):
    assert publish(job.environment(**GLOB), job.run) == 0
    assert job.asked == []
    assert "no report to publish" in job.summary


def test_a_check_is_begun_before_there_is_a_report(job):
    leave(job, "of an earlier run")
    inputs = {"INPUT_START": "true", "INPUT_WORKFLOW": "cudal1-ci", "GITHUB_TOKEN": "t"}
    assert publish(job.environment(**GLOB, **inputs), job.run) == 0
    ((words, _),) = job.asked
    assert words == ["publish", "--start", "--workflow", "cudal1-ci"]


@pytest.mark.parametrize(
    ("inputs", "asked"),
    [
        ({}, [["publish", "--abandon"]]),
        ({"INPUT_CHECK": "false"}, []),
        ({"INPUT_SWEEP": "true"}, []),
    ],
)
def test_a_check_that_was_begun_is_ended_where_there_is_no_report(job, inputs, asked):
    assert publish(job.environment(**GLOB, GITHUB_TOKEN="t", **inputs), job.run) == 0
    assert [words for words, _ in job.asked] == asked
    assert "no report to publish" in job.summary


def test_a_link_is_not_followed_out_of_the_artifact(job, tmp_path):
    (tmp_path / "secret").write_text("s")
    folder = job.root / "reports" / "gpu"
    folder.mkdir(parents=True)
    (folder / "report.json").symlink_to(tmp_path / "secret")
    assert publish(job.environment(**GLOB), job.run) == 0
    assert job.asked == []


@pytest.mark.parametrize("pattern", ["/etc/*", "", " "])
def test_a_glob_that_is_not_of_the_workspace_is_refused(job, pattern):
    with pytest.raises(ConfigError, match="input `reports`"):
        publish(job.environment(INPUT_REPORTS=pattern), job.run)


def test_more_reports_than_a_matrix_has_jobs_are_refused(job):
    leave(job, *(f"job{i}" for i in range(MAX_REPORTS + 1)))
    with pytest.raises(ConfigError, match="at most 256"):
        publish(job.environment(**GLOB), job.run)
    assert job.asked == []


@pytest.mark.parametrize("code", [1, 4, -9])
def test_a_publisher_that_crashes_or_takes_too_long_still_ends_the_check(job, code):
    leave(job, "gpu")
    job.codes["publish"] = code
    assert publish(job.environment(**GLOB, GITHUB_TOKEN="t"), job.run) == code
    assert [words[1:] for words, _ in job.asked][1:] == [["--abandon", "--measured", "unusable"]]


def test_too_many_reports_still_end_the_check(job):
    leave(job, *(f"job{i}" for i in range(MAX_REPORTS + 1)))
    with pytest.raises(ConfigError, match="at most 256"):
        publish(job.environment(**GLOB, GITHUB_TOKEN="t"), job.run)
    ((words, _),) = job.asked
    assert words == ["publish", "--abandon", "--measured", "unusable"]


def test_the_code_of_the_publisher_is_the_steps(job):
    leave(job, "gpu")
    job.codes["publish"] = 5
    assert publish(job.environment(**GLOB), job.run) == 5


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("h100 l4", ["--machine", "h100", "--machine", "l4"]),
        (
            '[{"name": "h100", "runs-on": "x", "gpu": true}, {"name": "l4", "runs-on": "y"}]',
            ["--machine", "h100", "--machine", "l4", "--gpu-machine", "h100"],
        ),
    ],
)
def test_machines_are_handed_on_with_what_they_have_to_measure_on(job, given, words):
    leave(job, "gpu")
    publish(job.environment(**GLOB, INPUT_MACHINES=given), job.run)
    ((asked, _),) = job.asked
    assert asked[1 : 1 + len(words)] == words
