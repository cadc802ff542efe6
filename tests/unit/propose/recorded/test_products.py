"""Products that are added, and products that are summed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cudal1_ci.propose.recorded.products import RULES
from cudal1_ci.propose.recorded.strategy import RecordedRewrites
from tests.unit.propose.recorded.rig import assert_same, problem_and_recording, proposed

TEXT = """
import torch
import torch.nn as nn
from functools import partial

HALF = 0.5

{head}

class Model(nn.Module):
    def __init__(self, scale=0.3, size=16):
        super().__init__()
        self.scale = scale
        self.root = size**-0.5
        self.gain = nn.Parameter(torch.rand(16)) if size > 8 else 0
        self.weight = nn.Parameter(torch.rand(16))
        self.other = torch.tensor(0.7)
        self.flag = True

    def forward(self, x, y, z, ratio: float = 2.0, offset=0.0):
        {body}


def get_inputs():
    return [torch.randn(2, 8, 16) for _ in range(3)]
"""
FOUND = {
    "return x * self.scale + y": "torch.add(y, x, alpha=self.scale)",
    "return y + self.root * x": "torch.add(y, x, alpha=self.root)",
    "return y - x * 2": "torch.sub(y, x, alpha=2)",
    "return torch.relu(x.sin() * HALF + y)": "torch.relu(torch.add(y, x.sin(), alpha=HALF))",
    "return -(x * ratio + y)": "-torch.add(y, x, alpha=ratio)",
    "y = y.clone()\nreturn y.add_(x * (1 - HALF))": "y.add_(x, alpha=1 - HALF)",
    "return x * (1 + y) + z": "torch.addcmul(z, x, 1 + y)",
    "return x * y[:, :1] + z[:, :1]": "torch.addcmul(z[:, :1], x, y[:, :1])",
    "return z - x * self.weight": "torch.addcmul(z, x, self.weight, value=-1)",
    "return x * self.weight.add(1) + y.cos()": "torch.addcmul(y.cos(), x, self.weight.add(1))",
}
LEFT = [
    "return y * 2 - x",  # the product is not what is taken away
    "return x * self.scale + 1",
    "return x * self.scale + offset",
    "return x * self.other + y",  # a factor that is a tensor of another shape
    "return x * self.gain + y",  # perhaps the number 0
    "return x * y + self.gain",
    "return x * self.flag + y",
    "p = x * self.scale\nreturn p + y, p",  # read again
    "return x * y[:, :, :1] + z",  # slower on a CPU
    "return x.double() * 2 + y",
    "return x * y.double() + z.double()",
    "return (x[:1, :1] * 2) + y",  # the small tensor is scaled
    "return x.to(torch.int) * 2 + y.to(torch.int)",
]


def text(body: str, head: str = "") -> str:
    return TEXT.replace("{body}", body.replace("\n", "\n        ")).replace("{head}", head)


@pytest.mark.parametrize("body", FOUND)
def test_a_product_is_added_in_one_pass(body: str, tmp_path: Path) -> None:
    before = text(body)
    new = proposed(tmp_path, before, RULES)
    assert [*new] == ["multiply_add"]
    assert FOUND[body] in new["multiply_add"]
    assert_same(tmp_path, before, new["multiply_add"])


@pytest.mark.parametrize("body", LEFT)
def test_other_sums_are_left(body: str, tmp_path: Path) -> None:
    assert proposed(tmp_path, text(body), RULES) == {}


EINOPS = """
def einsum(*given):
    *tensors, pattern = given
    return torch.einsum(pattern.replace(" ", ""), *tensors)
"""
HEAD = f"exec(compile({EINOPS!r}, 'library.py', 'exec'))"
SUMMED = {
    "return torch.einsum('b n d, b n d -> b d', x, y)": "(x * y).sum(dim=-2)",
    "return torch.einsum('bnd,bnd->d', x, y + z)": "(x * (y + z)).sum(dim=(-3, -2))",
    "return einsum(x, y, 'b n d, b n d -> b d')": "(x * y).sum(dim=-2)",
}
NOT_SUMMED = [
    "return torch.einsum('b n d, b m d -> b n m', x, y)",
    "return torch.einsum('b n d, b n d -> b n', x, y)",  # rows and columns are long
    "return torch.einsum('b n d, b n d -> d b', x, y)",
    "return torch.einsum('b n d, b n d -> b n d', x, y)",
    "return torch.einsum('b n d, n b d -> b d', x[:, :2], y[:, :2])",
    "return torch.einsum('b n d, n d -> b d', x, y[0])",
]


@pytest.mark.parametrize("body", SUMMED)
def test_products_of_one_shape_are_summed(body: str, tmp_path: Path) -> None:
    before = text(body, HEAD)
    new = proposed(tmp_path, before, RULES)
    assert [*new] == ["product_sum"]
    assert SUMMED[body] in new["product_sum"]
    assert_same(tmp_path, before, new["product_sum"])


@pytest.mark.parametrize("body", NOT_SUMMED)
def test_other_einsums_are_left(body: str, tmp_path: Path) -> None:
    assert proposed(tmp_path, text(body, HEAD), RULES) == {}


@pytest.mark.parametrize(("product_us", "is_found"), [(300.0, True), (350.0, False)])
def test_a_sum_that_takes_no_time_is_left(product_us, is_found, tmp_path) -> None:
    problem, recording = problem_and_recording(tmp_path, text("return x * 2 + y @ y.mT @ z"))
    slow = [
        msgspec.structs.replace(one, host_us=product_us) if "matmul" in one.name else one
        for one in recording.operations
    ]
    recording = msgspec.structs.replace(recording, operations=tuple(slow))
    strategy = RecordedRewrites(rules=RULES[:1], kind="cpu")
    # Of 2 * product_us + 30 us, 20 are spent on the sum and its product.
    assert bool(strategy.propose_recorded(problem, recording, (), 9)) is is_found
