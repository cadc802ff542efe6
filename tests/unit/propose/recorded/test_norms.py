"""Normalizations that are found by what they compute, in every spelling, and look-alikes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cudal1_ci.propose.recorded.norms import RULES
from tests.unit.propose.recorded.rig import assert_same, loaded, proposed

TEXT = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Norm(nn.Module):
    def __init__(self, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.flag = False
        self.weight = nn.Parameter(torch.rand({size}) + 0.5)
        self.bias = nn.Parameter(torch.randn({size}))
        self.register_buffer("mean", torch.randn(12))
        self.register_buffer("var", torch.rand(12) + 0.5)

    def forward(self, x):
        {lines}


class Model(Norm):
    pass


def get_inputs():
    return [torch.randn({shape})]
"""
ROWS, IMAGES = "6, 5, 12", "3, 12, 5, 4"
GUARD = "if x.dtype == self.weight.dtype:\n            return F."


def text_of(*lines: str, shape: str = ROWS, size: str = "12") -> str:
    return TEXT.format(lines="\n        ".join(lines), shape=shape, size=size)


def check(tmp_path: Path, text: str, *wanted: str) -> str:
    """Check that a text is rewritten so, and gives the same as before; return the new text."""
    changed = proposed(tmp_path, text, RULES)["norm"]
    for one in wanted:
        assert one in changed.replace("\n            ", " ") or one in changed
    assert_same(tmp_path, text, changed)
    return changed


CENTERED = "u = x.mean(-1, keepdim=True)"


@pytest.mark.parametrize(
    "lines",
    [
        (
            CENTERED,
            "s = (x - u).pow(2).mean(-1, keepdim=True)",
            "x = (x - u) / torch.sqrt(s + self.eps)",
            "return self.weight * x + self.bias",
        ),
        (
            CENTERED,
            "s = x.var(-1, keepdim=True, unbiased=False)",
            "return (x - u) * (s + self.eps).rsqrt() * self.weight + self.bias",
        ),
        (
            "s, u = torch.var_mean(x, dim=2, keepdim=True, correction=0)",
            "return self.bias + self.weight * ((x - u) / (s + self.eps) ** 0.5)",
        ),
        (
            CENTERED,
            "c = x - u",
            "s = (c * c).sum(-1, keepdim=True) / x.size(-1)",
            "return c / (torch.mean(c ** 2, dim=-1, keepdim=True) + self.eps).sqrt() "
            "* self.weight + self.bias",
        ),
        (
            CENTERED,
            "s = (x * x).mean(-1, keepdim=True) - u * u",
            "return (x - u) / torch.sqrt(s + self.eps) * self.weight + self.bias",
        ),
    ],
)
def test_layer_norm_over_rows(tmp_path: Path, lines: tuple[str, ...]) -> None:
    changed = check(tmp_path, text_of(*lines), GUARD + "layer_norm(")
    assert "x, self.weight.shape, self.weight, self.bias, self.eps" in changed


@pytest.mark.parametrize(
    ("size", "spread"),
    [
        ("12", "[:, None, None]"),
        ("12", ".view(1, -1, 1, 1)"),
        ("12, 1, 1", ""),
        ("1, 12, 1, 1", ""),
    ],
)
def test_layer_norm_over_channels(tmp_path: Path, size: str, spread: str) -> None:
    text = text_of(
        "u = x.mean(1, keepdim=True)",
        "s = (x - u).pow(2).mean(1, keepdim=True)",
        f"return self.weight{spread} * ((x - u) / torch.sqrt(s + self.eps)) + self.bias{spread}",
        shape=IMAGES,
        size=size,
    )
    changed = check(tmp_path, text, GUARD + "layer_norm(")
    assert "x.movedim(1, -1)" in changed
    assert (".flatten()" in changed) == (size != "12")


def test_rms_norm_keeps_its_casts(tmp_path: Path) -> None:
    text = text_of(
        "dtype = x.dtype",
        "x = x.to(torch.float32)",
        "variance = x.pow(2).mean(-1, keepdim=True)",
        "x = x * torch.rsqrt(variance + self.eps)",
        "return self.weight * x.to(dtype)",
    )
    check(
        tmp_path,
        text,
        "x = x.to(torch.float32)\n        x = F.rms_norm(x, x.shape[-1:], eps=self.eps)\n"
        "        return self.weight * x.to(dtype)",
    )


def test_t5_norm_is_computed_in_float32(tmp_path: Path) -> None:
    text = text_of(
        "variance = x.to(torch.float32).pow(2).mean(-1, keepdim=True)",
        "x = x * torch.rsqrt(variance + self.eps)",
        "return self.weight * x",
    )
    assert proposed(tmp_path, text, RULES) == {}, "rms_norm of x would round in x's own dtype"


@pytest.mark.parametrize("groups", ["4", "self.groups"])
def test_group_norm(tmp_path: Path, groups: str) -> None:
    text = text_of(
        "N, C, H, W = x.shape",
        f"G = {groups}",
        "h = x.view(N, G, -1)",
        "mean, var = h.mean(-1, keepdim=True), h.var(-1, keepdim=True, unbiased=False)",
        "h = ((h - mean) / (var + self.eps).sqrt()).view(N, C, H, W)",
        "return h * self.weight + self.bias",
        shape=IMAGES,
        size="1, 12, 1, 1",
    ).replace("self.flag = False", "self.groups = 3")
    check(tmp_path, text, GUARD + "group_norm(", "G")


@pytest.mark.parametrize(
    ("more", "new"),
    [
        ("", "return F.layer_norm(x, x.shape[-2:], eps=1e-5)"),
        (" * self.weight + self.bias", GUARD + "group_norm("),
    ],
)
def test_instance_norm(tmp_path: Path, more: str, new: str) -> None:
    text = text_of(
        "mean = x.mean((2, 3), keepdim=True)",
        "std = (x.var((2, 3), keepdim=True, unbiased=False) + 1e-5).sqrt()",
        f"return (x - mean) / std{more}",
        shape=IMAGES,
        size="1, 12, 1, 1",
    )
    check(tmp_path, text, new)


def test_kept_statistics(tmp_path: Path) -> None:
    text = text_of(
        "scale = self.weight.reshape(1, -1, 1, 1) * (self.var.reshape(1, -1, 1, 1) + 1e-5).rsqrt()",
        "bias = self.bias.reshape(1, -1, 1, 1) - self.mean.reshape(1, -1, 1, 1) * scale",
        "return x * scale + bias",
        shape=IMAGES,
    )
    check(tmp_path, text, GUARD + "batch_norm(", "x, self.mean, self.var, weight=self.weight")


@pytest.mark.parametrize(
    ("lines", "new"),
    [
        (
            ("n = x.pow(2).sum(1, keepdim=True).sqrt()", "return x / n.expand_as(x)"),
            "F.normalize(x, dim=1, eps=0.0)",
        ),
        (
            ("return x / x.pow(2).sum(-1, keepdim=True).sqrt().clamp_min(1e-4)",),
            "F.normalize(x, dim=-1, eps=1e-4)",
        ),
    ],
)
def test_unit_rows(tmp_path: Path, lines: tuple[str, ...], new: str) -> None:
    check(tmp_path, text_of(*lines), f"return {new}")


def assert_same_in(
    tmp_path: Path, text: str, new: str, dtype: torch.dtype, own: torch.dtype
) -> None:
    """Assert that two texts give the same dtype, and close numbers, for an input and state of
    these dtypes."""
    found = []
    for one in (text, new):
        torch.manual_seed(0)
        module = loaded(one, tmp_path / "typed.py")
        model = (getattr(module, "ModelNew", None) or module.Model)().to(own)
        (x,) = module.get_inputs()
        with torch.no_grad():
            found.append(model(x.to(dtype)))
    assert found[0].dtype == found[1].dtype
    torch.testing.assert_close(found[1], found[0], rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize("own", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_other_dtypes_work_as_before(
    tmp_path: Path, kind: str, dtype: torch.dtype, own: torch.dtype
) -> None:
    text = {
        "layer": text_of(
            CENTERED,
            "s = x.var(-1, keepdim=True, unbiased=False)",
            "return (x - u) / (s + self.eps).sqrt() * self.weight + self.bias",
        ),
        "rms": text_of(
            "return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.eps) * self.weight"
        ),
    }[kind]
    new = proposed(tmp_path, text, RULES)["norm"]
    assert_same_in(tmp_path, text, new, dtype, own)


@pytest.mark.parametrize(
    "lines",
    [
        (CENTERED, "s = x.var(-1, keepdim=True)", "return (x - u) / (s + self.eps).sqrt()"),
        (
            CENTERED,
            "s = x.std(-1, keepdim=True, unbiased=False)",
            "return (x - u) / (s + self.eps)",
        ),
        (CENTERED, "return (x - u) / (x.abs().mean(-1, keepdim=True) + self.eps).sqrt()"),
        ("return x / (x.norm(dim=-1, keepdim=True) + 1e-4)",),
        ("return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.eps) * self.mean.sum()",),
        (
            CENTERED,
            "if self.flag:",
            "    u = self.mean",
            "s = x.var(-1, keepdim=True, unbiased=False)",
            "return (x - u) / (s + self.eps).sqrt()",
        ),
    ],
)
def test_look_alikes_stay(tmp_path: Path, lines: tuple[str, ...]) -> None:
    found = proposed(tmp_path, text_of(*lines), RULES)
    assert not any("layer_norm" in one or "normalize" in one for one in found.values())
