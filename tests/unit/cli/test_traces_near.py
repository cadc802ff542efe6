"""Traces of the default branch: what of them stays for a change, and which tests run again."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from cudal1_ci.cli.trace import Before, trace_limit_s, traces_for
from cudal1_ci.cli.traces_near import near
from cudal1_ci.config import load_settings
from cudal1_ci.records import Change, FileChange
from cudal1_ci.render.progress import progress_on

CALL = {"mode": "infer", "num_calls": 1, "total_s": 1.0, "init": None}
TENSOR = {"kind": "tensor", "shape": [2], "dtype": "float32"}
RECORDED = (
    ("a.py:A", "tests/test_a.py::test_one (call)"),
    ("b.py:B", "tests/test_b.py::test_two"),
    ("b.py:B", "tests/test_a.py::test_one"),
)


def changed(*paths: str, **renamed: str) -> Change:
    files = [FileChange(path=path, before="x = 1\n", after="x = 2\n") for path in paths]
    return Change(repository="r", base_sha=40 * "a", head_sha=40 * "b", files=tuple(files))


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "repo"
    (root / "tests" / "deep").mkdir(parents=True)
    for name in ("tests/test_a.py", "tests/test_b.py", "tests/deep/test_c.py", "a.py", "b.py"):
        (root / name).touch()
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    return root


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "before"
    folder.mkdir()
    lines = [{**CALL, "target": target, "source": source} for target, source in RECORDED]
    (folder / "trace-1.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def sources(kept: list[str]) -> list[str]:
    return [json.loads(line)["source"].partition("::")[0] for line in kept]


@pytest.mark.parametrize(
    ("paths", "again", "num_kept"),
    [
        (["b.py"], ["tests/test_a.py", "tests/test_b.py"], 0),
        (["a.py"], ["tests/test_a.py"], 1),
        (["tests/deep/test_c.py"], ["tests/deep/test_c.py"], 3),
        (["tests/test_b.py"], ["tests/test_b.py"], 2),
        (["other.py"], None, 3),
        (["tests/test_gone.py"], None, 3),
    ],
)
def test_tests_run_again_that_changed_or_called_what_changed(root, folder, paths, again, num_kept):
    found = near(["pytest", "-q"], root, changed(*paths), folder)
    assert found is not None
    assert found.command == (None if again is None else ["pytest", "-q", *again])
    assert len(found.kept) == num_kept
    assert not set(sources(found.kept)) & set(again or ())


@pytest.mark.parametrize(
    ("command", "again"),
    [
        ("python -m pytest tests -k fast", "python -m pytest -k fast tests/test_a.py"),
        ("pytest tests/test_a.py::test_one", "pytest tests/test_a.py"),
        ("/x/python3.12 -m pytest -n 4", "/x/python3.12 -m pytest -n 4 tests/test_a.py"),
        ("pytest tests/deep", None),
    ],
)
def test_the_places_of_a_command_still_count(root, folder, command, again):
    found = near(command.split(), root, changed("a.py"), folder)
    assert found is not None
    assert found.command == (again.split() if again else None)


@pytest.mark.parametrize(
    ("command", "paths"),
    [
        (["python", "train.py"], ["a.py"]),
        (["make", "pytest"], ["a.py"]),
        (["pytest"], ["tests/conftest.py"]),
    ],
)
def test_all_runs_where_the_near_tests_cannot_be_known(root, folder, command, paths):
    assert near(command, root, changed(*paths), folder) is None


def test_all_runs_where_a_changed_file_was_called_by_no_test_or_nothing_was_recorded(root, folder):
    (folder / "trace-2.jsonl").write_text(
        json.dumps({**CALL, "target": "a.py:A", "source": None}) + "\nbroken\n"
    )
    assert near(["pytest"], root, changed("a.py"), folder) is None
    assert near(["pytest"], root, changed("b.py"), folder) is not None
    assert near(["pytest"], root, changed("a.py"), folder / "nowhere") is None


def test_a_project_below_the_top_has_its_tests_under_either_name(root, folder):
    below = root / "packages" / "p"
    (below / "tests").mkdir(parents=True)
    (below / "tests" / "test_a.py").touch()
    for name in ("packages/p/tests/test_a.py::t", "tests/test_a.py::t"):
        line = json.dumps({**CALL, "target": "a.py:A", "source": name})
        (folder / "trace-1.jsonl").write_text(line + "\n")
        found = near(["pytest"], below, changed("a.py"), folder)
        assert found is not None
        assert found.command == ["pytest", "tests/test_a.py"]


# --- the budget --------------------------------------------------------------------------------

MODEL = """\
from torch import nn
class {}(nn.Module):
    def forward(self, x):
        return x + 1
"""
SLOW = """\
import time, torch
from model import M
M()(torch.ones(3))
time.sleep(600)
"""


def test_a_trace_that_is_longer_than_its_part_of_the_budget_is_cut_and_what_it_had_is_used(
    tmp_path,
):
    (tmp_path / "model.py").write_text(MODEL.format("M"))
    (tmp_path / "slow.py").write_text(SLOW)
    settings = load_settings(
        tmp_path, overrides={"trace": f"{sys.executable} slow.py", "budget": "20s"}
    )
    assert trace_limit_s(settings) == 10.0
    began = time.monotonic()
    found = traces_for(tmp_path, settings, progress_on(sys.stderr, {}), again=False)
    assert time.monotonic() - began < 50
    assert list(found.calls) == ["model.py:M"]
    (notice,) = found.notices
    assert "was stopped after 10 s, its part of the budget" in notice.message


def test_calls_of_other_tests_stay_and_those_near_the_change_are_recorded(root, folder):
    (root / "a.py").write_text(MODEL.format("A"))
    (root / "tests/test_a.py").write_text(
        "import sys; sys.path.insert(0, '.')\nimport torch\nfrom a import A\n"
        "def test_one():\n    A()(torch.ones(3, 5))\n"
    )
    settings = load_settings(
        root, overrides={"trace": f"{sys.executable} -m pytest -p no:cacheprovider"}
    )
    before = Before(folder, changed("a.py"))
    found = traces_for(root, settings, progress_on(sys.stderr, {}), again=False, before=before)
    (call,) = found.calls["a.py:A"]
    assert call.call is not None
    assert len(found.calls["b.py:B"]) == 1
