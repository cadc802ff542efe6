"""What is loaded into a module: numbers that are not special, where they may be others."""

from __future__ import annotations

import pytest
import torch

from cudal1_ci.sandboxed.verifier.states import (
    NEUTRAL_OFF,
    held_by,
    not_held_by,
    other_states,
    randomize,
)
from cudal1_ci.sandboxed.wire.tensors import StateSlot

ONES, ZEROS = torch.ones(40), torch.zeros(40)
CONSTANT = {
    "window": torch.hann_window(8),
    "mask": torch.tril(torch.ones(4, 4)),
    "eps": torch.tensor(1e-5),
    "count": torch.zeros(3, dtype=torch.long),
    "is_on": torch.zeros(3, dtype=torch.bool),
    "empty": torch.zeros(0),
    "least": torch.full((3,), float("-inf")),
}


def slot(key, is_parameter=False):
    return StateSlot(dtype="float32", shape=(), stride=(), key=key, is_parameter=is_parameter)


def generator():
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("value", [ONES, ZEROS, torch.tensor(1.0), ZEROS.bfloat16()])
def test_a_buffer_of_zeros_or_ones_holds_others_once_another_state_is_loaded(value):
    slots = [slot("norm.offset")]
    first = value.clone()
    randomize(slots[0], first, generator())
    assert torch.equal(first, value)
    loaded, plain = other_states(slots, [first], generator())
    assert torch.equal(plain[0], value)
    assert torch.equal(first, value)
    low, high = NEUTRAL_OFF
    off = (loaded[0] - value).abs()
    assert bool(((off >= low * 0.98) & (off <= high * 1.02)).all())
    assert bool(((loaded[0] > 0) & (loaded[0] < 1)).all())


@pytest.mark.parametrize("key", CONSTANT)
def test_other_buffers_are_constants(key):
    value = CONSTANT[key]
    first = value.clone()
    randomize(slot(key), first, generator())
    (other,) = other_states([slot(key)], [first], generator())
    assert torch.equal(first, value)
    assert torch.equal(other[0], value)


def test_parameters_and_statistics_are_others_in_every_state():
    slots = [slot("weight", True), slot("norm.running_mean"), slot("norm.running_var")]
    state = [ONES.clone(), ZEROS.clone(), ONES.clone()]
    for one, tensor in zip(slots, state, strict=True):
        randomize(one, tensor, generator())
    (other,) = other_states(slots, state, torch.Generator().manual_seed(1))
    for plain, first, second in zip([ONES, ZEROS, ONES], state, other, strict=True):
        assert not torch.equal(first, plain)
        assert not torch.equal(first, second)
    assert bool((other[2] > 0).all())


@pytest.mark.parametrize("cast", [torch.bfloat16, torch.float16])
def test_numbers_that_a_cast_changes_are_cast_to_those_of_the_trials(cast):
    drawn = torch.randn(4096, generator=generator())
    held = held_by(drawn, cast)
    other = not_held_by(held, cast, generator())
    assert torch.equal(other.to(cast), held.to(cast))
    assert (other != held).double().mean() > 0.99
    assert not_held_by(held, None, generator()) is held
    zeros = not_held_by(torch.zeros(2), cast, generator())
    assert torch.equal(zeros, torch.zeros(2))
