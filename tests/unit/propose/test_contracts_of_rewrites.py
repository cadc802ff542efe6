"""What the rewrites write for the layers of the example keeps every line of the contract."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from cudal1_ci.sandboxed.verifier.contract import examine_contract
from tests.unit.propose.test_rewrites import HEADER, rewritten
from tests.unit.sandboxed.conftest import template
from tests.unit.sandboxed.contract.test_contract import BUDGET_S, LIMITS, broken, learned
from tests.unit.sandboxed.messages import text

__all__ = ["learned", "template"]
pytestmark = pytest.mark.starts_verifier
LAYERS = Path(__file__).parents[3] / "examples/slowformer/slowformer/layers"


def layer(file: str, name: str, inputs: str, init: str = "") -> str:
    """Return a layer of the example as a program: its inputs, and what it is constructed with."""
    source = (LAYERS / file).read_text(encoding="utf-8")
    (found,) = (one for one in ast.parse(source).body if getattr(one, "name", None) == name)
    definition = ast.get_source_segment(source, found)
    assert definition is not None
    given = f"\n\ndef get_inputs():\n    return [{inputs}]\n"
    given += f"\n\ndef get_init_inputs():\n    return [{init}]\n" if init else ""
    return HEADER + "\n\n" + definition.replace(name, "Model", 1) + given


HEADWISE = layer("attention.py", "HeadwisePooling", "torch.randn(6, 3, 12, 8)", "6, 8")
POSITIONS = layer("positions.py", "SinusoidalPositions", "torch.randn(2, 32, 16)", "16")
PAIRS = "torch.randn(16, 24), torch.randn(20, 24)"
PAIRS = layer("mixing.py", "pairwise_sq_distances", PAIRS)
LOSS = layer("scoring.py", "TokenLoss", "torch.randn(32, 10), torch.randint(0, 10, (32,))")
CASES = [
    ("pairwise_distance", PAIRS, "dtype bfloat16", ""),
    ("pairwise_distance", PAIRS, "dtype float16", ""),
    ("cross_entropy", LOSS, "dtype of targets: int32", ""),
    ("hoist_table", POSITIONS, "dtype bfloat16", ""),
    ("hoist_table", POSITIONS, "dtype float16", ""),
    ("loop_to_vmap", HEADWISE, "num_heads of the constructor changed", "num_heads = 5"),
    ("loop_to_vmap", HEADWISE, "more rows of x", "x.shape[0] = 7"),
]
"""A rewrite, a program, a line of the contract and what it tried."""


@pytest.fixture(scope="module")
def examined(template, learned):
    """What the contract says of a rewrite of a program: each is examined once."""
    known = {}

    def of(name, source):
        if (name, source) not in known:
            new = rewritten(source, name)
            assert new is not None
            case = learned(source)
            checks, _ = examine_contract(case, template, text(new), LIMITS, BUDGET_S)
            known[name, source] = {check.aspect: check for check in checks}
        return known[name, source]

    return of


@pytest.mark.parametrize(("name", "source", "aspect", "tried"), CASES, ids=lambda v: v[:24])
def test_the_line_is_held(examined, name, source, aspect, tried):
    found = examined(name, source)
    assert found[aspect].result == "held", found[aspect].detail
    assert tried in found[aspect].detail
    assert broken(found) == set()


ONE_HOT = f"""{HEADER}

def Model(i, w):
    return F.one_hot(i, 5).float() @ w


def get_inputs():
    return [torch.randint(0, 5, (4, 8)), torch.randn(5, 3)]
"""
MIXER = layer("mixing.py", "DiagonalMixer", "torch.randn(32, 24)", "32")


@pytest.mark.parametrize(
    ("name", "source", "aspect"),
    [
        ("diagonal_product", MIXER, "NaN and infinities in x"),
        ("one_hot_product", ONE_HOT, "NaN and infinities in w"),
    ],
    ids=lambda v: v[:24],
)
def test_what_differs_is_stated(examined, name, source, aspect):
    found = examined(name, source)
    assert {one.aspect for one in found.values() if one.result == "differs"} == {aspect}
    assert broken(found) == set()
