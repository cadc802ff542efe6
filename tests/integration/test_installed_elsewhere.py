"""The tool in an environment without torch, on a project with an environment of its own.

The tool's environment is as `uv tool install`, `pipx` or a plain venv leave it: this package and
what it requires, in an interpreter of its own.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import cudal1_ci

pytestmark = [pytest.mark.starts_verifier, pytest.mark.slow]

MODEL = """\
import torch
from torch import nn


class Scale(nn.Module):
    def forward(self, x):
        return torch.diag(x) @ x
"""
CONFIG = """\
[[tool.cudal1-ci.workload]]
target = "model.py:Scale"
inputs = ["float32[64]"]

[tool.cudal1-ci.trial]
measure = "0.2s"
launch = "0.1s"
"""


def required(name: str, seen: set[str]) -> set[str]:
    """Return all distributions that one needs, without its extras."""
    for text in metadata.requires(name) or ():
        one = Requirement(text)
        if (one.marker is None or one.marker.evaluate({"extra": ""})) and one.name not in seen:
            seen.add(one.name)
            required(one.name, seen)
    return seen


def site_packages(folder: Path) -> Path:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return folder / "lib" / version / "site-packages"


@pytest.fixture(scope="module")
def tool(tmp_path_factory) -> Path:
    """Return the command of an installation without torch."""
    folder = tmp_path_factory.mktemp("tool") / "env"
    venv.create(folder, with_pip=False)
    packages = site_packages(folder)
    for name in required("cudal1-ci", set()):
        for file in metadata.files(name) or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (packages / top).exists():
                place = Path(str(file.locate()))
                (packages / top).symlink_to(place.parents[len(file.parts) - 1] / top)
    package = Path(cudal1_ci.__file__).parent
    shutil.copytree(package, packages / "cudal1_ci", ignore=shutil.ignore_patterns("__pycache__"))
    if not (package / "templates").exists():
        shutil.copytree(package.parent / "templates", packages / "cudal1_ci/templates")
    command = folder / "bin/cudal1-ci"
    command.write_text(
        f"#!{folder}/bin/python\nimport sys\nfrom cudal1_ci.cli import main\nsys.exit(main())\n"
    )
    command.chmod(0o755)
    return command


@pytest.fixture
def project(tmp_path) -> Path:
    (tmp_path / "project").mkdir()
    (tmp_path / "project/model.py").write_text(MODEL)
    (tmp_path / "project/pyproject.toml").write_text(CONFIG)
    return tmp_path / "project"


def with_torch(folder: Path) -> Path:
    """Make an environment that has torch and not this tool's requirements by name."""
    venv.create(folder, with_pip=False)
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    paths = Path(spec.origin).parents[1]
    (site_packages(folder) / "torch.pth").write_text(f"{paths}\n")
    return folder


def run(tool: Path, *words: object, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    hidden = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH")
    inherited = {name: value for name, value in os.environ.items() if name not in hidden}
    return subprocess.run(
        [str(tool), *map(str, words)],
        cwd=cwd,
        env={**inherited, **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def test_the_tools_environment_has_no_torch(tool):
    python = tool.parent / "python"
    done = subprocess.run([python, "-c", "import torch"], capture_output=True, text=True)
    assert "No module named 'torch'" in done.stderr


LAYOUTS = (".venv", "venv", "VIRTUAL_ENV", "CONDA_PREFIX", "--python", "Poetry")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_project_is_scanned_in_its_own_environment(tool, project, tmp_path, layout):
    # Records a call in the project's interpreter and times nothing, so a busy machine is no matter.
    words: list[object] = ["scan", ".", "--no-compile", "--dry-run", "-q"]
    environ = {}
    if layout.startswith("--"):
        words += [layout, with_torch(tmp_path / "elsewhere") / "bin/python"]
    elif layout == "Poetry":
        with (project / "pyproject.toml").open("a") as file:
            file.write("[tool.poetry]\nname = 'demo'\n")
        digest = hashlib.sha256(os.path.realpath(project).encode()).digest()
        name = f"demo-{base64.urlsafe_b64encode(digest).decode()[:8]}-py3.11"
        with_torch(tmp_path / "elsewhere" / name)
        environ["POETRY_VIRTUALENVS_PATH"] = str(tmp_path / "elsewhere")
    elif layout.isupper():
        environ[layout] = str(with_torch(tmp_path / "elsewhere"))
    else:
        with_torch(project / layout)
    done = run(tool, *words, cwd=project, **environ)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("try   model.py:5 Scale on 64 (declared): playbook:"), done.stdout
    assert "no call was recorded" not in done.stdout


def test_a_project_without_an_environment_is_never_asked_for_torch_in_the_tools_own(tool, project):
    done = run(tool, "scan", ".", "--no-compile", "-q", cwd=project)
    assert done.returncode == 4, done.stderr
    assert "--python" in done.stderr
    assert ".venv" in done.stderr
    assert "pip install" not in done.stderr


def test_doctor_says_which_interpreter_and_why(tool, project):
    own = with_torch(project / ".venv")
    (project / "gone").mkdir()
    environ = {"VIRTUAL_ENV": str(project / "gone")}
    done = run(tool, "doctor", "--json", cwd=project, **environ)
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert f"{own}/bin/python" in rows["project's Python"]["found"]
    assert "chosen by: .venv of the project" in rows["project's Python"]["found"]
    assert "not used: VIRTUAL_ENV" in rows["project's Python"]["fix"]
    assert rows["torch"]["grade"] == "ok"
