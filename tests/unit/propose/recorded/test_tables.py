"""Tables of lengths and numbers are kept; what another call could see or change is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from cudal1_ci.propose.recorded.tables import RULES
from tests.unit.propose.recorded.rig import assert_same, loaded, proposed

TEXT = """import math
import torch
import torch.nn as nn

SCALE = 2.0


def gaussian(size, sigma):
    x = torch.arange(size) - (size - 1) / 2
    line = torch.exp(-(x**2) / (2 * sigma**2))
    return line / line.sum()


class Model(nn.Module):
    def __init__(self, dim=8, base=10000.0):
        super().__init__()
        self.dim, self.base = dim, base
        self.weight = nn.Parameter(torch.randn(dim))
        self.register_buffer("steps", torch.arange(8.0))

    def forward(self, x):
{body}

def get_inputs():
    return [torch.randn(2, 6, 8)]
"""

ROTARY = """
n = x.shape[1]
inv = 1.0 / (self.base ** (torch.arange(0, self.dim, 2, device=x.device).float() / self.dim))
freqs = torch.outer(torch.arange(n, device=x.device).float(), inv)
emb = torch.cat((freqs, freqs), dim=-1)
cos, sin = emb.cos()[None], emb.sin()[None]
return x * cos + x.roll(1, -1) * sin
"""
SINUSOIDAL = """
position = torch.arange(x.size(1), dtype=torch.float32).unsqueeze(1)
div = torch.exp(torch.arange(0, self.dim, 2).float() * (-math.log(self.base) / self.dim))
table = torch.zeros(x.size(1), self.dim)
table[:, 0::2] = torch.sin(position * div)
table[:, 1::2] = torch.cos(position * div)
return x + table.to(x.device).to(x.dtype)
"""
CAUSAL = """
scores = x @ x.transpose(1, 2)
n = scores.size(-1)
mask = torch.ones(n, n, device=x.device).tril().log()
mask = torch.clamp(mask, min=-100.0) * 1.0
return (scores + mask).softmax(-1)
"""
SWIN = """
m = x.shape[1] // 2
coords = torch.stack(torch.meshgrid(torch.arange(m), torch.arange(m), indexing="ij")).flatten(1)
rel = (coords[:, :, None] - coords[:, None, :]).permute(1, 2, 0).contiguous()
rel[:, :, 0] += m - 1
rel[:, :, 0] *= 2 * m - 1
index = rel.sum(-1).to(x.device)
return x.mean() + index.view(-1)
"""
GAUSSIAN = """
window = gaussian(x.shape[-1], SCALE).to(x.device)
return x * window
"""


def text_of(body: str) -> str:
    lines = "\n".join(f"        {line}" for line in body.strip().splitlines())
    return TEXT.format(body=f"{lines}\n")


@pytest.mark.parametrize("body", [ROTARY, SINUSOIDAL, CAUSAL, SWIN, GAUSSIAN])
def test_tables_are_kept(tmp_path: Path, body: str) -> None:
    text = text_of(body)
    changed = proposed(tmp_path, text, RULES)["kept_table"]
    assert changed.count("functools.lru_cache(maxsize=8") == 1
    assert_same(tmp_path, text, changed)
    assert_equal_calls(tmp_path, text, changed)


def assert_equal_calls(tmp_path: Path, text: str, changed: str) -> None:
    """Assert equal bits at two lengths, in both dtypes, twice in a row."""
    old, new = loaded(text, tmp_path / "old.py"), loaded(changed, tmp_path / "new.py")
    torch.manual_seed(0)
    before: Any = old.Model()
    after: Any = getattr(new, "ModelNew", None) or new.Model
    after = after()
    for length in (6, 4, 6, 6):
        for dtype in (torch.float32, torch.float64):
            x = torch.randn(2, length, 8, dtype=dtype)
            assert torch.equal(before(x), after(x))


def test_a_table_of_inference_mode_works_in_training(tmp_path: Path) -> None:
    changed = proposed(tmp_path, text_of(ROTARY), RULES)["kept_table"]
    module = loaded(changed, tmp_path / "new.py")
    model = (getattr(module, "ModelNew", None) or module.Model)()
    with torch.inference_mode():
        model(torch.randn(2, 6, 8))
    x = torch.randn(2, 6, 8, requires_grad=True)
    model(x).sum().backward()
    assert x.grad is not None


def test_equal_numbers_of_other_types_have_tables_of_their_own(tmp_path: Path) -> None:
    changed = proposed(tmp_path, text_of(ROTARY), RULES)["kept_table"]
    assert "typed=True" in changed


def test_a_decorator_is_enough_for_a_function_of_numbers(tmp_path: Path) -> None:
    changed = proposed(tmp_path, text_of("return x * gaussian(x.shape[-1], 2.0)"), RULES)
    new = changed["kept_table"]
    assert "@torch.no_grad()\ndef gaussian(size, sigma):" in new
    assert "return x * gaussian(x.shape[-1], 2.0)" in new


def test_a_call_of_such_a_function_stays(tmp_path: Path) -> None:
    body = "window = gaussian(x.shape[-1], 2.0)\nreturn x * window"
    new = proposed(tmp_path, text_of(body), RULES)["kept_table"]
    assert "@torch.no_grad()\ndef gaussian(size, sigma):" in new
    assert new.count("lru_cache") == 1
    assert_equal_calls(tmp_path, text_of(body), new)


def test_two_tables_of_one_name_do_not_meet(tmp_path: Path) -> None:
    body = MAKE + "x = x + t\n" + MAKE.replace("exp", "cos") + "return x * t"
    new = proposed(tmp_path, text_of(body), RULES)["kept_table"]
    assert new.count("def kept_t(") == 1
    assert_equal_calls(tmp_path, text_of(body), new)


MAKE = "t = torch.arange(8.0)\nt = t * 2\nt = t.sin()\nt = t.exp()\n"


@pytest.mark.parametrize(
    "body",
    [
        "t = self.steps * 2\nt = t.sin()\nt = t.exp()\nt = t.cos()\nreturn x + t",
        "t = self.weight * 2\nt = t.sin()\nt = t.exp()\nt = t.cos()\nreturn x + t",
        "t = x[0, 0] * 2\nt = t.sin()\nt = t.exp()\nt = t.cos()\nreturn x + t",
        "t = torch.rand(8)\nt = t.sin()\nt = t.exp()\nt = t.cos()\nreturn x + t",
        MAKE + "y = x + t\nt.add_(1)\nreturn y + t",
        MAKE + "t[0] = x.mean()\nreturn x + t",
        MAKE + "u = t.view(2, 4)\nu += x.mean()\nreturn x + t",
        MAKE + "y = x + t\nt += 1\nreturn y + t",
        MAKE + "y = x + t\ny = y + torch.nn.functional.relu(t, inplace=True)\nreturn y + t",
        MAKE + "y = x + t\nreturn y, t",
        MAKE + "y = x + t\nreturn y, t.view(2, 4)",
        "t = torch.arange(8.0, requires_grad=True)\nt = t * 2\nt = t.sin()\nt = t.exp()\n"
        "return x + t",
        MAKE + "self.kept = t\nt = t * 2\nreturn x + self.kept",
    ],
)
def test_others_are_left(tmp_path: Path, body: str) -> None:
    assert proposed(tmp_path, text_of(body), RULES) == {}


def test_a_table_that_others_may_write_is_left(tmp_path: Path) -> None:
    text = text_of("return x * gaussian(x.shape[-1], 2.0)")
    text = text.replace("torch.arange(8.0))", "gaussian(8, 2.0))")
    assert proposed(tmp_path, text, RULES) == {}


INNER = """
def ramp(n, low):
    line = torch.arange(n).float() * low
    return torch.exp(-line) / line.sum()

row = ramp(x.shape[-1], 0.5) + torch.ones(8)
return x * row
"""
CLOSURE = """
width = x.mean().item() + 8.0

def ramp():
    line = torch.arange(8).float() / width
    line = torch.exp(-line)
    line = line / line.sum()
    return x * line

return ramp()
"""
SIZES = """
def plane(x, sizes{hint}):
    rows = torch.arange(sizes[0]).float()[:, None]
    plane = torch.exp(-rows * torch.arange(sizes[1]).float())
    return x * plane

return plane(x, (6, 8))
"""


def test_a_function_within_a_function_is_kept_by_itself(tmp_path: Path) -> None:
    new = proposed(tmp_path, text_of(INNER), RULES)["kept_table"]
    assert "def kept_ramp(n, low):" in new
    assert "kept_row" not in new  # it would call `ramp`, which the file does not have
    assert_same(tmp_path, text_of(INNER), new)


def test_what_an_outer_function_binds_is_no_name_of_the_file(tmp_path: Path) -> None:
    new = proposed(tmp_path, text_of(CLOSURE), RULES)["kept_table"]
    assert "line = kept_line(width)" in new
    assert_same(tmp_path, text_of(CLOSURE), new)


@pytest.mark.parametrize(("hint", "num_kept"), [("", 0), (": tuple[int, int]", 1)])
def test_a_tuple_is_a_key_where_it_is_declared(tmp_path: Path, hint: str, num_kept: int) -> None:
    found = proposed(tmp_path, text_of(SIZES.replace("{hint}", hint)), RULES)
    assert len(found) == num_kept
