"""Memory that calls keep: a cache that fills up is no leak."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from cudal1_ci.sandboxed.runner.contract import recipes
from cudal1_ci.sandboxed.verifier.contract.judgement import GROWTH, kept_memory


def growth_of(most_kept, keep):
    """Return what a program that keeps something of its first calls grows by."""
    kept = []

    def call(_=0):
        if len(kept) < most_kept:
            kept.append(keep())

    trial = SimpleNamespace(sets=[[torch.ones(2)]], program=SimpleNamespace(), call=call)
    recipes.memory(trial, "", None)
    return tuple(trial.growth)


@pytest.mark.parametrize(("most_kept", "leaks"), [(0, False), (300, False), (10**6, True)])
def test_blocks_of_the_first_few_hundred_calls_are_no_leak(most_kept, leaks):
    found = growth_of(most_kept, lambda: [object()])
    said = kept_memory((0.0,) * len(GROWTH), found)
    assert (said is not None and "memory blocks of Python" in said) is leaks


def test_tensors_of_the_first_few_hundred_calls_are_kept():
    said = kept_memory((0.0,) * len(GROWTH), growth_of(300, lambda: torch.ones(64)))
    assert said is not None and "bytes of tensors" in said
