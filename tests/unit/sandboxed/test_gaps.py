"""What the copying of outputs that lie otherwise than their places may take."""

from dataclasses import replace

import pytest
import torch

from cudal1_ci.sandboxed.memory.accelerators import Cpu
from cudal1_ci.sandboxed.memory.segment import slot_of
from cudal1_ci.sandboxed.timing import strided_copy
from cudal1_ci.sandboxed.timing.strided_copy import ALONE_US, MOST_BYTES, copying_us, lies_otherwise
from cudal1_ci.sandboxed.wire.tensors import OutputSlot


def slot(tensor):
    own_stride = tuple(tensor.stride())
    return OutputSlot(**vars(slot_of(tensor)), device="cpu", own_stride=own_stride)


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (torch.ones(4, 6), False),
        (torch.ones(6, 4).t(), False),  # its place is laid out like it
        (torch.ones(4, 12)[:, ::2], True),
        (torch.ones(4, 12)[:, :6], True),
        (torch.ones(1, 6).expand(4, 6), True),
        (torch.ones(8, 6)[::8], False),  # one row: how far the next one would be says nothing
        (torch.tensor(1.0), False),
        (torch.ones(0, 3), False),
    ],
)
def test_what_does_not_lie_as_its_place_does(tensor, expected):
    assert lies_otherwise(slot(tensor)) is expected


def test_outputs_without_gaps_are_allowed_nothing():
    assert copying_us(Cpu(), [slot(torch.ones(4, 6)), slot(torch.ones(6, 4).t())], 100) == 0.0


def test_one_with_gaps_has_all_outputs_copied_alone():
    slots = [slot(torch.ones(2, 4)[:, ::2]), slot(torch.ones(2))]
    assert copying_us(Cpu(), slots, 100) >= 2 * 100 * ALONE_US


def test_large_gaps_are_allowed_what_they_take():
    dense, wide = torch.ones(512, 512), torch.ones(512, 512, 32)[..., 0]
    few = copying_us(Cpu(), [slot(torch.ones(4, 2)[:, ::2])], 1)
    assert few == ALONE_US
    assert copying_us(Cpu(), [slot(wide)], 1) > 3 * few
    assert copying_us(Cpu(), [slot(dense)], 1) == 0.0


@pytest.mark.parametrize("own_stride", [[2**50, 1], [0, 2**50]])
def test_strides_of_nothing_that_fits_cost_no_memory(own_stride):
    lying = replace(slot(torch.ones(4, 6)), own_stride=tuple(own_stride))
    assert copying_us(Cpu(), [lying], 10) == 10 * ALONE_US


def test_an_expanded_output_takes_no_more_memory_than_another(monkeypatch):
    """It is a number or two, and its place is as large as any."""
    made = []
    plain = torch.zeros

    def zeros(shape, **settings):
        made.append(plain(shape, **settings))
        return made[-1]

    monkeypatch.setattr(torch, "zeros", zeros)
    monkeypatch.setattr(strided_copy, "MOST_BYTES", 2**20)
    copying_us(Cpu(), [slot(torch.ones(1, 1).expand(256, 256))], 1000)
    assert len(made) == 2 * 4
    assert sum(one.nbytes for one in made) <= 2 * 2**20
    made.clear()
    copying_us(Cpu(), [slot(torch.ones(1, 1).expand(2048, 256))], 1000)
    assert sum(one.nbytes for one in made) <= 2 * 2**20


@pytest.mark.times
def test_a_large_output_is_reckoned_from_a_part_of_it():
    rows = 8 * MOST_BYTES // (4 * 2**20)
    large = replace(slot(torch.ones(1, 1)), shape=(rows, 2**10), own_stride=(2**20, 2**10))
    part = replace(large, shape=(rows // 8, 2**10))
    tries = [(copying_us(Cpu(), [large], 1), copying_us(Cpu(), [part], 1)) for _ in range(5)]
    found = min(one for one, _ in tries) / min(other for _, other in tries)
    assert 3.0 < found < 24.0, found
