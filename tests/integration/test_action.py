"""The Action and the shipped workflows as a runner runs them: `act`, without containers.

Real: the workflow's expressions, the composite actions, the environment's script,
`github.action`, the processes it starts: `compare` and `scan` with their judge on the CPU, and
`publish`, which speaks over HTTP to a GitHub with a state on this machine, by way of GitHub's own
description of what may be asked and answered. Events are those that GitHub has recorded, with the
names and commits of the test. Not real: act enforces no permissions, no fork's token and no
concurrency (so `queue:`, which it does not know, is taken out); checkout, upload and download are
stand-ins that do the same with a local repository and a folder.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import textwrap
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cudal1_ci.github.acknowledgements import agreements_of
from cudal1_ci.github.command_effects import ON_REQUEST
from cudal1_ci.github.marker import Marker, key_of, marked, marker_of
from cudal1_ci.records import Entry
from cudal1_ci.render import render
from tests import github_fake
from tests.github_fake import ACTIONS, TOKEN, GitHub
from tests.github_judge import recorded
from tests.integration.conftest import attempts
from tests.reports import a_target, proposed
from tests.unit.github_action.jobs import FORK, OWN, a_report, an_entry, commit, git

ROOT = Path(__file__).parents[2]
PARTS = (
    ".ci",
    ".github/workflows",
    "action.yml",
    "actions",
    "constraints.txt",
    "cudal1_ci",
    "pyproject.toml",
    "templates",
)
ACTION = "OWNER/cudal1-ci@" + 40 * "0"

SIDE = {"ref": "topic", "repo": {"full_name": FORK}}
"""Where a fork's pull request comes from."""
PLANTED = (
    "<!-- cudal1-ci:v1 key=cudal1%2Dci%20for%20forks run=999999 attempt=1 sha={sha} "
    "verdict=same -->\nhello"
)

MODEL = """\
import torch
from torch import nn


class Scale(nn.Module):
    def forward(self, x, weight):
        return torch.tanh(torch.diag(weight) @ x)
"""
FASTER = MODEL.replace("torch.diag(weight) @ x", "weight.unsqueeze(1) * x")
SETTINGS = """\
trace = "python trace.py"

[compare]
threshold = 0.5

[trial]
num-rounds = 6
measure = "2s"

[[workload]]
target = "model.py:Scale"
inputs = ["float32[512, 256]", "float32[512]"]
"""
# What a pull request may try: be imported in place of the tool, speak to the runner, tell a secret.
HOSTILE = {
    "json.py": "raise SystemExit('imported from the checkout')\n",
    "cudal1_ci/__init__.py": "raise SystemExit('imported from the checkout')\n",
    "trace.py": """\
        import os
        print("::set-output name=verdict::spoofed", flush=True)
        print("TOLD", sorted(n for n in os.environ if "TOKEN" in n or n.startswith("GITHUB_")))
    """,
}

CHECKOUT = """\
name: checkout
description: stand-in
inputs:
  ref: {description: r, default: HEAD}
  fetch-depth: {description: f, default: '1'}
  persist-credentials: {description: p, default: 'true'}
  path: {description: i, default: '.'}
  submodules: {description: s, default: 'false'}
runs:
  using: composite
  steps:
    - shell: bash
      env: {REF: '${{ inputs.ref }}', INTO: '${{ inputs.path }}', SUB: '${{ inputs.submodules }}'}
      run: |
        git clone -q "$STUB_ORIGIN" "$INTO" && cd "$INTO" && git checkout -q "${REF#refs/heads/}"
        git remote set-url origin https://github.com/own/repository.git
        if [ "$SUB" != false ]; then
          git -c protocol.file.allow=always submodule --quiet update --init --recursive
        fi
"""
UPLOAD = """\
name: upload
description: stand-in
inputs:
  name: {description: n, default: artifact}
  path: {description: p, required: true}
  retention-days: {description: r, default: '1'}
  if-no-files-found: {description: i, default: warn}
runs:
  using: composite
  steps:
    - shell: bash
      env: {NAME: '${{ inputs.name }}', PATHS: '${{ inputs.path }}'}
      run: |
        shopt -s nullglob  # not every report has patches
        mkdir -p "$STUB_ARTIFACTS/$NAME"
        for file in $PATHS; do cp "$file" "$STUB_ARTIFACTS/$NAME"; done
"""
DOWNLOAD = """\
name: download
description: stand-in
inputs:
  pattern: {description: n, default: '*'}
  path: {description: p, default: '.'}
runs:
  using: composite
  steps:
    - shell: bash
      env: {PATTERN: '${{ inputs.pattern }}', INTO: '${{ inputs.path }}'}
      run: |
        mkdir -p "$INTO" "$RUNNER_TEMP/cudal1-ci"
        find "$STUB_ARTIFACTS" -mindepth 1 -maxdepth 1 -name "$PATTERN" -exec cp -r -t "$INTO" {} +
        # The publisher's own environment, so that nothing has to be downloaded.
        ln -sfn "$STUB_ENVIRONMENTS" "$RUNNER_TEMP/cudal1-ci/environments"
"""
PAGES = """\
name: pages
description: stand-in
inputs:
  path: {description: p, required: true}
runs:
  using: composite
  steps:
    - shell: bash
      env: {FROM: '${{ inputs.path }}'}
      run: cp -r "$FROM" "$STUB_ARTIFACTS/github-pages"
"""
DEPLOY = """\
name: deploy
description: stand-in
runs:
  using: composite
  steps:
    - {shell: bash, run: 'mv "$STUB_ARTIFACTS/github-pages" "$STUB_ARTIFACTS/deployed"'}
"""
PYTHON = """\
name: python
description: stand-in
inputs:
  python-version: {description: v, required: true}
runs:
  using: composite
  steps:
    - {shell: bash, run: 'true'}
"""
SHOW = """\
      - if: always()
        run: |
          echo "OUTPUTS=$OUTPUTS"
        env: {OUTPUTS: '${{ toJSON(steps.measured.outputs) }}'}
"""


CACHE = """\
name: cache
description: stand-in
inputs:
  path: {description: p, required: true}
  key: {description: k, required: true}
  restore-keys: {description: r, default: ''}
runs:
  using: composite
  steps:
    - shell: bash
      env:
        THERE: ${{ inputs.path }}
        KEY: ${{ inputs.key }}
        OTHERS: ${{ inputs.restore-keys }}
      run: |
"""
SAVE = (
    CACHE
    + '        mkdir -p "$STUB_ARTIFACTS/../kept"; cp -r "$THERE" "$STUB_ARTIFACTS/../kept/$KEY"\n'
)
RESTORE = (
    CACHE
    + """\
        found=$(ls -td "$STUB_ARTIFACTS/../kept/$OTHERS"* 2>/dev/null | head -1 || true)
        if [ -n "$found" ]; then cp -r "$found" "$THERE"; echo "RESTORED $found"; fi
"""
)
STAND_INS = {
    "cache/restore": RESTORE,
    "cache/save": SAVE,
    "checkout": CHECKOUT,
    "python": PYTHON,
    "upload": UPLOAD,
    "download": DOWNLOAD,
    "pages": PAGES,
    "deploy": DEPLOY,
}


def first(name: str, action: str) -> dict[str, Any]:
    """The first event of its kind that GitHub has recorded."""
    return next(event for event in recorded(name) if event["action"] == action)


def of_own(event: dict[str, Any]) -> dict[str, Any]:
    """The same event in the repository of these tests."""
    owner, _, name = OWN.partition("/")
    event["repository"] |= {"full_name": OWN, "name": name, "default_branch": "main"}
    event["repository"]["owner"]["login"] = owner
    return event


class Rig:
    """A runner that has been used before: the requirements of the Action are installed."""

    def __init__(self, folder: Path, github: GitHub) -> None:
        self.folder = folder
        self.github = github
        self.action = folder / "action"
        self.origin = folder / "origin"
        self.artifacts = folder / "artifacts"
        self.server = folder / "server"
        # Where act puts RUNNER_TOOL_CACHE.
        self.tools = folder / "cache" / "act" / "tool_cache" / "cudal1-ci"
        for made in (self.action, self.origin, self.artifacts, self.tools):
            made.mkdir(parents=True)
        for part in PARTS:
            copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
            copy(ROOT / part, self.action / part)
        for path in (self.action / ".github" / "workflows").iterdir():
            path.write_text(runnable(path.name, path.read_text("utf-8")))
        for name, text in STAND_INS.items():
            (folder / name).mkdir(parents=True)
            (folder / name / "action.yml").write_text(text)
        self._make_repository()
        self._make_environment("model")  # of action.yml
        self._make_environment()  # of actions/trend/action.yml
        self._make_environment("publish")  # of actions/publish/action.yml

    def _make_repository(self) -> None:
        git(self.origin, "init", "-q")
        files = {"model.py": FASTER, "README": "r"}
        self.base = commit(self.origin, {**files, ".github/cudal1-ci.toml": SETTINGS})
        git(self.origin, "checkout", "-q", "-b", "topic")
        hostile = {name: textwrap.dedent(text) for name, text in HOSTILE.items()}
        self.head = commit(self.origin, {"model.py": MODEL, **hostile}, "slower")

    def _make_environment(self, *extras: str) -> None:
        """As `.ci/environment` leaves it, but with the requirements of this interpreter."""
        named = subprocess.run(
            [self.action / ".ci" / "environment", "--where", self.tools, *extras],
            env=self._python(),
            capture_output=True,
            text=True,
            check=True,
        )
        where = Path(named.stdout.strip())
        venv.create(where, with_pip=False)
        inside = Path(sysconfig.get_path("purelib", vars={"base": str(where)}))
        places = [path for path in sys.path if path.endswith("-packages")]
        (inside / "rig.pth").write_text("\n".join(places) + "\n")
        (where / "ready").touch()

    def _python(self) -> dict[str, str]:
        return {**os.environ, "PYTHON": str(Path(sys.base_prefix) / "bin" / "python3")}

    def event(self, head_repository: str = OWN) -> dict[str, Any]:
        event = of_own(first("pull_request", "synchronize"))
        event["number"] = event["pull_request"]["number"] = 7
        for name, sha, ref, repository in (
            ("head", self.head, "topic", head_repository),
            ("base", self.base, "main", OWN),
        ):
            side = event["pull_request"][name]
            side |= {"sha": sha, "ref": ref}
            side["repo"] |= {"full_name": repository, "default_branch": "main"}
        return event

    def run_of(self, head_repository: str) -> dict[str, Any]:
        """The end of a run that measured a pull request."""
        event = of_own(first("workflow_run", "completed"))
        run = event["workflow_run"]
        run |= {"name": "cudal1-ci", "event": "pull_request", "conclusion": "success"}
        run |= {"id": 99, "head_sha": self.head, "head_branch": "topic", "pull_requests": []}
        run["head_repository"]["full_name"] = head_repository
        return event

    def leave_report(self, text: str) -> None:
        """As the measuring job of a pull request leaves it for who publishes."""
        report = self.artifacts / "cudal1-ci-gpu" / "report.json"
        report.parent.mkdir()
        report.write_text(text)

    def comment(self, body: str, author: str = "me") -> dict[str, Any]:
        """The event of a comment that was made now."""
        self.github.tick(60)
        made = self.github.comments[self.github.add_comment(7, body, author)]
        self.github.tick(5)
        event = of_own(first("issue_comment", "created"))
        event["issue"] |= {"number": 7, "pull_request": {"url": "u"}}
        who = event["comment"]["user"] | {"login": author, "type": "User"}
        event["comment"] |= {**made, "user": who}
        return event

    def run(
        self, workflow: str, event: dict[str, Any], name: str = "pull_request"
    ) -> subprocess.CompletedProcess[str]:
        """One run of a workflow, with a job's token that must not be seen."""
        shop = self.folder / "shop"
        shutil.rmtree(shop, ignore_errors=True)
        # Where the event names no commit, it is that of the repository in which act is started.
        git(self.folder, "clone", "-q", str(self.origin), str(shop))
        git(shop, "remote", "set-url", "origin", "https://github.com/own/repository.git")
        (shop / ".github" / "workflows").mkdir(parents=True)
        (shop / ".github" / "workflows" / "w.yml").write_text(workflow)
        (self.folder / "event.json").write_text(json.dumps(event))
        act = shutil.which("act", path=Path(sys.executable).parent) or shutil.which("act")
        assert act, "act is not installed: pip install -c constraints.txt -e .[test]"
        words = [
            act,
            name,
            "-e",
            str(self.folder / "event.json"),
            "-s",
            f"GITHUB_TOKEN={TOKEN}",
        ]
        for label in ("self-hosted", "gpu", "h100", "ubuntu-latest"):
            words += ["-P", f"{label}=-self-hosted"]
        for action, folder in self._actions().items():
            words += ["--local-repository", f"{action}={folder}"]
        told = {
            "STUB_ORIGIN": self.origin,
            "STUB_ARTIFACTS": self.artifacts,
            "STUB_ENVIRONMENTS": self.tools,
            "GITHUB_API_URL": self.github.url,
            "XDG_CONFIG_HOME": self._git_settings(),
            "PYTHON": self._python()["PYTHON"],
        }
        for variable, value in told.items():
            words += ["--env", f"{variable}={value}"]
        environment = {**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache")}
        return subprocess.run(
            words, cwd=shop, env=environment, capture_output=True, text=True, timeout=280
        )

    def _git_settings(self) -> Path:
        """By which git finds the repositories of github.com in a folder."""
        settings = self.folder / "config" / "git" / "config"
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text(f'[url "file://{self.server}/"]\n\tinsteadOf = https://github.com/\n')
        return settings.parents[1]

    def _actions(self) -> dict[str, Path]:
        pins = {
            "checkout": "actions/checkout@de0fac2e4500dabe0009e67214ff5f5447ce83dd",
            "upload": "actions/upload-artifact@b7c566a772e6b6bfb58ed0dc250532a479d7789f",
            "download": "actions/download-artifact@37930b1c2abaa49bbe596cd826c3c89aef350131",
            "pages": "actions/upload-pages-artifact@fc324d3547104276b827a68afc52ff2a11cc49c9",
            "python": "actions/setup-python@e797f83bcb11b83ae66e0230d6156d7c80228e7c",
            "cache": "actions/cache@27d5ce7f107fe9357f9df03efb73ab90386fccae",
            "deploy": "actions/deploy-pages@cd2ce8fcbc39b97be8ca5fce6e763baed58fa128",
        }
        stubs = {pin: self.folder / name for name, pin in pins.items()}
        return {**stubs, ACTION: self.action}


LINK = """\
      - uses: actions/download-artifact@37930b1c2abaa49bbe596cd826c3c89aef350131
        with: {pattern: nothing}
"""
"""So that a job has the environment already."""
CARELESS = "    env: {GITHUB_TOKEN: '${{ github.token }}'}\n    strategy:\n"


def runnable(name: str, text: str) -> str:
    """A reusable workflow without the keys that act does not know; jobs that run other people's
    code are careless with their token, and what measures shows its outputs."""
    text = re.sub(r"^ *(queue: max|cache-mode: .*)\n", "", text, flags=re.MULTILINE)
    if name in ("review.yml", "sweep.yml"):
        text = text.replace("    strategy:\n", CARELESS, 1)
    if name == "review.yml":
        text = text.replace("    steps:\n", "    steps:\n" + LINK, 1)  # of the job `start`
        for old, new in (
            (f"      - uses: {ACTION} ", f"      - id: measured\n        uses: {ACTION} "),
            ("\n  # Writes to the pull request", SHOW + "\n  # Writes to the pull request"),
        ):
            assert old in text, old
            text = text.replace(old, new, 1)
    if name == "commands.yml":
        text = text.replace("    steps:\n", "    steps:\n" + LINK, 1)
    return text


def example(name: str, **inputs: object) -> str:
    """A workflow as `init` writes it, with more inputs, and for a machine without a GPU."""
    text = (ROOT / "templates" / "workflows" / name).read_text("utf-8").replace(', "gpu": true', "")
    text = re.sub(
        r"^    with: \{(machines: .*)\}$", r"    with:\n      \1", text, flags=re.MULTILINE
    )
    text = re.sub(r"^ *cache-mode: .*\n", "", text, flags=re.MULTILINE)
    given = "".join(f"      {k.replace('_', '-')}: '{v}'\n" for k, v in inputs.items())
    if "machines" in inputs:
        text = re.sub(r"^      machines: .*\n", "", text, flags=re.MULTILINE)
    return text + given


def shipped(**inputs: object) -> str:
    """The workflow for pull requests."""
    return example("cudal1-ci.yml", python=sys.executable, device="cpu", **inputs)


def answering() -> str:
    """The workflow for comments."""
    return example("cudal1-ci-commands.yml")


def outputs_of(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    lines = [line.partition("  | ")[2] for line in done.stdout.splitlines()]
    start = next(i for i, line in enumerate(lines) if line.startswith("OUTPUTS={"))
    end = lines.index("}", start)
    return json.loads("\n".join(lines[start : end + 1]).removeprefix("OUTPUTS="))


@pytest.fixture
def github(monkeypatch, judge) -> Iterator[GitHub]:
    monkeypatch.setattr(github_fake, "REPOSITORY", OWN)
    with judge.serving(GitHub()) as fake:
        yield fake


@pytest.fixture
def rig(tmp_path, github) -> Rig:
    return Rig(tmp_path, github)


def the_comment(github: GitHub) -> str:
    (comment,) = github.comments.values()
    return str(comment["body"])


def run_until(
    is_settled: Callable[[subprocess.CompletedProcess[str]], bool],
    rig: Rig,
    workflow: str,
    event: dict[str, Any],
    name: str = "pull_request",
) -> subprocess.CompletedProcess[str]:
    """A run of a workflow, again while the machine is too busy to measure on."""
    for _ in attempts(6):
        done = rig.run(workflow, event, name)
        if is_settled(done):
            break
    return done


@pytest.mark.times
def test_a_regression_gets_its_comment_and_a_push_that_mends_it_edits_that(rig, github):
    github.add_pull(7, rig.head)
    workflow = shipped(optimize="false", fail_on="regression")
    done = run_until(
        lambda done: outputs_of(done)["verdict"] == "regression", rig, workflow, rig.event()
    )
    assert done.returncode == 0, "the check fails, and the job that measures does not"
    assert outputs_of(done)["verdict"] == "regression", done.stdout + done.stderr
    report = json.loads((rig.artifacts / "cudal1-ci-gpu" / "report.json").read_text())
    (entry,) = report["entries"]
    assert (report["base_sha"], report["head_sha"]) == (rig.base, rig.head)
    assert entry["target"]["qualname"] == "Scale"
    assert entry["comparison"]["slowdown_low"] > 1.5
    assert entry["comparison"]["rows"][0]["num_measurements"] == 3
    assert "1 of 1 target got slower" in the_comment(github)
    assert {check["conclusion"] for check in github.checks.values()} == {"failure"}
    # What the pull request tried.
    assert "imported from the checkout" not in done.stdout
    assert "::set-output:: verdict=spoofed" not in done.stdout

    mended = FASTER.replace("weight.unsqueeze(1) * x", "x * weight.unsqueeze(1)")
    rig.head = commit(rig.origin, {"model.py": mended}, "mend")
    github.push(7, rig.head)
    done = run_until(
        lambda _: "no target got slower" in the_comment(github), rig, workflow, rig.event()
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no target got slower" in the_comment(github), "edited: there is no second one"
    assert rig.head[:10] in the_comment(github)


@pytest.mark.slow
def test_proposals_are_looked_for_after_the_comparison_and_no_token_is_seen(rig, github):
    github.add_pull(7, rig.head)
    done = rig.run(shipped(), rig.event())
    assert done.returncode == 0, done.stdout + done.stderr
    outputs = outputs_of(done)
    report = json.loads((rig.artifacts / "cudal1-ci-gpu" / "report.json").read_text())
    (entry,) = report["entries"]
    # The judge was there; what it could prove on a busy machine is its own tests' affair.
    assert entry["evaluations"]
    assert outputs["proposals"] == str(report["totals"]["num_proposals"])
    assert entry["comparison"]["verdict"] == outputs["verdict"]
    assert "TOLD []" in done.stdout


def test_code_of_a_fork_is_not_run_and_its_job_is_green(rig, github):
    done = rig.run(shipped(), rig.event(FORK))
    assert done.returncode == 0, done.stdout + done.stderr
    outputs = outputs_of(done)
    assert outputs["verdict"] == "skipped"
    assert outputs["report-json"] == ""
    assert f"comes from {FORK}" in done.stdout
    for word in ("TOLD", "cudal1-ci compare", "cudal1-ci scan", "/publish] "):
        assert word not in done.stdout, word
    assert not list(rig.artifacts.iterdir())
    assert not github.requests


@pytest.mark.slow
def test_reports_of_all_runners_are_published_together(rig, github):
    github.add_pull(7, rig.head)
    named = [{"name": name, "runs-on": ["self-hosted", name]} for name in ("gpu", "h100")]
    workflow = shipped(optimize="false", machines=json.dumps(named))
    done = rig.run(workflow, rig.event())
    assert done.returncode == 0, done.stdout + done.stderr
    reports = {path.parent.name for path in rig.artifacts.glob("*/report.json")}
    assert reports == {"cudal1-ci-gpu", "cudal1-ci-h100"}
    assert "1 of 1 target got slower" in the_comment(github)


PLACE = "packages/my pkg ü"
LAID_OUT = """\
import torch
from torch import nn

from _version import version
from third_party.lib.helper import product


class Scale(nn.Module):
    def forward(self, x, weight):
        return torch.tanh(product(x, weight))
"""


@pytest.mark.slow
def test_a_project_with_a_submodule_and_a_generated_file_in_a_folder_of_any_name(rig, github):
    """Its setup makes a file that git ignores; base and head have another commit of the submodule,
    of which the checkout has the head's alone."""
    lib = rig.folder / "lib"
    git(rig.folder, "init", "-q", str(lib))
    commit(lib, {"helper.py": "def product(x, w):\n    return w.unsqueeze(1) * x\n"})
    git(rig.origin, "checkout", "-q", "main")
    settings = SETTINGS.replace('trace = "python trace.py"\n', "")
    files = {f"{PLACE}/model.py": LAID_OUT, f"{PLACE}/.github/cudal1-ci.toml": settings}
    commit(rig.origin, {**files, ".gitignore": "_version.py\n"}, "layout")
    allowed = ("-c", "protocol.file.allow=always")
    where = f"{PLACE}/third_party/lib"
    git(rig.origin, *allowed, "submodule", "--quiet", "add", lib.as_uri(), where)
    rig.base = commit(rig.origin, {}, "submodule")
    commit(lib, {"helper.py": "import torch\ndef product(x, w):\n    return torch.diag(w) @ x\n"})
    git(rig.origin, "checkout", "-q", "-B", "topic")
    git(rig.origin / where, *allowed, "pull", "-q")
    rig.head = commit(
        rig.origin, {f"{PLACE}/model.py": LAID_OUT.replace("weight))", "weight) * 1.0)")}, "slower"
    )
    github.add_pull(7, rig.head)
    setup = f'printf "version = 1\\n" > "{PLACE}/_version.py"'.replace("'", "''")
    projects = json.dumps([PLACE], ensure_ascii=False)
    workflow = shipped(optimize="false", submodules="true", setup=setup, projects=projects)
    done = rig.run(workflow, rig.event())
    found = list(rig.artifacts.glob("cudal1-ci-*gpu/report.json"))
    assert found, done.stdout + done.stderr
    (file,) = found
    report = json.loads(file.read_text())
    (entry,) = report["entries"]
    assert report["folder"] == PLACE
    # Both trees were imported and called; on a busy machine that is all.
    measured = entry["comparison"]["rows"] or "too busy to measure" in entry["skipped"]
    assert measured, (entry["skipped"], report["warnings"])
    (moved,) = [one for one in report["warnings"] if "submodule" in one["message"]]
    assert (moved["path"], "moved from" in moved["message"]) == (where, True)


@pytest.mark.slow
def test_a_machine_whose_gpu_is_gone_has_not_measured(rig, github):
    """The workflow expects a GPU, torch sees none there, and measures on the CPU."""
    machines = [{"name": "gpu", "runs-on": ["self-hosted", "gpu"], "gpu": True}]
    workflow = example(
        "cudal1-ci.yml",
        python=sys.executable,
        optimize="false",
        fail_on="regression",
        machines=json.dumps(machines),
    )
    github.add_pull(7, rig.head)
    done = rig.run(workflow, rig.event())
    assert "no GPU was visible on gpu" in done.stdout, done.stdout + done.stderr
    (check,) = github.checks.values()
    assert check["conclusion"] == "failure"
    assert "nvidia-smi" in check["output"]["title"]
    assert not github.comments


@pytest.mark.slow
def test_the_merge_queue_measures_against_what_it_merges_into(rig):
    workflow = shipped(fail_on="regression").replace("  push:", "  merge_group:\n  push:")
    event = of_own(first("merge_group", "checks_requested"))
    event["merge_group"] |= {"base_sha": rig.base, "head_sha": rig.head}
    done = rig.run(workflow, event, "merge_group")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Scale: a difference, measured again in new processes" in done.stdout
    assert "cudal1-ci scan" not in done.stdout


# --- the publisher for forks, and what a fork may leave for it --------------------------------

DIFF = "@@ -5,3 +5,3 @@\n class Scale(nn.Module):\n" + textwrap.dedent("""\
         def forward(self, x, weight):
    -        return torch.tanh(weight.unsqueeze(1) * x)
    +        return torch.tanh(torch.diag(weight) @ x)""")
PATCH = """\
--- a/model.py
+++ b/model.py
@@ -6,2 +6,2 @@
     def forward(self, x, weight):
-        return torch.tanh(torch.diag(weight) @ x)
+        return torch.tanh(weight.unsqueeze(1) * x)
"""


def said_of(rig: Rig, *entries: Entry, **fields: Any) -> str:
    document = a_report(*entries, base_sha=rig.base, head_sha=rig.head, **fields)
    return render(document, "json")


@pytest.mark.parametrize("head_repository", [FORK, OWN])
def test_the_publisher_for_forks_publishes_for_forks(rig, github, head_repository):
    github.add_pull(7, rig.head, head_repository)
    github.pulls[7]["head"]["ref"] = "topic"
    rig.leave_report(said_of(rig, an_entry("Scale", "regression")))
    done = rig.run(example("cudal1-ci-forks.yml"), rig.run_of(head_repository), "workflow_run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(github.comments) == (1 if head_repository == FORK else 0)


def test_what_a_fork_says_of_itself_is_neither_address_nor_mention(rig, github):
    """A planted marker, the number of another pull request, a mention, and a proposal."""
    github.add_pull(7, rig.head, FORK, head={**SIDE, "sha": rig.head})
    github.add_pull(8, "8" * 40)
    github.files[7] = [{"filename": "model.py", "patch": DIFF}]
    planted = github.add_comment(7, PLANTED.format(sha=rig.head), "stranger")
    path = "model.py"
    entry = proposed(PATCH, target=a_target("@everyone ::error::x", path), analysis="@everyone")
    report = json.loads(said_of(rig, an_entry("Scale", "regression"), entry))
    rig.leave_report(json.dumps({**report, "number": 8, "pull_request": {"number": 8}}))
    done = rig.run(example("cudal1-ci-forks.yml"), rig.run_of(FORK), "workflow_run")
    assert done.returncode == 0, done.stdout + done.stderr
    kept = github.comments.pop(planted)
    assert kept["body"] == PLANTED.format(sha=rig.head)
    (comment,) = github.comments.values()
    assert comment["issue"] == 7
    assert "got slower" in comment["body"].splitlines()[1]
    assert not github.review_comments, "what a fork measured gives no suggestions"
    (check,) = github.checks.values()
    assert check["conclusion"] != "success"
    for words in (comment["body"], json.dumps(check["notes"])):
        assert "@everyone" not in re.sub(r"`[^`\n]+`", "", words), "in code it calls nobody"


@pytest.mark.parametrize("kind", ["no report", "5 MB"])
def test_of_a_hostile_report_of_a_fork_only_its_lack_is_posted(rig, github, kind):
    github.add_pull(7, rig.head, FORK, head={**SIDE, "sha": rig.head})
    huge = proposed(PATCH, analysis="x" * 5_000_000)
    rig.leave_report("hostile" if kind == "no report" else said_of(rig, huge))
    done = rig.run(example("cudal1-ci-forks.yml"), rig.run_of(FORK), "workflow_run")
    assert done.returncode == 1, done.stdout + done.stderr
    assert ("expected JSON" if kind == "no report" else "of length <= 1000000") in done.stdout
    assert not github.comments and not github.review_comments
    (check,) = github.checks.values()
    assert check["conclusion"] != "success"
    assert "hostile" not in json.dumps(check) and "xxxx" not in json.dumps(check)


def test_a_force_push_after_the_measurement_leaves_the_comment_alone(rig, github):
    github.add_pull(7, "2" * 40, FORK, head={**SIDE, "sha": "2" * 40})
    rig.leave_report(said_of(rig, an_entry("Scale", "regression")))
    done = rig.run(example("cudal1-ci-forks.yml"), rig.run_of(FORK), "workflow_run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not github.comments
    assert [check["head_sha"] for check in github.checks.values()] == [rig.head]


def left_report(rig: Rig, *entries: Any) -> None:
    """What the measuring job has left of the head."""
    report = rig.artifacts / "cudal1-ci-gpu" / "report.json"
    report.parent.mkdir(exist_ok=True)
    said = a_report(*entries, base_sha=rig.base, head_sha=rig.head)
    report.write_text(render(said, "json"))


def our_comment(github: GitHub, sha: str) -> int:
    marker = Marker(key=key_of("cudal1-ci"), run=77, attempt=1, sha=sha, verdict="regression")
    return github.add_comment(7, marked(marker, "1 of 1 target got slower"), ACTIONS)


def test_an_acknowledgement_is_written_into_the_comment_and_the_check(rig, github):
    github.permissions["me"] = "write"
    github.add_pull(7, rig.head, OWN)
    ours = our_comment(github, rig.head)
    github.checks[1] = {
        "id": 1,
        "name": "cudal1-ci",
        "head_sha": rig.head,
        "notes": [],
        "status": "completed",
        "conclusion": "failure",
        "external_id": f"{key_of('cudal1-ci')}/77/1",
    }
    numbers = {"slowdown": 1.5, "slowdown_low": 1.4, "slowdown_high": 1.6}
    left_report(rig, an_entry("Scale", "regression", **numbers))
    done = rig.run(answering(), rig.comment("/cudal1 ack Scale it was wrong"), "issue_comment")
    assert done.returncode == 0, done.stdout + done.stderr
    body = github.comments[ours]["body"]
    assert [(one.target, one.max_slowdown) for one in agreements_of(body)] == [
        ("model.py:Scale", 1.6)
    ]
    assert "is acknowledged by me until this pull request is closed" in body
    latest = github.checks[max(github.checks)]  # of one name, GitHub counts the latest
    assert (latest["name"], latest["conclusion"]) == ("cudal1-ci", "success")
    assert [content for all_of in github.reactions.values() for content in all_of] == [
        "eyes",
        "rocket",
    ]
    assert TOKEN not in done.stdout


def test_a_measurement_on_request_is_started_by_a_comment_and_by_no_strangers(rig, github):
    github.permissions["me"] = "write"
    github.add_pull(7, rig.head, OWN)
    github.git.put("main", {}, rig.base)
    github.workflows[ON_REQUEST] = {"pull-request", "sha", "base", "include", "optimize"}
    for author in ("stranger", "me"):
        done = rig.run(answering(), rig.comment("/cudal1 run", author), "issue_comment")
        assert done.returncode == 0, done.stdout + done.stderr
        assert len(github.dispatched) == (author == "me")
    ((_, inputs),) = github.dispatched
    assert (inputs["pull-request"], inputs["sha"]) == ("7", rig.head)
    talk = rig.run(answering(), rig.comment("Try /cudal1 run"), "issue_comment")
    assert "/commands] " not in talk.stdout
    assert len(github.dispatched) == 1


@pytest.mark.parametrize("compares", [pytest.param(True, marks=pytest.mark.times), False])
def test_what_was_asked_for_is_measured_and_posted_below_the_pull_request(rig, github, compares):
    github.add_pull(7, rig.head)
    workflow = example("cudal1-ci-on-request.yml", python=sys.executable)
    called = rig.action / ".github" / "workflows" / "on-request.yml"
    python = "          python: ${{ inputs.python }}\n"
    given = f"{python}          optimize: 'false'\n          device: cpu\n"
    called.write_text(called.read_text().replace(python, given))
    inputs = {"pull-request": "7", "sha": rig.head, "base": rig.base, "include": "model.py"}
    inputs["optimize"] = "false" if compares else "true"
    event = {**of_own(recorded("workflow_dispatch")[0]), "inputs": inputs}
    done = run_until(
        lambda _: not compares or "got slower" in the_comment(github),
        *(rig, workflow, event, "workflow_dispatch"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    if not compares:
        assert "cudal1-ci compare" not in done.stdout
        assert not list(rig.artifacts.iterdir())
        assert not github.checks
        return
    assert marker_of(the_comment(github)).key == key_of("cudal1-ci")
    assert "1 of 1 target got slower" in the_comment(github)
    assert {check["head_sha"] for check in github.checks.values()} == {rig.head}


@pytest.mark.parametrize(
    ("change", "is_measured"),
    [
        ({"labels": [{"name": "cudal1:skip"}]}, False),
        ({"draft": True}, False),
        ({"draft": True, "labels": [{"name": "cudal1:run"}]}, True),
    ],
)
def test_labels_say_whether_a_pull_request_is_measured(rig, github, change, is_measured):
    github.add_pull(7, rig.head)
    event = rig.event(FORK)  # refused there at once, so that nothing takes long
    event["pull_request"] |= change
    done = rig.run(shipped(), event)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (f"comes from {FORK}" in done.stdout) == is_measured


@pytest.mark.parametrize("label", ["cudal1:run", "bug"])
def test_a_label_that_was_put_on_starts_a_measurement_where_it_says_so(rig, github, label):
    event = rig.event(FORK)
    event |= {"action": "labeled", "label": {"name": label}}
    event["pull_request"]["labels"] = [{"name": label}]
    done = rig.run(shipped(), event)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (f"comes from {FORK}" in done.stdout) == (label == "cudal1:run")


def test_what_the_default_branch_has_recorded_is_used_for_a_pull_request(rig, github):
    trace = "import torch, model\nmodel.Scale()(torch.ones(4, 2), torch.ones(4))\n"
    base = commit(rig.origin, {"trace.py": trace, "json.py": "", "cudal1_ci/__init__.py": ""})
    git(rig.origin, "branch", "-f", "main", base)
    git(rig.origin, "rm", "-q", "json.py", "cudal1_ci/__init__.py")
    main = commit(rig.origin, {}, "no traps")
    repository = {"full_name": OWN, "name": "repository", "owner": {"login": "own"}}
    event = {"ref": "refs/heads/main", "before": base, "after": main}
    event["repository"] = {**repository, "default_branch": "main"}
    github.add_pull(7, rig.head)
    done = rig.run(shipped(), event, "push")
    assert done.returncode == 0, done.stdout + done.stderr
    (kept,) = (rig.folder / "kept").iterdir()
    assert kept.name.startswith("cudal1-ci-traces-gpu-")
    assert "model.py:Scale" in next(kept.glob("trace-*.jsonl")).read_text()
    assert not github.requests
    done = rig.run(shipped(), rig.event(FORK))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "RESTORED" in done.stdout


@pytest.mark.slow
def test_a_push_is_a_point_of_the_history_and_its_page_is_deployed(rig):
    workflow = example("cudal1-ci-trend.yml", python=sys.executable).replace("[main]", "[topic]")
    remote = rig.server / OWN
    remote.mkdir(parents=True)
    git(remote, "init", "-q", "--bare")
    repository = {"full_name": OWN, "name": "repository", "owner": {"login": "own"}}
    event = {"ref": "refs/heads/topic", "before": rig.base, "after": rig.head}
    done = rig.run(workflow, {**event, "repository": repository}, "push")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = git(remote, "show", "cudal1-ci-trend:history.jsonl").splitlines()
    rows = [line for line in map(json.loads, lines) if line["record"] == "row"]
    assert [(row["commit"], row["target"]) for row in rows] == [(rig.head, "model.py:Scale")]
    assert rows[0]["slowdown"] > 1
    deployed = rig.artifacts / "deployed"
    assert rig.head[:10] in (deployed / "index.html").read_text()
    assert (deployed / "history.jsonl").read_text().splitlines() == lines


@pytest.mark.times
def test_a_scheduled_sweep_keeps_one_issue_and_the_next_one_measures_nothing(rig, github):
    workflow = example("cudal1-ci-sweep.yml", python=sys.executable, budget="2m")
    github.default_branch = "topic"
    repository = {"full_name": OWN, "default_branch": "topic"}
    event = {"schedule": "17 1 * * *", "repository": repository}
    done = run_until(lambda _: bool(github.issues), rig, workflow, event, "schedule")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((rig.artifacts / "cudal1-ci-sweep-gpu" / "report.json").read_text())
    assert report["head_sha"] == rig.head
    (entry,) = [e for e in report["entries"] if e["target"]["qualname"] == "Scale"]
    assert entry["best"] is not None, entry["evaluations"]
    (issue,) = github.issues.values()
    assert "**Scale** in `model.py`" in issue["body"]
    assert "-        return torch.tanh(torch.diag(weight) @ x)" in issue["body"]
    # What the repository's own command could see and say.
    assert "TOLD []" in done.stdout
    assert "imported from the checkout" not in done.stdout

    body, num_writes = issue["body"], len(github.writes)
    again = rig.run(workflow, event, "schedule")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "sweep: 0 to look at, 1 known and unchanged" in again.stdout
    assert "is up to date" in again.stdout
    assert (issue["body"], len(github.writes)) == (body, num_writes)
