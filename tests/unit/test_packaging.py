"""What is shipped, what is pinned, and that the project's own automation keeps its promises."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

import cudal1_ci

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ACTION = ROOT / "action.yml"
SCRIPTS = [ROOT / ".ci" / name for name in ("run", "venv", "pins")]


def steps_of(path: Path) -> list[dict[str, Any]]:
    """The steps of a composite action, or those of all jobs of a workflow."""
    document = yaml.safe_load(path.read_text("utf-8"))
    if "runs" in document:
        return document["runs"]["steps"]
    return [step for job in document["jobs"].values() for step in job["steps"]]


# --- packaging ---------------------------------------------------------------------------------


def test_the_package_says_the_version_that_it_is_published_as():
    assert cudal1_ci.__version__ == PROJECT["project"]["version"]


def test_templates_are_packed_to_where_the_package_looks_for_them():
    forced = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert forced == {"templates": "cudal1_ci/templates"}
    assert (ROOT / "templates").is_dir()


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonical(name): version for name, version in pairs}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("extra", [None, "test", "torch"])
def test_every_dependency_is_pinned_to_a_version_that_it_allows(extra):
    project = PROJECT["project"]
    texts = project["optional-dependencies"][extra] if extra else project["dependencies"]
    for requirement in map(Requirement, texts):
        if requirement.name == project["name"]:
            continue
        version = pins().get(canonical(requirement.name))
        assert version is not None, f"pin {requirement.name} in constraints.txt: make pins"
        assert requirement.specifier.contains(version), f"{requirement}: pinned to {version}"


def test_pins_are_of_public_versions_so_that_any_build_of_torch_fits():
    assert all(re.fullmatch(r"[0-9][0-9a-z.]*", version) for version in pins().values())


def run(*command: str, cwd: Path = ROOT, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, env={**os.environ, **environ}
    )


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    done = run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_what_is_built_passes_the_check_of_the_package_index(dist):
    files = sorted(map(str, dist.iterdir()))
    assert [Path(file).name.split("-")[0] for file in files] == ["cudal1_ci", "cudal1_ci"]
    done = run(sys.executable, "-m", "twine", "check", "--strict", *files)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_wheel_holds_the_package_its_templates_and_the_license_and_nothing_else(dist):
    (wheel,) = dist.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    templates = {p.relative_to(ROOT) for p in (ROOT / "templates").rglob("*") if p.is_file()}
    assert {f"cudal1_ci/{name.as_posix()}" for name in templates} <= set(names)
    assert "cudal1_ci/opinion/cases.toml" in names
    assert {name.split("/")[0] for name in names} == {
        "cudal1_ci",
        f"cudal1_ci-{cudal1_ci.__version__}.dist-info",
    }
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not any("__pycache__" in name for name in names)


@pytest.mark.slow
def test_the_source_distribution_can_be_tested(dist):
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = {"Makefile", ".ci/venv", ".ci/run", "constraints.txt", "action.yml", "pyproject.toml"}
    assert needed <= names
    assert "tests/fakes.py" in names


@pytest.mark.slow
def test_an_installed_wheel_finds_its_own_templates(dist, tmp_path):
    (wheel,) = dist.glob("*.whl")
    target = tmp_path / "site"
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index")
    done = run(*pip, "--target", str(target), str(wheel))
    assert done.returncode == 0, done.stderr
    program = "from cudal1_ci.templates_path import templates_folder as f; print(f())"
    done = run(sys.executable, "-c", program, cwd=tmp_path, PYTHONPATH=str(target))
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()) == target / "cudal1_ci" / "templates"


# --- automation --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_has_no_permission_that_a_job_did_not_ask_for(path):
    document = yaml.safe_load(path.read_text("utf-8"))
    assert document["permissions"] == {}
    for name, job in document["jobs"].items():
        assert job["permissions"] == {"contents": "read"}, name
        assert job["timeout-minutes"] <= 60, name


@pytest.mark.parametrize("path", [*WORKFLOWS, ACTION], ids=lambda path: path.name)
def test_every_action_is_pinned_to_a_commit_with_its_version_beside_it(path):
    for line in path.read_text("utf-8").splitlines():
        if re.match(r"\s*(- )?uses:", line):
            assert re.search(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_no_checkout_leaves_a_token_behind(path):
    checkouts = [s for s in steps_of(path) if s.get("uses", "").startswith("actions/checkout@")]
    assert checkouts
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


@pytest.mark.parametrize("path", [*WORKFLOWS, ACTION], ids=lambda path: path.name)
def test_nothing_is_interpolated_into_a_script(path):
    for step in steps_of(path):
        assert "${{" not in step.get("run", ""), step


def test_the_action_declares_every_input_and_output_that_it_uses_and_uses_all_that_it_declares():
    text = ACTION.read_text("utf-8")
    document = yaml.safe_load(text)
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == set(document["inputs"])
    written = set(re.findall(r'echo "(\w+)=', text))
    assert set(re.findall(r"steps\.scan\.outputs\.([\w-]+)", text)) == written
    assert set(document["outputs"]) == written


@pytest.mark.parametrize("number", range(len(steps_of(ACTION))))
def test_the_scripts_of_the_action_are_bash(number):
    script = steps_of(ACTION)[number]["run"]
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


FAKE_SCAN = """#!/usr/bin/env python3
import os, pathlib, sys
arguments = sys.argv[1:]
pathlib.Path(os.environ["ASKED"]).write_text("\\n".join(arguments))
pathlib.Path(arguments[arguments.index("--md") + 1]).write_text("# found")
sys.exit(int(os.environ["STATUS"]))
"""


def run_scan_step(folder: Path, base: str, status: int) -> subprocess.CompletedProcess[str]:
    """The scan step as a runner would run it, with a scan that only notes its arguments."""
    scan = folder / "cudal1-ci" / "venv" / "bin" / "cudal1-ci"
    scan.parent.mkdir(parents=True)
    scan.write_text(FAKE_SCAN)
    scan.chmod(0o755)
    (step,) = [step for step in steps_of(ACTION) if step.get("id") == "scan"]
    # As GitHub starts `shell: bash`.
    return run(
        *("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]),
        RUNNER_TEMP=str(folder),
        GITHUB_STEP_SUMMARY=str(folder / "summary"),
        GITHUB_OUTPUT=str(folder / "output"),
        ASKED=str(folder / "asked"),
        STATUS=str(status),
        TREE="-my tree",
        BASE=base,
        PROJECT_PYTHON="python",
        BUDGET="10m",
    )


@pytest.mark.parametrize("status", [0, 6], ids=["done", "budget spent"])
def test_the_action_shows_the_report_and_says_where_the_files_are(tmp_path, status):
    assert run_scan_step(tmp_path, "main", status).returncode == 0
    assert (tmp_path / "summary").read_text() == "# found"
    outputs = dict(line.split("=", 1) for line in (tmp_path / "output").read_text().splitlines())
    assert set(outputs) == {"json", "html", "markdown"}
    assert Path(outputs["markdown"]).read_text() == "# found"


def test_the_action_fails_when_the_tool_does(tmp_path):
    assert run_scan_step(tmp_path, "main", 4).returncode == 4
    assert not (tmp_path / "output").exists()


def test_the_action_hands_hostile_inputs_on_as_they_are(tmp_path):
    base = '$(touch pwned) `id`; "; exit 9'
    assert run_scan_step(tmp_path, base, 0).returncode == 0
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked[asked.index("--changed") + 1] == base
    assert asked[-2:] == ["--", "-my tree"]
    assert not list(tmp_path.rglob("pwned"))
    assert not (ROOT / "pwned").exists()


def test_the_action_scans_everything_when_asked_to(tmp_path):
    assert run_scan_step(tmp_path, "all", 0).returncode == 0
    assert "--changed" not in (tmp_path / "asked").read_text().splitlines()


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_our_own_scripts_can_be_started_and_stop_at_the_first_failure(path):
    assert os.access(path, os.X_OK)
    assert "set -euo pipefail" in path.read_text("utf-8")
    assert run("bash", "-n", str(path)).returncode == 0


def test_continuous_integration_runs_the_test_command_and_nothing_else():
    lines = (ROOT / ".ci" / "run").read_text("utf-8").splitlines()
    commands = [line for line in lines if line and not line.startswith("#")]
    assert commands[-1] == "exec make test"
    assert len(commands) == 3


def test_make_help_names_every_target():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    shown = run("make", "--no-print-directory", "help").stdout
    assert set(re.findall(r"^  make (\w+)", shown, re.MULTILINE)) == set(phony.split())


# --- the environment of a checkout -------------------------------------------------------------


def fake_python(folder: Path, version: str) -> str:
    """An interpreter that can do nothing but say its version."""
    path = folder / f"python{version}"
    path.write_text(f"#!/bin/sh\necho {version} {path}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("version", ["2.7", "3.8", "3.10"])
def test_a_python_that_is_too_old_is_named_with_what_to_install(tmp_path, version):
    python = fake_python(tmp_path, version)
    done = run(str(ROOT / ".ci" / "venv"), str(tmp_path / "venv"), PYTHON=python)
    assert done.returncode != 0
    assert f"expected Python 3.11 or 3.12, found {python} is {version}" in done.stderr
    assert "apt-get install" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_a_python_that_is_not_there_is_named(tmp_path):
    done = run(str(ROOT / ".ci" / "venv"), str(tmp_path / "venv"), PYTHON="/nowhere/python")
    assert done.returncode != 0
    assert "found no /nowhere/python" in done.stderr


@pytest.mark.slow
def test_an_environment_is_made_once_and_again_after_an_interruption(tmp_path):
    # Nothing is downloaded: pip is told to look nowhere, so that installing fails, as if it had
    # been interrupted at its first package.
    venv = tmp_path / "venv"
    offline = {"PYTHON": sys.executable, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    done = run(str(ROOT / ".ci" / "venv"), str(venv), **offline)
    assert done.returncode != 0
    assert (venv / "bin" / "python").exists()
    assert not (venv / ".installed").exists(), "an unfinished installation must not look finished"

    made_at = (venv / "pyvenv.cfg").stat().st_mtime_ns
    assert run(str(ROOT / ".ci" / "venv"), str(venv), **offline).returncode != 0
    assert (venv / "pyvenv.cfg").stat().st_mtime_ns == made_at, "a usable environment is kept"

    (venv / "bin" / "python").unlink()
    assert run(str(ROOT / ".ci" / "venv"), str(venv), **offline).returncode != 0
    assert (venv / "bin" / "python").exists(), "a broken environment is made anew"
