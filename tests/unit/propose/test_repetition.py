"""What is computed twice is computed once, where the two are sure to be the same and stay apart."""

from __future__ import annotations

import textwrap

import pytest
import torch

from tests.unit.propose.test_rewrites import function, module, outputs, randn, rewritten

X = randn(4, 6)
NAME = "computed_once"


def body_of(source: str | None, header: str = "def Model(x):") -> str | None:
    """What stands below the header, without its indentation."""
    return None if source is None else textwrap.dedent(source.partition(f"{header}\n")[2]).strip()


SHARED = {
    "a new name": (
        "return torch.exp(x) / torch.exp(x).sum(-1)[:, None]",
        "exp_x = torch.exp(x)\nreturn exp_x / exp_x.sum(-1)[:, None]",
    ),
    "the name it has": (
        "y = x.softmax(-1)\nz = x + 1\nreturn z * y - x.softmax(-1)",
        "y = x.softmax(-1)\nz = x + 1\nreturn z * y - y",
    ),
    "three times, in lines apart": (
        "a = x * x.sigmoid()\nb = a / x.sigmoid()\nreturn b - (x.sigmoid())",
        "sigmoid_x = x.sigmoid()\na = x * sigmoid_x\nb = a / sigmoid_x\nreturn b - sigmoid_x",
    ),
    "the largest": (
        "a = torch.tanh(torch.exp(x)) * 2\nreturn a + torch.tanh(torch.exp(x))",
        "tanh_x = torch.tanh(torch.exp(x))\na = tanh_x * 2\nreturn a + tanh_x",
    ),
    "until it is another": (
        "a = x.exp() * 2 + x.exp()\nx = x.cos() * x.cos()\nreturn a + x.exp() + x.exp()",
        "exp_x = x.exp()\na = exp_x * 2 + exp_x\ncos_x = x.cos()\nx = cos_x * cos_x\n"
        "exp_x_2 = x.exp()\nreturn a + exp_x_2 + exp_x_2",
    ),
    "in a branch": (
        "if x.dim() == 2:\n    # both\n    return x.exp() - x.exp().mean()\nreturn x",
        "if x.dim() == 2:\n    # both\n    exp_x = x.exp()\n    return exp_x - exp_x.mean()\n"
        "return x",
    ),
    "a name that is taken": (
        "exp_x = x.mean()\nreturn exp_x * x.exp() + x.exp()",
        "exp_x = x.mean()\nexp_x_2 = x.exp()\nreturn exp_x * exp_x_2 + exp_x_2",
    ),
    "in a list of which a tensor is made": (
        "b = x[0, 0]\nreturn torch.tensor([[torch.cos(b), 0], [0, -torch.cos(b)]])",
        "b = x[0, 0]\ncos_b = torch.cos(b)\nreturn torch.tensor([[cos_b, 0], [0, -cos_b]])",
    ),
    "through views": (
        "return x.exp().unsqueeze(1) * x.exp().unsqueeze(0)",
        "exp_x = x.exp()\nreturn exp_x.unsqueeze(1) * exp_x.unsqueeze(0)",
    ),
}


@pytest.mark.parametrize(("before", "after"), SHARED.values(), ids=SHARED)
def test_it_is_computed_once(before, after):
    source = function(before)
    new = rewritten(source, NAME)
    assert body_of(new) == after
    for got, expected in zip(outputs(new, [X]), outputs(source, [X]), strict=True):
        assert torch.equal(got, expected)


def test_a_parameter_is_read_once():
    source = module(
        "self.scale = nn.Parameter(torch.ones(6))", "return self.scale.exp() * x / self.scale.exp()"
    )
    new = rewritten(source, NAME)
    assert "exp_scale = self.scale.exp()\n        return exp_scale * x / exp_scale" in new
    assert torch.equal(outputs(new, [X])[0], outputs(source, [X])[0])


APART = {
    "the tensor is another": "y = torch.exp(x)\nx = x + 1\nreturn y + torch.exp(x)",
    "the name is another": "y = torch.exp(x)\ny = y * 2\nreturn y + torch.exp(x)",
    "assigned in a branch": "y = x.exp() * 2\nif y.sum() > 0:\n    x = y\nreturn y + x.exp()",
    "both are returned": "return torch.exp(x), torch.exp(x)",
    "both are kept": "y = torch.exp(x)\nz = torch.exp(x)\nreturn y, z",
    "a view of both is returned": "return x.exp().view(-1), x.exp().view(-1)",
    "given to who knows whom": "return helper(x.exp()) + helper(x.exp())",
    "written in place": "y = x.exp() * 2\ny += x.exp()\nreturn y",
    "drawn": "return F.dropout(x) + F.dropout(x)",
    "of what is drawn": "return torch.exp(torch.rand_like(x)) + torch.exp(torch.rand_like(x))",
    "not always": "return x.exp() + 1 if x.sum() > 0 else x.exp() * 2",
    "not in the same block": "if x.sum() > 0:\n    return x.exp() * 2\nreturn x.exp() + 1",
    "of other variables": "return sum(row.exp() * row.exp() for row in x)",
    "named while it is read": "return (y := x + 1) * y.exp() + y.exp()",
    "in a message": 'assert x.exp().sum() > 0, f"{x.exp().sum()}"\nreturn x',
    "numbers": "return math.exp(2.0) * x + math.exp(2.0)",
}  # fmt: skip


@pytest.mark.parametrize("body", APART.values(), ids=APART)
def test_what_may_differ_is_computed_again(body):
    assert rewritten(function(body), NAME) is None


@pytest.mark.parametrize(
    ("init", "forward"),
    [
        ("self.norm = nn.LayerNorm(6)", "return self.norm(x) + self.norm(x)"),
        (
            "self.a = nn.ModuleDict({'norm': nn.LayerNorm(6)})",
            "return self.a.norm(x) + self.a.norm(x)",
        ),
        ("self.w = torch.ones(6)", "y = self.w.exp() * 2\nself.w = y\nreturn y + self.w.exp()"),
        ("self.act = nn.ReLU(inplace=True)", "return self.act(x) + x.exp() * x.exp()"),
    ],
)
def test_what_a_layer_does_or_a_method_keeps_is_left_alone(init, forward):
    assert rewritten(module(init, forward), NAME) is None
