"""Kernels whose lanes or programs move across memory: reordered, or said in words."""

from __future__ import annotations

import pytest

from cudal1_ci.propose.recorded.kernel_order import RULES
from cudal1_ci.propose.recorded.strategy import RecordedRewrites
from tests import triton_on_torch
from tests.unit.propose.recorded.rig import assert_same, problem_and_recording, proposed

HEAD = """
import torch
import triton
import triton.language as tl


"""
SCALE = """
@triton.jit
def scale(x_ptr, bias_ptr, out_ptr, rows, cols, stride, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    at = pid * BLOCK + tl.arange(0, BLOCK)
    row = at % rows
    col = at // rows
    mask = at < rows * cols
    x = tl.load(x_ptr + row * stride + col, mask=mask)
    b = tl.load(bias_ptr + col, mask=mask)
    tl.store(out_ptr + row * stride + col, tl.exp(x) + b, mask=mask)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.randn(7))

    def forward(self, x):
        rows, cols = x.shape
        out = torch.empty_like(x)
        grid = (triton.cdiv(rows * cols, 16),)
        scale[grid](x, self.bias, out, rows, cols, x.stride(0), BLOCK=16)
        return out


def get_inputs():
    return [torch.randn(5, 7)]
"""


@pytest.fixture(autouse=True)
def triton():
    with triton_on_torch.installed():
        yield


def misses(tmp_path, text: str) -> list[str]:
    problem, recording = problem_and_recording(tmp_path, HEAD + text)
    return [m.fact for m in RecordedRewrites(rules=RULES).noticed(problem, recording).near_misses]


def test_lanes_of_an_elementwise_kernel_move_along_the_dimension_without_a_stride(tmp_path):
    new = proposed(tmp_path, HEAD + SCALE, RULES)["kernel_lane_order"]
    assert "    row = at // cols\n    col = at % cols\n    mask = at < rows * cols\n" in new
    assert_same(tmp_path, HEAD + SCALE, new)
    assert proposed(tmp_path, new, RULES) == {}, "it is in order now"


@pytest.mark.parametrize("rows, cols", [(1, 9), (9, 1), (16, 16), (3, 50)])
def test_each_element_is_still_computed_once(tmp_path, rows, cols):
    text = HEAD + SCALE.replace("torch.empty_like(x)", "torch.zeros_like(x)")
    new = proposed(tmp_path, text, RULES)["kernel_lane_order"]
    size = f"torch.randn({rows}, {cols})"
    one, two = (
        t.replace("torch.randn(5, 7)", size).replace("torch.randn(7)", f"torch.ones({cols})")
        for t in (text, new)
    )
    assert_same(tmp_path, one, two)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("at < rows * cols", "at < total"),  # what else there is is not stated
        ("tl.exp(x) + b", "tl.exp(x) + b + tl.sum(x, 0)"),  # lanes meet
        ("tl.exp(x) + b", "tl.exp(x) + b + pid"),  # programs are told apart
        ("tl.exp(x) + b", "tl.exp(x) + b + tl.arange(0, BLOCK)"),
        ("tl.store(out_ptr + row * stride + col", "tl.store(out_ptr + at"),
        ("x = tl.load(x_ptr", "x = tl.load(out_ptr"),  # what it writes is read
        ("    tl.store", "    tl.atomic_add"),
        ("x_ptr + row * stride + col, mask=mask", "x_ptr + row * stride + col"),
        ("mask=mask)\n    b", "mask=col < cols)\n    b"),  # rows are not bounded any more
        ("mask=mask)\n    b", "mask=mask | (col < cols))\n    b"),
        ("torch.empty_like(x)", "x.clone()"),
        ("grid = (triton.cdiv(rows * cols, 16),)", "grid = (2,)"),  # only a part is computed
    ],
)
def test_what_is_not_known_to_stay_the_same_is_said_in_words(tmp_path, old, new):
    text = SCALE.replace(old, new)
    assert text != SCALE
    text = text.replace("cols, stride", "cols, total, stride")
    text = text.replace("cols, x.stride", "cols, rows * cols, x.stride")
    if old == "x_ptr + row * stride + col, mask=mask":
        text = text.replace("5, 7", "16, 7")
    assert proposed(tmp_path, HEAD + text, RULES) == {}
    (fact,) = misses(tmp_path, text)
    assert fact.startswith("neighboring lanes of `scale` are 7 elements apart in")
    assert fact.endswith("the last dimension should be the fastest")


@pytest.mark.parametrize("is_transposed", [True, False])
def test_kernels_in_order_are_left_alone(tmp_path, is_transposed):
    text = SCALE.replace("stride + col", "stride + col * col_stride")
    text = text.replace("cols, stride", "cols, stride, col_stride")
    text = text.replace("x.stride(0),", "x.stride(0), x.stride(1),")
    if is_transposed:  # there the rows lie together
        text = text.replace("torch.randn(5, 7)", "torch.randn(7, 5).T")
    else:
        text = text.replace("at % rows", "at // cols").replace("at // rows", "at % cols")
    assert proposed(tmp_path, HEAD + text, RULES) == {}
    assert misses(tmp_path, text) == []


def test_a_kernel_that_reads_down_columns_is_a_near_miss(tmp_path):
    text = """
@triton.jit
def sums(x_ptr, out_ptr, rows, stride, BLOCK: tl.constexpr):
    col = tl.program_id(0)
    row = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + col, mask=row < rows, other=0.0)
    tl.store(out_ptr + col, tl.sum(x, 0))


class Model(torch.nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[1])
        sums[(x.shape[1],)](x, out, x.shape[0], x.stride(0), BLOCK=8)
        return out


def get_inputs():
    return [torch.randn(5, 7)]
"""
    assert proposed(tmp_path, HEAD + text, RULES) == {}
    assert misses(tmp_path, text) == [
        "neighboring lanes of `sums` are 7 elements apart in `x_ptr`: rows are read across; the "
        "last dimension should be the fastest"
    ]


TILES = """
@triton.jit
def first():
    return tl.program_id(0)


@triton.jit
def double(x_ptr, out_ptr, M, N, stride, BM: tl.constexpr, BN: tl.constexpr):
    pid_m = tl.program_id(0)
    pid_n = tl.program_id(1)
    rm = pid_m * BM + tl.arange(0, BM)
    rn = pid_n * BN + tl.arange(0, BN)
    mask = (rm[:, None] < M) & (rn[None, :] < N)
    offsets = rm[:, None] * stride + rn[None, :]
    tl.store(out_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask=mask), mask=mask)


class Model(torch.nn.Module):
    def forward(self, x):
        M, N = x.shape
        out = torch.empty_like(x)
        grid = lambda meta: (triton.cdiv(M, meta["BM"]), triton.cdiv(N, meta["BN"]))
        double[grid](x, out, M, N, x.stride(0), BM=4, BN=4)
        return out


def get_inputs():
    return [torch.randn(11, 23)]
"""


def test_programs_move_along_the_dimension_without_a_stride(tmp_path):
    text = HEAD + TILES
    new = proposed(tmp_path, text, RULES)["kernel_program_order"]
    assert (
        "    pid = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)\n"
        "    pid_m = pid // tl.num_programs(1)\n    pid_n = pid % tl.num_programs(1)\n    rm = "
    ) in new
    assert_same(tmp_path, text, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("torch.randn(11, 23)", "torch.randn(23, 11).T"),
        ("tl.store(", "tl.atomic_add("),
        ("rn = pid_n * BN", "rn = tl.program_id(1) * BN"),
        ("2 * tl.load", "first() * tl.load"),
        ("torch.randn(11, 23)", "torch.randn(3, 23)"),  # one row of programs
    ],
)
def test_programs_in_order_and_those_that_meet_are_left_alone(tmp_path, old, new):
    text = TILES.replace("+ rn[None, :]", "+ rn[None, :] * stride_n")
    text = text.replace("N, stride,", "N, stride, stride_n,")
    text = text.replace("N, x.stride(0),", "N, x.stride(0), x.stride(1),")
    assert "kernel_program_order" in proposed(tmp_path, HEAD + text, RULES)
    assert proposed(tmp_path, HEAD + text.replace(old, new), RULES) == {}
