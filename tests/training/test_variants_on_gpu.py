"""Variants of every kind on a GPU, against the task in double precision on a CPU."""

from __future__ import annotations

import itertools

import pytest
import torch

from model_training.tasks.draft import Scale
from model_training.tasks.families import FAMILIES
from model_training.tasks.generate import distinct
from model_training.variants import variants_of
from tests.training.equality import errors

NUM_TASKS = 4
SCALE = Scale(min_elements=2**12, max_elements=2**14, max_loop=8)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::UserWarning")  # of the compiler, on what it might do
@pytest.mark.parametrize("kind", ["torch", "triton", "graph", "compile"])
@pytest.mark.parametrize("family", FAMILIES)
def test_variants_compute_the_same_on_a_gpu(family, kind):
    num_compiled = 1 if kind == "compile" else NUM_TASKS  # seconds each
    refused = []
    for task in itertools.islice(distinct([family], SCALE), num_compiled):
        for variant in variants_of(task, (kind,)):
            error, own = errors(task.text, variant.text, "cuda")
            if error > 8 * own + 2e-5:
                refused.append((task.name, error, own, variant.text))
        torch.compiler.reset()
    assert not refused, refused
