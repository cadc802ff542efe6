"""Trials of what Python can import: `file.py:Name`, and functions."""

from __future__ import annotations

import functools
import importlib
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from cudal1_ci import verify
from cudal1_ci.cli import main
from cudal1_ci.cli.verify import trial_of
from cudal1_ci.config import load_settings
from cudal1_ci.errors import ConfigError
from cudal1_ci.records import Constant, Items, TensorSpec
from cudal1_ci.verification import Session, TrialConfig, pairs
from cudal1_ci.verification.static_rules import convictions, screen

SLOW = """\
import torch
from torch import nn


class Scale(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.w = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x @ torch.diag(self.w)


def scale(x, y):
    return x @ torch.diag(y)


def made():
    def inner(x):
        return x
    return inner


short = lambda x: x
inner = made()
"""
FAST = SLOW.replace("x @ torch.diag(self.w)", "x * self.w").replace("x @ torch.diag(y)", "x * y")
WRONG = FAST.replace("x * y", "x + y").replace("x * self.w", "x + self.w")
CONFIG = """\
[[tool.cudal1-ci.workload]]
target = "pair_slow.py:Scale"
init = ["16"]
inputs = ["float32[4, 16]"]

[tool.cudal1-ci.trial]
measure = "0.2s"
launch = "0.1s"
contract = "0s"
"""
QUICK = TrialConfig(measure_s=0.2, launch_s=0.1, contract_s=0.0)


@pytest.fixture
def tree(tmp_path, monkeypatch):
    for name, text in (("slow", SLOW), ("fast", FAST), ("wrong", WRONG)):
        (tmp_path / f"pair_{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, f"pair_{name}", raising=False)
    (tmp_path / "pyproject.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def run(*words):
    return CliRunner().invoke(main, ["verify", *words])


@pytest.mark.slow
@pytest.mark.starts_verifier
def test_two_modules_by_name_under_the_declared_workload_of_the_first(tree):
    paths = [(Path(f"pair_{name}.py"), "Scale") for name in ("slow", "fast")]
    settings = load_settings(Path())
    problem, (right,) = trial_of(paths, Path(), settings, "infer")
    with Session(QUICK, device="cpu") as session:
        assert session.examine(problem, right).status == "passed"
    wrong = run("pair_slow.py:Scale", "pair_wrong.py:Scale")
    assert wrong.exit_code == 1
    assert "incorrect" in wrong.stdout


@pytest.mark.slow
@pytest.mark.starts_verifier
def test_two_functions_in_python(tree):
    slow, fast, wrong = (importlib.import_module(f"pair_{n}") for n in ("slow", "fast", "wrong"))
    inputs = (torch.randn(4, 16), torch.randn(16))
    problem, right = pairs.functions_pair(slow.scale, fast.scale, inputs, "infer")
    with Session(QUICK, device="cpu") as session:
        assert session.examine(problem, right).status == "passed"
    found = verify(slow.scale, wrong.scale, inputs, config=QUICK, device="cpu")
    assert found.verdict.status.startswith("incorrect")


def test_the_whole_file_of_a_candidate_is_read_by_the_static_rules(tree):
    slow, fast = (importlib.import_module(f"pair_{n}") for n in ("slow", "fast"))
    patched = FAST + "torch.cuda.Event.elapsed_time = lambda *_: 0.0\n"
    (tree / "pair_fast.py").write_text(patched)  # not imported here: it would patch this process
    problem, found = pairs.functions_pair(slow.scale, fast.scale, (torch.ones(2),), "infer")
    findings = convictions(screen(found.program, problem.reference))
    assert [one.rule for one in findings] == ["static.clock_patched"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("pair_slow.py:Scale", "pair_fast.py"), "expected `pair_fast.py:Name`"),
        (("pair_slow.py:Scale", "pair_fast.py:Scael"), "no class or function `Scael`; there is"),
        (("pair_slow.py:scale", "pair_fast.py:scale"), "pair_slow.py:scale: no workload"),
        (("pair_slow.py:Scale", "absent.py:Scale"), "absent.py: no such file"),
    ],
)
def test_what_is_missing_is_named(tree, words, said):
    result = run(*words)
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("short", "a closure, a lambda"),
        ("inner", "made inside a function"),
        ("Scale", "a function"),
    ],
)
def test_what_another_process_cannot_import_is_refused(tree, name, said):
    slow = importlib.import_module("pair_slow")
    with pytest.raises(ConfigError, match=said):
        verify(getattr(slow, name), slow.scale, (torch.ones(2),))


def test_a_function_that_goes_by_another_name_is_refused(tree):
    slow = importlib.import_module("pair_slow")
    hidden = slow.scale
    slow.scale = functools.wraps(hidden)(lambda *given: hidden(*given))
    with pytest.raises(ConfigError, match="closure"):
        verify(slow.scale, hidden, (torch.ones(2),))
    with pytest.raises(ConfigError, match="another object"):
        pairs.function_program(hidden)


def test_files_and_functions_are_not_mixed(tree):
    slow = importlib.import_module("pair_slow")
    for given in ((slow.scale, "fast.py", ()), (slow.scale, slow.scale, None)):
        with pytest.raises(ConfigError, match="two files, or two functions"):
            verify(*given)


def test_inputs_are_described_by_shape_dtype_and_range():
    call = pairs.call_of([torch.tensor([[1.0, 3.0]]).T, 2, [True, None]])
    tensor, two, items = call.args
    assert tensor == TensorSpec(shape=(2, 1), dtype="float32", low=1.0, high=3.0)
    assert two == Constant(value=2)
    assert items == Items(items=(Constant(value=True), Constant()), container="list")
    named = pairs.call_of({"mask": torch.ones(2, 3, dtype=torch.bool).T}).kwargs["mask"]
    assert named == TensorSpec(shape=(3, 2), dtype="bool", stride=(1, 3))


@pytest.mark.parametrize("inputs", [torch.ones(2), "x", [object()]])
def test_inputs_that_cannot_be_described_are_named(inputs):
    with pytest.raises(ConfigError, match="verify: inputs"):
        pairs.call_of(inputs)
