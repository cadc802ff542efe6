"""Normalization in parts: what the kernels compute, and what is left to torch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cudal1_ci.propose.recorded.long_rows import HELPERS, RULES
from cudal1_ci.propose.recorded.rule import Call
from tests import triton_on_torch
from tests.unit.propose.recorded.rig import proposed
from tests.unit.propose.recorded.test_forms import module

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


@pytest.mark.parametrize(
    ("norm", "shape", "is_found"),
    [
        ("nn.GroupNorm(2, 4)", "4, 4, 512, 512", True),
        ("nn.LayerNorm((4, 512, 512))", "4, 4, 512, 512", True),
        ("nn.InstanceNorm2d(4, affine=True)", "4, 4, 512, 512", True),
        ("nn.GroupNorm(2, 4)", "2, 4, 8, 8", False),
        ("nn.LayerNorm(512)", "4, 4, 512, 512", False),
        ("nn.BatchNorm2d(4)", "4, 4, 512, 512", False),
        ("nn.InstanceNorm2d(4, track_running_stats=True)", "4, 4, 512, 512", False),
    ],
)
def test_only_long_rows_are_normalized_in_parts(tmp_path, monkeypatch, norm, shape, is_found):
    text = module(f"self.norm = {norm}", "return F.relu(self.norm(x))")
    text += f"\n\ndef get_inputs():\n    return [torch.ones({shape})]\n"
    assert proposed(tmp_path, text, RULES, kind="cuda") == {}, "the call ran on a CPU"
    monkeypatch.setattr(Call, "has_triton", True)
    new = proposed(tmp_path, text, RULES).get("long_row_norm", "")
    assert ("return F.relu(long_row_norm(self.norm, x))" in new) == is_found
    assert proposed(tmp_path, text, RULES, mode="train") == {}
