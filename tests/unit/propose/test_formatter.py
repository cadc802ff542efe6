"""Formatting what was spliced, as the repository formats and nothing beside it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from cudal1_ci.propose.llm.splice import formatter
from cudal1_ci.propose.llm.splice.formatter import configured, formatted

BEFORE = "a = {  'left':1 }\n\n\ndef f(x):\n    return x\n\n\nb = [ 2,3 ]\n"
AFTER = BEFORE.replace("    return x\n", "    y = x+1\n    return g(y,\n      'left')\n")
INDENTED = BEFORE.replace("    return x\n", '    y = x + 1\n    return g(y, "left")\n')

RUFF = "[tool.ruff]\nline-length = 100\n"


def repository(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        file = folder / name.replace("__", "/").replace("_toml", ".toml")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder


def test_only_what_was_written_is_formatted(tmp_path):
    root = repository(tmp_path, pyproject_toml=RUFF)
    assert formatted(BEFORE, AFTER, root, "pkg/ops.py") == INDENTED


def test_the_settings_are_the_repositorys(tmp_path):
    root = repository(tmp_path, ruff_toml='line-length = 20\n[format]\nquote-style = "single"\n')
    text = formatted(BEFORE, AFTER, root, "ops.py")
    assert "    return g(\n        y, 'left'\n    )\n" in text
    assert text.startswith("a = {  'left':1 }\n")


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"pyproject_toml": "[tool.yapf]\n[tool.ruff.lint]\n"},
        {"pyproject_toml": "[tool.isort]\n"},
        {"pyproject_toml": "not toml ["},
        {"ruff_toml": "no-such-option = 1\n"},
        {"ruff_toml": 'required-version = "==0.0.1"\n'},
    ],
)
def test_without_a_formatter_that_works_the_text_stays(tmp_path, files):
    assert formatted(BEFORE, AFTER, repository(tmp_path, **files), "ops.py") == AFTER


def test_the_nearest_configuration_counts(tmp_path):
    root = repository(tmp_path, pyproject_toml=RUFF, pkg__ruff_toml="indent-width = 2\n")
    assert configured(root, "pkg/sub/ops.py") == ("ruff", root / "pkg/ruff.toml")
    assert configured(root, "other/ops.py") == ("ruff", root / "pyproject.toml")


@pytest.mark.parametrize(
    ("tables", "name"),
    [
        ("[tool.black]\n", "black"),
        ("[tool.black]\n[tool.ruff.lint]\n", "black"),
        ("[tool.black]\n[tool.ruff.format]\n", "ruff"),
        ("[tool.ruff.lint]\n", "ruff"),
    ],
)
def test_black_counts_where_ruff_only_lints(tmp_path, tables, name):
    root = repository(tmp_path, pyproject_toml=tables)
    assert configured(root, "ops.py") == (name, root / "pyproject.toml")


def test_a_link_out_of_the_checkout_is_not_followed(tmp_path):
    outside = repository(tmp_path / "outside", ruff_toml="line-length = 10\n")
    root = tmp_path / "checkout"
    root.mkdir()
    (root / "ruff.toml").symlink_to(outside / "ruff.toml")
    assert configured(root, "ops.py") is None


def test_what_runs_is_not_of_the_checkout_and_sees_no_environment(tmp_path, monkeypatch):
    root = repository(tmp_path, pyproject_toml=RUFF)
    for name in ("ruff.py", "ruff/__main__.py", "sitecustomize.py"):
        file = root / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n", encoding="utf-8")
    monkeypatch.chdir(root)
    monkeypatch.setenv("PYTHONPATH", str(root))
    monkeypatch.setenv("SECRET", "token")
    seen = {}
    run = formatter.subprocess.run

    def spy(command, **kwargs):
        seen.update(kwargs, command=command)
        return run(command, **kwargs)

    monkeypatch.setattr(formatter.subprocess, "run", spy)
    assert formatted(BEFORE, AFTER, root, "ops.py") == INDENTED
    assert not (tmp_path / "ran").exists()
    assert seen["command"][:2] == [sys.executable, "-I"]
    assert set(seen["env"]) == {"PATH", "HOME", "XDG_CONFIG_HOME"}
    assert Path(seen["cwd"]) != root


@pytest.mark.parametrize(
    "body",
    [
        "import time; time.sleep(60)",
        "raise SystemExit(1)",
        "print(1)",
        "import sys; print(sys.stdin.read().replace('x+1', 'x + 2'), end='')",
    ],
)
def test_a_formatter_that_hangs_fails_or_writes_other_code_changes_nothing(
    tmp_path, monkeypatch, body
):
    monkeypatch.setattr(formatter, "TIME_LIMIT_S", 0.5)
    script = tmp_path / "python"
    script.write_text(f"#!{sys.executable}\n{body}\n", encoding="utf-8")
    script.chmod(0o755)
    monkeypatch.setattr(formatter.sys, "executable", os.fspath(script))
    root = repository(tmp_path, pyproject_toml=RUFF)
    assert formatted(BEFORE, AFTER, root, "ops.py") == AFTER
