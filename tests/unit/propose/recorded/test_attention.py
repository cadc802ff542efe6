"""Attention is found in every usual spelling, and in nothing that only looks like it."""

from pathlib import Path
from textwrap import indent

import pytest
import torch

from cudal1_ci.propose.recorded import attention
from tests.unit.propose.recorded.rig import assert_same, loaded, proposed

HEAD = """\
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def weights_of(q, k, mask=None):
    scores = q @ k.transpose(-2, -1)
    if mask is not None:
        scores = scores + mask
    return scores.softmax(-1)


class Softly(nn.Module):
    def forward(self, scores):
        return scores.softmax(-1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 0.3
        self.rate = 0.1
        self.gain = nn.Parameter(torch.rand(()))
        self.dropout = nn.Dropout(0.1)
        self.softmax = nn.Softmax(dim=-1)
        self.softly = Softly()
        self.attend = nn.Sequential(nn.Softmax(dim=-1), nn.Dropout(0.1))
        self.register_buffer("tril", torch.tril(torch.ones(8, 8)))
        self.bias = nn.Parameter(torch.randn(1, 3, 8, 8))
        self.saved = None

    def weigh(self, q, k, mask=None):
        if mask is None:
            base, beta = torch.empty(q.shape[0], q.shape[1], k.shape[1]), 0
        else:
            base, beta = mask, 1
        return torch.baddbmm(base, q, k.mT, beta=beta, alpha=self.scale).softmax(-1)

    def forward(self, q, k, v, mask=None, other=None):
"""
TAIL = """

def get_inputs():
    q, k, v = torch.randn(2, 3, 8, 4), torch.randn(2, 3, 8, 4), torch.randn(2, 3, 8, 4)
    mask = torch.randn(2, 1, 8, 8)
    return [{inputs}]
"""

FOUND = {
    "learned scale": "return ((q @ k.mT) * self.gain).softmax(-1) @ v",
    "learned temperature": "return ((q @ k.mT) / self.gain).softmax(-1) @ v",
    "plain": "return torch.softmax(q @ k.transpose(-2, -1) / 2.0, dim=-1) @ v",
    "no scale": "return (q @ k.mT).softmax(-1) @ v",
    "scale first": """
        qs = q * self.scale
        return F.softmax(torch.matmul(qs, k.transpose(2, 3)), dim=3) @ v""",
    "bound again": """
        q = q * self.scale
        attn = q @ k.transpose(-2, -1)
        attn = attn.softmax(dim=-1)
        x = attn @ v
        return x.transpose(1, 2)""",
    "in place": """
        q *= self.scale
        attn = q @ k.transpose(-2, -1)
        attn += mask
        return attn.softmax(dim=-1) @ v""",
    "both sides": """
        scale = q.shape[-1] ** -0.25
        q = q.contiguous() * scale
        k = k.permute(0, 1, 3, 2) * scale
        return (q @ k).softmax(dim=-1) @ v""",
    "number first": "return ((self.scale * q) @ k.mT).softmax(-1) @ v",
    "default scale": "return F.softmax(q @ k.mT * k.shape[-1] ** -0.5, -1) @ v",
    "two factors": "return F.softmax(q @ k.mT * self.scale / math.sqrt(q.size(-1)), -1) @ v",
    "key permuted": """
        k = k.permute(0, 1, 3, 2)
        return (q @ k * self.scale).softmax(-1) @ v""",
    "einsum": """
        dots = torch.einsum("b h i d, b h j d -> b h i j", q, k) * self.scale
        return torch.einsum("bhij,bhjd->bhid", dots.softmax(-1), v)""",
    "einsum with heads last": """
        q, k, v = (one.transpose(1, 2) for one in (q, k, v))
        dots = torch.einsum("bihd,bjhd->bhij", q, k) * self.scale
        return torch.einsum("bhij,bjhd->bihd", dots.softmax(-1), v)""",
    "bmm": """
        q, k, v = q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)
        w = F.softmax(torch.bmm(q, k.transpose(1, 2)) * self.scale, dim=2)
        return torch.bmm(w, v)""",
    "values first": """
        q, k, v = q[0], k[0].transpose(1, 2), v[0].permute(0, 2, 1)
        w = torch.bmm(q, k).softmax(dim=2)
        return torch.bmm(v, w.permute(0, 2, 1))""",
    "baddbmm in a helper": """
        q, k, v = q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)
        w = self.weigh(q, k)
        return torch.bmm(w, v)""",
    "float32 and back": """
        w = F.softmax((q @ k.mT * self.scale).float(), dim=-1).type_as(q)
        return w @ v""",
    "dtype": "return F.softmax(q @ k.mT, dim=-1, dtype=torch.float32).to(q.dtype) @ v",
    "maximum": """
        w = q @ k.mT
        w = w - w.max(dim=-1, keepdim=True)[0]
        return w.softmax(-1) @ v""",
    "mask": "return (q @ k.mT * self.scale + mask).softmax(-1) @ v",
    "mask first": "return (mask + q @ k.mT).softmax(-1) @ v",
    "optional mask": """
        scores = q @ k.mT
        if mask is not None:
            scores = scores + mask
        return scores.softmax(-1) @ v""",
    "optional slice": """
        scores = q @ k.mT
        if mask is not None:
            part = mask[:, :, :, : k.shape[-2]]
            scores = scores + part
        return scores.softmax(-1) @ v""",
    "optional and bias": """
        scores = q @ k.mT
        scores = scores + self.bias
        if mask is not None:
            scores = scores + mask
        return scores.softmax(-1) @ v""",
    "two optional": """
        scores = q @ k.mT
        if other is not None:
            scores = scores.masked_fill(other, -1e9)
        if mask is not None:
            scores = scores + mask
        return scores.softmax(-1) @ v""",
    "two masks": "return (q @ k.mT + self.bias + mask).softmax(-1) @ v",
    "subtracted mask": "return (q @ k.mT - (1.0 - mask) * 3.0).softmax(-1) @ v",
    "masked_fill": """
        scores = (q @ k.mT).masked_fill(self.tril[:8, :8] == 0, float("-inf"))
        return scores.softmax(-1) @ v""",
    "masked_fill with a number": """
        scores = (q @ k.mT).masked_fill(mask > 0.5, -1e9)
        return scores.softmax(-1) @ v""",
    "where": """
        w = q @ k.mT
        low = torch.full([], torch.finfo(w.dtype).min, dtype=w.dtype, device=w.device)
        w = torch.where(mask > 0.0, w, low)
        return w.softmax(-1) @ v""",
    "views around the mask": """
        q, k, v = q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)
        w = torch.bmm(q, k.transpose(1, 2))
        w = w.view(2, 3, 8, 8) + mask
        w = w.view(6, 8, 8)
        return torch.bmm(w.softmax(-1), v)""",
    "windows": """
        attn = q @ k.mT
        attn = attn.view(1, 2, 3, 8, 8) + mask.unsqueeze(0)
        attn = attn.view(-1, 3, 8, 8)
        return attn.softmax(-1) @ v""",
    "module": "return self.softmax(q @ k.mT) @ v",
    "module of its own": "return self.softly(q @ k.mT) @ v",
    "sequence": "return self.attend(q @ k.mT) @ v",
    "dropout": "return self.dropout((q @ k.mT).softmax(-1)) @ v",
    "dropout function": """
        w = (q @ k.mT).softmax(-1)
        w = F.dropout(w, p=self.rate, training=self.training)
        return w @ v""",
    "helper": "return weights_of(q, k) @ v",
    "a branch that scales weights": """
        w = (q @ k.mT).softmax(-1)
        if other is not None:
            w = w * other
        return w @ v""",
    "sizes checked": """
        w = q @ k.mT
        if w.size() != (2, 3, 8, 8):
            raise ValueError(f"weights of {w.size()}")
        w = w.softmax(-1)
        assert list(w.shape) == [2, 3, 8, 8]
        return w @ v""",
    "in a loop": """
        for _ in range(2):
            w = (q @ k.mT).softmax(-1)
            q = w @ v
        return q""",
    "name used again": """
        w = (q @ k.mT).softmax(-1)
        x = w @ v
        w = x.sum(-1)
        return x, w""",
}
"""Bodies of `forward` that are attention."""
NO_MASK = {"a branch that scales weights"}
BOOLEAN = {"two optional"}

NOT_FOUND = {
    "gate": "return (q @ k.mT).sigmoid() @ v",
    "other dimension": "return (q @ k.mT).softmax(-2) @ v",
    "weights returned": """
        w = (q @ k.mT).softmax(-1)
        return w @ v, w""",
    "weights returned by another call": """
        w = (q @ k.mT).softmax(-1)
        if other is not None:
            return w @ v, w
        return w @ v""",
    "weights kept": """
        w = (q @ k.mT).softmax(-1)
        self.saved = w
        return w @ v""",
    "weights read": """
        w = (q @ k.mT).softmax(-1)
        return w @ v + w.mean()""",
    "scores read": """
        s = q @ k.mT
        return s.softmax(-1) @ v + s.amax()""",
    "weights masked": "return ((q @ k.mT).softmax(-1) * mask) @ v",
    "weights masked in another call": """
        w = (q @ k.mT).softmax(-1)
        if self.training and other is None:
            w = w * mask
        return w @ v""",
    "scores changed in another call": """
        s = q @ k.mT
        if self.scale > 1.0:
            s = s * 2.0
        return s.softmax(-1) @ v""",
    "scaled in a branch": """
        s = q @ k.mT
        if mask is not None:
            s = s * 2.0
        return s.softmax(-1) @ v""",
    "scaled after the mask": "return ((q @ k.mT + mask) * self.scale).softmax(-1) @ v",
    "scaled before and after the mask": """
        return ((q @ k.mT * 0.5 + mask) * self.scale).softmax(-1) @ v""",
    "scaled after the mask of baddbmm": """
        s = torch.baddbmm(mask[:, 0], q[:, 0], k[:, 0].mT)
        s = s * self.scale
        return s.softmax(-1) @ v[:, 0]""",
    "small negative number": "return (q @ k.mT).masked_fill(mask > 0, -1.0).softmax(-1) @ v",
    "a function of scores": "return torch.tanh(q @ k.mT).softmax(-1) @ v",
    "mask of scores": """
        s = q @ k.mT
        return s.masked_fill(s < 0, float("-inf")).softmax(-1) @ v""",
    "elementwise product": "return (q * k).softmax(-1) @ v.mT",
    "dropout always": "return F.dropout((q @ k.mT).softmax(-1), 0.5, True) @ v",
    "keys bound again in another call": """
        s = q @ k.mT
        if self.training:
            q, k = k, q
        w = s.softmax(-1)
        return w @ v""",
    "reshaped weights": """
        w = (q @ k.mT).reshape(2, 3, 64).softmax(-1).reshape(2, 3, 8, 8)
        return w @ v""",
    "a number that half precision cannot hold": """
        s = (q @ k.mT).float()
        return s.masked_fill(mask > 0, -1e9).softmax(-1).type_as(q) @ v""",
    "a diagonal": """
        w = torch.einsum("bhid,bhjd->bhij", q, k).softmax(-1)
        return torch.einsum("bhij,bhjj->bhi", w, w)""",
    "a mask that gives more rows": """
        return ((q[:1] @ k[:1].mT) + mask).softmax(-1) @ v[:1]""",
    "sizes that choose": """
        w = (q @ k.mT).softmax(-1)
        if w.size(0) > 5:
            w = w.sqrt()
        return w @ v""",
    "another precision": """
        with torch.autocast("cpu", enabled=False):
            w = (q @ k.mT).softmax(-1)
        return w @ v""",
    "a branch for a torch without it, or turned off": """
        if hasattr(F, "scaled_dot_product_attention") and mask is None:
            return F.scaled_dot_product_attention(q, k, v)
        return (q @ k.mT).softmax(-1) @ v""",
    "one head for all": "return (q @ k[:, :1].mT).softmax(-1) @ v",
}


def text_of(body: str, inputs: str = "q, k, v, mask") -> str:
    lines = "\n".join(one[8:] if one.startswith(" " * 8) else one for one in body.splitlines())
    return HEAD + indent(lines.strip(), " " * 8) + "\n" + TAIL.format(inputs=inputs)


def inputs_of(name: str) -> str:
    if name in NO_MASK:
        return "q, k, v"
    return "q, k, v, mask, mask > 0.5" if name in BOOLEAN else "q, k, v, mask"


@pytest.mark.parametrize("name", FOUND)
def test_a_spelling_of_attention_is_found_and_computes_the_same(name: str, tmp_path: Path) -> None:
    text = text_of(FOUND[name], inputs_of(name))
    new = proposed(tmp_path, text, attention.RULES)["attention"]
    assert "scaled_dot_product_attention(" in new
    if "another" not in name and "branch" not in name:
        body = new[new.index("def forward(self, q") : new.index("def get_inputs")]
        assert "softmax" not in body and " None\n" not in body.replace("attn_mask = None", "")
    assert_same(tmp_path, text, new)


@pytest.mark.parametrize("name", NOT_FOUND)
def test_what_only_looks_like_attention_is_left_alone(name: str, tmp_path: Path) -> None:
    assert proposed(tmp_path, text_of(NOT_FOUND[name]), attention.RULES) == {}


@pytest.mark.parametrize(
    "name", ["optional mask", "optional slice", "optional and bias", "two optional"]
)
@pytest.mark.parametrize("given", ["q, k, v", "q, k, v, mask", "q, k, v, None, mask > 0.5"])
def test_calls_without_the_mask_stay_the_same(name: str, given: str, tmp_path: Path) -> None:
    text = text_of(FOUND[name], inputs_of(name))
    new = proposed(tmp_path, text, attention.RULES)["attention"]
    wanted = f"[{given}]"
    assert_same(
        tmp_path,
        text.replace(f"[{inputs_of(name)}]", wanted),
        new.replace(f"[{inputs_of(name)}]", wanted),
    )


def test_a_branch_that_was_not_taken_keeps_the_old_lines(tmp_path: Path) -> None:
    text = text_of(FOUND["a branch that scales weights"], "q, k, v")
    new = proposed(tmp_path, text, attention.RULES)["attention"]
    given = "[q, k, v, None, mask]"
    assert_same(tmp_path, text.replace("[q, k, v]", given), new.replace("[q, k, v]", given))


@pytest.mark.parametrize("name", ["dropout", "dropout function", "sequence"])
def test_dropout_is_kept_in_training(name: str, tmp_path: Path) -> None:
    text = text_of(FOUND[name]).replace("Dropout(0.1)", "Dropout(1.0)").replace("0.1", "1.0")
    new = proposed(tmp_path, text, attention.RULES)["attention"]
    module = loaded(new, tmp_path / "after.py")
    model = getattr(module, "ModelNew", None) or module.Model
    given = module.get_inputs()
    assert not torch.any(model().train()(*given))
    assert torch.any(model().eval()(*given))


def test_a_result_that_is_viewed_is_in_order(tmp_path: Path) -> None:
    body = """
        x = (q @ k.mT).softmax(-1) @ v
        return x.view(6, 32)"""
    text = text_of(body)
    assert_same(tmp_path, text, proposed(tmp_path, text, attention.RULES)["attention"])


def test_calls_with_and_without_a_mask_share_one_change(tmp_path: Path) -> None:
    text = text_of("return self.attended(q, k, v) + self.attended(q, k, v, mask)").replace(
        "    def weigh(",
        """    def attended(self, q, k, v, mask=None):
        scores = q @ k.mT
        if mask is not None:
            scores = scores + mask
        return scores.softmax(-1) @ v

    def weigh(""",
    )
    new = proposed(tmp_path, text, attention.RULES)["attention"]
    assert "attn_mask=mask" in new
    assert "scores = q @ k.mT" not in new
    assert_same(tmp_path, text, new)


CAUSAL = """\
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        {init}

    def forward(self, x, k=None):
        n = x.size(1)
        q, k, v = self.qkv(x).chunk(3, -1)
        {change}
        s = q @ k.mT * self.qkv.in_features**-0.5
        {mask}
        return s.softmax(-1) @ v


def get_inputs():
    return [torch.randn(2, 6, 8)]
"""
TRIL = 'self.register_buffer("tril", torch.tril(torch.ones(16, 16)))'
TRIANGLES = {
    "buffer": (TRIL, "", 's = s.masked_fill(self.tril[:n, :n] == 0, float("-inf"))'),
    "buffer of low numbers": (
        'self.register_buffer("low", torch.full((16, 16), float("-inf")).triu(1), False)',
        "",
        "s = s + self.low[:n, :n]",
    ),
    "made in the call": (
        "",
        "mask = torch.triu(torch.ones(n, n, dtype=torch.bool), diagonal=1)",
        "s = s.masked_fill(mask, -1e9)",
    ),
    "kept": (
        "",
        "mask = torch.ones((n, n), dtype=torch.bool).tril()",
        "s = torch.where(mask, s, -math.inf)",
    ),
    "ones times a number": ("", "", "s = s + (1 - torch.tril(torch.ones(n, n))) * -1e9"),
}
"""What `__init__` does, then what is done before the scores, then to them."""
NO_TRIANGLES = {
    "the other half": (TRIL, "", "s = s.masked_fill(self.tril[:n, :n] == 1, -1e9)"),
    "without the diagonal": ("", "", "s = s + torch.full((n, n), -1e9).triu(0)"),
    "one more diagonal": ("", "", "s = s + torch.full((n, n), -1e9).triu(2)"),
    "a small number": ("", "", "s = s + torch.full((n, n), -1.0).triu(1)"),
    "rows from a length": (
        TRIL,
        "p = n - q.size(1)",
        "s = s.masked_fill(self.tril[p : p + n, :n] == 0, -1e9)",
    ),
    "registered twice": (
        f"{TRIL}\n        {TRIL.replace('tril(', 'triu(')}",
        "",
        "s = s.masked_fill(self.tril[:n, :n] == 1, -1e9)",
    ),
    "written to": (
        f"{TRIL}\n        self.tril[0] = 1",
        "",
        "s = s.masked_fill(self.tril[:n, :n] == 0, -1e9)",
    ),
    "changed in place": (
        TRIL,
        "self.tril.mul_(1.0)",
        "s = s.masked_fill(self.tril[:n, :n] == 0, -1e9)",
    ),
    "bound again in another call": (
        "",
        "mask = torch.ones(n, n).tril()\n        if n > 99: mask = mask.mT",
        "s = s.masked_fill(mask == 0, -1e9)",
    ),
    "keys of a cache": (
        TRIL,
        "k, v = torch.cat([k[:, :0], k], 1), torch.cat([v[:, :0], v], 1)",
        "s = s.masked_fill(self.tril[:n, :n] == 0, -1e9)",
    ),
    "fewer queries than keys": (
        TRIL,
        "q = q.chunk(2, 1)[1]",
        "s = s.masked_fill(self.tril[:1, :1] == 0, -1e9)",
    ),
    "two masks": (TRIL, "", "s = s.masked_fill(self.tril[:n, :n] == 0, -1e9) + x[:, :1, :6]"),
}
"""Masks that are not causal, or not in every call."""


def causal_text(parts: tuple[str, str, str]) -> str:
    init, change, mask = parts
    return CAUSAL.format(init=init or "pass", change=change or "pass", mask=mask)


@pytest.mark.parametrize("name", TRIANGLES)
def test_a_causal_mask_that_the_code_builds_becomes_is_causal(name: str, tmp_path: Path) -> None:
    text = causal_text(TRIANGLES[name])
    found = proposed(tmp_path, text, attention.RULES)
    assert "is_causal=True" in found["causal_attention"]
    assert "attn_mask=" in found["attention"]
    assert_same(tmp_path, text, found["causal_attention"])
    longer = "torch.randn(2, 6, 8)", "torch.randn(1, 13, 8)"
    assert_same(tmp_path, text.replace(*longer), found["causal_attention"].replace(*longer))


@pytest.mark.parametrize("name", NO_TRIANGLES)
def test_other_masks_stay_masks(name: str, tmp_path: Path) -> None:
    found = proposed(tmp_path, causal_text(NO_TRIANGLES[name]), attention.RULES)
    assert [*found] == ["attention"]
