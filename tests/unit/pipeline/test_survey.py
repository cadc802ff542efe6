"""What is planned depends on where it can be measured."""

from __future__ import annotations

import pytest

from cudal1_ci.discover import DiscoveryConfig
from cudal1_ci.discover.declared import declarations
from cudal1_ci.discover.ladder import Evidence
from cudal1_ci.survey import survey

MODEL = """
import torch
from torch import nn

class Scale(nn.Module):
    def forward(self, x):
        return x * 2
"""
KERNEL = """
import triton
import triton.language as tl

@triton.jit
def scale_kernel(x, n):
    tl.store(x, tl.load(x) * 2)
"""


def plan(root, inputs, on_gpu):
    (root / "model.py").write_text(MODEL)
    (root / "kernel.py").write_text(KERNEL)
    workloads = ({"target": "model.py:Scale", "inputs": inputs},)
    evidence = Evidence(declared=declarations(workloads, "test"))
    found = survey(root, DiscoveryConfig(), evidence=evidence, repository="r", on_gpu=on_gpu)
    return {planned.target.qualname: planned for planned in found.targets}


@pytest.mark.parametrize(
    ("inputs", "on_gpu", "is_judged"),
    [
        (["float32[4, 4]"], False, True),
        (["float32[4, 4]"], True, True),
        (["float32[4, 4] on cuda"], False, False),
        (["float32[4, 4] on cuda"], True, True),
    ],
)
def test_calls_with_cuda_tensors_are_judged_where_there_is_a_gpu(
    tmp_path, inputs, on_gpu, is_judged
):
    planned = plan(tmp_path, inputs, on_gpu)["Scale"]
    assert (planned.problem is not None) is is_judged
    if not is_judged:
        assert "--device cuda" in planned.hint


@pytest.mark.parametrize("on_gpu", [False, True])
def test_kernels_are_listed_with_the_reason(tmp_path, on_gpu):
    planned = plan(tmp_path, ["float32[4, 4]"], on_gpu)["scale_kernel"]
    assert planned.problem is None
    assert "Triton kernel" in planned.reason
