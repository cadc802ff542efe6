"""Whether a dimension is known to be the last one, from how a target is called."""

from __future__ import annotations

import pytest
import torch

from cudal1_ci.propose.playbook import Playbook, PlaybookConfig
from cudal1_ci.propose.playbook.table import REWRITES
from cudal1_ci.schema import Call, Made, Problem, TensorSpec, TextProgram, Workload

GEMM = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, num_in, num_out, factor):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(num_out, num_in))
        self.factor = factor

    def forward(self, x):
        x = torch.matmul(x, self.weight.T)
        x = x / 2
        x = torch.sum(x, dim=1, keepdim=True)
        x = x * self.factor
        return x


batch_size = 16


def get_inputs():
    {made}


def get_init_inputs():
    return [8, 4, 1.5]
"""
SUMMED = "torch.matmul(x, self.weight.T.sum(-1, keepdim=True)) / 2"
LAYER = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        return torch.relu(self.fc({given})).sum(1) if self.training else self.fc({given}).sum(1)
"""


def rewritten(source: str, *calls: Call | Made) -> str | None:
    workloads = tuple(
        Workload(name=str(n), provenance="declared", init=Call(), call=call)
        for n, call in enumerate(calls)
    )
    problem = Problem(reference=TextProgram(source=source, entry="Model"), workloads=workloads)
    rewrites = [one for one in REWRITES if one.name == "sum_through_product"]
    candidates = Playbook(PlaybookConfig(), rewrites).propose(problem, (), 1)
    return candidates[0].program.source if candidates else None


def tensors(*shapes: tuple[int, ...]) -> Call:
    return Call(args=tuple(TensorSpec(shape=one, dtype="float32") for one in shapes))


def answers(source: str) -> torch.Tensor:
    names: dict = {}
    exec(source, names)
    torch.manual_seed(0)
    model = names["Model"](*names["get_init_inputs"]())
    return model(*names["get_inputs"]())


@pytest.mark.parametrize(
    "made",
    [
        "return [torch.rand(batch_size, 8)]",
        "return [torch.randn((batch_size, 8), device='cpu')]",
        "x = torch.ones(batch_size, 8)\n    return (x,)",
    ],
)
def test_a_programs_inputs_are_read(made):
    source = GEMM.format(made=made)
    new = rewritten(source, Made(function="get_inputs"))
    assert new is not None and SUMMED in new
    torch.testing.assert_close(answers(new), answers(source))


@pytest.mark.parametrize(
    "made",
    [
        "return [torch.rand(3, batch_size, 8)]",
        "shape = (batch_size, 8)\n    return [torch.rand(shape)]",
        "shape = (batch_size, 8)\n    return [torch.rand(*shape)]",
        "return [torch.rand(batch_size * 8).view(batch_size, 8)]",
        "return {{'x': torch.rand(batch_size, 8)}}",
        "if batch_size:\n        return [torch.rand(batch_size, 8)]",
        "return make()",
    ],
)
def test_what_is_not_plainly_two_dimensions_is_left_alone(made):
    assert rewritten(GEMM.format(made=made), Made(function="get_inputs")) is None
    assert rewritten(GEMM.format(made=made), Made(function="other")) is None


def test_traced_shapes_are_known():
    source = LAYER.format(given="x")
    assert "weight.sum(0" in rewritten(source, tensors((5, 8)))
    assert "weight.sum(0" in rewritten(source, tensors((5, 8)), tensors((7, 8)))
    assert rewritten(source, tensors((5, 3, 8))) is None
    assert rewritten(source, tensors((5, 8)), tensors((5, 3, 8))) is None
    assert rewritten(source, tensors((5, 8)), Call()) is None
    assert rewritten(source, Call()) is None


def test_ranks_go_through_what_keeps_them():
    assert rewritten(LAYER.format(given="torch.relu(x) * 2"), tensors((5, 8))) is not None
    for given in ("x.mean(1)", "x[0]", "x + y", "torch.unsqueeze(x, 0)"):
        assert rewritten(LAYER.format(given=given), tensors((5, 8))) is None
