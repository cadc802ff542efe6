"""Attention by hand is left as it is where it stands for a torch without
scaled_dot_product_attention, and rewritten where it does not."""

from __future__ import annotations

import textwrap

import pytest
import torch

from tests.unit.propose.test_rewrites import HEADER, function, module, outputs, randn, rewritten

QKV = [randn(2, 3, 5, 4), randn(2, 3, 5, 4).flip(2), randn(2, 3, 5, 4) * 2]
THERE = "y = F.scaled_dot_product_attention(q, k, v)"
BY_HAND = "w = (q @ k.transpose(-2, -1)) * 0.5\nw = w.softmax(dim=-1)\ny = w @ v"
HAS = "hasattr(F, 'scaled_dot_product_attention')"
NANO = "hasattr(torch.nn.functional, 'scaled_dot_product_attention')"


def branched(test: str, one: str, other: str | None) -> str:
    text = f"if {test}:\n" + textwrap.indent(one, "    ")
    return text if other is None else f"{text}\nelse:\n" + textwrap.indent(other, "    ")


def attention(init: str, forward: str, top: str = "") -> str:
    source = module(init, f"{forward}\nreturn y", "self, q, k, v")
    return source.replace(HEADER, f"{HEADER}{top}\n", 1)


FALLBACKS = {
    "else of hasattr": attention("pass", branched(HAS, THERE, BY_HAND)),
    "not hasattr": attention("pass", branched(f"not {HAS}", BY_HAND, THERE)),
    "not hasattr, and nothing else": attention(
        "pass", f"y = q\n{branched(f'not {HAS}', BY_HAND, None)}"
    ),
    "a flag, as nanoGPT has": attention(
        f"self.flash = {NANO}", branched("self.flash", THERE, BY_HAND)
    ),
    "a flag and more": attention(
        f"self.flash = {NANO} and self.training",
        branched("self.flash and q.dim() == 4", THERE, BY_HAND),
    ),
    "a flag that is not, or more": attention(
        f"self.flash = {NANO}", branched("not self.flash or q.dim() == 3", BY_HAND, THERE)
    ),
    "a flag of a flag": attention(
        "self.flash = HAS and not self.training",
        branched("self.flash", THERE, BY_HAND),
        f"HAS = bool({HAS})",
    ),
    "a flag that says the contrary": attention(
        f"self.slow = not {NANO}", branched("self.slow", BY_HAND, THERE)
    ),
    "a flag that is turned off too": attention(
        f"self.flash = {NANO}\nif self.training:\n    self.flash = False",
        branched("self.flash", THERE, BY_HAND),
    ),
    "a function": attention(
        "pass", branched("has_flash()", THERE, BY_HAND), f"def has_flash():\n    return {HAS}"
    ),
    "getattr": attention(
        "self.sdpa = getattr(F, 'scaled_dot_product_attention', None)",
        branched("self.sdpa is None", BY_HAND, "y = self.sdpa(q, k, v)"),
    ),
    "torch's version": attention("pass", branched("torch.__version__ >= '2'", THERE, BY_HAND)),
    "an import that may fail": attention(
        "pass",
        branched("HAS", "y = scaled_dot_product_attention(q, k, v)", BY_HAND),
        "try:\n    from torch.nn.functional import scaled_dot_product_attention\n    HAS = True\n"
        "except ImportError:\n    HAS = False",
    ),
    "a call that may fail": attention(
        "pass",
        "try:\n"
        + textwrap.indent(THERE, "    ")
        + "\nexcept AttributeError:\n"
        + textwrap.indent(BY_HAND, "    "),
    ),
    "after a return": attention(
        "pass", f"{branched(HAS, THERE.replace('y =', 'return'), None)}\n{BY_HAND}"
    ),
    "elif": attention("pass", branched(HAS, THERE, branched("q.dim() == 4", BY_HAND, "y = v"))),
    "a branch in one line": function(
        "return F.scaled_dot_product_attention(q, k, v) if "
        f"{HAS} else (q @ k.transpose(-2, -1)).softmax(-1) @ v",
        "q, k, v",
    ),
    "a method of its own": attention(
        f"self.flash = {NANO}", branched("self.flash", THERE, "y = self.by_hand(q, k, v)")
    )
    + "\n    def by_hand(self, q, k, v):\n"
    + textwrap.indent(f"{BY_HAND}\nreturn y\n", "        "),
    "turned off by whoever made it": attention(
        "self.fused = not self.training", branched("self.fused", THERE, BY_HAND)
    ),
}


@pytest.mark.parametrize("source", FALLBACKS.values(), ids=FALLBACKS)
def test_code_for_a_torch_without_it_is_left_as_it_is(source):
    outputs(source, QKV)  # it runs
    assert rewritten(source, "sdpa") is None


OTHERS = {
    "no test of it": attention(
        "self.causal = False", branched("self.causal", "y = v.cumsum(-2)", BY_HAND)
    ),
    "a test of a tensor": attention("pass", branched("q.dim() == 3", THERE, BY_HAND)),
    "training": attention("pass", branched("self.training", THERE, BY_HAND)),
    "of another function": attention(
        "pass", branched("hasattr(F, 'gelu_')", f"w = q\n{THERE}", BY_HAND)
    ),
    "where it is there": attention("pass", branched(HAS, BY_HAND, "y = v")),
    "after a branch that goes on": attention("pass", f"{branched(HAS, THERE, None)}\n{BY_HAND}"),
    "a name that may be either": attention(
        f"self.flash = {NANO}\nself.flash = not {NANO}",
        branched("self.flash", "y = v", BY_HAND),
    ),
    "a method that is called elsewhere too": attention(
        f"self.flash = {NANO}",
        branched("self.flash", "y = self.by_hand(v, k, q)", "y = self.by_hand(q, k, v)"),
    )
    + "\n    def by_hand(self, q, k, v):\n"
    + textwrap.indent(f"{BY_HAND}\nreturn y\n", "        "),
}


@pytest.mark.parametrize("source", OTHERS.values(), ids=OTHERS)
def test_other_attention_is_rewritten_beside_it(source):
    new = rewritten(source, "sdpa")
    assert new is not None and ".softmax(dim=-1)" not in new
    for found, expected in zip(outputs(new, QKV), outputs(source, QKV), strict=True):
        torch.testing.assert_close(found, expected)
