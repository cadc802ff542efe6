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
)
from cudal1_ci.github.command_effects import ON_REQUEST

ROOT = Path(__file__).parents[2]
OURS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
EXAMPLES = sorted((ROOT / "examples" / "workflows").glob("*.yml"))
TEMPLATES = sorted((ROOT / "templates" / "workflows").glob("*.yml"))
ACTION, PUBLISH = ROOT / "action.yml", ROOT / "actions/publish/action.yml"
COMMANDS, TREND = ROOT / "actions/commands/action.yml", ROOT / "actions/trend/action.yml"
SWEEP = ROOT / "actions/sweep/action.yml"
WORKFLOWS, ACTIONS = [*OURS, *EXAMPLES], [ACTION, PUBLISH, COMMANDS, TREND, SWEEP]
SWEEPING = "cudal1-ci-sweep.yml"
"""The one workflow that lasts for hours."""
ANSWERING = "cudal1-ci-commands.yml"
"""The one workflow that comments start, and that may do more than post."""
REMEMBERING = "cudal1-ci-trend.yml"
"""The one workflow that pushes to a branch."""

SCANNING = "cudal1-ci-code-scanning.yml"
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
    for done in (schema("workflows", *WORKFLOWS), schema("actions", *ACTIONS)):
        assert done.returncode == 0, done.stdout + done.stderr


def test_an_attacker_would_find_nothing_in_workflows_and_actions():
    done = zizmor(*WORKFLOWS, *ACTIONS)
    assert done.returncode == 0, done.stdout + done.stderr


def test_jobs_contexts_and_labels_of_workflows_are_there(tmp_path):
    done = actionlint(tmp_path, *WORKFLOWS)
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
def test_no_job_reads_or_writes_the_cache_and_each_has_the_least_rights(path):
    """Code of a pull request that writes the default branch's cache runs in later jobs."""
    read = document(path)
    assert read["permissions"] == {}
    assert read["cache-mode"] == "none"
    for name, job in read["jobs"].items():
        assert job.get("cache-mode", "none") == "none", name
        rights = job["permissions"]
        runs_code = any(
            step.get("uses", "").startswith("actions/checkout@") for step in job["steps"]
        )
        if runs_code and path.name not in (REMEMBERING, RELEASING):
            assert rights == {"contents": "read"}, name
        assert not [step for step in job["steps"] if "actions/cache" in step.get("uses", "")]


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
        rights |= {"actions", "contents"} if path.name == ANSWERING else set()
        rights = {"issues"} if path.name == SWEEPING else rights
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


@pytest.mark.parametrize("path", WORKFLOWS, ids=name_of)
def test_only_two_workflows_that_check_out_nothing_run_with_the_rights_of_the_base(path):
    triggers = set(document(path)[True])  # YAML's `on`
    privileged = triggers & {"pull_request_target", "workflow_run", "issue_comment"}
    expected = {ALSO["forks"][0]: {"workflow_run"}, ANSWERING: {"issue_comment"}}
    assert privileged == expected.get(path.name, set())
    if privileged:
        assert not [s for s in steps_of(path) if "checkout" in s.get("uses", "") or "run" in s]


@pytest.mark.parametrize("path", EXAMPLES, ids=name_of)
def test_jobs_on_a_runner_of_ones_own_wait_for_one_another_and_none_is_dropped(path):
    for job in document(path)["jobs"].values():
        if "self-hosted" in job["runs-on"]:
            assert job["concurrency"] == {"group": "cudal1-ci-on-${{ matrix.gpu }}", "queue": "max"}


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
    assert checkouts or path.name in (ALSO["forks"][0], ANSWERING)
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
    read = document(ROOT / "examples" / "workflows" / SWEEPING)
    (schedule,) = read[True]["schedule"]
    assert int(schedule["cron"].split()[0]) not in (0, 15, 30, 45)
    budget = read["jobs"]["sweep"]["steps"][-1]["with"]["budget"]
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


def test_the_phrase_of_the_documentation_is_the_one_that_is_asked_for():
    assert f"    {PHRASE}\n" in (ROOT / "docs" / "security.md").read_text("utf-8")


# --- init --------------------------------------------------------------------------------------


def init(folder: Path, *words: str):
    return CliRunner().invoke(main, ["init", str(folder), "--workflows", *words])


def test_examples_are_the_templates():
    assert [path.name for path in EXAMPLES] == [path.name for path in TEMPLATES]
    assert {path.name for path in TEMPLATES} == {ALWAYS, *ALL_OTHERS}
    for example, template in zip(EXAMPLES, TEMPLATES, strict=True):
        assert example.read_bytes() == template.read_bytes()


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
    assert f"me/cudal1-ci@{commit} # v" in text
    assert f"me/cudal1-ci/actions/publish@{commit} # v" in text
    assert f"me/cudal1-ci/actions/commands@{commit} # v" in text
    assert f"me/cudal1-ci/actions/sweep@{commit} # v" in text
    measure = document(folder / ALWAYS)["jobs"]["measure"]
    assert measure["strategy"]["matrix"] == {"gpu": ["h100", "rtx-4090"]}
    assert "Forks" in done.output
    assert zizmor(*folder.iterdir()).returncode == 0


@pytest.mark.parametrize("also", [[], ["commands"], ["commands", "forks"]])
def test_comments_name_the_commands_where_something_answers_them(tmp_path, also):
    words = [f"--also={one}" for one in also]
    assert init(tmp_path, "--action", "me/cudal1-ci@" + 40 * "a", *words).exit_code == 0
    publishing = [
        step["with"].get("commands")
        for path in (tmp_path / ".github" / "workflows").iterdir()
        for step in steps_of(path)
        if "/publish@" in step.get("uses", "")
    ]
    assert publishing == ["true" if also else None] * (1 + len(also))


def test_the_workflow_that_measures_on_request_takes_what_the_command_gives(tmp_path):
    path = ROOT / "examples" / "workflows" / ON_REQUEST
    declared = document(path)[True]["workflow_dispatch"]["inputs"]
    assert set(declared) == {"pull-request", "sha", "base", "include", "optimize"}
    uses = {step["uses"].partition("@")[0]: step["with"] for step in steps_of(path)}
    assert uses["actions/checkout"]["ref"] == "${{ inputs.sha }}"
    assert uses["OWNER/cudal1-ci"]["base"] == "${{ inputs.base }}", "settings are those of the base"


def test_a_label_that_means_nothing_here_ends_no_measurement():
    read = document(ROOT / "examples" / "workflows" / ALWAYS)
    assert "labeled" in read[True]["pull_request"]["types"]
    group = " ".join(read["concurrency"]["group"].split())
    assert "!startsWith(github.event.label.name, 'cudal1:') && github.run_id || 'measured'" in group
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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--action", "me/cudal1-ci@v1"], "all 40 digits"),
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
    assert "me/fork@" + 40 * "b" in (tmp_path / ".github" / "workflows" / ALWAYS).read_text()


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
    assert f"uses: me/cudal1-ci@{40 * 'c'} # v" in text
    assert f"uses: me/cudal1-ci/actions/publish@{40 * 'c'} # v" in text


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
    assert f"uses: me/cudal1-ci@{told.stdout.strip()} # v" in text


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
