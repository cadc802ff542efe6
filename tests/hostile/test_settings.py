"""Settings that a pull request writes: none of them counts for the pull request itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cudal1_ci.github.action.admission import configuration_changed
from tests.unit.github.test_trees import git

ROOT = Path(__file__).parents[2]
SETTINGS = {
    "a command that records": "trace = \"touch '{ran}'\"",
    "a build": "compare.setup = [\"touch '{ran}'\"]",
    "an interpreter": 'python = "{evil}"',
    "an interpreter of the checkout": 'python = "./evil"',
    "a server for the key": 'model.model = "http://127.0.0.1:9/v1"\nmodel.api-key-env = "MY_TOKEN"',
    "a container": 'executor = "container"\ncontainer-image = "evil"',
    "a state folder above": 'state-dir = "../../elsewhere"',
    "commands without bounds": "commands.unconfined = true\ncommands.network = true",
    "a threshold": "compare.threshold = 1000.0",
    "an agreement": '[[tool.cudal1-ci.ack]]\ntarget = "*"\nmax-slowdown = 99.0\nreason = "x"\n'
    'owner = "x"\nexpires = "2999-01-01"',
    "another file": "",
}


@pytest.fixture
def repository(tmp_path):
    root = tmp_path / "repo"
    root.mkdir()
    git(root, "init", "-q")
    (root / "pyproject.toml").write_text("[tool.cudal1-ci]\nbudget = '10m'\n")
    (root / "plain.py").write_text("x = 1\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "base")
    return root


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_the_head_run_nothing_and_loosen_nothing(repository, tmp_path, name):
    ran, evil = tmp_path / "ran", tmp_path / "evil"
    for place in (evil, repository / "evil"):
        place.write_text(f"#!/bin/sh\ntouch {ran}\n")
        place.chmod(0o755)
    base = git(repository, "rev-parse", "HEAD")
    text = SETTINGS[name].format(ran=ran, evil=evil)
    if name == "another file":
        (repository / ".github").mkdir()
        (repository / ".github" / "cudal1-ci.toml").write_text(f"trace = \"touch '{ran}'\"\n")
        (repository / "pyproject.toml").write_text("")
    else:
        (repository / "pyproject.toml").write_text(f"[tool.cudal1-ci]\n{text}\n")
    (repository / "plain.py").write_text("x = 2\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "head")
    words = [sys.executable, "-m", "cudal1_ci", "compare", base, "--device", "cpu", "--json", "-"]
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("GITHUB_", "CUDAL1_CI_"))}
    environment = {**kept, "MY_TOKEN": "s3cret", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=repository, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not ran.exists()
    assert not (tmp_path.parent / "elsewhere").exists()
    assert "tracing" not in done.stderr
    assert "s3cret" not in done.stdout + done.stderr
    assert configuration_changed(repository, base), "and so there are no proposals"


def test_nothing_of_a_checkout_is_run(tmp_path):
    """To find targets is to read: of the project no line runs, not even its `sitecustomize`."""
    root, ran = tmp_path / "project", tmp_path / "ran"
    (root / "pkg").mkdir(parents=True)
    evil = f"open({str(ran)!r}, 'w')\n"
    module = (
        "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
    )
    for name in ("sitecustomize.py", "conftest.py", "torch.py", "setup.py", "json.py"):
        (root / name).write_text(evil)
    (root / "pkg" / "__init__.py").write_text(evil)
    (root / "pkg" / "net.py").write_text(evil + module)
    words = [sys.executable, "-m", "cudal1_ci", "scan", "--list", "--json", "-", "."]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(words, cwd=root, env=environment, capture_output=True, text=True)
    assert "Net" in done.stdout, done.stderr
    assert not ran.exists()


def test_the_same_settings_count_where_the_base_has_them(repository, tmp_path):
    (repository / "pyproject.toml").write_text("[tool.cudal1-ci]\ntrace = 'echo it-ran'\n")
    git(repository, "commit", "-qam", "base")
    base = git(repository, "rev-parse", "HEAD")
    (repository / "plain.py").write_text("def f(x):\n    return x\n")
    git(repository, "commit", "-qam", "head")
    words = [sys.executable, "-m", "cudal1_ci", "compare", base, "--config-from", "base"]
    words += ["--device", "cpu", "--json", "-"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=repository, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "tracing `echo it-ran`" in done.stderr
