"""Which interpreter is the project's, where nothing is said of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cudal1_ci.processes import interpreter
from cudal1_ci.processes.interpreter import OWN, find_interpreter
from cudal1_ci.processes.local import without_torch


def environment(folder: Path) -> Path:
    """Make an environment with an interpreter that can be started."""
    python = folder / "bin/python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    return folder


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Return a folder in a repository of its own."""
    folder = tmp_path / "project"
    folder.mkdir()
    subprocess.run(["git", "init", "-q", folder], check=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return folder


def found(project, **environ):
    one = find_interpreter(project, environ)
    return Path(one.python), one.origin


def test_an_activated_environment_comes_before_conda_and_conda_before_the_projects(
    project, tmp_path
):
    names = ("activated", "conda")
    activated, conda = (str(environment(tmp_path / name)) for name in names)
    own = environment(project / ".venv")
    both = {"VIRTUAL_ENV": activated, "CONDA_PREFIX": conda}
    assert found(project, **both) == (tmp_path / "activated/bin/python", "VIRTUAL_ENV")
    assert found(project, CONDA_PREFIX=conda) == (tmp_path / "conda/bin/python", "CONDA_PREFIX")
    assert found(project) == (own / "bin/python", ".venv of the project")


def test_without_any_environment_the_tools_own_interpreter_is_used(project):
    assert found(project) == (Path(sys.executable), OWN)


@pytest.mark.parametrize("name", [".venv", "venv"])
def test_the_environment_of_a_project_is_found_from_a_folder_below_it(project, name):
    environment(project / name)
    below = project / "src/models"
    below.mkdir(parents=True)
    assert found(below) == (project / name / "bin/python", f"{name} of the project")


def test_outside_of_a_repository_no_folder_above_the_working_directory_is_searched(
    tmp_path, monkeypatch
):
    environment(tmp_path / ".venv")
    (tmp_path / "a/b").mkdir(parents=True)
    monkeypatch.chdir("/")
    monkeypatch.chdir(tmp_path / "a")
    assert found(tmp_path / "a/b")[1] == OWN
    monkeypatch.chdir(tmp_path)
    assert found(tmp_path / "a/b")[1] == ".venv of the project"


def test_uv_and_its_project_environment(project, tmp_path):
    environment(tmp_path / "elsewhere")
    variables = {"UV_PROJECT_ENVIRONMENT": str(tmp_path / "elsewhere")}
    assert found(project, **variables)[1] == OWN, "a project that uv does not manage"
    (project / "uv.lock").touch()
    python = tmp_path / "elsewhere/bin/python"
    assert found(project, **variables) == (python, "UV_PROJECT_ENVIRONMENT")


@pytest.mark.parametrize("table", ["[tool.poetry]\nname = 'My Project'", "[tool.poetry]\n"])
def test_poetrys_environment_outside_of_the_project(project, tmp_path, table):
    more = "" if "name" in table else "[project]\nname = 'My Project'\n"
    (project / "pyproject.toml").write_text(more + table)
    cache = tmp_path / "home/.cache/pypoetry/virtualenvs"
    assert found(project)[1] == OWN
    name = interpreter.poetry_environment(project, {})
    assert name is None
    # sha256 of the path, as Poetry names it.
    script = (
        "import base64,hashlib,os,sys;print(base64.urlsafe_b64encode("
        "hashlib.sha256(os.path.realpath(sys.argv[1]).encode()).digest()).decode()[:8])"
    )
    words = [sys.executable, "-c", script, str(project)]
    digest = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    for minor in ("3.11", "3.12"):
        environment(cache / f"my_project-{digest}-py{minor}")
    origin = "Poetry's environment of the project"
    assert found(project) == (cache / f"my_project-{digest}-py3.12/bin/python", origin)
    (cache / "envs.toml").write_text(f'["my_project-{digest}"]\nminor = "3.11"\n')
    assert found(project) == (cache / f"my_project-{digest}-py3.11/bin/python", origin)


def test_what_cannot_be_used_is_passed_over_and_named(project, tmp_path):
    (project / ".venv").mkdir()
    own = environment(project / "venv")
    one = find_interpreter(project, {"VIRTUAL_ENV": str(tmp_path / "gone")})
    assert Path(one.python) == own / "bin/python"
    assert [text.split(" (")[0] for text in one.passed_over] == [
        "VIRTUAL_ENV",
        ".venv of the project",
    ]
    assert all("there is no bin/python" in text for text in one.passed_over)


@pytest.mark.parametrize("is_link", [False, True])
def test_a_program_that_is_committed_as_an_environment_is_not_run(project, tmp_path, is_link):
    if is_link:
        environment(tmp_path / "other")
        (project / ".venv").symlink_to(tmp_path / "other")
    else:
        environment(project / ".venv")
    subprocess.run(["git", "-C", project, "add", "--force", ".venv"], check=True)
    one = find_interpreter(project, {})
    assert one.origin == OWN
    assert "is committed to the repository" in one.passed_over[0]


def test_the_tools_own_environment_is_not_the_projects_where_it_has_no_torch(project, monkeypatch):
    activated = {"VIRTUAL_ENV": sys.prefix}
    environment(project / ".venv")
    assert found(project, **activated)[1] == "VIRTUAL_ENV"
    monkeypatch.setattr(interpreter.importlib.util, "find_spec", lambda _: None)
    assert found(project, **activated)[1] == ".venv of the project"


def test_torch_is_never_asked_for_in_the_tools_own_environment():
    said = without_torch(sys.executable)
    assert "--python" in said
    assert ".venv" in said
    assert "install" not in said
    assert "install the project's requirements there" in without_torch("/project/.venv/bin/python")
