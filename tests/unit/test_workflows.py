"""Workflows and actions, ours and those for users: what linters say of them, and what none knows.

A linter that finds nothing may be one that does not look: each is given a bad workflow as well.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

import cudal1_ci
from cudal1_ci import __version__
from cudal1_ci.cli import main
from cudal1_ci.cli.workflows import ALSO, ALWAYS
from cudal1_ci.config.values import parse_duration
from cudal1_ci.github.action.admission import PHRASE
from cudal1_ci.github.action.inputs import (
    CommandInputs,
    Inputs,
    PublishInputs,
    SweepInputs,
    TrendInputs,
    command_inputs,
    publish_inputs,
)
from cudal1_ci.github.command_effects import ON_REQUEST
from tests.unit.github_action.jobs import commit, git

ROOT = Path(__file__).parents[2]
OURS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TEMPLATES = sorted((ROOT / "templates" / "workflows").glob("*.yml"))
REUSED = [path for path in OURS if "workflow_call" in yaml.safe_load(path.read_text("utf-8"))[True]]
"""Those that a repository calls with a template's dozen lines."""
ACTION, PUBLISH = ROOT / "action.yml", ROOT / "actions/publish/action.yml"
COMMANDS, TREND = ROOT / "actions/commands/action.yml", ROOT / "actions/trend/action.yml"
SWEEP = ROOT / "actions/sweep/action.yml"
WORKFLOWS, ACTIONS = OURS, [ACTION, PUBLISH, COMMANDS, TREND, SWEEP]
SWEEPING = "sweep.yml"
"""The one workflow that lasts for hours."""
ANSWERING = "commands.yml"
"""The one workflow that comments start, and that may do more than post."""
REMEMBERING = "trend.yml"
"""The one workflow that pushes to a branch."""

SCANNING = "code-scanning.yml"
FORKS = "forks.yml"
REVIEWING = "review.yml"
"""The one workflow that writes alerts of code scanning."""
RELEASING = "release.yml"
"""The one workflow that publishes the package, from a tag."""

ALL_OTHERS = {name for names in ALSO.values() for name in names}
RECORDS = [
    (ACTION, Inputs),
    (PUBLISH, PublishInputs),
    (COMMANDS, CommandInputs),
    (TREND, TrendInputs),
    (SWEEP, SweepInputs),
]

LABELS = "self-hosted-runner:\n  labels: [gpu]\n"

BAD = """\
name: bad
on: pull_request_target
jobs:
  measure:
    runs-on: ubuntu-latest
    needs: nobody
    steps:
      - uses: actions/checkout@v4
        with:
          ref: ${{ github.event.pull_request.head.sha }}
      - run: echo "${{ github.event.pull_request.title }}"
"""
BAD_SHAPE = BAD.replace("runs-on:", "runs_on:")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_absolute() else str(path)


def document(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text("utf-8"))


def steps_of(path: Path) -> list[dict[str, Any]]:
    """The steps of a composite action, or those of all jobs of a workflow."""
    read = document(path)
    if "runs" in read:
        return read["runs"]["steps"]
    return [step for job in read["jobs"].values() for step in job["steps"]]


# --- linters -----------------------------------------------------------------------------------


def lint(tool: str, *words: object) -> subprocess.CompletedProcess[str]:
    """A linter of the test dependencies; one that is missing fails the test."""
    found = shutil.which(tool, path=Path(sys.executable).parent) or shutil.which(tool)
    assert found, f"{tool} is not installed: make venv"
    return subprocess.run([found, *map(str, words)], capture_output=True, text=True, timeout=60)


def schema(kind: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    return lint("check-jsonschema", "--builtin-schema", f"vendor.github-{kind}", *paths)


def zizmor(*paths: Path) -> subprocess.CompletedProcess[str]:
    return lint("zizmor", "--offline", "--no-config", "--quiet", "--persona", "pedantic", *paths)


def actionlint(folder: Path, *paths: Path) -> subprocess.CompletedProcess[str]:
    labels = folder / "actionlint.yaml"
    labels.write_text(LABELS)
    return lint("actionlint", "-no-color", "-config-file", labels, *paths)


def test_workflows_and_actions_have_the_shape_that_github_wants():
    for done in (schema("workflows", *WORKFLOWS, *TEMPLATES), schema("actions", *ACTIONS)):
        assert done.returncode == 0, done.stdout + done.stderr


def test_an_attacker_would_find_nothing_in_workflows_and_actions():
    done = zizmor(*WORKFLOWS, *ACTIONS)
    assert done.returncode == 0, done.stdout + done.stderr
    done = lint("zizmor", "--offline", "--no-config", "--quiet", *TEMPLATES)
    assert done.returncode == 0, done.stdout + done.stderr


def test_jobs_contexts_and_labels_of_workflows_are_there(tmp_path):
    done = actionlint(tmp_path, *WORKFLOWS, *TEMPLATES)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_python_that_the_package_names_is_one_that_our_workflows_use():
    text = "".join(path.read_text("utf-8") for path in OURS)
    lines = re.findall(r"^ +python(?:-version)?: .*$", text, re.MULTILINE)
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
        "classifiers"
    ]
    named = [one.rpartition(" ")[2] for one in classifiers if "Python :: 3." in one]
    assert set(named) <= set(re.findall(r'"(3\.\d+)"', "".join(lines)))


def test_the_linters_find_what_is_wrong_with_a_bad_workflow(tmp_path):
    bad = tmp_path / ".github" / "workflows" / "bad.yml"
    bad.parent.mkdir(parents=True)
    bad.write_text(BAD)
    found = zizmor(bad)
    assert found.returncode != 0
    for rule in ("dangerous-triggers", "template-injection", "unpinned-uses", "artipacked"):
        assert rule in found.stdout, rule
    found = actionlint(tmp_path, bad)
    assert found.returncode != 0
    assert 'needs job "nobody"' in found.stdout
    bad.write_text(BAD_SHAPE)
    assert schema("workflows", bad).returncode != 0
    action = tmp_path / "action.yml"
    action.write_text(ACTION.read_text("utf-8").replace("using: composite", "using: magic"))
    assert schema("actions", action).returncode != 0


# --- what no linter knows ----------------------------------------------------------------------


@pytest.mark.parametrize("path", WORKFLOWS, ids=name_of)
def test_a_workflow_has_no_permission_that_a_job_did_not_ask_for(path):
    read = document(path)
    assert read["permissions"] == {}
    assert read["concurrency"]
    for name, job in read["jobs"].items():
        assert job["permissions"], name
        most = 300 if (path.name, name) == (SWEEPING, "sweep") else 60
        assert job["timeout-minutes"] <= most, name


EVERYWHERE = sorted(
    path
    for folder in ("templates", "examples", ".github", "actions")
    for path in (ROOT / folder).rglob("*.yml")
    if "jobs" in (yaml.safe_load(path.read_text("utf-8")) or {})
)


@pytest.mark.parametrize("path", EVERYWHERE, ids=name_of)
def test_no_job_of_a_pull_request_writes_the_cache_and_each_has_the_least_rights(path):
    """What code of a pull request writes to the default branch's cache runs in later jobs."""
    read = document(path)
    assert read["permissions"] == {}
    for name, job in read["jobs"].items():
        assert isinstance(job["permissions"], dict), name
        if "uses" in job:
            continue  # the workflow that it calls is one of these
        mode = job.get("cache-mode", read.get("cache-mode"))
        saves = [step for step in job["steps"] if "actions/cache/save@" in step.get("uses", "")]
        if mode == "write-only":
            assert "github.event_name == 'push'" in job["if"], name
            assert "github.event.repository.default_branch" in job["if"], name
        else:
            assert mode in ("none", "read"), name
            assert not saves, name
        runs_code = any("actions/checkout@" in step.get("uses", "") for step in job["steps"])
        if runs_code and path.name not in (REMEMBERING, RELEASING):
            assert job["permissions"] == {"contents": "read"}, name


PUBLISHER_USES = (
    r"actions/download-artifact@|OWNER/cudal1-ci/actions/(publish|commands)@"
    r"|github/codeql-action/upload-sarif@"
)
RELEASE_RIGHTS = {"publish": {"id-token", "attestations"}, "announce": {"contents"}}
RELEASE_USES = r"(actions/(download-artifact|attest-build-provenance)|pypa/gh-action-pypi-publish)@"
TREND_RIGHTS = {"trend": {"contents"}, "pages": {"pages", "id-token"}}
TREND_USES = (
    r"actions/(download-artifact|checkout|upload-pages-artifact|deploy-pages)@"
    r"|OWNER/cudal1-ci/actions/trend@"
)
"""The trend takes the order of commits from a clone beside the workspace's top; it is
pushed code, not that of a pull request, and nothing of it is run."""


@pytest.mark.parametrize("path", WORKFLOWS, ids=name_of)
def test_a_job_that_may_write_checks_out_nothing_and_runs_no_script(path):
    for name, job in document(path)["jobs"].items():
        writes = {scope for scope, right in job["permissions"].items() if right == "write"}
        if not writes:
            assert job["permissions"] == {"contents": "read"}, name
            continue
        rights = {"checks", "pull-requests"}
        rights |= {"actions", "contents", "issues"} if path.name == ANSWERING else set()
        rights = {"checks", "issues"} if path.name == SWEEPING else rights
        rights = {"security-events"} if path.name == SCANNING else rights
        rights = RELEASE_RIGHTS[name] if path.name == RELEASING else rights
        is_trend = path.name == REMEMBERING
        assert writes <= (TREND_RIGHTS[name] if is_trend else rights), name
        assert job["runs-on"] == "ubuntu-latest", f"{name}: not where measured code has run"
        uses = TREND_USES if is_trend else PUBLISHER_USES
        uses = RELEASE_USES if path.name == RELEASING else uses
        for step in job["steps"]:
            if path.name == RELEASING and "run" in step:
                commands = re.findall(r"^(?:\|\| )?(\w+)[ =]", step["run"], re.MULTILINE)
                assert set(commands) == {"gh", "ref"}, "GitHub's own program alone"
                continue
            assert "run" not in step, name
            assert re.match(uses, step["uses"])


@pytest.mark.parametrize("path", [*WORKFLOWS, *TEMPLATES], ids=name_of)
def test_only_two_workflows_that_check_out_nothing_run_with_the_rights_of_the_base(path):
    triggers = set(document(path)[True])  # YAML's `on`
    privileged = triggers & {"pull_request_target", "workflow_run", "issue_comment"}
    expected = {ALSO["forks"][0]: {"workflow_run"}, ALSO["commands"][0]: {"issue_comment"}}
    assert privileged == expected.get(path.name, set())
    if privileged:
        ((_, job),) = document(path)["jobs"].items()
        called = ROOT / job["uses"].partition("cudal1-ci/")[2].partition("@")[0]
        assert called.name in (FORKS, ANSWERING)
        assert not [s for s in steps_of(called) if "checkout" in s.get("uses", "") or "run" in s]


@pytest.mark.parametrize("path", REUSED, ids=name_of)
def test_jobs_on_a_runner_of_ones_own_wait_for_one_another_and_none_is_dropped(path):
    for job in document(path)["jobs"].values():
        if job["runs-on"] != "ubuntu-latest":
            name = "matrix.machine" if path.name == REVIEWING else "matrix"
            assert job["runs-on"] == f"${{{{ {name}.runs-on }}}}"
            assert job["concurrency"] == {
                "group": f"cudal1-ci-on-${{{{ {name}.name }}}}",
                "queue": "max",
            }


@pytest.mark.parametrize("path", [*WORKFLOWS, *ACTIONS], ids=name_of)
def test_every_action_is_pinned_to_a_commit_with_its_version_beside_it(path):
    for line in path.read_text("utf-8").splitlines():
        if re.match(r"\s*(- )?uses:", line):
            assert re.search(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line


@pytest.mark.parametrize("path", WORKFLOWS, ids=name_of)
def test_no_checkout_leaves_a_token_behind(path):
    checkouts = [s for s in steps_of(path) if s.get("uses", "").startswith("actions/checkout@")]
    if path.name == REMEMBERING:
        assert [step["with"].get("path") for step in checkouts] == [None, "source"]
    assert checkouts or path.name in (FORKS, ANSWERING)
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


@pytest.mark.parametrize("path", [*WORKFLOWS, *ACTIONS], ids=name_of)
def test_nothing_is_interpolated_into_a_script(path):
    for step in steps_of(path):
        assert "${{" not in step.get("run", ""), step


# --- the actions -------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "record"), RECORDS)
def test_an_action_hands_on_every_input_under_the_name_that_is_read(path, record):
    text = path.read_text("utf-8")
    declared = document(path)["inputs"]
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == set(declared)
    handed = {
        name: re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", value)[1]
        for step in steps_of(path)
        for name, value in step.get("env", {}).items()
        if name.startswith("INPUT_")
    }
    assert handed == {f"INPUT_{f.upper()}": f.replace("_", "-") for f in record.__struct_fields__}
    assert set(declared) - set(handed.values()) <= {"artifact-name", "github-token"}


def test_defaults_of_the_action_are_those_of_the_records():
    for path, record in RECORDS:
        defaults = record.__struct_defaults__
        optional = record.__struct_fields__[-len(defaults) :]
        for name, value in zip(optional, defaults, strict=True):
            default = document(path)["inputs"][name.replace("_", "-")]["default"]
            expected = "" if value in (None, ()) else str(value)
            assert default == (expected.lower() if isinstance(value, bool) else expected), name


def test_the_action_declares_the_outputs_that_are_written():
    from cudal1_ci.github.action.outcome import Outcome, output_lines

    declared = document(ACTION)["outputs"]
    assert set(declared) == set(output_lines(Outcome(verdict="pass")))
    for name, output in declared.items():
        assert output["value"] == f"${{{{ steps.measure.outputs.{name} }}}}"


def test_the_sweep_declares_the_outputs_that_are_written():
    from cudal1_ci.github.action.outcome import Outcome
    from cudal1_ci.github.action.sweep import sweep_lines

    declared = document(SWEEP)["outputs"]
    assert set(declared) == set(sweep_lines(Outcome(verdict="pass"), None))
    for name, output in declared.items():
        assert output["value"] == f"${{{{ steps.sweep.outputs.{name} }}}}"


def test_a_sweep_has_time_for_its_budget_and_starts_off_the_hour():
    (schedule,) = document(TEMPLATES[0].with_name("cudal1-ci-sweep.yml"))[True]["schedule"]
    assert int(schedule["cron"].split()[0]) not in (0, 15, 30, 45)
    read = document(ROOT / ".github" / "workflows" / SWEEPING)
    budget = read[True]["workflow_call"]["inputs"]["budget"]["default"]
    assert parse_duration(budget) / 60 + 20 <= read["jobs"]["sweep"]["timeout-minutes"]


@pytest.mark.parametrize("path", ACTIONS, ids=name_of)
def test_the_scripts_of_an_action_are_bash_and_start_an_isolated_interpreter(path):
    for step in steps_of(path):
        if "run" in step:
            done = subprocess.run(["bash", "-n"], input=step["run"], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            for line in step["run"].splitlines():
                assert "CUDAL1_PYTHON" not in line or '"$CUDAL1_PYTHON" -I ' in line


def test_the_token_reaches_the_steps_that_post_alone():
    holders = [s["name"] for p in ACTIONS for s in steps_of(p) if "token" in str(s).lower()]
    assert holders == [
        "Publish",
        "Answer",
        "Fetch the report",
        "Answer with the report",
        "Append, push and render",
    ]


@pytest.mark.parametrize("path", [PUBLISH, COMMANDS, TREND], ids=name_of)
def test_what_posts_takes_its_environment_from_nowhere_that_measured_code_could_write(path):
    assert "RUNNER_TOOL_CACHE" in ACTION.read_text("utf-8")
    assert "RUNNER_TOOL_CACHE" not in path.read_text("utf-8")


def test_every_row_of_the_threat_table_names_tests_that_are_there():
    text = (ROOT / "docs" / "lab" / "threats.md").read_text("utf-8")
    section = text.partition("## Attacks and tests\n")[2]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 40
    security = (ROOT / "docs" / "security.md").read_text("utf-8")
    assert f"lists {len(rows)} attacks on this" in security
    files = [
        Path(__file__),
        *(ROOT / "tests/unit/github_action").glob("test_*.py"),
        *(
            ROOT / f"tests/integration/test_{name}.py"
            for name in (
                "action",
                "branches",
                "commands",
                "compare_commits",
                "publish",
                "publish_sweep",
            )
        ),
        *(ROOT / "tests/unit/github").glob("test_*.py"),
        *(ROOT / "tests/hostile").glob("test_*.py"),
    ]
    there = {
        name
        for file in files
        for name in re.findall(r"^def (test_\w+)", file.read_text("utf-8"), re.MULTILINE)
    }
    for row in rows:
        named = set(re.findall(r"`(test_\w+)`", row.rsplit("|", 2)[1]))
        assert named, row
        assert named <= there, named - there


def test_every_case_of_a_repository_names_a_test_that_is_there_or_a_limit():
    text = (ROOT / "docs" / "lab" / "adoption.md").read_text("utf-8")
    files = re.findall(r"^\| \w+ \| \[`(tests/[\w/.]+)`\]", text, re.MULTILINE)
    there = {
        name
        for file in files
        for name in re.findall(r"^def (test_\w+)", (ROOT / file).read_text("utf-8"), re.MULTILINE)
    }
    section = text.partition("## Cases\n")[2].partition("## Limits")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    rows = [row for row in rows if not row.startswith("| source |")]
    assert len(rows) > 90
    assert len(set(re.findall(r"[\w.-]+/[\w.-]+#\d+", section))) > 90
    for before, row in zip(["", *rows], rows, strict=False):
        *_, here, proof, _ = row.split("|")
        named = set(re.findall(r"`(test_\w+)`", proof))
        assert named <= there, named - there
        assert named or "limit" in here or (proof.strip() == "the same" and "test_" in before), row


def test_the_phrase_of_the_documentation_is_the_one_that_is_asked_for():
    assert f"    {PHRASE}\n" in (ROOT / "docs" / "security.md").read_text("utf-8")


# --- init --------------------------------------------------------------------------------------


def init(folder: Path, *words: str):
    return CliRunner().invoke(main, ["init", str(folder), "--workflows", *words])


LABEL_SELF = ["self-hosted", "h100"]


def called_by(path: Path) -> tuple[dict[str, Any], Path]:
    """The one job of a template, and the workflow that it calls."""
    ((_, job),) = document(path)["jobs"].items()
    return job, ROOT / job["uses"].partition("cudal1-ci/")[2].partition("@")[0]


def test_there_is_a_template_for_each_workflow_that_can_be_called_and_it_is_short():
    assert {path.name for path in TEMPLATES} == {ALWAYS, *ALL_OTHERS}
    assert {called_by(path)[1] for path in TEMPLATES} == set(REUSED)
    assert len(TEMPLATES[-1].with_name(ALWAYS).read_text().splitlines()) == 10


@pytest.mark.parametrize("path", TEMPLATES, ids=name_of)
def test_a_template_gives_what_the_workflow_takes_and_the_rights_that_its_jobs_need(path):
    job, called = called_by(path)
    read = document(called)
    taken = read[True]["workflow_call"]["inputs"]
    assert set(job.get("with", ())) <= set(taken)
    assert {name for name, one in taken.items() if one.get("required")} <= set(job.get("with", ()))
    needed: dict[str, str] = {}
    for inner in read["jobs"].values():
        for scope, right in inner["permissions"].items():
            needed[scope] = right if needed.get(scope) != "write" else "write"
    assert job["permissions"] == needed
    assert document(path)["permissions"] == {}


@pytest.mark.parametrize("path", REUSED, ids=name_of)
def test_every_input_of_a_workflow_is_used(path):
    text = path.read_text("utf-8")
    declared = document(path)[True]["workflow_call"]["inputs"]
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == set(declared)


def test_init_writes_workflows_for_the_runners_and_the_commit_that_are_named(tmp_path):
    commit = "0123456789abcdef0123456789abcdef01234567"
    words = ["--gpu", "h100", "--gpu", "rtx-4090", *(f"--also={one}" for one in ALSO)]
    done = init(tmp_path, *words, "--action", f"me/cudal1-ci@{commit}")
    assert done.exit_code == 0, done.output
    assert (tmp_path / ".github" / "cudal1-ci.toml").is_file()
    folder = tmp_path / ".github" / "workflows"
    assert {path.name for path in folder.iterdir()} == {ALWAYS, *ALL_OTHERS}
    text = "".join(path.read_text("utf-8") for path in folder.iterdir())
    assert "OWNER" not in text
    assert 40 * "0" not in text
    for name in ("review", "commands", "forks", "sweep", "trend", "on-request", "code-scanning"):
        assert f"uses: me/cudal1-ci/.github/workflows/{name}.yml@{commit} # v" in text
    job, _ = called_by(folder / ALWAYS)
    assert json.loads(job["with"]["machines"]) == [
        {"name": "h100", "runs-on": LABEL_SELF, "gpu": True},
        {"name": "rtx-4090", "runs-on": ["self-hosted", "rtx-4090"], "gpu": True},
    ]
    assert "merge_group" in document(folder / ALWAYS)[True]
    assert "Forks" in done.output
    assert lint("zizmor", "--offline", "--no-config", "--quiet", *folder.iterdir()).returncode == 0


@pytest.mark.parametrize(
    ("words", "machines"),
    [
        (["--gpu", "h100"], [{"name": "h100", "runs-on": LABEL_SELF, "gpu": True}]),
        (["--runs-on", "arc-h100"], [{"name": "arc-h100", "runs-on": "arc-h100"}]),
        (["--runs-on", "ubuntu-latest"], [{"name": "ubuntu-latest", "runs-on": "ubuntu-latest"}]),
        (
            ["--runs-on", "self-hosted,linux,h100"],
            [{"name": "h100", "runs-on": ["self-hosted", "linux", "h100"]}],
        ),
        (["--runs-on", "group=big gpus"], [{"name": "big-gpus", "runs-on": {"group": "big gpus"}}]),
        (
            ["--runs-on", "group=g,h100"],
            [{"name": "g", "runs-on": {"group": "g", "labels": ["h100"]}}],
        ),
    ],
)
def test_runner_labels_are_written_as_they_are_given(tmp_path, words, machines):
    done = init(tmp_path, *words, "--action", "me/cudal1-ci@v0")
    assert done.exit_code == 0, done.output
    path = tmp_path / ".github" / "workflows" / ALWAYS
    assert json.loads(called_by(path)[0]["with"]["machines"]) == machines
    assert actionlint(tmp_path, path).returncode == 0


def test_comments_name_the_commands_where_something_answers_them(tmp_path):
    for also, folder in (([], "a"), (["--also=commands"], "b")):
        (tmp_path / folder).mkdir()
        assert init(tmp_path / folder, "--action", "me/cudal1-ci@v0", *also).exit_code == 0
        job, _ = called_by(tmp_path / folder / ".github" / "workflows" / ALWAYS)
        assert job["with"].get("commands") == ("true" if also else None)


OLD = """\
name: cudal1-ci
on:
  pull_request:
jobs:
  measure:
    runs-on: [self-hosted, "${{ matrix.gpu }}"]
    strategy:
      matrix:
        gpu: [h100, l40] # labels of your runners, one for each kind of GPU
    steps:
      - uses: actions/checkout@de0fac2e4500dabe0009e67214ff5f5447ce83dd # v6.0.2
        with:
          fetch-depth: 0
      - run: pip install -e .
      - uses: me/cudal1-ci@1111111111111111111111111111111111111111 # v0.0.9
        with:
          python: .venv/bin/python
          budget: 20m # enough
          path: packages/a
          artifact-name: cudal1-ci-${{ matrix.gpu }}
"""


def test_init_renews_what_an_older_version_wrote_and_names_what_it_has_no_place_for(tmp_path):
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    (folder / ALWAYS).write_text(OLD)
    (folder / "cudal1-ci-merge-queue.yml").write_text(OLD)
    (folder / "mine.yml").write_text("mine\n")
    done = init(tmp_path, "--upgrade", "--dry-run", "--action", "me/cudal1-ci@v0")
    assert done.exit_code == 0, done.output
    assert (folder / ALWAYS).read_text() == OLD
    done = init(tmp_path, "--upgrade", "--action", "me/cudal1-ci@v0")
    assert done.exit_code == 0, done.output
    assert "not carried over; the input `setup` takes it: run: pip install -e ." in done.output
    assert {path.name for path in folder.iterdir()} == {ALWAYS, "mine.yml"}
    read = document(folder / ALWAYS)
    assert "merge_group" in read[True]
    given = called_by(folder / ALWAYS)[0]["with"]
    assert [one["name"] for one in json.loads(given.pop("machines"))] == ["h100", "l40"]
    projects = {"projects": '["packages/a"]'}
    assert given == {"python": ".venv/bin/python", "budget": "20m", **projects}
    assert actionlint(tmp_path, folder / ALWAYS).returncode == 0


def test_init_renews_the_version_alone_of_what_calls_a_reusable_workflow(tmp_path):
    assert init(tmp_path, "--action", "me/cudal1-ci@v0", "--also=trend").exit_code == 0
    file = tmp_path / ".github" / "workflows" / ALWAYS
    mine = file.read_text().replace(
        "    with: {", '    with: {fail-on: regression, setup: "make", '
    )
    file.write_text(mine)
    assert init(tmp_path, "--upgrade", "--action", "me/cudal1-ci@v1").exit_code == 0
    assert file.read_text() == mine.replace("@v0", "@v1")
    again = init(tmp_path, "--upgrade", "--action", "me/cudal1-ci@v1")
    assert again.output == ""
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    assert "no workflow of cudal1-ci" in init(nothing, "--upgrade", "--action", "a/b@v1").output


# --- the pull request that brings it -----------------------------------------------------------


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A clone of a project with a module, whose default branch is `trunk`."""
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    server, clone = tmp_path / "server", tmp_path / "clone"
    git(tmp_path, "init", "-q", "-b", "trunk", "--bare", str(server))
    git(tmp_path, "clone", "-q", str(server), str(clone))
    model = (
        "from torch import nn\nclass M(nn.Module):\n    def forward(self, x):\n        return x\n"
    )
    commit(clone, {"model.py": model})
    git(clone, "push", "-q", "origin", "HEAD:trunk")
    git(clone, "remote", "set-head", "origin", "trunk")
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "t")
    git(clone, "config", "user.name", "t")
    git(clone, "config", "user.email", "t@t")
    return clone


def test_init_pushes_a_branch_with_what_would_be_measured_and_leaves_the_clone_alone(clone):
    done = init(clone, "--pull-request", "--action", "me/cudal1-ci@v0", "--runs-on", "arc")
    assert done.exit_code == 0, done.output
    assert git(clone, "status", "--porcelain") == ""
    git(clone, "fetch", "-q")
    listed = git(clone, "diff", "--name-only", "HEAD", "origin/cudal1-ci/init").splitlines()
    assert listed == [".github/cudal1-ci.toml", f".github/workflows/{ALWAYS}"]
    text = git(clone, "show", f"origin/cudal1-ci/init:.github/workflows/{ALWAYS}")
    assert 'push: {branches: ["trunk"]}' in text
    assert "model.py" in done.output, "what would be measured is in the description"
    again = init(clone, "--pull-request", "--action", "me/cudal1-ci@v1")
    assert again.exit_code == 4
    assert "cannot be pushed" in again.output


def test_init_opens_the_pull_request_where_it_has_a_token(clone, monkeypatch):
    asked = []

    def opens(token, api, repository, payload, tell):
        asked.append((token, repository, payload["head"], payload["base"]))
        return "https://github.com/o/r/pull/1"

    monkeypatch.setattr("cudal1_ci.github.client.open_branch", opens)
    monkeypatch.setattr("cudal1_ci.cli.adopting.push", lambda top, commit: None)
    git(clone, "remote", "set-url", "origin", "https://github.com/o/r.git")
    monkeypatch.setenv("GITHUB_TOKEN", "t")
    done = init(clone, "--pull-request", "--action", "me/cudal1-ci@v0")
    assert done.stdout == "opened https://github.com/o/r/pull/1\n"
    assert asked == [("t", "o/r", "cudal1-ci/init", "trunk")]


def test_init_prints_the_pull_request_in_a_dry_run(clone, tmp_path):
    done = init(clone, "--pull-request", "--dry-run", "--action", "me/cudal1-ci@v0")
    assert done.exit_code == 0, done.output
    assert "--- .github/workflows/cudal1-ci.yml\n" in done.output
    assert "model.py" in done.output
    assert git(clone, "ls-remote", "origin", "cudal1-ci/init") == ""
    alone = tmp_path / "alone"
    alone.mkdir()
    assert "needs a clone" in init(alone, "--pull-request", "--action", "me/cudal1-ci@v0").output


def test_the_workflow_that_measures_on_request_takes_what_the_command_gives(tmp_path):
    template = TEMPLATES[0].with_name(ON_REQUEST)
    declared = document(template)[True]["workflow_dispatch"]["inputs"]
    assert set(declared) == {"pull-request", "sha", "base", "include", "optimize"}
    job, path = called_by(template)
    assert all(job["with"][name] == f"${{{{ inputs.{name} }}}}" for name in declared)
    uses = {
        step["uses"].partition("@")[0]: step["with"] for step in steps_of(path) if "with" in step
    }
    assert uses["actions/checkout"]["ref"] == "${{ inputs.sha }}"
    assert uses["OWNER/cudal1-ci"]["base"] == "${{ inputs.base }}", "settings are those of the base"


def test_a_label_that_means_nothing_here_ends_no_measurement():
    called = document(TEMPLATES[0].with_name(ALWAYS))[True]
    assert {"labeled", "edited"} <= set(called["pull_request"]["types"])
    read = document(ROOT / ".github" / "workflows" / REVIEWING)
    group = " ".join(read["concurrency"]["group"].split())
    assert "== 'labeled' && !startsWith(github.event.label.name, 'cudal1:') ||" in group
    assert "!contains(github.event.pull_request.labels.*.name, 'cudal1:skip')" in " ".join(
        read["jobs"]["measure"]["if"].split()
    )


def test_init_adds_workflows_to_a_repository_that_is_configured_and_overwrites_nothing(tmp_path):
    action = "--action", "me/cudal1-ci@" + 40 * "a"
    (tmp_path / "pyproject.toml").write_text("[tool.cudal1-ci]\n")
    assert init(tmp_path, *action).exit_code == 0
    assert not (tmp_path / ".github" / "cudal1-ci.toml").exists()
    file = tmp_path / ".github" / "workflows" / ALWAYS
    file.write_text("mine\n")
    again = init(tmp_path, *action, "--also", "forks")
    assert again.exit_code == 2
    assert "is there already" in again.output
    assert file.read_text() == "mine\n"
    assert not (file.parent / ALSO["forks"][0]).exists()


def test_workflows_of_a_project_in_a_folder_are_where_github_reads_them(tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".gitmodules").touch()
    project = tmp_path / "it's two" / "words"
    project.mkdir(parents=True)
    action = "--action", "me/cudal1-ci@" + 40 * "a"
    more = ("forks", "sweep", "commands")
    done = init(project, *action, *(word for name in more for word in ("--also", name)))
    assert done.exit_code == 0, done.output
    assert "`gpu` is a guess" in done.output
    assert (project / ".github" / "cudal1-ci.toml").is_file()
    assert not (project / ".github" / "workflows").exists()
    folder = tmp_path / ".github" / "workflows"
    given = {}
    for name in (ALWAYS, *(name for one in more for name in ALSO[one])):
        ((_, job),) = document(folder / name)["jobs"].items()
        given[name] = {
            key: value
            for key, value in job["with"].items()
            if key != "machines" and "${{" not in value
        }
    projects = json.dumps(["it's two/words"])
    assert list(given.values()) == [
        {"submodules": "recursive", "projects": projects, "commands": "true"},
        {"projects": projects},
        {"path": "it's two/words"},
        {"projects": projects},
        {"path": "it's two/words"},
    ]
    for read in (publish_inputs, command_inputs):
        inputs = {"INPUT_REPORTS": "*", "INPUT_PROJECTS": projects}
        assert read(inputs).projects == ("it's two/words",), "as the actions read it"
    other = tmp_path / "other"
    other.mkdir()
    again = init(other, *action)
    assert again.exit_code == 2
    assert "a further project belongs into its input `projects`" in again.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--action", "me/cudal1-ci@main"], "all 40 digits of the commit, or a tag"),
        (["--action", "me/cudal1-ci@v0", "--gpu", "ubuntu-latest"], "--runs-on ubuntu-latest"),
        (["--action", "me/cudal1-ci@v0", "--runs-on", "windows-2025"], "needs Linux"),
        (["--action", "me/cudal1-ci@v0", "--runs-on", "a'b"], "expected a label"),
        (["--action", "me/cudal1-ci@v0", "--gpu", "a", "--runs-on", "a"], "one name"),
        (["--action", "me/cudal1-ci@" + 40 * "a", "--gpu", "a]\n  x"], "expected the label"),
    ],
)
def test_init_refuses_what_would_not_be_a_workflow(tmp_path, words, message):
    done = init(tmp_path, *words)
    assert done.exit_code == 2
    assert message in done.output
    assert not list(tmp_path.iterdir())


def test_init_knows_the_action_of_the_clone_that_it_runs_from(tmp_path, monkeypatch):
    workflows = sys.modules["cudal1_ci.cli.workflows"]
    monkeypatch.setattr(workflows, "repository_name", lambda root: "me/fork")
    monkeypatch.setattr(workflows, "repository_top", lambda root: root.parent)
    monkeypatch.setattr(workflows, "head_sha", lambda root: 40 * "b")
    assert init(tmp_path).exit_code == 0
    assert (
        "me/fork/.github/workflows/review.yml@" + 40 * "b"
        in (tmp_path / ".github" / "workflows" / ALWAYS).read_text()
    )


def test_init_asks_where_the_action_is_when_it_runs_from_no_clone(tmp_path, monkeypatch):
    workflows = sys.modules["cudal1_ci.cli.workflows"]
    monkeypatch.setattr(workflows, "repository_name", lambda root: "site-packages")
    done = init(tmp_path)
    assert done.exit_code == 2
    assert f"--action OWNER/cudal1-ci@COMMIT, the commit that has v{__version__}" in done.output


def installed(monkeypatch, text):
    """As it is where the package is in no clone, and an installer wrote this down."""
    workflows = sys.modules["cudal1_ci.cli.workflows"]
    known = SimpleNamespace(read_text=lambda name: text if name == "direct_url.json" else None)
    monkeypatch.setattr(workflows, "distribution", lambda name: known)
    monkeypatch.setattr(cudal1_ci, "__file__", "/nowhere/site-packages/cudal1_ci/__init__.py")


@pytest.mark.parametrize(
    "url",
    [
        "https://github.com/me/cudal1-ci",
        "https://github.com/me/cudal1-ci.git",
        "ssh://git@github.com/me/cudal1-ci.git",
    ],
)
def test_init_knows_the_action_of_the_repository_that_it_was_installed_from(
    tmp_path, monkeypatch, url
):
    vcs = {"vcs": "git", "requested_revision": "main", "commit_id": 40 * "c"}
    installed(monkeypatch, json.dumps({"url": url, "vcs_info": vcs}))
    done = init(tmp_path)
    assert done.exit_code == 0, done.output
    text = (tmp_path / ".github" / "workflows" / ALWAYS).read_text()
    assert f"uses: me/cudal1-ci/.github/workflows/review.yml@{40 * 'c'} # v" in text


def test_init_knows_the_action_of_the_clone_that_it_was_installed_from(tmp_path, monkeypatch):
    clone, project = tmp_path / "a clone", tmp_path / "project"
    project.mkdir()
    subprocess.run(["git", "init", "-q", clone], check=True)
    made = [["remote", "add", "origin", "git@github.com:me/cudal1-ci.git"]]
    made += [["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "--allow-empty", "-m1"]]
    for words in made:
        subprocess.run(["git", "-C", clone, *words], check=True)
    told = subprocess.run(
        ["git", "-C", clone, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    )
    installed(monkeypatch, json.dumps({"url": clone.as_uri(), "dir_info": {}}))
    assert init(project).exit_code == 0
    text = (project / ".github" / "workflows" / ALWAYS).read_text()
    assert f"uses: me/cudal1-ci/.github/workflows/review.yml@{told.stdout.strip()} # v" in text


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "{}",
        '{"url": "https://host/cudal1_ci-0.1.0.whl", "archive_info": {}}',
        '{"url": "file:///nowhere/cudal1-ci", "dir_info": {}}',
    ],
)
def test_init_asks_where_the_action_is_when_an_installation_does_not_say(
    tmp_path, monkeypatch, text
):
    installed(monkeypatch, text)
    done = init(tmp_path)
    assert done.exit_code == 2
    assert "--action OWNER/cudal1-ci@COMMIT" in done.output
    assert not list(tmp_path.iterdir())


def test_the_market_place_takes_the_description_of_the_action():
    assert len(document(ACTION)["description"]) < 125
