"""Kernel cases: both forms compute the same, and the summary of their verdicts."""

from __future__ import annotations

import ast
import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from cudal1_ci.propose.recorded.kernel_order import RULES
from cudal1_ci.propose.recorded.strategy import RecordedRewrites
from tests import triton_on_torch
from tests.unit.propose.recorded.rig import problem_and_recording

CASES = Path(__file__).parents[3] / "experiments" / "kernel_cases"
FORMS = sorted(CASES.glob("*/*.py"))
TRITON = sorted({one.parent for one in FORMS if "@triton.jit" in one.read_text("utf-8")})
CUDA = [one for one in FORMS if one.parent not in TRITON]
SMALL = {"ROWS": 7, "COLS": 33, "IMAGES": 2, "SIDE": 5, "PROGRAMS": 3}


@pytest.fixture
def kernel_cases(experiment_module):
    return experiment_module("kernel_cases")


def strings(path: Path) -> dict[str, str]:
    """The texts that a file gives names at its top."""
    return {
        node.targets[0].id: node.value.value
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }


def outputs(path: Path, seed: int) -> torch.Tensor:
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, size in SMALL.items():
        if hasattr(module, name):
            setattr(module, name, size)
    torch.manual_seed(seed)
    with torch.no_grad():
        return module.Model(*module.get_init_inputs())(*module.get_inputs())


def test_there_are_seven_in_triton_and_five_in_cuda_each_with_both_forms_and_a_source(kernel_cases):
    assert (len(TRITON), len(CUDA)) == (7, 10)
    folders = kernel_cases.cases()
    assert [*map(kernel_cases.language, folders)] == ["cuda"] * 5 + ["triton"] * 7
    assert len(FORMS) == 2 * len(folders) == 24
    for form in FORMS:
        assert "\nSource: " in (ast.get_docstring(ast.parse(form.read_text("utf-8"))) or ""), form


@pytest.mark.parametrize("case", TRITON, ids=lambda one: one.name)
def test_both_forms_compute_the_same(case):
    with triton_on_torch.installed():
        for seed in range(2):
            slow, good = (outputs(case / f"{one}.py", seed) for one in ("slow", "good"))
            assert slow.abs().sum() > 0
            torch.testing.assert_close(good, slow)


@pytest.mark.parametrize("form", CUDA, ids=lambda one: f"{one.parent.name}_{one.stem}")
def test_texts_in_cuda_declare_what_they_launch(form):
    found = strings(form)
    assert "<<<" in found["CUDA"] and "run(torch::Tensor x" in found["CPP"]
    (name,) = {
        node.args[0].value
        for node in ast.walk(ast.parse(form.read_text("utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "load_inline"
    }
    assert name == f"{form.parent.name}_{form.stem}", "both forms are built beside each other"


@pytest.mark.compiles
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("form", CUDA, ids=lambda one: f"{one.parent.name}_{one.stem}")
def test_nvcc_compiles_the_kernels(form, tmp_path):
    (tmp_path / "kernel.cu").write_text(strings(form)["CUDA"])
    command = ["nvcc", "-arch=sm_90", "-cubin", "-o", "kernel.cubin", "kernel.cu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "kernel.cubin").stat().st_size > 0


def test_the_order_of_lanes_is_what_the_playbook_proposes(tmp_path):
    text = (CASES / "column_lanes" / "slow.py").read_text("utf-8")
    text = text.replace("ROWS, COLS = 4096, 4096", "ROWS, COLS = 7, 33")
    with triton_on_torch.installed():
        problem, recording = problem_and_recording(tmp_path, text)
    (one,) = RecordedRewrites(rules=RULES).propose_recorded(problem, recording, (), 9)
    good = (CASES / "column_lanes" / "good.py").read_text("utf-8")
    body = good[good.index("@triton.jit") : good.index("class Model")]
    assert body in one.program.source


def verdict(speedup: float, status: str = "passed") -> dict:
    measured = {"speedup": speedup, "speedup_low": speedup - 0.1, "speedup_high": speedup + 0.1}
    measured |= {"reference_us": 10.0, "candidate_us": 10.0 / speedup, "repetitions": [1]}
    return {"status": status, "measurements": [measured], "findings": [], "elapsed_s": 3.0}


def test_a_gain_and_a_regression_need_a_whole_interval(kernel_cases):
    row, is_gain, is_regression = (
        kernel_cases.row,
        kernel_cases.is_gain,
        kernel_cases.is_regression,
    )
    assert is_gain(row(verdict(1.2))) and not is_gain(row(verdict(1.05)))
    assert is_regression(row(verdict(0.8))) and not is_regression(row(verdict(0.95)))
    for status in ("inconclusive", "incorrect", "timeout"):
        assert not is_gain(row(verdict(2.0, status)))
        assert not is_regression(row(verdict(0.5, status)))
    assert not is_gain({"status": "passed"}) and not is_regression({"status": "passed"})
    refused = {"status": "rejected", "findings": [{"rule": "state.type", "message": "why"}]}
    assert row(refused) == {"status": "rejected", "findings": ["state.type: why"]}


def test_the_summary_counts_both_ways(kernel_cases):
    def verify(reference, candidate):
        if candidate.parent.name == "gelu_doubles":
            return {"status": "timeout"}
        return verdict(2.0 if candidate.stem == "good" else 0.5)

    rows = kernel_cases.measured(kernel_cases.cases(), verify, jobs=2, budget_s=60)
    found = kernel_cases.document(rows, {"name": "H100"}, commit="abc", command="x")
    assert [found[one] for one in ("num_cases", "num_gains", "num_regressions_found")] == [
        12,
        11,
        11,
    ]
    assert (found["device"], found["commit"]) == ({"name": "H100"}, "abc")
    lines = kernel_cases.table(found)
    assert "| gelu_doubles | cuda | timeout | timeout |" in lines
    assert "| small_rows | triton | 2.00x [1.90, 2.10] | 0.50x [0.40, 0.60] |" in lines
    assert lines[-1] == "11 of 12 are gains, and 11 are found as regressions the other way."
    assert "repetitions" not in found["cases"][0]["gain"]


def test_nothing_begins_after_the_budget(kernel_cases):
    def verify(reference, candidate):
        raise AssertionError("begun")

    rows = kernel_cases.measured(kernel_cases.cases()[:1], verify, jobs=1, budget_s=-1)
    assert rows[0]["gain"] == rows[0]["loss"] == {"status": "not run"}


def test_a_verification_that_takes_too_long_is_ended(kernel_cases, monkeypatch):
    def run(command, **options):
        assert command[3:6] == ["verify", "a.py", "b.py"]
        raise subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setattr(kernel_cases.subprocess, "run", run)
    found = kernel_cases.verified(Path("a.py"), Path("b.py"), "cpu", 1.0)
    assert found == {"status": "timeout"}
