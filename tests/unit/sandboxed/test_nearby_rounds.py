"""Rounds on nearby inputs: in some of them the reference also rounds at random."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
import torch

from cudal1_ci.sandboxed.forkserver.handles import RunnerFailure
from cudal1_ci.sandboxed.timing import nearby as near

FLOATS = torch.tensor([1.0])


def failure(kind):
    made = RunnerFailure.__new__(RunnerFailure)
    made.kind = kind
    return made


def nearby(monkeypatch, fails=None, inputs=FLOATS):
    """Return what repeats a round, and the seeds with which it did."""
    seeds = []

    def repeat(one, rounding=None):
        seeds.append(rounding)
        if fails is not None and rounding is not None:
            raise failure(fails)

    monkeypatch.setattr(near, "nearby_round", lambda one, _: SimpleNamespace(of=one))
    stock = SimpleNamespace(base=[SimpleNamespace(tensors=[inputs])])
    one = SimpleNamespace()
    return near.Nearby(repeat, stock, random.Random(0), one, near.KnownJumps()), seeds


def test_every_second_round_rounds_by_another_seed(monkeypatch):
    again, seeds = nearby(monkeypatch)
    for _ in range(4):
        again(1)
    assert [one is None for one in seeds] == [False, True, False, True]
    assert seeds[0] != seeds[2]


def test_the_kind_that_explains_more_comes_three_times_as_often(monkeypatch):
    for useful in (True, False):
        again, seeds = nearby(monkeypatch)
        num_left = 100
        for _ in range(14):
            again(num_left)
            num_left -= (seeds[-1] is not None) is useful
        assert [(one is not None) is useful for one in seeds[3:]].count(False) in (2, 3)


def test_few_elements_are_explained_at_first_and_then_now_and_again(monkeypatch):
    again, _ = nearby(monkeypatch)
    few = near.FEW_JUMPS / 2
    for _ in range(near.EXPLAINED_ROUNDS):
        assert all(again.are_due(few) for _ in range(50))
        again.note_explained()
    assert 0 < sum(again.are_due(few) for _ in range(400)) / 400 < 2 * near.EXPLAINED_SHARE
    assert all(again.are_due(2 * near.FEW_JUMPS) for _ in range(50))


def test_every_round_rounds_where_inputs_are_whole_numbers_alone(monkeypatch):
    again, seeds = nearby(monkeypatch, inputs=torch.tensor([1]))
    for _ in range(3):
        again(1)
    assert None not in seeds


def test_a_reference_that_cannot_be_rounded_is_asked_without(monkeypatch):
    again, seeds = nearby(monkeypatch, fails="raised")
    for _ in range(3):
        again(1)
    assert [one is None for one in seeds] == [False, True, True, True]


def test_a_reference_that_ends_is_reported(monkeypatch):
    again, _ = nearby(monkeypatch, fails="died")
    with pytest.raises(RunnerFailure):
        again(1)
