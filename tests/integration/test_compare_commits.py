"""`cudal1-ci compare` on a real repository, from git to the exit code."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import chdir
from pathlib import Path

import pytest
from click.testing import CliRunner

from cudal1_ci.cli import main
from cudal1_ci.verification import Session
from tests.integration.conftest import attempts
from tests.told import TOLD

pytestmark = [pytest.mark.starts_verifier, pytest.mark.usefixtures("clock")]

BASE = """
import torch
from torch import nn


class Slow(nn.Module):
    def forward(self, x):
        return torch.tanh(x)


class Renamed(nn.Module):
    def forward(self, x):
        first = torch.tanh(x)
        return first + x


class Different(nn.Module):
    def forward(self, x):
        return torch.tanh(x) + 1


class Commented(nn.Module):
    def forward(self, x):
        return torch.tanh(x) + 2


class Gone(nn.Module):
    def forward(self, x):
        return torch.tanh(x) + 3
"""
HEAD = (
    BASE.replace("        return torch.tanh(x)\n", "        return torch.tanh(x + 0 * x.sin())\n")
    .replace("first", "second")
    .replace("torch.tanh(x) + 1", "torch.tanh(x) + 1.5")
    .replace(
        "        return torch.tanh(x) + 2", "        # as before\n        return torch.tanh(x) + 2"
    )
    .replace("class Gone", "class Fresh")
    .replace("return torch.tanh(x) + 3", "return x.exp().log1p()")
)
WORKLOAD = """
[[tool.cudal1-ci.workload]]
target = "pkg/model.py:{name}"
name = "usual"
inputs = ["float32[128, 512]"]
"""
SETTINGS = """
[tool.cudal1-ci]
compare.threshold = 0.15
trial = { num-rounds = 6, launch = "1s", measure = "4s", half-width = 0.05 }
"""
ACK = """
[[tool.cudal1-ci.ack]]
target = "pkg/*:Slow"
max-slowdown = 50.0
reason = "it is right now"
owner = "@me"
expires = "2999-01-01"
"""


def git(root: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    done = subprocess.run(
        ["git", *who, *words], cwd=root, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


USES_BASE = """
import torch
from torch import nn


class Wide(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * torch.ones((), dtype=x.dtype)


class Turned(nn.Module):
    def forward(self, x):
        return torch.tanh(x.reshape(-1)).reshape(x.shape)


class Honest(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(512, 16)

    def forward(self, x):
        y = self.linear(x)
        return torch.relu(y)


class Renamed(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(512, 16)

    def forward(self, x):
        return torch.relu(self.inner(x))


class Other(nn.Module):
    def forward(self, x):
        return torch.tanh(x) + 1
"""
USES_HEAD = (
    USES_BASE.replace("ones((), dtype=x.dtype)", "ones((1, 1))")
    .replace("x.reshape(-1)).reshape(", "x.view(-1)).view(")
    .replace(
        "        y = self.linear(x)\n        return torch.relu(y)",
        "        return torch.relu(self.linear(x))",
    )
    .replace("self.inner", "self.projection")
    .replace("tanh(x) + 1", "tanh(x) + 1.5")
)
ALL_NAMES = ("Slow", "Renamed", "Different")
USES_NAMES = ("Wide", "Turned", "Honest", "Renamed", "Other")


def commit(root: Path, model: str, config: str, names: tuple[str, ...] = ALL_NAMES) -> None:
    (root / "pkg").mkdir(exist_ok=True)
    (root / "pkg" / "__init__.py").touch()
    (root / "pkg" / "model.py").write_text(model)
    workloads = "".join(WORKLOAD.format(name=name) for name in names)
    (root / "pyproject.toml").write_text(SETTINGS + config + workloads)
    git(root, "add", "-A")
    git(root, "commit", "-qm", "a commit")


def compare(root: Path, *words: str, **more: str) -> tuple[int, dict, str]:
    kept_out = {name: None for name in os.environ if name.startswith(("CUDAL1", "GITHUB"))}
    environ = {**kept_out, TOLD: json.dumps({"model:Slow": 0.5, "": 1.0}), **more}
    with chdir(root):
        words = ("compare", *words, "--json", "-", "--device", "cpu")
        done = CliRunner().invoke(main, words, env=environ)
    return done.exit_code, json.loads(done.stdout) if done.stdout else {}, done.stderr


@pytest.fixture(scope="module")
def repository(clock, tmp_path_factory):
    root = tmp_path_factory.mktemp("compare") / "repo"
    root.mkdir()
    git(root, "init", "-q")
    commit(root, BASE, "")
    git(root, "checkout", "-qb", "work")
    # What a pull request says of its own thresholds and agreements counts for nothing.
    commit(root, HEAD, ACK)
    return root


def test_a_slower_module_is_found_and_what_did_not_change_is_not_measured(repository, monkeypatch):
    no_contract = {"CUDAL1_CI_TRIAL_CONTRACT": "0s"}  # the next test has it
    for _ in attempts(5):
        words = ("main", "--fail-on", "regression")
        code, report, said = compare(repository, *words, "--fresh", **no_contract)
        assert report, said
        found = {one["target"]["qualname"]: one["comparison"] for one in report["entries"]}
        if code == 1 and found["Different"]["rows"]:  # none where the machine was too busy
            break
    assert code == 1, said
    assert set(found) == {"Slow", "Renamed", "Different", "Fresh", "Gone"}
    slow = found["Slow"]
    assert slow["verdict"] == "regression"
    assert slow["acknowledged"] is None
    assert slow["slowdown_low"] > 1.15
    assert slow["rows"][0]["num_measurements"] == 3
    assert found["Renamed"]["verdict"] in ("same", "inconclusive")
    assert "off by" in found["Different"]["output_change"]
    assert found["Different"]["verdict"] in ("same", "inconclusive")
    assert found["Different"]["rows"][0]["num_measurements"] >= 1
    assert (found["Fresh"]["verdict"], found["Gone"]["verdict"]) == ("new", "removed")
    assert report["base_sha"] == git(repository, "rev-parse", "main")
    assert report["head_sha"] == git(repository, "rev-parse", "work")
    assert "measured again in new processes" in said
    assert git(repository, "status", "--porcelain") == ""

    # What is known is not measured again; and the head's own agreement counts when it is asked for.
    monkeypatch.setattr(Session, "evaluate", None)
    code, again, said = compare(repository, *words, "--config-from", "head", **no_contract)
    assert code == 0, said
    (slow,) = (one for one in again["entries"] if one["target"]["qualname"] == "Slow")
    assert slow["comparison"]["acknowledged"]["owner"] == "@me"


def test_uses_that_worked_in_the_base_are_named_and_fail_only_where_that_is_asked(clock, tmp_path):
    git(tmp_path, "init", "-q")
    commit(tmp_path, USES_BASE, "", USES_NAMES)
    git(tmp_path, "checkout", "-qb", "work")
    commit(tmp_path, USES_HEAD, "", USES_NAMES)
    for _ in attempts(5):
        code, report, said = compare(tmp_path, "main", "--fresh")
        found = {one["target"]["qualname"]: one["comparison"] for one in report["entries"]}
        if all(one["rows"] for one in found.values()):  # none where the machine was too busy
            break
    assert code == 0, said
    broken = {
        name: {line["aspect"] for line in one["contract"] if line["result"] == "broken"}
        for name, one in found.items()
    }
    assert broken["Wide"] == {"dtype float16", "dtype bfloat16"}
    assert broken["Turned"] >= {"layout of x: transposed", "layout of x: expanded"}
    assert all(aspect.startswith("layout of x") for aspect in broken["Turned"])
    assert broken["Honest"] == set()
    assert len([x for x in found["Honest"]["contract"] if x["result"] == "held"]) > 20
    assert broken["Renamed"] == {"state_dict"}
    assert "unexpected: projection.bias" in found["Renamed"]["contract"][0]["detail"]
    (line,) = found["Other"]["contract"]
    assert line["detail"] == "outputs changed at the workload: contract not examined"
    assert found["Other"]["contract_s"] is None
    assert all(found[name]["contract_s"] > 0 for name in ("Wide", "Turned", "Honest", "Renamed"))
    assert "Honest: contract: " in said

    # What is known is not tried again.
    code, again, said = compare(tmp_path, "main", "--fail-on", "contract")
    assert code == 1, said
    known = {one["target"]["qualname"]: one["comparison"] for one in again["entries"]}
    assert {name: one["contract"] for name, one in known.items()} == {
        name: one["contract"] for name, one in found.items()
    }
    assert "contract: " not in said


def test_where_nothing_changed_nothing_is_measured(repository):
    code, report, said = compare(repository, "work", "work")
    assert (code, report["entries"]) == (0, []), said


def test_work_that_is_not_committed_is_not_compared_and_that_is_said(repository):
    (repository / "pkg" / "new.py").write_text("import torch\n")
    try:
        code, report, said = compare(repository, "work")
    finally:
        (repository / "pkg" / "new.py").unlink()
    assert (code, report["entries"]) == (0, []), said
    assert "work that is not committed is not compared" in said


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["nowhere"], "nowhere: no such branch, tag or commit here; fetch it"),
        (["main", "nowhere"], "nowhere: no such branch"),
        (["main", "--path", "missing"], "missing: expected a folder of a checkout"),
        (["main", "--threshold", "0"], "--threshold: expected more than 0"),
    ],
)
def test_what_cannot_be_compared_says_why(repository, words, expected):
    code, _, said = compare(repository, *words)
    assert code == 2
    assert expected in said
