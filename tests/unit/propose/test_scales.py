"""Constants that scale a tensor are joined, and stay as their author wrote them."""

from __future__ import annotations

import pytest
import torch

from tests.unit.propose.test_rewrites import function, outputs, randn, rewritten

X = randn(4, 6)
JOINED = {
    "x * math.pi * 0.5": "x * (math.pi * 0.5)",
    "2.0 * x * x * math.pi * 0.5": "2.0 * x * x * (math.pi * 0.5)",
    "(x + 1) / (1 + half) * math.pi / 2": "(x + 1) / (1 + half) * (math.pi / 2)",
    "x * (math.pi * 0.5) * 2.0": "x * ((math.pi * 0.5) * 2.0)",
    "x / 3.0 * math.pi": "x * (math.pi / 3.0)",
    "x * math.pi / 3.0": "x * (math.pi / 3.0)",
    "x / math.pi / 3": "x / (math.pi * 3)",
    "0.5 * (math.pi * x)": "math.pi * 0.5 * x",
    "math.sqrt(2.0) * x / 3": "math.sqrt(2.0) / 3 * x",
    "2 * (x / 3)": "2 / 3 * x",
    "x * half * math.pi": "x * (half * math.pi)",
    "x * 2.0 * 4.0": "x * 8.0",
    "x * -2.0 * 4.0": "x * -8.0",
    "x * 2.0 / 4.0": "x * 0.5",
    "x / 2.0 / 3.0": "x / 6.0",
    "x * 2 * 3": "x * 6",
    "x * 0.1 * 3": "x * (0.1 * 3)",
    "x * 1e300 * 1e300": "x * (1e300 * 1e300)",
    "x * math.pi / math.pi": "x",
    "x * x * math.pi * 0.5": "x * x * (math.pi * 0.5)",
    "(x + 1.5) / (x * x + 1.5) * math.pi * 0.5": "(x + 1.5) / (x * x + 1.5) * (math.pi * 0.5)",
    "x * 2.0 @ x.T * math.pi * 0.5": "x * 2.0 @ x.T * (math.pi * 0.5)",
    "(x + x) * math.pi * 0.5": "(x + x) * (math.pi * 0.5)",
    "x ** 2 * math.pi * 0.5": "x ** 2 * (math.pi * 0.5)",
    "-x * math.pi * 0.5": "-x * (math.pi * 0.5)",
    "x.exp() * math.pi * 2.0 - x": "x.exp() * (math.pi * 2.0) - x",
    "-(x * math.pi * 2.0) ** 2": "-(x * (math.pi * 2.0)) ** 2",
    # What changes nothing goes, and what stands beside it stays.
    "x * (math.pi * 0.5) * 1.0": "x * (math.pi * 0.5)",
    "x * (math.pi * 0.5) + 0": "x * (math.pi * 0.5)",
    "1.0 * x + math.pi * 0.5": "x + math.pi * 0.5",
}


@pytest.mark.parametrize(("before", "after"), JOINED.items(), ids=JOINED)
def test_constants_of_a_product_are_joined_as_they_are_written(before, after):
    source = function(f"half = 0.5\nreturn {before}")
    new = rewritten(source, "identity_arithmetic")
    assert new is not None and new.endswith(f"    return {after}")
    (expected,), (found,) = outputs(source, [X]), outputs(new, [X])
    torch.testing.assert_close(found, expected)


def test_whole_numbers_stay_whole():
    whole = torch.arange(5)
    source = function("return x * 2 * 3")
    (found,) = outputs(rewritten(source, "identity_arithmetic"), [whole])
    assert torch.equal(found, whole * 6) and found.dtype == whole.dtype


@pytest.mark.parametrize("whole", ["(x > 0) * 1.0", "torch.arange(4) / 1", "0.0 + x.argmax(-1)"])
def test_what_makes_floats_of_whole_numbers_stays(whole):
    assert rewritten(function(f"return {whole}"), "identity_arithmetic") is None


def test_a_constant_that_has_another_value_since_is_not_joined():
    source = function("c = math.pi\ny = x * c\nc = 2.0\nreturn y * c")
    assert rewritten(source, "identity_arithmetic") is None


def test_a_sum_is_scaled_as_what_was_summed():
    source = function("return (x @ w * (math.pi * 0.5)).sum(-1)", "x, w")
    new = rewritten(source, "sum_through_product")
    assert new is not None and new.endswith(".squeeze(-1) * (math.pi * 0.5)")
    given = [X, randn(6, 3)]
    torch.testing.assert_close(outputs(new, given)[0], outputs(source, given)[0])
