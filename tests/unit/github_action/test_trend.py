"""The job that keeps the history: a branch in a repository of its own, reports, a clone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cudal1_ci.errors import ConfigError, ForgeError
from cudal1_ci.github.action import trend as door
from cudal1_ci.github.action.children import run_verb
from cudal1_ci.github.action.data_branch import DataBranch
from cudal1_ci.github.action.trend import trend as history
from cudal1_ci.records.published import to_json
from tests.unit.github_action.jobs import OWN, Job, a_report, an_entry, git

BRANCH = "cudal1-ci-trend"


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    """The repository as a server has it."""
    folder = tmp_path / "server" / OWN
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "--bare")
    return folder


def environment(job: Job, remote: Path, after: str | None = None, **more: str) -> dict[str, str]:
    known = job.environment({"before": job.base, "after": after or job.head}, name="push")
    return known | {
        "GITHUB_SERVER_URL": f"file://{remote.parents[1]}",
        "INPUT_CHECKOUT": ".",
        **more,
    }


def leave(job: Job, name: str = "gpu", **fields) -> Path:
    fields = {"head_sha": job.head, "base_sha": job.base} | fields
    file = job.root / "reports" / name / "report.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(to_json(a_report(an_entry("f", "same"), **fields)))
    return file


def pushed(remote: Path) -> list[str]:
    done = subprocess.run(
        ["git", "show", f"{BRANCH}:history.jsonl"], cwd=remote, capture_output=True, text=True
    )
    return done.stdout.splitlines()


def test_a_report_becomes_lines_of_the_branch_and_a_page(job, remote):
    leave(job)
    known = environment(job, remote)
    assert history(known, run_verb) == 0
    assert len(pushed(remote)) == 2
    assert git(remote, "log", "-1", "--format=%an %s", BRANCH) == (
        f"github-actions[bot] Measurements of {job.head[:12]}"
    )
    assert job.head[:10] in (job.root / "site" / "index.html").read_text()
    assert (job.root / "site" / "history.jsonl").read_text().splitlines() == pushed(remote)
    assert (job.temp / "output").read_text() == "site=site\n"


def test_the_next_job_adds_to_what_is_there_and_the_same_job_again_adds_nothing(
    job, remote, tmp_path
):
    leave(job, base_sha=None, head_sha=job.base)
    assert history(environment(job, remote, job.base), run_verb) == 0
    known = environment(job, remote)
    first = pushed(remote)
    leave(job)
    for attempt in ("second", "third"):
        temp = tmp_path / attempt
        temp.mkdir()
        assert history(known | {"RUNNER_TEMP": str(temp)}, run_verb) == 0
    assert pushed(remote)[: len(first)] == first
    assert len(pushed(remote)) == len(first) + 2
    assert git(remote, "rev-list", "--count", BRANCH) == "2"


def test_a_report_of_another_commit_rewrites_nobodys_past(job, remote, capsys):
    leave(job, head_sha=job.base)
    (job.root / "reports" / "x").mkdir()
    (job.root / "reports" / "x" / "report.json").write_text("hostile")
    assert history(environment(job, remote), job.run) == 0
    assert job.asked == []
    assert pushed(remote) == []
    told = capsys.readouterr().out
    assert told.count("::warning::") == 2
    assert f"expected a report of {job.head}" in told


def test_without_reports_the_page_is_made_of_what_is_there(job, remote):
    leave(job)
    assert history(environment(job, remote), run_verb) == 0
    file = job.root / "reports" / "gpu" / "report.json"
    file.unlink()
    (job.root / "site" / "index.html").unlink()
    again = job.temp / "again"
    again.mkdir()
    assert history(environment(job, remote, RUNNER_TEMP=str(again)), run_verb) == 0
    assert (job.root / "site" / "index.html").is_file()


def test_without_a_history_there_is_no_page(job, remote):
    assert history(environment(job, remote), job.run) == 0
    assert job.asked == []
    assert not (job.temp / "output").exists()


def test_verbs_know_no_token_and_links_lead_to_the_server(job, remote, monkeypatch):
    leave(job)
    monkeypatch.setattr(DataBranch, "fetch", lambda self: self.folder.mkdir(parents=True))
    monkeypatch.setattr(DataBranch, "push", lambda self, name, message: True)
    monkeypatch.setattr(door.shutil, "copyfile", lambda source, target: None)
    known = environment(job, remote, GITHUB_TOKEN="t0ken", GITHUB_SERVER_URL="https://github.com")
    assert history(known, job.run) == 0
    (append, _), (show, given) = job.asked
    assert append[:3] == ["report", "--checkout", str(job.root)]
    assert show[-2:] == ["--json", str(job.root / "site" / "benchmarks.json")]
    assert given["GITHUB_SERVER_URL"] == "https://github.com"
    assert given["GITHUB_REPOSITORY"] == OWN
    assert all("t0ken" not in str(asked) for asked in job.asked)


def test_a_verb_that_fails_ends_the_job_before_anything_is_pushed(job, remote):
    leave(job)
    job.codes["report"] = 2
    assert history(environment(job, remote), job.run) == 2
    assert pushed(remote) == []


# --- the branch --------------------------------------------------------------------------------


def test_the_token_is_on_no_command_line(tmp_path, remote, monkeypatch):
    commands = []
    really = subprocess.run

    def noted(words, **more):
        commands.append((words, more["env"]))
        return really(words, **more)

    monkeypatch.setattr(subprocess, "run", noted)
    DataBranch(tmp_path / "data", f"file://{remote}", BRANCH, "t0ken").fetch()
    assert commands
    assert all("t0ken" not in str(words) for words, _ in commands)
    assert all("AUTHORIZATION: basic " in str(env) for _, env in commands)


def test_a_link_in_the_branch_leads_nowhere(tmp_path, remote):
    source = tmp_path / "source"
    source.mkdir()
    git(source, "init", "-q", "-b", BRANCH)
    (source / "history.jsonl").symlink_to("/etc/hostname")
    git(source, "add", "-A")
    git(source, "commit", "-qm", "x")
    git(source, "push", "-q", str(remote), BRANCH)
    branch = DataBranch(tmp_path / "data", f"file://{remote}", BRANCH, None)
    branch.fetch()
    assert (branch.folder / "history.jsonl").read_text() == "/etc/hostname"


def test_what_somebody_else_pushed_meanwhile_is_not_overwritten(tmp_path, remote):
    branches = [DataBranch(tmp_path / n, f"file://{remote}", BRANCH, None) for n in "ab"]
    for one in branches:
        one.fetch()
        (one.folder / "history.jsonl").write_text(one.folder.name)
    assert branches[0].push("history.jsonl", "one") is True
    with pytest.raises(ForgeError, match="one job at a time"):
        branches[1].push("history.jsonl", "two")
    assert pushed(remote) == ["a"]


@pytest.mark.parametrize("name", ["", "-x", "a..b", "a b", "a/", "/a", "a:b", "x.lock", "a@{1}"])
def test_what_is_no_name_of_a_branch_is_refused(tmp_path, name):
    with pytest.raises(ConfigError, match="input `branch`"):
        DataBranch(tmp_path, "file:///nowhere", name, None)
