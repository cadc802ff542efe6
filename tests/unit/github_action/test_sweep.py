"""The sweeping action: where its memory is, what it starts, and what it tells the workflow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cudal1_ci.errors import ConfigError
from cudal1_ci.github.action.children import TIMED_OUT
from cudal1_ci.github.action.publish import publish
from cudal1_ci.github.action.sweep import sweep
from tests.reports import proposed
from tests.unit.github_action.jobs import OWN, a_report, commit, git

SCHEDULE = {"schedule": "17 1 * * *", "repository": {"full_name": OWN}}


def night(job, **more: str) -> dict[str, str]:
    """The environment of a scheduled run on a machine that is kept."""
    job.reports.setdefault("sweep", a_report(proposed()))
    tools = {"RUNNER_TOOL_CACHE": str(job.temp / "tools")}
    return job.environment(SCHEDULE, "schedule", **(tools | more))


def state_of(job) -> str:
    return job.asked[-1][1]["CUDAL1_CI_STATE_DIR"]


def test_a_scheduled_run_sweeps_and_tells_what_was_found(job):
    assert sweep(night(job, INPUT_BUDGET="2h", INPUT_INCLUDE="src/** lib/**"), job.run) == 0
    ((words, _),) = job.asked
    assert words[0] == "sweep"
    assert words[words.index("--budget") + 1] == "2h"
    assert words.count("--include") == 2
    assert job.outputs["proposals"] == "1"
    assert job.outputs["best-speedup"] == "3"
    assert job.outputs["complete"] == "true"
    assert "1 faster version, 1 of 1 target measured" in job.summary
    report = json.loads(Path(job.outputs["report-json"]).read_text())
    assert report["totals"]["num_proposals"] == 1


def test_what_a_sweep_knows_is_there_at_the_next_one_and_not_that_of_another_project(job):
    folders = []
    for more in ({}, {}, {"INPUT_PATH": "sub"}, {"GITHUB_REPOSITORY": OWN}):
        (job.root / "sub").mkdir(exist_ok=True)
        assert sweep(night(job, **more), job.run) == 0
        folders.append(state_of(job))
    assert folders[0] == folders[1] == folders[3] != folders[2]
    assert folders[0].startswith(str(job.temp / "tools" / "cudal1-ci" / "state"))
    assert not folders[0].startswith(str(job.root))


def test_a_configured_folder_is_where_it_is_kept(job):
    commit(job.root, {".github/cudal1-ci.toml": 'state-dir = "/srv/cudal1-ci"\n'})
    assert sweep(night(job), job.run) == 0
    assert state_of(job) == "/srv/cudal1-ci"


def test_without_a_cache_of_tools_a_sweep_is_for_its_job_alone(job):
    assert sweep(night(job, RUNNER_TOOL_CACHE=""), job.run) == 0
    assert state_of(job) == str(job.temp / "cudal1-ci" / "state")


def test_calls_are_recorded_again_only_where_another_commit_is_checked_out(job):
    commit(job.root, {".github/cudal1-ci.toml": 'trace = "pytest -q"\n'})
    for _ in range(2):
        assert sweep(night(job), job.run) == 0
    assert job.verbs == ["trace", "sweep", "sweep"]
    git(job.root, "commit", "--allow-empty", "-qm", "more")
    assert sweep(night(job), job.run) == 0
    assert job.verbs[3:] == ["trace", "sweep"]


def test_tests_of_the_project_do_not_see_the_key_of_a_model(job):
    commit(job.root, {".github/cudal1-ci.toml": 'trace = "pytest -q"\n'})
    secrets = {"OPENAI_API_KEY": "sk-1", "GITHUB_TOKEN": "t", "ACTIONS_RUNTIME_TOKEN": "t"}

    def run(words, *, cwd, environment, limit_s):
        if words[0] == "trace":
            folder = Path(environment["CUDAL1_CI_STATE_DIR"]) / "traces"
            folder.mkdir(parents=True)
            (folder / "trace-1.jsonl").touch()
        return job.run(words, cwd=cwd, environment=environment, limit_s=limit_s)

    assert sweep(night(job, **secrets), run) == 0
    (_, traced), (_, swept) = job.asked
    assert "OPENAI_API_KEY" not in traced
    assert swept["OPENAI_API_KEY"] == "sk-1"
    for environment in (traced, swept):
        assert not {"GITHUB_TOKEN", "ACTIONS_RUNTIME_TOKEN"} & environment.keys()


@pytest.mark.parametrize(
    ("code", "step", "words"),
    [
        (0, 0, "1 faster version"),
        (6, 0, "spent its budget"),
        (4, 4, "exit code 4"),
        (TIMED_OUT, 4, "did not end within"),
        (130, 130, "exit code 130"),
    ],
)
def test_a_spent_budget_is_no_failure_and_others_are(job, code, step, words):
    job.codes["sweep"] = code
    assert sweep(night(job), job.run) == step
    assert words in job.summary
    assert job.outputs["proposals"] == ("1" if code in (0, 6) else "0")


@pytest.mark.parametrize("name", ["pull_request", "pull_request_target", "issue_comment"])
def test_code_of_a_pull_request_is_not_swept(job, name):
    night(job)
    with pytest.raises(ConfigError, match=name):
        sweep(job.environment(name=name), job.run)
    assert job.asked == []
    assert "nothing was measured" in job.summary


def test_reports_of_a_sweep_are_published_as_such(job):
    report = job.root / "reports" / "a" / "report.json"
    report.parent.mkdir(parents=True)
    report.write_text("{}")
    given = {"INPUT_REPORTS": "reports/**/report.json", "INPUT_SWEEP": "true"}
    given |= {"INPUT_MAX_OPEN_PRS": "2", "INPUT_DRY_RUN": "true"}
    assert publish(night(job, **given), job.run) == 0
    ((words, _),) = job.asked
    assert words[:6] == ["publish", "--sweep", "--max-items", "20", "--max-open-prs", "2"]
    assert words[6:] == ["--dry-run", "--", str(report)]
