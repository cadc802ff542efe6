"""Rounds on nearby inputs: the reference also rounds at random in every second one."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from cudal1_ci.sandboxed.forkserver.handles import RunnerFailure
from cudal1_ci.sandboxed.timing import rounds


def failure(kind):
    made = RunnerFailure.__new__(RunnerFailure)
    made.kind = kind
    return made


def nearby(monkeypatch, fails=None):
    """Return what repeats a round, and the seeds with which it did."""
    seeds = []

    def play(*_, counts, rounding):
        assert not counts
        seeds.append(rounding)
        if fails is not None and rounding is not None:
            raise failure(fails)

    monkeypatch.setattr(rounds, "play", play)
    monkeypatch.setattr(rounds, "nearby_round", lambda one, _: SimpleNamespace(of=one))
    parts = SimpleNamespace(), (), SimpleNamespace(), random.Random(0), SimpleNamespace()
    return rounds.Nearby(*parts, SimpleNamespace()), seeds


def test_every_second_round_rounds_by_another_seed(monkeypatch):
    again, seeds = nearby(monkeypatch)
    for _ in range(4):
        again()
    assert [one is None for one in seeds] == [False, True, False, True]
    assert seeds[0] != seeds[2]


def test_a_reference_that_cannot_be_rounded_is_asked_without(monkeypatch):
    again, seeds = nearby(monkeypatch, fails="raised")
    for _ in range(3):
        again()
    assert [one is None for one in seeds] == [False, True, True, True]


def test_a_reference_that_ends_is_reported(monkeypatch):
    again, _ = nearby(monkeypatch, fails="died")
    with pytest.raises(RunnerFailure):
        again()
