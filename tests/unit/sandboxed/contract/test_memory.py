"""Memory that calls keep: a cache that fills up is no leak."""

from __future__ import annotations

import ctypes
import os
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


@pytest.mark.parametrize(
    "keep", [lambda: os.open(os.devnull, os.O_RDONLY), lambda: os.memfd_create("kept")]
)
def test_files_that_stay_open_are_kept(keep):
    opened = []

    def note():
        opened.append(keep())

    try:
        found = growth_of(10**6, note)
    finally:
        for one in opened:
            os.close(one)
    assert found[[*GROWTH].index("open files")] == 1.0


def test_tensors_of_the_first_few_hundred_calls_are_kept():
    said = kept_memory((0.0,) * len(GROWTH), growth_of(300, lambda: torch.ones(64)))
    assert said is not None and "bytes of tensors" in said


@pytest.mark.parametrize(("most_kept", "leaks"), [(0, False), (300, False), (10**6, True)])
@pytest.mark.parametrize("num_bytes", [256, 2**20])
def test_what_c_code_never_frees_is_kept(most_kept, leaks, num_bytes):
    malloc = ctypes.CDLL(None).malloc
    malloc.restype, malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
    numbers = list(range(10**4))

    def keep():
        malloc(num_bytes)
        return numbers[0]

    *others, found = growth_of(most_kept, keep)
    nothing = (0.0,) * len(GROWTH)
    assert (kept_memory(nothing, (*nothing[1:], found)) is not None) is leaks
    assert others[0] == 0.0, "it is no tensor"
    # Other code of this process may free a little meanwhile.
    assert not leaks or found >= 0.9 * num_bytes
