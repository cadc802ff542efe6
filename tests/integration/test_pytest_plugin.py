"""The plug-in for pytest, in a pytest process of a project."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from cudal1_ci import pytest_plugin
from cudal1_ci.discover.traces import read_traces

ROOT = Path(__file__).parents[2]
MODEL = """\
import torch
from torch import nn


class Scale(nn.Module):
    def forward(self, x):
        return torch.diag(x) @ x


def scale(x, y):
    return x @ torch.diag(y)
"""
TESTS = """\
import torch
import model

def test_scale():
    model.Scale()(torch.randn(8))
    model.scale(torch.randn(4, 8), torch.randn(8))

def test_nothing():
    pass
"""


def run(folder, *words):
    paths = os.pathsep.join([str(ROOT), str(folder)])
    plugin = ["-p", "cudal1_ci.pytest_plugin", "-p", "no:cacheprovider"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugin, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def project(tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "test_model.py").write_text(TESTS)
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    return tmp_path


@pytest.mark.slow
def test_workloads_are_recorded_while_the_tests_run(project):
    done = run(project, "--cudal1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "recorded 2 distinct calls of 2 modules and functions" in done.stderr
    traces = project / ".cudal1-ci/traces"
    before = read_traces(traces)
    assert len(before.calls) == 2
    done = run(project, "--cudal1", "-k", "nothing")
    assert "nothing was recorded" in done.stderr
    assert read_traces(traces).calls == before.calls, "an empty run loses no earlier trace"
    assert [one.name for one in (project / ".cudal1-ci").iterdir() if one.is_dir()] == ["traces"]


@pytest.mark.slow
def test_without_the_option_nothing_is_recorded_and_several_processes_are_refused(project):
    assert run(project).returncode == 0
    assert not (project / ".cudal1-ci").exists()
    done = run(project, "--cudal1", "-n", "2")
    assert done.returncode == 4
    assert "leave -n out" in done.stderr


def measured(factor):
    """An evaluation, and how many times as long its candidate takes."""
    interval = SimpleNamespace(estimate=factor, low=factor * 0.99, high=factor * 1.01)
    verdict = SimpleNamespace(status="passed", findings=())
    return SimpleNamespace(verdict=verdict, measurements=(object(),)), interval


@pytest.mark.parametrize(("factor", "fails"), [(0.5, False), (1.04, False), (1.2, True)])
def test_a_function_may_not_be_slower_than_the_threshold(monkeypatch, factor, fails):
    evaluation, interval = measured(factor)
    monkeypatch.setattr("cudal1_ci.stats.regression.slowdown", lambda _: interval)
    if not fails:
        pytest_plugin.judge(evaluation, 0.05)
        return
    with pytest.raises(pytest.fail.Exception, match=r"1\.20x as long .* more than 5 % slower"):
        pytest_plugin.judge(evaluation, 0.05)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [("incorrect_value", pytest.fail.Exception), ("inconclusive", pytest.skip.Exception)],
)
def test_a_wrong_function_fails_and_an_undecided_one_is_skipped(status, outcome):
    finding = SimpleNamespace(message="off by 3")
    verdict = SimpleNamespace(status=status, findings=(finding,))
    with pytest.raises(outcome, match=f"{status}: off by 3"):
        pytest_plugin.judge(SimpleNamespace(verdict=verdict, measurements=()), 0.05)
