"""Small factors first, and functions that add or subtract one by themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cudal1_ci.propose.recorded.factors import RULES
from cudal1_ci.sandboxed.recorder.recording import recorded
from tests.unit.propose.recorded.rig import assert_same, outputs, proposed

TEXT = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 8.0
        self.gamma = nn.Parameter(torch.rand(64, 1, 1))
        self.wide = nn.Parameter(torch.rand(2, 64, 8, 8))

    def forward(self, x):
        return {code}


def get_inputs():
    return [torch.randn(2, 64, 8, 8)]
"""
FOUND = {
    "F.normalize(x, dim=1) * (self.gamma + 1) * self.scale": "* ((self.gamma + 1) * self.scale)",
    "x * 2.0 * self.scale": "x * (2.0 * self.scale)",
    "x * self.gamma / self.scale": "x * (self.gamma / self.scale)",
    "x / self.scale * self.gamma": "x * (self.gamma / self.scale)",
    "x / self.scale / self.gamma": "x / (self.scale * self.gamma)",
    "x.sign() * (x.abs() + 1.).log()": "x.sign() * x.abs().log1p()",
    "torch.log(1 + x.square())": "x.square().log1p()",
    "x.exp() - 1": "x.expm1()",
}
LEFT = [
    "x * self.wide * self.scale",  # no small factor
    "x / self.gamma * self.scale",  # a division that would become another one
    "x / 2.0 / 0.5",  # numbers alone: Python refuses to divide by 0, and torch does not
    "x * self.gamma * self.scale.bit_length()",
    "torch.log(2 + x.square())",
    "x.exp() - self.scale",
    "1 - x.exp()",
    "x * (self.gamma + self.scale)",
]


@pytest.mark.parametrize("code", FOUND)
def test_is_found(code: str, tmp_path: Path) -> None:
    text = TEXT.replace("{code}", code)
    [new] = proposed(tmp_path, text, RULES).values()
    assert FOUND[code] in new
    before, after = outputs(text, tmp_path / "a.py"), outputs(new, tmp_path / "b.py")
    torch.testing.assert_close(after, before)


@pytest.mark.parametrize("code", LEFT)
def test_look_alike_is_left(code: str, tmp_path: Path) -> None:
    text = TEXT.replace("{code}", code)
    if "bit_length" in code:
        text = text.replace("self.scale = 8.0", "self.scale = 8")
    assert proposed(tmp_path, text, RULES) == {}


def test_values_under_vmap_are_not_looked_at() -> None:
    """A mask of one row at a time is recorded, though it has no value of its own."""
    rows = torch.randn(3, 4)
    found = recorded(lambda: torch.vmap(lambda row: row > 0)(rows), None, [rows], None, Path())
    [mask] = [found.values[one.outputs[0]] for one in found.operations if one.name == "gt"]
    assert mask.dtype == "bool" and mask.fill is None


SCALES = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, size=64):
        super().__init__()
        self.scale = size**-0.5
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, q, k):
        {body}


def get_inputs():
    return [torch.randn(2, 128, 64), torch.randn(2, 64, 16)]
"""
MOVED = {
    "q = q * self.scale\nreturn torch.einsum('b n d, b d e -> b n e', q, k)": "q, k * self.scale)",
    "scaled = 2 * q\nk = k.tanh()\nreturn scaled @ k": "scaled @ (k * 2)",
    "return torch.matmul(q.sin() * self.scale, k)": "torch.matmul(q.sin(), k * self.scale)",
    "return (q * self.scale) @ (k + 1)": "q @ ((k + 1) * self.scale)",
}
KEPT = [
    "q = q * self.scale\nreturn q @ k, q",
    "q = q * self.gain\nreturn q @ k",
    "return q @ (k * self.scale)",  # the smaller one is scaled
    "return (q * self.scale) @ q.mT",  # both are large
    "q = q * self.scale\nif q.shape[0] > 9:\n    return q\nreturn q @ k",
    "if k.shape[0] > 1:\n    q = q * self.scale\nreturn q @ k",
]


def scaled(body: str) -> str:
    return SCALES.replace("{body}", body.replace("\n", "\n        "))


@pytest.mark.parametrize("body", MOVED)
def test_the_smaller_factor_of_a_product_is_scaled(body: str, tmp_path: Path) -> None:
    [new] = proposed(tmp_path, scaled(body), RULES).values()
    assert MOVED[body] in new
    assert new.count("self.scale") == scaled(body).count("self.scale")
    assert_same(tmp_path, scaled(body), new)


@pytest.mark.parametrize("body", KEPT)
def test_other_scales_are_left(body: str, tmp_path: Path) -> None:
    assert proposed(tmp_path, scaled(body), RULES) == {}


COMPLEX = """
import torch


class Model(torch.nn.Module):
    def forward(self, x, y):
        {body}


def get_inputs():
    return [torch.randn(2, 64), torch.randn(2, 64)]
"""
MODULI = {
    "z = torch.fft.rfft(x)\nreturn torch.sqrt(torch.real(z) ** 2 + torch.imag(z) ** 2)": "z.abs()",
    "z = torch.fft.rfft(x)\na = z.real\nb = z.imag\nreturn (b * b + a.square()).sqrt()": "z.abs()",
}
NO_MODULI = [
    "z = torch.fft.rfft(x)\na, b = z.real, z.imag\nreturn (b * b + a.square()).sqrt()",
    "z = torch.fft.rfft(x)\nreturn torch.sqrt(z.real**2 + z.imag**2 + 1e-6)",
    "z, w = torch.fft.rfft(x), torch.fft.rfft(y)\nreturn torch.sqrt(z.real**2 + w.imag**2)",
    "z = torch.fft.rfft(x)\nreturn torch.sqrt(z.real**2 + z.imag**3)",
    "z = torch.fft.rfft(x)\ns = z.real**2 + z.imag**2\nreturn torch.sqrt(s) / s",
    "z = torch.fft.rfft(x.repeat(64, 1))\nreturn torch.sqrt(z.real**2 + z.imag**2)",
]


def with_complex(body: str) -> str:
    return COMPLEX.replace("{body}", body.replace("\n", "\n        "))


@pytest.mark.parametrize("body", MODULI)
def test_a_modulus_is_found(body: str, tmp_path: Path) -> None:
    [new] = proposed(tmp_path, with_complex(body), RULES).values()
    assert MODULI[body] in new
    assert "real" not in new
    assert_same(tmp_path, with_complex(body), new)


@pytest.mark.parametrize("body", NO_MODULI)
def test_other_roots_are_left(body: str, tmp_path: Path) -> None:
    assert proposed(tmp_path, with_complex(body), RULES) == {}
