"""Which sentences claim something: of each kind true ones, and look-alikes that must be left."""

from __future__ import annotations

import pytest

from cudal1_ci.propose.llm.claims.sentences import (
    BoundClaim,
    OperatorClaim,
    SpeedupClaim,
    claims_in,
)


def kinds(text):
    return [type(claim) for claim in claims_in(text)]


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("The reference is memory-bound.", "memory"),
        ("It is heavily memory bandwidth bound, because x is read twice.", "memory"),
        ("- **The call is limited by memory bandwidth**", "memory"),
        ("The module is compute-bound on this GPU.", "compute"),
        ("The forward pass is launch-bound: forty small kernels.", "launch"),
        ("The reference is dominated by kernel launch overhead.", "launch"),
    ],
)
def test_what_bounds_the_reference(text, bound):
    (claim,) = claims_in(text)
    assert isinstance(claim, BoundClaim)
    assert claim.bound == bound


@pytest.mark.parametrize(
    "text",
    [
        "The reference is not memory-bound.",
        "The reference isn't memory-bound.",
        "If the batch is large, the reference is memory-bound.",
        "The reference is memory-bound for large inputs.",
        "The reference is memory-bound when the batch is large.",
        "The reference is memory-bound, if caches are cold.",
        "The reference is memory-bound, but only in its first half.",
        "The reference could be memory-bound.",
        "The reference is probably memory-bound.",
        "The reference is hardly memory-bound.",
        "The softmax is memory-bound.",
        "Variant 2 is memory-bound.",
        "The new kernel is memory-bound.",
        "Is the reference memory-bound?",
        "The reference is less memory-bound than variant 1.",
        "Memory-bound kernels are common.",
        "Unlike attention, the reference is memory-bound.",
    ],
)
def test_a_sentence_that_only_looks_like_it_claims_nothing(text):
    assert claims_in(text) == []


@pytest.mark.parametrize(
    ("text", "operator"),
    [
        ("Softmax dominates the runtime.", "softmax"),
        ("The `softmax` operation dominates, since it reads twice.", "softmax"),
        ("The matrix multiplication is the bottleneck.", "matmul"),
        ("The main bottleneck is the conv2d call.", "convolution"),
        ("The reference is dominated by the layer norm.", "layer norm"),
        ("Most of the time is spent in dropout.", "dropout"),
        ("GELU takes most of the time.", "gelu"),
    ],
)
def test_which_operator_takes_the_time(text, operator):
    (claim,) = claims_in(f"First of all.\n{text} And more.")
    assert isinstance(claim, OperatorClaim)
    assert claim.operator == operator


@pytest.mark.parametrize(
    "text",
    [
        "Softmax no longer dominates the runtime.",
        "Softmax does not dominate the runtime.",
        "Once fused, softmax dominates the runtime.",
        "Softmax would dominate the runtime.",
        "Softmax dominates the runtime, unless the rows are short.",
        "Softmax dominates the memory traffic.",
        "Softmax dominates dropout.",
        "In variant 1 softmax dominates the runtime.",
        "Softmax dominates the runtime of variant 1.",
        "The loop over heads is the bottleneck.",
        "The mask is the bottleneck.",
        "The softmax of the remaining rows is the bottleneck.",
        "Does softmax dominate the runtime?",
    ],
)
def test_a_sentence_that_only_looks_like_it_names_no_operator(text):
    assert claims_in(text) == []


@pytest.mark.parametrize(
    ("text", "speedup", "half_unit"),
    [
        ("This is 2x faster.", 2.0, 0.5),
        ("The new version is about 3.5 times faster than the reference.", 3.5, 0.05),
        ("It will be 10x faster, since nothing is written.", 10.0, 0.5),
        ("The fused kernel gives a speedup of 4x over the baseline.", 4.0, 0.5),
        ("This achieves a 2.25x speedup.", 2.25, 0.005),
        ("The overall speedup is 3x.", 3.0, 0.5),
    ],
)
def test_how_many_times_faster(text, speedup, half_unit):
    (claim,) = claims_in(text)
    assert isinstance(claim, SpeedupClaim)
    assert claim.speedup == speedup
    assert claim.half_unit == pytest.approx(half_unit)


@pytest.mark.parametrize(
    "text",
    [
        "This could be 2x faster.",
        "This should be 2x faster.",
        "This is not 2x faster.",
        "This is up to 2x faster.",
        "This is at least 2x faster.",
        "This is 2x faster than variant 1.",
        "This is 2x faster than a loop in Python.",
        "This is 2x faster for long rows.",
        "This is 2x faster, if the input is contiguous.",
        "The softmax is 2x faster.",
        "Half precision is 2x faster than single.",
        "This reads 2x less memory.",
        "This needs 2x fewer launches.",
        "Variant 2 has a speedup of 1.8x.",
        "The speedup of variant 2 is 1.8x.",
        "This is 50% faster.",
        "This is faster.",
        "If fused, this is 2x faster.",
    ],
)
def test_a_number_that_only_looks_like_it_claims_no_speedup(text):
    assert claims_in(text) == []


def test_each_sentence_is_looked_at_by_itself_and_numbers_do_not_end_one():
    text = "The reference is launch-bound. Softmax dominates the runtime; This is 2.5x faster!"
    assert kinds(text) == [BoundClaim, OperatorClaim, SpeedupClaim]
    assert kinds("") == []
    assert kinds("This is 2x faster, as " + "z" * 400) == []


def test_a_long_text_is_read_in_a_moment():
    hostile = ("the " * 70 + "is memory" + ". ") * 500 + "a" * 100_000
    assert claims_in(hostile) == []
