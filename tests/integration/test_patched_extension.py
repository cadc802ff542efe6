"""A candidate that changes a file which is compiled: what is judged is built from the change.

The extension is C, which builds in a second and on any machine; a `.cu` takes the same way.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cudal1_ci.records import (
    Call,
    Candidate,
    OverlayFile,
    Problem,
    TensorSpec,
    TreeProgram,
    Workload,
)
from cudal1_ci.verification import Session
from tests.conftest import QUICK

pytestmark = [pytest.mark.starts_verifier, pytest.mark.compiles]

PATIENT = msgspec.structs.replace(QUICK, call_s=60)
LOADER = """
import ctypes
import functools
from pathlib import Path

import torch
from torch.utils import cpp_extension

SOURCE = Path(__file__).resolve().parents[1] / "csrc" / "twice.cpp"


@functools.cache
def extension():
    return ctypes.CDLL(
        cpp_extension.load(name="twice", sources=[str(SOURCE)], is_python_module=False)
    )


def twice(x):
    y = torch.empty_like(x)
    extension().twice(
        ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_long(x.numel())
    )
    return y
"""
HEADER = "#pragma once\n#define FACTOR 2.0f\n"
SLOW = """\
#include "factor.h"

extern "C" void twice(const float* x, float* y, long n) {
  for (long i = 0; i < n; ++i) {
    volatile float value = 0;
    for (int k = 0; k < 8; ++k) value = x[i] * FACTOR;
    y[i] = value;
  }
}
"""
FAST = """\
#include "factor.h"

extern "C" void twice(const float* x, float* y, long n) {
  for (long i = 0; i < n; ++i) y[i] = x[i] * FACTOR;
}
"""
FILES = {
    "pkg/__init__.py": "",
    "pkg/ops.py": LOADER,
    "csrc/twice.cpp": SLOW,
    "csrc/factor.h": HEADER,
}


@pytest.fixture(scope="module")
def problem(tmp_path_factory) -> Problem:
    root = tmp_path_factory.mktemp("project")
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    call = Call(args=(TensorSpec(shape=(512, 512), dtype="float32"),))
    return Problem(
        reference=TreeProgram(
            root=str(root), import_root=".", import_path="pkg.ops:twice", digest="1"
        ),
        workloads=(Workload(name="rows", provenance="declared", call=call),),
    )


@pytest.fixture(scope="module")
def judge():
    with Session(PATIENT, device="cpu") as session:
        yield session


def candidate(problem: Problem, **overlay: str) -> Candidate:
    files = tuple(
        OverlayFile(path=path.replace("__", "/").replace("_", "."), text=text, base_digest="old")
        for path, text in overlay.items()
    )
    program = msgspec.structs.replace(problem.reference, overlay=files)
    return Candidate(problem_id=problem.id, program=program, proposer="test")


@pytest.mark.times
def test_the_changed_file_is_what_is_built_and_timed(judge, problem):
    found = judge.evaluate(problem, candidate(problem, csrc__twice_cpp=FAST))
    assert found.verdict.status == "passed", found.verdict
    (launch, *_) = found.measurements[0].repetitions
    ratios = sorted(a / b for a, b in zip(launch.reference_us, launch.candidate_us, strict=True))
    assert ratios[len(ratios) // 2] > 1.5


@pytest.mark.parametrize(
    ("overlay", "status"),
    [
        ({"csrc__twice_cpp": FAST.replace("FACTOR", "3.0f")}, "incorrect_values"),
        ({"csrc__factor_h": HEADER.replace("2.0f", "3.0f")}, "incorrect_values"),
        ({"csrc__twice_cpp": FAST.replace("FACTOR;", "FACTOR")}, "compile_error"),
    ],
)
def test_a_changed_file_that_is_wrong_is_seen_to_be_wrong(judge, problem, overlay, status):
    found = judge.evaluate(problem, candidate(problem, **overlay))
    assert found.verdict.status == status, found.verdict
    checkout = Path(problem.reference.root)
    assert (checkout / "csrc/twice.cpp").read_text() == SLOW
    assert (checkout / "csrc/factor.h").read_text() == HEADER
