"""experiments/README.md names every script, and `make bench` runs those that need nothing."""

from __future__ import annotations

import ast
import importlib
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "experiments"
CATALOGUE = (FOLDER / "README.md").read_text("utf-8")
MARKED = re.findall(r"^\| \[\w+\.py\]\((\w+)\.py\) \\\*", CATALOGUE, re.MULTILINE)


def test_every_script_that_can_be_run_is_named_once():
    runnable = [
        path.name for path in FOLDER.glob("*.py") if "__main__" in path.read_text(encoding="utf-8")
    ]
    named = re.findall(r"\[\w+\.py\]\((\w+\.py)\)", CATALOGUE)
    assert sorted(named) == sorted(runnable)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_every_script_finds_what_it_imports_of_the_package(path):
    """Scripts are run by hand, so a name that moved would go unnoticed."""
    for one in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(one, ast.ImportFrom) and (one.module or "").startswith("cudal1_ci"):
            module = importlib.import_module(one.module)
            missing = [name.name for name in one.names if not hasattr(module, name.name)]
            missing = [name for name in missing if find_spec(f"{one.module}.{name}") is None]
            assert not missing, f"{one.module} has no {missing}"


def test_make_bench_runs_those_that_are_marked():
    makefile = (ROOT / "Makefile").read_text("utf-8").replace("\\\n", " ")
    (listed,) = re.findall(r"^BENCH := (.*)$", makefile, re.MULTILINE)
    assert listed.split() == MARKED


@pytest.mark.parametrize("name", MARKED)
def test_what_make_bench_runs_needs_no_arguments(name):
    tree = ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8"))
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("add_argument"):
            named = {one.arg: ast.unparse(one.value) for one in call.keywords}
            first = ast.literal_eval(call.args[0])
            assert named.get("required") != "True", first
            assert first.startswith("-") or named.get("nargs") in ("'*'", "'?'"), first
