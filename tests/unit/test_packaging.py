"""What is shipped, what is pinned, and that the scripts of the project keep their promises."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
import zipfile
from pathlib import Path

import msgspec
import pytest
from packaging.requirements import Requirement

import cudal1_ci
from cudal1_ci.render import render
from tests.bundling import a_bundled_adapter
from tests.unit.github_action.jobs import Job
from tests.unit.test_assets import MOST_BYTES

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
SCRIPTS = [ROOT / ".ci" / name for name in ("run", "venv", "pins", "environment", "github-rig")]


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


def required(name: str | None) -> list[str]:
    """What the project needs, or an extra or a group of it."""
    project = PROJECT["project"]
    if name is None:
        return project["dependencies"]
    if name in project["optional-dependencies"]:
        return project["optional-dependencies"][name]
    done = run(sys.executable, str(ROOT / ".ci/group"), name)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_what_only_a_checkout_needs_is_no_public_extra():
    assert set(PROJECT["project"]["optional-dependencies"]) == {"torch", "model", "vllm", "ray"}
    assert {"pytest", "torch", "trl", "ruff"} <= {Requirement(t).name for t in required("test")}


@pytest.mark.parametrize("extra", [None, "test", "torch", "train"])
def test_every_dependency_is_pinned_to_a_version_that_it_allows(extra):
    for requirement in map(Requirement, required(extra)):
        version = pins().get(canonical(requirement.name))
        assert version is not None, f"pin {requirement.name} in constraints.txt: make pins"
        assert requirement.specifier.contains(version), f"{requirement}: pinned to {version}"


def test_pins_are_of_public_versions_so_that_any_build_of_torch_fits():
    assert all(re.fullmatch(r"[0-9][0-9a-z.]*", version) for version in pins().values())


def run(*command: str, cwd: Path = ROOT, **environ: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHON"}
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, env={**inherited, **environ}
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
    assert "cudal1_ci/propose/llm/hack_review/cases.toml" in names
    records = [path.relative_to(ROOT) for path in (ROOT / "cudal1_ci/adapters").glob("*/*.json")]
    assert records
    assert {path.as_posix() for path in records} | {"cudal1_ci/assets.json"} <= set(names)
    assert wheel.stat().st_size < MOST_BYTES
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
    needed = {"Makefile", ".ci/venv", ".ci/run", "constraints.txt", "pyproject.toml"}
    actions = {"action.yml", "actions/publish/action.yml", "actions/trend/action.yml"}
    assert needed | actions | {".ci/action", ".ci/environment"} <= names
    assert "tests/fakes.py" in names


@pytest.mark.slow
def test_an_installed_wheel_finds_its_own_templates(dist, tmp_path):
    (wheel,) = dist.glob("*.whl")
    target = tmp_path / "site"
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index")
    done = run(*pip, "--target", str(target), str(wheel))
    assert done.returncode == 0, done.stderr
    program = "from cudal1_ci.render.templates import templates_folder as f; print(f())"
    done = run(sys.executable, "-c", program, cwd=tmp_path, PYTHONPATH=str(target))
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()) == target / "cudal1_ci" / "templates"


@pytest.mark.slow
def test_an_installed_wheel_puts_the_adapter_in_it_on_the_weights_that_it_fits(tmp_path):
    source, target = tmp_path / "source", tmp_path / "site"
    kept = shutil.ignore_patterns("__pycache__")
    for name in ("cudal1_ci", "templates"):
        shutil.copytree(ROOT / name, source / name, ignore=kept)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    a_bundled_adapter(source / "cudal1_ci" / "adapters" / "tiny", ids=("owner/tiny",))
    made = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path))
    done = run(*made, str(source))
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index")
    done = run(*pip, "--target", str(target), str(wheel))
    assert done.returncode == 0, done.stderr
    program = (
        "from cudal1_ci.propose.llm.servers.adapters import chosen\n"
        "from cudal1_ci.propose.llm.servers.config import ModelConfig\n"
        "print(chosen(ModelConfig(model='owner/tiny')).folder)"
    )
    done = run(sys.executable, "-c", program, cwd=tmp_path, PYTHONPATH=str(target))
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()) == target / "cudal1_ci" / "adapters" / "tiny"


# --- automation --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_our_own_scripts_can_be_started_and_stop_at_the_first_failure(path):
    assert os.access(path, os.X_OK)
    assert "set -euo pipefail" in path.read_text("utf-8")
    assert run("bash", "-n", str(path)).returncode == 0


def test_continuous_integration_runs_the_test_command_and_nothing_else():
    lines = (ROOT / ".ci" / "run").read_text("utf-8").splitlines()
    commands = [line for line in lines if line and not line.startswith("#")]
    assert commands[-1] == "exec make test"
    assert commands[:-1] == ["set -euo pipefail", commands[1], "export CI=true"]
    assert commands[1].startswith("cd ")


def test_the_lock_of_what_npm_installs_names_hashes_and_no_address():
    """Where it comes from is the affair of whoever installs; that it is the same, of the hash."""
    folder = ROOT / ".ci" / "rig"
    lock = json.loads((folder / "package-lock.json").read_text("utf-8"))
    installed = {name: one for name, one in lock["packages"].items() if name}
    assert installed
    assert all(one["integrity"].startswith("sha512-") for one in installed.values())
    assert not any("resolved" in one for one in installed.values())
    wanted = json.loads((folder / "package.json").read_text("utf-8"))["dependencies"]
    assert wanted == {n: installed[f"node_modules/{n}"]["version"] for n in wanted}, "exact"


def test_make_help_names_every_target():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    shown = run("make", "--no-print-directory", "help").stdout
    assert set(re.findall(r"^  make ([\w-]+)", shown, re.MULTILINE)) == set(phony.split())


# --- the environment of a checkout -------------------------------------------------------------


def fake_python(folder: Path, version: str) -> str:
    """An interpreter that can do nothing but say its version."""
    path = folder / f"python{version}"
    path.write_text(f"#!/bin/sh\necho {version} {path}\n")
    path.chmod(0o755)
    return str(path)


def only_these(folder: Path) -> str:
    """A PATH with the interpreters of a folder and with no other one."""
    for tool in ("env", "bash", "sh", "dirname"):
        (folder / tool).symlink_to(shutil.which(tool))
    return str(folder)


@pytest.mark.parametrize("version", ["2.7", "3.8", "3.10"])
def test_a_python_that_is_too_old_is_named_with_what_to_install(tmp_path, version):
    python = fake_python(tmp_path, version)
    done = run(str(ROOT / ".ci" / "venv"), str(tmp_path / "venv"), PYTHON=python)
    assert done.returncode != 0
    assert f"expected Python 3.11 or newer, found {python} is {version}" in done.stderr
    assert "apt-get install" in done.stderr
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize("version", ["3.11", "3.13", "3.14", "3.20"])
def test_every_python_that_is_new_enough_will_do(tmp_path, version):
    python = fake_python(tmp_path, version)
    done = run(str(ROOT / ".ci" / "venv"), "--python", PYTHON=python)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{python}\n", "")


@pytest.mark.parametrize(
    ("place", "variables", "is_found"),
    [
        ("tools/Python/3.12.9/x64/bin", {"RUNNER_ENVIRONMENT": "github-hosted"}, True),
        ("tools/Python/3.12.9/x64/bin", {"RUNNER_ENVIRONMENT": "self-hosted"}, False),
        ("home/.pyenv/versions/3.13.0/bin", {}, True),
        ("home/.local/share/uv/python/cpython-3.14.0-linux-x86_64-gnu/bin", {}, True),
        ("home/.pyenv/versions/3.9.1/bin", {}, False),
    ],
)
def test_where_python_is_too_old_another_one_of_the_image_is_taken(
    tmp_path, place, variables, is_found
):
    """As on Ubuntu 22.04, whose Python is 3.10 and whose tool cache has newer ones."""
    (tmp_path / "bin").mkdir()
    fake_python(tmp_path / "bin", "3.10")
    (tmp_path / "bin" / "python3").symlink_to("python3.10")
    folder = tmp_path / place
    folder.mkdir(parents=True)
    version = re.search(r"3\.\d+", place)[0]
    Path(fake_python(folder, version)).rename(folder / "python3")
    known = {"RUNNER_TOOL_CACHE": str(tmp_path / "tools"), "HOME": str(tmp_path / "home")}
    known |= {"GITHUB_ACTIONS": "true", "PYENV_ROOT": "", **variables}
    script = str(ROOT / ".ci" / "venv")
    done = run(script, "--python", PATH=only_these(tmp_path / "bin"), **known)
    if is_found:
        assert (done.returncode, done.stdout) == (0, f"{folder}/python3\n")
    else:
        assert done.returncode == 1
        assert "expected Python 3.11 or newer, found python3 is 3.10" in done.stderr
        assert 'actions/setup-python and python-version: "3.12"' in done.stderr


@pytest.mark.parametrize("system", ["Windows", "macOS"])
def test_another_system_is_refused_with_what_to_change(tmp_path, system):
    done = run(str(ROOT / ".ci" / "environment"), str(tmp_path / "cache"), RUNNER_OS=system)
    assert done.returncode == 4
    assert f"the runner is {system}, and cudal1-ci needs Linux" in done.stderr
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("found", "taken"),
    [
        (["3.13", "3.11"], "3.11"),
        (["3.10", "3.14"], "3.14"),
        (["3.9", "3.13"], "3.13"),
    ],
)
def test_a_python_is_found_by_its_name(tmp_path, found, taken):
    for version in found:
        fake_python(tmp_path, version)
    shown = run(str(ROOT / ".ci" / "venv"), "--python", PATH=only_these(tmp_path))
    assert (shown.returncode, shown.stdout) == (0, f"{tmp_path}/python{taken}\n")


def test_a_python_that_is_newer_than_any_name_is_found_as_python3(tmp_path):
    path = tmp_path / "python3"
    path.write_text(f"#!/bin/sh\necho 3.20 {path}\n")
    path.chmod(0o755)
    shown = run(str(ROOT / ".ci" / "venv"), "--python", PATH=only_these(tmp_path))
    assert (shown.returncode, shown.stdout) == (0, f"{path}\n")


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


@pytest.mark.parametrize(("ci", "code"), [("true", 1), ("", 0)])
def test_without_npm_continuous_integration_fails_and_others_are_told(tmp_path, ci, code):
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("bash", "cat", "dirname", "env", "sha256sum"):
        (programs / name).symlink_to(shutil.which(name))
    done = run(str(tmp_path / ".ci" / "github-rig"), PATH=str(programs), CI=ci)
    assert done.returncode == code, done.stderr
    assert "npm was not found" in done.stderr
    assert "cannot run" in done.stderr
    assert not (tmp_path / "build").exists()


# --- the environment of the Action -------------------------------------------------------------


def environment_of(checkout: Path, *words: str) -> subprocess.CompletedProcess[str]:
    script = checkout / ".ci" / "environment"
    return run(str(script), "--where", "/cache", *words, PYTHON=sys.executable)


def test_an_environment_is_named_after_what_it_holds_and_not_after_the_checkout(tmp_path):
    copy = tmp_path / "elsewhere"
    (copy / ".ci").mkdir(parents=True)
    for name in (".ci/environment", ".ci/venv", "pyproject.toml", "constraints.txt"):
        (copy / name).write_bytes((ROOT / name).read_bytes())
        (copy / name).chmod(0o755)
    here = environment_of(ROOT).stdout
    assert re.fullmatch(r"/cache/[0-9a-f]{16}\n", here)
    assert environment_of(copy).stdout == here
    assert environment_of(ROOT, "model").stdout != here
    with (copy / "constraints.txt").open("a") as file:
        file.write("more==1.0\n")
    assert environment_of(copy).stdout != here


def test_making_an_environment_imports_nothing_of_the_working_folder(tmp_path):
    for name in ("sitecustomize", "usercustomize", "tomllib", "venv", "site"):
        (tmp_path / f"{name}.py").write_text("open('ran', 'w')\n")
    script = str(ROOT / ".ci" / "environment")
    told = {"PYTHONPATH": str(tmp_path), "PYTHON": sys.executable}
    done = run(script, "--where", "/cache", cwd=tmp_path, **told)
    assert done.stdout == environment_of(ROOT).stdout
    assert not (tmp_path / "ran").exists()


def test_an_environment_that_is_there_is_found_and_those_of_long_ago_are_removed(tmp_path):
    script = str(ROOT / ".ci" / "environment")
    cache = tmp_path / "a cache"
    where = run(script, "--where", str(cache), PYTHON=sys.executable).stdout.strip()
    for name, age_days in ((where, 40), ("used", 10), ("forgotten", 31)):
        ready = cache / name / "ready"
        ready.parent.mkdir(parents=True)
        ready.touch()
        then = time.time() - age_days * 86400
        os.utime(ready, (then, then))
    done = run(script, str(cache), PYTHON=sys.executable)
    assert done.stdout == f"{where}/bin/python\n"
    assert {path.name for path in cache.iterdir()} == {Path(where).name, "used", "lock"}


PUBLISHING = (ROOT / ".ci" / "publish.txt").read_text("utf-8")
ONLY = """
import importlib.util, sys
allowed = set({allowed!r}) | set(sys.stdlib_module_names) | {{"cudal1_ci"}}

class Others:
    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] not in allowed:
            raise ModuleNotFoundError(f"{{fullname}} is not in .ci/publish.txt", name=fullname)

sys.meta_path.insert(0, Others())
sys.path.insert(0, {root!r})
"""
MODULES = {"PyGithub": "github", "PyJWT": "jwt", "PyNaCl": "nacl", "Jinja2": "jinja2"}


def test_what_a_job_needs_to_post_is_pinned_by_hashes_to_what_was_tested():
    entries = PUBLISHING.partition("\n")[2].replace(" \\\n", " ").splitlines()
    found = {}
    for entry in entries:
        pinned, *hashes = entry.split()
        name, version = pinned.split("==")
        found[canonical(name)] = version
        assert hashes, pinned
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", one) for one in hashes)
    assert found.items() <= pins().items()
    assert {"click", "jinja2", "msgspec", "pygithub", "unidiff"} <= set(found)
    assert len(found) == 15
    assert not {"numpy", "cryptography", "libcst"} & set(found)


def test_a_comparison_imports_nothing_that_proposes():
    """Half a second of processor time, in two processes of each pull request."""
    code = "import sys, cudal1_ci.cli.compare, cudal1_ci.github.action.measure\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"libcst", "numpy", "cudal1_ci.optimize.llm_loop"} & set(done.stdout.split())


def test_publishing_imports_nothing_but_what_is_pinned_for_it(tmp_path):
    names = re.findall(r"^([\w-]+)==", PUBLISHING, re.MULTILINE)
    allowed = [MODULES.get(name, name.replace("-", "_").lower()) for name in names]
    job = Job(tmp_path)
    report = msgspec.structs.replace(job.reports["compare"], head_sha=job.head)
    (tmp_path / "report.json").write_text(render(report, "json"))
    code = ONLY.format(allowed=[*allowed, "_cffi_backend"], root=str(ROOT))
    environment = job.environment() | {"GITHUB_API_URL": "https://api", "GITHUB_RUN_ID": "1"}
    environment |= {"GITHUB_SERVER_URL": "https://h", "GITHUB_WORKFLOW": "w"}
    environment |= {"GITHUB_RUN_ATTEMPT": "1", "GITHUB_SHA": job.head}

    def said(program: str, *words: str) -> str:
        command = [sys.executable, "-I", "-c", code + program, *words]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    verb = "from cudal1_ci.cli import main; main(prog_name='cudal1-ci')"
    said_of = said(verb, "publish", "--dry-run", str(tmp_path / "report.json"))
    assert "check-runs" in said_of
    doors = "from cudal1_ci.github.action import __main__, commands, publish\n"
    said(doors + "import cudal1_ci.github.client, cudal1_ci.cli.publish_sweep")


@pytest.mark.slow
def test_an_environment_for_publishing_is_made_by_hashes_and_is_small(tmp_path):
    done = run(str(ROOT / ".ci" / "environment"), str(tmp_path), "publish", PYTHON=sys.executable)
    assert done.returncode == 0, done.stderr
    python = done.stdout.strip()
    assert run(python, "-I", "-c", "import click, github, jinja2, msgspec, unidiff").returncode == 0
    folder = Path(python).parents[1]
    size = sum(file.stat().st_size for file in folder.rglob("*") if not file.is_symlink())
    assert size < 40_000_000


def test_an_extra_that_is_not_there_is_an_error():
    done = environment_of(ROOT, "magic")
    assert done.returncode != 0
    assert "magic" in done.stderr


def test_the_action_is_not_started_where_the_working_folder_could_be_imported(tmp_path):
    (tmp_path / "runpy.py").write_text("raise SystemExit('imported from the working folder')\n")
    script = str(ROOT / ".ci" / "action")
    done = run(sys.executable, script, "measure", cwd=tmp_path)
    assert done.returncode == 1
    assert "python -I" in done.stderr
    done = run(sys.executable, "-I", script, "nothing", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    assert "usage" in done.stderr
