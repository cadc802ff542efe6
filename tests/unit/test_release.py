"""What a release checks, and the hooks, the image and the schemas that it ships."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import jsonschema
import pytest
import yaml

from cudal1_ci import __version__
from cudal1_ci.cli import main
from cudal1_ci.cli.init import CONFIG, trace_line
from cudal1_ci.config.schema import config_schema, schema_text
from tests.unit.github_action.jobs import commit, git

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "cudal1_ci/schema/config.schema.json"


@pytest.fixture
def copy(tmp_path):
    """Return a checkout with all that `.ci/release` reads."""
    (tmp_path / ".ci").mkdir()
    for name in (".ci/release", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text(
        f"# Log\n\n## [{__version__}] - 2026-11-27\n\n- First.\n\n## [0.0.1]\n\n- Old.\n"
    )
    shutil.copytree(ROOT / ".github" / "workflows", tmp_path / ".github" / "workflows")
    git(tmp_path, "init", "-q")
    commit(tmp_path, {})
    assert release(tmp_path, "pin").returncode == 0
    commit(tmp_path, {}, "pin")
    return tmp_path


def release(folder, tag):
    words = [sys.executable, str(folder / ".ci/release"), tag, "someone/cudal1-ci"]
    return subprocess.run(words, capture_output=True, text=True)


def test_a_release_has_its_part_of_the_change_log_and_the_address_of_its_repository(copy):
    done = release(copy, f"v{__version__}")
    assert (done.returncode, done.stdout) == (0, "- First.\n")
    urls = tomllib.loads((copy / "pyproject.toml").read_text())["project"]["urls"]
    assert urls["Homepage"] == "https://github.com/someone/cudal1-ci"
    assert all(url.startswith("https://github.com/someone/cudal1-ci") for url in urls.values())


def test_a_release_names_its_own_actions_by_a_commit_that_has_them(copy):
    texts = [path.read_text() for path in (copy / ".github" / "workflows").iterdir()]
    before = git(copy, "rev-parse", "HEAD~1")
    assert f"someone/cudal1-ci/actions/publish@{before} # v{__version__}" in "".join(texts)
    assert f"uses: someone/cudal1-ci@{before} # v" in "".join(texts)
    assert "actions/checkout@de0fac2e4500dabe0009e67214ff5f5447ce83dd # v6.0.2" in "".join(texts)
    commit(copy, {"action.yml": "other\n"}, "late")
    done = release(copy, f"v{__version__}")
    assert done.returncode == 1
    assert "action.yml has changed since the commit" in done.stderr
    assert release(copy, "pin").returncode == 0
    commit(copy, {"x.md": "", ".github/workflows/review.yml": "uses: OWNER/cudal1-ci@0"}, "bad")
    assert "name no one commit" in release(copy, f"v{__version__}").stderr


def test_a_tag_that_is_not_the_version_or_not_in_the_change_log_is_refused(copy):
    done = release(copy, "v9.9.9")
    assert done.returncode == 1
    assert f"the tag is v9.9.9 and the version in pyproject.toml is {__version__}" in done.stderr
    (copy / "CHANGELOG.md").write_text("## [Unreleased]\n\n- First.\n")
    done = release(copy, f"v{__version__}")
    assert done.returncode == 1
    assert "CHANGELOG.md has no part" in done.stderr


def test_every_hook_is_a_command_that_there_is():
    for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text()):
        program, verb, *options = hook["entry"].split()
        assert program == "cudal1-ci"
        command = main.get_command(None, verb)
        known = {option for param in command.params for option in param.opts}
        assert set(options) <= known
        assert hook["language"] == "python"


def test_the_image_keeps_the_tool_apart_and_runs_as_no_root():
    text = (ROOT / "Dockerfile").read_text()
    assert "-m venv /opt/cudal1-ci" in text
    assert "CUDAL1_CI_PYTHON=" in text
    assert re.search(r"^USER (?!root)", text, re.MULTILINE)


def test_the_package_is_typed():
    assert (ROOT / "cudal1_ci/py.typed").is_file()


def test_the_published_schema_of_the_configuration_is_current():
    assert SCHEMA.read_text("utf-8") == schema_text(), "make schema"
    jsonschema.Draft7Validator.check_schema(config_schema())


VALID = [
    "",
    CONFIG.format(trace=trace_line("pytest -q")),
    CONFIG.format(trace=trace_line(None)),
    "budget = '1h30m'\ndevice = 'cuda:0,cuda:1'\n[discover]\nexclude = ['a/**']\n",
    "[[workload]]\ntarget = 'a.py:B'\ninputs = ['float32[2]', 3]\natol = 0.1\n",
]
INVALID = [
    ("budgte = '3m'", "budgte"),
    ("budget = 3", "budget"),
    ("device = 'gpu'", "device"),
    ("[trial]\nthreadz = 1", "threadz"),
    ("[[workload]]\ntarget = 'a.py:B'", "inputs"),
]


@pytest.mark.parametrize("text", VALID)
def test_a_valid_configuration_fits_the_schema(text):
    jsonschema.validate(tomllib.loads(text), json.loads(SCHEMA.read_text()))


@pytest.mark.parametrize(("text", "key"), INVALID)
def test_a_mistake_in_a_configuration_does_not_fit_the_schema(text, key):
    with pytest.raises(jsonschema.ValidationError, match=key):
        jsonschema.validate(tomllib.loads(text), json.loads(SCHEMA.read_text()))
