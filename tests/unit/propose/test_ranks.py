"""Whether a dimension is known to be the last one, from how a target is called."""

from __future__ import annotations

import pytest
import torch

from cudal1_ci.propose.config import PlaybookConfig
from cudal1_ci.propose.rewrites.strategy import Playbook
from cudal1_ci.propose.rewrites.table import REWRITES
from cudal1_ci.records import Call, Made, Problem, TensorSpec, TextProgram, Workload

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


def rewritten(source: str, *calls: Call | Made, name: str = "sum_through_product") -> str | None:
    workloads = tuple(
        Workload(name=str(n), provenance="declared", init=Call(), call=call)
        for n, call in enumerate(calls)
    )
    problem = Problem(reference=TextProgram(source=source, entry="Model"), workloads=workloads)
    rewrites = [one for one in REWRITES if one.name == name]
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


ADDED = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = {made}

    def forward(self, x, w, b):
        return x @ w.t() + {summand}
"""


@pytest.mark.parametrize(
    ("summand", "made", "shapes", "is_bias"),
    [
        ("b", "1", [(3,), (3,)], True),
        ("b", "1", [(3,), (5, 3)], False),
        ("b", "1", [(5, 3)], False),
        ("b * 2", "1", [(3,)], True),
        ("self.c", "nn.Parameter(torch.zeros(3))", [()], True),
        ("self.c", "nn.Parameter(torch.zeros(size))", [()], True),
        ("self.c", "nn.Parameter(torch.zeros(5, 3))", [()], False),
        ("self.c", "torch.zeros((5, 3))", [()], False),
        ("b.c", "1", [(3,)], False),
    ],
)
def test_only_a_vector_becomes_a_bias(summand, made, shapes, is_bias):
    calls = [tensors((5, 8), (3, 8), one) for one in shapes]
    new = rewritten(ADDED.format(made=made, summand=summand), *calls, name="linear")
    assert (new is not None) == is_bias
    assert not is_bias or f".linear(x, w, {summand})" in new


def test_ranks_go_through_what_keeps_them():
    assert rewritten(LAYER.format(given="torch.relu(x) * 2"), tensors((5, 8))) is not None
    for given in ("x.mean(1)", "x[0]", "x + y", "torch.unsqueeze(x, 0)"):
        assert rewritten(LAYER.format(given=given), tensors((5, 8))) is None


ATTENTION = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, q, k, v):
        {given}
        return (q @ {key}.transpose({dims})).softmax(-1) @ v
"""
FOUR, FIVE = (2, 3, 4, 4), (2, 3, 4, 4, 4)


def attended(source: str, *shapes: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """What a program returns, and what attention of its inputs is."""
    names: dict = {}
    exec(source, names)
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(*shape, generator=generator) for shape in shapes)
    attention = torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=1.0)
    return names["Model"]()(q, k, v), attention


@pytest.mark.parametrize("dims", ["2, 3", "3, 2", "dim0=2, dim1=3"])
def test_what_swaps_the_last_two_of_four_dimensions_is_no_attention_of_five(dims):
    source = ATTENTION.format(given="pass", key="k", dims=dims)
    new = rewritten(source, tensors(FOUR, FOUR, FOUR), name="sdpa")
    assert new is not None and "scaled_dot_product_attention(q, k, v" in new
    torch.testing.assert_close(*attended(source, FOUR, FOUR, FOUR))
    torch.testing.assert_close(attended(new, FOUR, FOUR, FOUR)[0], attended(source, *[FOUR] * 3)[0])

    assert rewritten(source, tensors(FIVE, FIVE, FIVE), name="sdpa") is None
    found, attention = attended(source, FIVE, FIVE, FIVE)
    assert not torch.allclose(found, attention)
    assert rewritten(source, Call(), name="sdpa") is None, "there may be five"
    assert rewritten(source, tensors(FOUR, FIVE, FOUR), name="sdpa") is None


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ("B, H, T, D = k.shape", "k"),
        ("B, H, T, D = k.size()", "k"),
        ("k = k.reshape(2, 4, 3, 4).transpose(1, 2)", "k"),
        ("k = k.reshape((2, 4, 3, 4)).permute(0, 2, 1, 3)", "k"),
        ("k = k.view(2, 3, 4, 4).contiguous()", "k"),
        ("k = k[:, 0].flatten(1).view(2, 16).unsqueeze(1).unsqueeze(-1).view(2, 1, 4, 4)", "k"),
        ("k = k.reshape(2, 3, 16).relu().view(2, 12, 4).view(6, 4, 4)", "k.unsqueeze(0)"),
    ],
)
def test_four_dimensions_are_known_from_the_text(given, key):
    source = ATTENTION.format(given=given, key=key, dims="2, 3")
    if "unsqueeze(0)" in key:
        source = source.replace("(q @", "(q.view(1, 6, 4, 4) @").replace("@ v", "@ v.flatten(0, 1)")
    new = rewritten(source, Call(), name="sdpa")
    assert new is not None
    torch.testing.assert_close(attended(new, *[FOUR] * 3)[0], attended(source, *[FOUR] * 3)[0])


@pytest.mark.parametrize(
    "given",
    [
        "B, *rest = k.shape",
        "B, H, T, D = q.shape",
        "k = k.relu()\n        B, H, T, D = k.shape",
        "if k.dim() == 4:\n            B, H, T, D = k.shape",
        "k = k.view(k.shape)",
        "k = k.view(*k.shape)",
        "k = k.view((2, 3, 4, *k.shape[3:]))",
        "k = k.view(2, 3, 4, *k.shape[3:])",
        "k = k.view(torch.float32)",
        "k = k[:, 0].unsqueeze(1)",
    ],
)
def test_the_text_may_say_nothing_of_four_dimensions(given):
    source = ATTENTION.format(given=given, key="k", dims="2, 3")
    attended(source, FOUR, FOUR, FOUR)
    assert rewritten(source, Call(), name="sdpa") is None
    last_two = source.replace("transpose(2, 3)", "transpose(-1, -2)")
    assert rewritten(last_two, Call(), name="sdpa") is not None


def test_a_parameter_of_another_method_is_another_tensor():
    source = LAYER.format(given="x").replace("self.fc(x)", "self.summed(x)").replace(".sum(1)", "")
    source += """
    def summed(self, x):
        return self.fc(x[None]).sum(1) + self.last(x[None])

    def last(self, x):
        return self.fc(x).sum(1)
"""
    assert rewritten(source, tensors((5, 8))) is None
