"""Edits that need what the recorded call does not do."""

from __future__ import annotations

import msgspec
import pytest

from cudal1_ci.optimize.pointless import NO_CONVOLUTION, NO_GRAPH, NO_PRODUCT, why_pointless
from cudal1_ci.records import Edit
from tests.fakes import a_candidate
from tests.unit.propose.recorded.rig import problem_and_recording

MODULE = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.conv = torch.nn.Conv2d(3, 2, 1)
        self.lstm = torch.nn.LSTM(4, 4)

    def forward(self, x, image):
        return {}

def get_inputs():
    return [torch.randn(2, 4{}), torch.randn(1, 3, 4, 4)]
"""
LAYOUTS = ("channels_last", "channels_last_inside", "cudnn_benchmark")


def why(tmp_path, value, operator, dtype="", num_workloads=1):
    problem, recording = problem_and_recording(tmp_path, MODULE.format(value, dtype))
    edit = Edit(operator=operator, technique="t", found=(), why="w")
    candidate = msgspec.structs.replace(a_candidate(problem, "text"), edits=(edit,))
    workloads = problem.workloads * num_workloads
    problem = msgspec.structs.replace(problem, workloads=workloads)
    return why_pointless(candidate, problem, recording)


@pytest.mark.parametrize(
    ("value", "has_product", "has_convolution"),
    [
        ("torch.relu(x) + x.sum()", False, False),
        ("self.linear(x)", True, False),
        ("x @ x.T", True, False),
        ("torch.einsum('ab,cb->ac', x, x)", True, False),
        ("self.lstm(x[None])[0]", True, False),
        ("torch.cdist(x, x)", True, False),
        ("torch.nn.functional.scaled_dot_product_attention(*[x[None]] * 3)", True, False),
        ("self.conv(image)", True, True),
    ],
)
def test_tensor_cores_need_a_product_and_layouts_a_convolution(
    tmp_path, value, has_product, has_convolution
):
    assert why(tmp_path, value, "fp32_tensor_cores") == (None if has_product else NO_PRODUCT)
    for one in LAYOUTS:
        assert why(tmp_path, value, one) == (None if has_convolution else NO_CONVOLUTION)
    assert why(tmp_path, value, "compile") is None


def test_products_of_other_dtypes_gain_nothing_and_other_workloads_may_do_more(tmp_path):
    assert why(tmp_path, "x @ x.T", "fp32_tensor_cores", ", dtype=torch.float64") == NO_PRODUCT
    assert why(tmp_path, "torch.relu(x)", "channels_last", num_workloads=2) is None


def on_gpu(recording, *cpu_shapes):
    """A recording whose tensors are on a GPU, but for those of some shapes."""
    values = tuple(
        one if one.shape in cpu_shapes else msgspec.structs.replace(one, device="cuda:0")
        for one in recording.values
    )
    return msgspec.structs.replace(recording, values=values)


@pytest.mark.parametrize(
    ("value", "cpu_shapes", "is_held"),
    [
        ("x * 2", (), True),
        ("x * x.sum()", ((),), True),
        ("x[x[:, 0] > 0]", (), False),
        ("x * float(x.sum())", (), False),
        ("x + torch.ones(1, 4).to(x)", ((1, 4),), False),
    ],
)
def test_a_graph_holds_no_wait_and_no_copy_from_the_cpu(tmp_path, value, cpu_shapes, is_held):
    problem, recording = problem_and_recording(tmp_path, MODULE.format(value, ""))
    candidate = a_candidate(problem, "text")

    def why(*operators):
        edits = tuple(Edit(operator=one, technique="t", found=(), why="w") for one in operators)
        changed = msgspec.structs.replace(candidate, edits=edits)
        return why_pointless(changed, problem, on_gpu(recording, *cpu_shapes))

    assert why("cuda_graph") == (None if is_held else NO_GRAPH)
    assert why("syncs", "cuda_graph") is None
