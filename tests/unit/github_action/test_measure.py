"""From an event to outputs, summary and exit code; the verbs only note what they were asked."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest

from cudal1_ci.errors import ConfigError, DiscoveryError
from cudal1_ci.git import SETTINGS_VARIABLE, run_git
from cudal1_ci.github.action.admission import PHRASE
from cudal1_ci.github.action.children import TIMED_OUT
from cudal1_ci.github.action.git_settings import git_settings
from cudal1_ci.github.action.inputs import measure_inputs
from cudal1_ci.github.action.measure import measure
from cudal1_ci.github.action.outcome import MAX_SUMMARY_BYTES, device_notices, limited, outcome_of
from cudal1_ci.records import Acknowledgement, Device
from tests.unit.github_action.jobs import FORK, a_report, an_entry, commit, git

AGREED = Acknowledgement(
    target="*", max_slowdown=2.0, reason="wanted", owner="me", expires="2099-01-01"
)

SLOWER = {"slowdown_low": 1.0, "slowdown": 1.1, "slowdown_high": 1.2}


def value_of(words: list[str], option: str) -> str:
    return words[words.index(option) + 1]


def test_a_pull_request_is_compared_with_its_merge_base_and_then_scanned(job):
    git(job.root, "checkout", "-q", "main")
    commit(job.root, {"other.py": "y = 1\n"}, "main moves on")
    event = job.pull_request()
    event["pull_request"]["base"]["sha"] = git(job.root, "rev-parse", "main")
    git(job.root, "checkout", "-q", "topic")
    assert measure(job.environment(event), job.run) == 0
    (compare, _), (scan, _) = job.asked
    assert compare[:2] == ["compare", job.base]
    assert scan[0] == "scan"
    assert value_of(scan, "--changed") == job.base
    assert job.outputs["verdict"] == "pass"
    assert "nothing got slower" in job.summary
    report = json.loads(Path(job.outputs["report-json"]).read_text())
    assert report["entries"][0]["comparison"]["verdict"] == "same"
    assert Path(job.outputs["report-md"]).is_file()
    names = {path.name for path in Path(job.outputs["report-json"]).parent.iterdir()}
    assert names == {"report.json", "report.md", "report.sarif", "report.html"}


def test_times_of_a_cpu_are_said_to_be_that(job):
    measure(job.environment(), job.run)
    assert "no GPU was used" in job.summary
    gpu = Device(kind="cuda", name="H100")
    cpu = job.reports["compare"].device
    assert device_notices(a_report()) != []
    assert device_notices(msgspec.structs.replace(a_report(), devices=(cpu, gpu))) == []


def test_of_githubs_own_merge_the_base_is_its_first_parent(job):
    git(job.root, "checkout", "-q", "main")
    newer = commit(job.root, {"other.py": "y = 1\n"}, "main moves on")
    git(job.root, "merge", "-q", "--no-ff", "-m", "merge", "topic")
    assert measure(job.environment(), job.run) == 0
    assert job.asked[0][0][:2] == ["compare", newer]
    assert "is not the head of the event" in job.summary


def test_code_of_a_fork_is_refused_without_a_failure_and_with_a_reason(job):
    assert measure(job.environment(job.pull_request(FORK)), job.run) == 0
    assert job.asked == []
    assert job.outputs["verdict"] == "skipped"
    assert job.outputs["report-json"] == ""
    assert f"comes from {FORK}" in job.summary


def test_code_of_a_fork_is_measured_after_the_phrase(job):
    environment = job.environment(job.pull_request(FORK), INPUT_ALLOW_FORK_CODE=PHRASE)
    assert measure(environment, job.run) == 0
    assert job.verbs == ["compare", "scan"]


def test_an_event_with_the_rights_of_the_base_ends_before_anything_runs(job):
    with pytest.raises(ConfigError, match="pull_request_target"):
        measure(job.environment(name="pull_request_target"), job.run)
    assert job.asked == []
    assert job.outputs["verdict"] == "error"
    assert "rights of the base" in job.summary


def test_no_verb_is_told_a_secret_of_the_job(job):
    secrets = {"GITHUB_TOKEN": "t", "ACTIONS_RUNTIME_TOKEN": "t", "HF_TOKEN": "t"}
    measure(job.environment(**secrets), job.run)
    for _, environment in job.asked:
        assert set(environment) == {"PATH", "CUDAL1_CI_STATE_DIR"}
        assert not environment["CUDAL1_CI_STATE_DIR"].startswith(str(job.root))


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (["same", "regression", "improvement", "inconclusive"], "regression"),
        (["same", "improvement", "inconclusive"], "inconclusive"),
        (["same", "improvement"], "improvement"),
        (["same", "new"], "pass"),
        (["agreed"], "pass"),
        (["new", "removed", "skipped"], "skipped"),
        ([], "skipped"),
    ],
)
def test_the_worst_target_decides(verdicts, expected):
    entries = [
        an_entry(f"t{number}", "regression", acknowledged=AGREED, **SLOWER)
        if verdict == "agreed"
        else an_entry(f"t{number}", verdict)
        for number, verdict in enumerate(verdicts)
    ]
    assert outcome_of(a_report(*entries)).verdict == expected


def test_what_was_found_is_counted_and_an_acknowledged_regression_is_none(job):
    job.reports["compare"] = a_report(
        an_entry("a", "regression"),
        an_entry("b", "regression", acknowledged=AGREED, **SLOWER),
        an_entry("c", "improvement"),
        an_entry("d", "inconclusive"),
    )
    measure(job.environment(INPUT_OPTIMIZE="false"), job.run)
    assert job.verbs == ["compare"]
    counts = {k: v for k, v in job.outputs.items() if not k.startswith("report")}
    assert counts == {
        "verdict": "regression",
        "regressions": "1",
        "improvements": "1",
        "inconclusive": "1",
        "proposals": "0",
        "best-speedup": "",
    }
    assert "1 target got slower" in job.summary


@pytest.mark.parametrize(
    ("code", "step", "verdict"),
    [
        (0, 0, "pass"),
        (1, 1, "pass"),
        (3, 3, "pass"),
        (6, 0, "pass"),
        (2, 2, "error"),
        (4, 4, "error"),
        (TIMED_OUT, 4, "error"),
    ],
)
def test_the_step_ends_as_the_comparison_does_and_a_spent_budget_is_no_failure(
    job, code, step, verdict
):
    job.codes["compare"] = code
    assert measure(job.environment(), job.run) == step
    assert job.outputs["verdict"] == verdict
    assert ("scan" in job.verbs) == (code in (0, 1, 3, 6))
    assert job.summary


@pytest.mark.parametrize("code", [1, 2, 4, 130, TIMED_OUT])
def test_a_search_for_proposals_that_fails_is_noted_and_fails_nothing(job, code):
    job.codes["scan"] = code
    assert measure(job.environment(), job.run) == 0
    assert job.outputs["verdict"] == "pass"
    assert ("`scan`" in job.summary) == (code != 1)


def test_without_a_base_everything_is_scanned_and_its_failure_is_the_steps(job):
    for event, name, inputs in (
        ({"repository": {"full_name": "o/r"}}, "schedule", {}),
        (job.pull_request(), "pull_request", {"INPUT_BASE": "all"}),
    ):
        job.asked.clear()
        job.codes["scan"] = 4
        assert measure(job.environment(event, name, **inputs), job.run) == 4
        assert job.verbs == ["scan"]
        assert "--changed" not in job.asked[0][0]


def test_inputs_reach_the_verbs_as_they_are(job):
    hostile = '$(touch pwned) `id`; "; exit 9'
    inputs = {
        "INPUT_DEVICE": "cuda:1",
        "INPUT_MODEL": hostile,
        "INPUT_INCLUDE": "src/** \n kernels/*.cu",
        "INPUT_FAIL_ON": "regression",
        "INPUT_BUDGET": "3m",
        "INPUT_OPTIMIZE_BUDGET": "4m",
        "INPUT_REQUIRE_SANDBOX": "true",
        "INPUT_EXECUTOR": "container",
        "INPUT_CONTAINER_IMAGE": "image",
        "INPUT_PYTHON": ".venv/bin/python",
    }
    measure(job.environment(**inputs), job.run)
    compare, scan = (words for words, _ in job.asked)
    assert value_of(scan, "--model") == hostile
    assert "--model" not in compare
    assert (value_of(compare, "--budget"), value_of(scan, "--budget")) == ("3m", "4m")
    assert (value_of(compare, "--fail-on"), value_of(scan, "--fail-on")) == ("regression", "never")
    for words in (compare, scan):
        assert value_of(words, "--device") == "cuda:1"
        assert value_of(words, "--python") == ".venv/bin/python"
        assert value_of(words, "--executor") == "container"
        assert value_of(words, "--container-image") == "image"
        assert [w for w, o in zip(words[1:], words, strict=False) if o == "--include"] == [
            "src/**",
            "kernels/*.cu",
        ]
        assert "--require-sandbox" in words


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("INPUT_BUDGET", "10", "input `budget`: expected a duration"),
        ("INPUT_OPTIMIZE_BUDGET", "soon", "input `optimize-budget`"),
        ("INPUT_FAIL_ON", "always", "input `fail-on`"),
        ("INPUT_OPTIMIZE", "perhaps", "input `optimize`"),
        ("INPUT_PATH", r"packages\model", "write 'packages/model'"),
        ("INPUT_PATH", r"C:\work\model", "write 'work/model'"),
        ("INPUT_PATH", "/etc", "below the workspace"),
        ("INPUT_PATH", "a/../../b", "below the workspace"),
    ],
)
def test_a_bad_input_is_named(name, value, message):
    with pytest.raises(ConfigError, match=message):
        measure_inputs({name: value})


def settings_at_the_base(job, text="budget = '5m'\n"):
    git(job.root, "checkout", "-q", "main")
    job.base = commit(job.root, {".github/cudal1-ci.toml": text}, "settings")
    git(job.root, "checkout", "-q", "topic")
    git(job.root, "merge", "-q", "-m", "merge", "main")
    job.head = git(job.root, "rev-parse", "HEAD")


def test_settings_of_the_pull_request_do_not_hold_for_the_scan(job):
    settings_at_the_base(job)
    job.head = commit(job.root, {".github/cudal1-ci.toml": 'python = "./evil"\n'}, "three")
    assert measure(job.environment(), job.run) == 0
    assert job.verbs == ["compare"]
    assert "--config-from" not in job.asked[0][0]
    assert "edits the configuration" in job.summary


def test_settings_that_a_pull_request_brings_count_for_advice_and_not_for_the_gate_or_keys(job):
    job.head = commit(job.root, {".github/cudal1-ci.toml": "budget = '5m'\n"}, "three")
    environment = job.environment(OPENAI_API_KEY="k", INPUT_FAIL_ON="regression")
    assert measure(environment, job.run) == 0
    assert job.verbs == ["compare", "scan"]
    compare = job.asked[0][0]
    assert compare[-4:] == ["--config-from", "head", "--fail-on", "never"]
    assert not any("OPENAI_API_KEY" in known for _, known in job.asked)
    assert "This change brings the settings" in job.summary


def test_everything_is_scanned_on_request_by_the_settings_of_the_base(job):
    request = {"inputs": {"pull-request": "7", "sha": job.head}}
    inputs = {"INPUT_BASE": job.base, "INPUT_COMPARE": "false"}
    environment = job.environment(request, "workflow_dispatch", **inputs)
    assert measure(environment, job.run) == 0
    ((scan, _),) = job.asked
    assert scan[0] == "scan"
    assert "--changed" not in scan
    assert job.outputs["verdict"] == "skipped"
    settings_at_the_base(job)
    commit(job.root, {".github/cudal1-ci.toml": 'python = "mine"\n'}, "settings")
    assert measure(environment | {"INPUT_BASE": job.base}, job.run) == 0
    assert len(job.asked) == 1
    assert "edits the configuration" in job.summary


def test_a_shallow_clone_is_an_error_that_names_the_mend(job):
    event = job.pull_request()
    event["pull_request"]["base"]["sha"] = 40 * "a"
    with pytest.raises(DiscoveryError, match="fetch it"):
        measure(job.environment(event), job.run)
    assert job.outputs["verdict"] == "error"
    assert "fetch it" in job.summary


def test_the_key_of_a_model_goes_to_the_scan_alone(job):
    measure(job.environment(OPENAI_API_KEY="k"), job.run)
    known = {words[0]: environment for words, environment in job.asked}
    assert "OPENAI_API_KEY" not in known["compare"]
    assert known["scan"]["OPENAI_API_KEY"] == "k"


def test_tests_of_the_pull_request_do_not_see_the_key_of_a_model(job):
    base = commit(job.root, {".github/cudal1-ci.toml": 'trace = "pytest -q"\n'}, "settings")
    job.head = commit(job.root, {"model.py": "x = 2\n"}, "three")
    event = job.pull_request()
    event["pull_request"]["base"]["sha"] = base
    measure(job.environment(event, OPENAI_API_KEY="k"), job.run)
    assert job.verbs == ["compare", "trace", "scan"]
    # The tests recorded nothing, so that the scan would run them again.
    assert all("OPENAI_API_KEY" not in environment for _, environment in job.asked)


def test_reports_that_do_not_fit_together_cost_the_proposals_and_not_the_comparison(job):
    job.reports["scan"] = a_report(an_entry("f", None), head_sha="other")
    assert measure(job.environment(), job.run) == 0
    assert job.outputs["verdict"] == "pass"
    assert "Proposals are not in the report" in job.summary


def test_a_report_of_an_earlier_job_is_not_taken_for_this_ones(job):
    measure(job.environment(), job.run)
    job.codes["compare"] = 4
    (job.temp / "output").unlink()
    assert measure(job.environment(), job.run) == 4
    assert job.outputs["report-json"] == ""


def test_a_summary_keeps_to_its_limit_in_whole_lines():
    text = "".join(f"line {i} …\n" for i in range(200_000))
    cut = limited(text)
    assert len(cut.encode()) <= MAX_SUMMARY_BYTES
    assert cut.endswith("1 MiB._\n")
    assert all(line.endswith("…") for line in cut.splitlines()[:-3])
    assert limited("short\n") == "short\n"


# --- traces of the default branch --------------------------------------------------------------


def test_a_push_records_traces_and_a_pull_request_gets_them(job):
    push = {"before": job.base, "after": job.head}
    inputs = {"INPUT_TRACES": "traces", "INPUT_COMPARE": "false", "INPUT_OPTIMIZE": "false"}

    def records(words, *, cwd, environment, limit_s):
        folder = Path(environment["CUDAL1_CI_STATE_DIR"]) / "traces"
        folder.mkdir(parents=True)
        (folder / "trace-1.jsonl").write_text("{}\n")
        return job.run(words, cwd=cwd, environment=environment, limit_s=limit_s)

    assert measure(job.environment(push, "push", **inputs), records) == 0
    assert job.verbs == ["trace"]
    assert job.outputs["verdict"] == "skipped"
    assert (job.temp / "traces" / "trace-1.jsonl").is_file()
    assert measure(job.environment(INPUT_TRACES="traces"), job.run) == 0
    assert value_of(job.asked[1][0], "--traces") == str(job.temp / "traces")
    assert "--traces" not in job.asked[2][0]


def test_without_traces_of_the_default_branch_all_tests_run(job):
    assert measure(job.environment(INPUT_TRACES="traces"), job.run) == 0
    assert "--traces" not in job.asked[0][0]


def test_a_project_without_a_trace_command_records_nothing_and_fails_nothing(job):
    job.codes["trace"] = 2
    inputs = {"INPUT_TRACES": "traces", "INPUT_COMPARE": "false", "INPUT_OPTIMIZE": "false"}
    assert (
        measure(job.environment({"before": job.base, "after": job.head}, "push", **inputs), job.run)
        == 0
    )
    assert "0 files of traces" in job.summary


# --- git in a container ------------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
def test_the_workspace_of_another_user_is_measured_as_in_a_job_in_a_container(job, monkeypatch):
    home = job.temp / "home"
    home.mkdir()
    (home / ".gitconfig").write_text("[user]\n\tname = me\n")
    environment = job.environment(HOME=str(home))
    for path in [job.root, *job.root.rglob("*")]:
        os.chown(path, 1001, 1001)
    with pytest.raises(DiscoveryError, match=r"safe\.directory"):
        measure(environment, job.run)
    monkeypatch.setenv(SETTINGS_VARIABLE, git_settings(environment))
    assert measure(environment, job.run) == 0
    assert run_git(job.root, "config", "user.name") == "me\n", "the user's own settings still count"
    assert (home / ".gitconfig").read_text() == "[user]\n\tname = me\n"
