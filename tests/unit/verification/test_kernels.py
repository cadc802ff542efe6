"""Which kernels a candidate brings along, and what is said of those that do not do its work."""

from __future__ import annotations

import pytest

from cudal1_ci.records import OverlayFile, TextProgram, TreeProgram
from cudal1_ci.sandboxed.wire.verdicts import KernelTime
from cudal1_ci.verification.kernels import (
    declared_kernels,
    finding_on,
    is_own,
    kernels_of,
    own_share,
)

CANDIDATE = '''
import triton, torch
from torch.utils.cpp_extension import load_inline

SOURCE = """
// __global__ void commented(float* x) {}
template <typename T>
__global__ void __launch_bounds__(256, 2) fused_relu(const T* in, T* out, int n) { }
__device__ float helper(float x) { return x; }
extern "C" __global__
void plain(float *x)
{ }
"""
built = load_inline("k", cpp_sources="", cuda_sources=SOURCE)

@triton.autotune(configs=[], key=["n"])
@triton.jit
def add_kernel(x, n): ...

@triton.jit(do_not_specialize=["n"])
def mul_kernel(x, n): ...

@torch.jit.script
def scripted(x): return x

class ModelNew: ...
'''


def test_kernels_are_named_in_strings_and_decorators():
    program = TextProgram(source=CANDIDATE, entry="ModelNew")
    expected = {"fused_relu", "plain", "add_kernel", "mul_kernel"}
    assert declared_kernels(program) == expected


def test_kernels_of_a_patch_are_those_of_its_files():
    overlay = (
        OverlayFile(path="pkg/k.cu", text="__global__ void scale(float* x) { x[0] = 1; }"),
        OverlayFile(path="pkg/readme.md", text="__global__ void prose(float* x)"),
        OverlayFile(path="pkg/broken.py", text="def ("),
    )
    program = TreeProgram(
        root="/nowhere", import_root="", import_path="pkg.m:Model", digest="0", overlay=overlay
    )
    assert declared_kernels(program) == {"scale"}


def test_a_library_is_not_the_candidate_whatever_it_calls_its_kernels():
    declared = frozenset({"vectorized_elementwise_kernel", "relu"})
    torch_own = "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor>(int)"
    assert not is_own(torch_own, declared)
    assert is_own("void relu<4>(float*)", declared)
    rows = [KernelTime(name="relu(float*)", num_calls=1, time_us=3.0)]
    (kernel,) = kernels_of(rows, declared, known=frozenset({"relu(float*)"}))
    assert not kernel.is_own  # the reference launches it too


def judged(own_us: float, other_us: float, declared=frozenset({"relu"})):
    rows = [
        KernelTime(name=name, num_calls=1, time_us=time_us)
        for name, time_us in (("relu(float*)", own_us), ("sm90_gemm", other_us))
        if time_us
    ]
    kernels = kernels_of(rows, declared, frozenset())
    return own_share(kernels), finding_on(kernels, declared)


@pytest.mark.parametrize(
    ("own_us", "other_us", "rule"),
    [
        (90.0, 10.0, None),
        (20.0, 80.0, None),  # a fused epilogue beside a matrix product
        (1.0, 99.0, "kernel.decoy"),
        (0.0, 99.0, "kernel.unlaunched"),
        (0.0, 0.0, "kernel.unlaunched"),
    ],
)
def test_what_does_not_do_the_work_is_named(own_us, other_us, rule):
    share, finding = judged(own_us, other_us)
    assert share == pytest.approx(own_us / max(own_us + other_us, 1))
    assert (finding.rule if finding else None) == rule
    if rule == "kernel.decoy":
        assert "1.0 %" in finding.message
        assert "sm90_gemm" in finding.message


def test_a_text_without_kernels_lacks_them():
    _, finding = judged(0.0, 5.0, frozenset())
    assert finding.rule == "kernel.missing"
