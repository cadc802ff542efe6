"""Fewer things are held at a time where memory is short."""

from __future__ import annotations

import pytest

from cudal1_ci.sandboxed.verifier.memory_plan import (
    CPU_SHARE,
    GPU_SHARE,
    Plan,
    call_bytes,
    least_bytes,
    num_together,
    plan,
)

GIB = 2**30


@pytest.mark.parametrize("share", [CPU_SHARE, GPU_SHARE])
def test_many_calls_share_a_part_of_the_memory(share):
    found = plan(1000, 1000, 0, 2**20, max_calls=200, share=share)
    assert found == Plan(2**20 // share // call_bytes(1000, 1000, 2, 3), 2, 3)
    assert 1 < found.most_calls < 200
    assert plan(1000, 1000, 0, 2**40, max_calls=200, share=share) == Plan(200, 2, 3)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (None, Plan(9, 2, 3)),
        (9, Plan(9, 2, 3)),
        (10, Plan(16, 1, 3)),  # and not 20 of two runners
        (500, Plan(16, 1, 3)),
    ],
)
def test_sets_have_one_place_where_more_calls_are_wanted_than_fit_with_two(wanted, expected):
    """Of a reduction, by the sets alone: nine for a call, or five."""
    memory = 2 * 9 * call_bytes(GIB, 1, 2, 3) + 100
    assert plan(GIB, 1, 0, memory, max_calls=200, wanted_calls=wanted) == expected


def test_one_call_of_64_mib_fits_into_half_of_two_gib():
    """As test_large_calls.py takes it, on a GPU."""
    assert plan(2**26, 2**26, 0, 2**31, 400, wanted_calls=10, share=GPU_SHARE).most_calls == 1
    assert plan(2**26, 2**26, 0, 2**32, 400, wanted_calls=10, share=GPU_SHARE).most_calls == 2


def test_no_more_calls_are_wanted_than_a_batch_may_have():
    memory = 2 * 200 * call_bytes(1000, 1000, 2, 3)
    assert plan(1000, 1000, 0, memory, max_calls=200, wanted_calls=500) == Plan(200, 2, 3)


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        (100 * GIB, Plan(1, 2, 3)),
        (28 * GIB, Plan(1, 2, 3)),
        (24 * GIB, Plan(1, 1, 3)),
        (19 * GIB, Plan(1, 1, 2)),  # what a card of 24 GB has free for tensors
        (12 * GIB, None),
    ],
)
def test_tensors_of_gigabytes(memory, expected):
    assert plan(int(1.5 * GIB), int(1.5 * GIB), 0, memory, max_calls=200) == expected


def test_the_least_is_one_call_of_two_runners_however_much_there_is():
    assert plan(1000, 1000, 0, 2**40, max_calls=200, is_least=True) == Plan(1, 1, 2)
    needed = least_bytes(1000, 1000, 0)
    assert plan(1000, 1000, 0, needed, max_calls=200, is_least=True) == Plan(1, 1, 2)
    assert plan(1000, 1000, 0, needed - 1, max_calls=200, is_least=True) is None


def test_what_the_documentation_says_of_a_card_of_24_gb():
    free_bytes = 24 * 10**9 * 4 // 5
    tensor_bytes = 1_900_000_000
    assert plan(tensor_bytes, tensor_bytes, 0, free_bytes, max_calls=200) == Plan(1, 1, 2)


def test_the_state_of_each_runner_counts():
    assert plan(GIB, GIB, 0, 11 * GIB, 200) == Plan(1, 1, 2)
    assert plan(GIB, GIB, 2 * GIB, 11 * GIB, 200) is None
    needed = least_bytes(GIB, GIB, 2 * GIB)
    assert plan(GIB, GIB, 2 * GIB, needed, 200) == Plan(1, 1, 2)
    assert plan(GIB, GIB, 2 * GIB, needed - 1, 200) is None


def test_trial_sets_are_given_one_at_least():
    assert num_together(100, 0, 8 * 101 * 5) == 5
    assert num_together(100, 50, 8 * 201 * 5) == 5
    assert num_together(GIB, 0, GIB) == num_together(1, GIB, GIB) == 1
