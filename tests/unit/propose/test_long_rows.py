"""Normalization in parts: what the kernels compute, and what is left to torch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cudal1_ci.propose.config import PlaybookConfig
from cudal1_ci.propose.rewrites.long_rows import HELPERS
from cudal1_ci.propose.rewrites.strategy import Playbook
from cudal1_ci.records import Call, Made, Problem, TensorSpec, TextProgram, Workload
from tests import triton_on_torch

HEADER = "import torch\nimport triton\nimport triton.language as tl\n"


@pytest.fixture
def file():
    """The names of a file that has the functions."""
    with triton_on_torch.installed():
        names: dict = {}
        exec(compile(HEADER + HELPERS, "<program>", "exec"), names)
        yield names


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def drawn(norm: nn.Module) -> nn.Module:
    """With weights of its own, where it has some."""
    for seed, one in enumerate(norm.parameters()):
        one.data = randn(*one.shape, seed=seed)
    return norm.eval()


CASES = [
    (nn.LayerNorm((3, 40, 150)), (2, 3, 40, 150)),
    (nn.LayerNorm((5, 4096)), (3, 5, 4096)),
    (nn.LayerNorm(9000, eps=0.1, bias=False), (2, 3, 9000)),
    (nn.LayerNorm(8192, elementwise_affine=False), (2, 8192)),
    (nn.GroupNorm(3, 6), (2, 6, 70, 71)),
    (nn.GroupNorm(1, 4, affine=False), (2, 4, 3000)),
    (nn.GroupNorm(4, 4), (3, 4, 5, 6, 7)),
    (nn.InstanceNorm1d(3, affine=True), (2, 3, 8193)),
    (nn.InstanceNorm2d(4), (2, 4, 100, 99)),
    (nn.InstanceNorm3d(2, affine=True, eps=1e-2), (2, 2, 20, 21, 22)),
]


@pytest.mark.parametrize(("norm", "shape"), CASES, ids=lambda one: str(one)[:24])
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_parts_of_a_row_make_its_mean_and_variance(file, norm, shape, offset):
    norm, x = drawn(norm), randn(*shape) + offset
    rows = file["rows_of_norm"](norm, x)
    with torch.no_grad():
        found = file["norm_by_rows"](x, *rows, norm.weight, norm.bias, norm.eps)
        exact = norm.double()(x.double())
        near = norm.float()(x)
    assert found.shape == x.shape and found.dtype == x.dtype
    error = (found.double() - exact).abs().max()
    assert error <= max(4 * (near.double() - exact).abs().max().item(), 1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_float32(file, dtype):
    norm, x = drawn(nn.GroupNorm(2, 4)).to(dtype), randn(2, 4, 90, 91).to(dtype)
    with torch.no_grad():
        rows = file["rows_of_norm"](norm, x)
        found = file["norm_by_rows"](x, *rows, norm.weight, norm.bias, norm.eps)
        exact = norm.double()(x.double())
    assert found.dtype == dtype
    assert torch.equal(found, exact.to(dtype)) or (
        (found.double() - exact).abs().max() <= torch.finfo(dtype).eps * exact.abs().max()
    )


@pytest.mark.parametrize(
    ("norm", "shape"),
    [
        (nn.InstanceNorm2d(4, track_running_stats=True), (2, 4, 100, 99)),
        (nn.InstanceNorm2d(4), (4, 100, 99)),
        (nn.InstanceNorm1d(4), (2, 5, 9000)),
        (nn.LayerNorm((4, 5)), (5, 4)),
        (nn.LayerNorm((4, 5)), (5,)),
        (nn.GroupNorm(2, 4), (3, 6, 5)),
        (nn.BatchNorm2d(4), (2, 4, 5, 5)),
    ],
    ids=lambda one: str(one)[:24],
)
def test_what_is_not_known_to_be_rows_is_left_to_torch(file, norm, shape):
    assert file["rows_of_norm"](norm, torch.empty(shape)) is None


class OnGpu(torch.Tensor):
    """Says that it is on one."""

    is_cuda = True


@pytest.fixture
def asked(file, monkeypatch):
    """The rows that were asked for, of tensors that say to be on a GPU."""
    found = []

    def norm_by_rows(x, *rest):
        found.append(rest[:3])
        return x

    file["norm_by_rows"] = norm_by_rows
    monkeypatch.setattr(torch.cuda, "device", lambda device: torch.no_grad())

    def ask(norm, x, **settings):
        found.clear()
        with torch.set_grad_enabled(settings.get("grad", False)):
            file["long_row_norm"](norm.eval(), x.as_subclass(OnGpu))
        return found

    return ask


def test_few_long_rows_of_much_are_taken_in_parts(asked):
    assert asked(nn.GroupNorm(4, 8), torch.zeros(2, 8, 512, 512)) == [(4, 2, 2**18)]
    assert asked(nn.LayerNorm((16, 2048)), torch.zeros(128, 16, 2048)) == [(1, 2**15, 1)]
    assert asked(nn.InstanceNorm2d(16), torch.zeros(2, 16, 512, 256)) == [(16, 1, 2**17)]


@pytest.mark.parametrize(
    ("norm", "x", "settings"),
    [
        (nn.GroupNorm(4, 8), torch.zeros(1, 8, 512, 512), {}),
        (nn.LayerNorm(4096), torch.zeros(2048, 4096), {}),
        (nn.GroupNorm(4, 8), torch.zeros(2, 8, 512, 512), {"grad": True}),
        (nn.GroupNorm(4, 8), torch.zeros(2, 512, 512, 8).permute(0, 3, 1, 2), {}),
        (nn.GroupNorm(4, 8).double(), torch.zeros(2, 8, 512, 512).double(), {}),
        (nn.LayerNorm(2**22, elementwise_affine=False), torch.zeros(1, 2**22).to(torch.int8), {}),
    ],
    ids=["little", "short rows", "gradients", "gaps", "double", "whole numbers"],
)
def test_all_else_is_left_to_torch(asked, norm, x, settings):
    if x.dtype == torch.int8:
        with pytest.raises(RuntimeError):
            asked(norm, x, **settings)
        return
    assert asked(norm, x, **settings) == []


@pytest.mark.gpu
@pytest.mark.parametrize(("norm", "shape"), CASES, ids=lambda one: str(one)[:24])
def test_on_a_gpu_the_kernels_do_the_same(norm, shape, tmp_path):
    import importlib.util

    (tmp_path / "file.py").write_text(HEADER + HELPERS)
    spec = importlib.util.spec_from_file_location("file", tmp_path / "file.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    norm, x = drawn(norm).cuda(), randn(*shape).cuda()
    with torch.no_grad():
        rows = made.rows_of_norm(norm, x)
        found = made.norm_by_rows(x, *rows, norm.weight, norm.bias, norm.eps)
        torch.testing.assert_close(found, norm(x), rtol=1e-4, atol=1e-5)


MODULE = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(2, 4)

    def forward(self, x):
        return self.norm(x)
"""


@pytest.mark.parametrize(
    ("shapes", "mode", "is_proposed"),
    [
        ([(2, 4, 256, 256)], "infer", True),
        ([(2, 4, 8, 8)], "infer", False),
        ([(2, 4, 8, 8), (2, 4, 256, 256)], "infer", True),
        ([(2, 4, 8, 8), None], "infer", True),
        ([(2, 4, 256, 256)], "train", False),
    ],
)
def test_what_is_known_to_be_little_or_trained_is_no_case(shapes, mode, is_proposed):
    calls = [
        Made(function="get_inputs")
        if shape is None
        else Call(args=(TensorSpec(shape=shape, dtype="float32"),))
        for shape in shapes
    ]
    workloads = tuple(
        Workload(name=str(n), provenance="traced", init=Call(), call=call, mode=mode)
        for n, call in enumerate(calls)
    )
    problem = Problem(reference=TextProgram(source=MODULE, entry="Model"), workloads=workloads)
    found = Playbook(PlaybookConfig(triton=True)).propose(problem, (), 8)
    assert ("playbook:long_row_norm" in {one.proposer for one in found}) is is_proposed
    without = Playbook(PlaybookConfig(triton=False)).propose(problem, (), 8)
    assert not any("long_row_norm" in one.proposer for one in without)
