"""Every form on code as people write it: the new text, and that it computes the same."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
import torch

from cudal1_ci.propose.recorded import (
    arithmetic,
    channel_order,
    convolutions,
    matrices,
    moved,
    needless,
    reductions,
)
from tests.unit.propose.recorded.rig import assert_same, loaded, proposed

RULES = {
    one.name: one
    for module in (arithmetic, channel_order, convolutions, matrices, moved, needless, reductions)
    for one in module.RULES
    if one is not moved.RULES[-1]  # tested as on a GPU (test_moved.py)
}
HEADER = """\
import math
import torch
import torch.nn as nn
import torch.nn.functional as F
"""


def function(body: str, arguments: str = "x") -> str:
    return module("pass", body, f"self, {arguments}")


def module(init: str, forward: str, arguments: str = "self, x") -> str:
    init, forward = textwrap.dedent(init), textwrap.dedent(forward)
    return (
        f"{HEADER}\n\nclass Model(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n"
        + textwrap.indent(init.strip(), "        ")
        + f"\n\n    def forward({arguments}):\n"
        + textwrap.indent(forward.strip(), "        ")
        + "\n"
    )


DOUBLE_CONV = """

def conv3x3(num_channels):
    return nn.Conv2d(num_channels, num_channels, 3, bias=False)


class DoubleConv(nn.Module):
    def __init__(self, num_channels):
        super().__init__()
        self.double_conv = nn.Sequential(
            conv3x3(num_channels), nn.BatchNorm2d(num_channels), nn.ReLU(inplace=True)
        )

    def forward(self, x):
        return self.double_conv(x)
"""


def rewritten(
    tmp_path: Path, source: str, inputs: list[torch.Tensor], name: str
) -> tuple[str, str | None]:
    """Return the program with its inputs, and its text after one rule; None without a match."""
    torch.save(inputs, tmp_path / "inputs.pt")
    loads = f"torch.load({str(tmp_path / 'inputs.pt')!r})"
    text = f"{source}\n\ndef get_inputs():\n    return {loads}\n"
    return text, proposed(tmp_path, text, [RULES[name]]).get(name)


def on_one_line(text: str) -> str:
    """Return what a rule wrote over several lines as it would stand on one."""
    text = re.sub(r"(?<=\()\n\s+", "", text)
    return re.sub(r"(?<=,)\n\s+", " ", re.sub(r",?\n\s*(?=\))", "", text))


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


X = randn(4, 6, 8)
POSITIVE = X.abs() + 0.1
QKV = [randn(2, 4, 6, 8), randn(2, 4, 6, 8)]

# name, source, inputs, a piece of the new text
CASES = [
    ("rsqrt", function("return 1.0 / torch.sqrt(x)"), [POSITIVE], "torch.rsqrt(x)"),
    ("rsqrt", function("return x.pow(2).sqrt()"), [X], "torch.abs(x)"),
    ("rsqrt", function("return (x.mean(-1) + 1.0) ** -0.5"), [POSITIVE], "torch.rsqrt("),
    ("identity_arithmetic", function("y = x * 1.0\nreturn y + 0"), [X], "y = x"),
    ("identity_arithmetic", function("return x * 2.0 * 4.0"), [X], "x * 8.0"),
    ("idempotent", function("return torch.relu(F.relu(x))"), [X], "F.relu(x)"),
    ("idempotent", function("return torch.sigmoid(x).clamp(0, 1)"), [X], "torch.sigmoid(x)"),
    ("idempotent", function("x = F.relu(x)\nx = F.leaky_relu(x, 0.01)\nreturn x"), [X],
     "        x = F.relu(x)\n        return x"),
    ("idempotent", module("self.tanh = nn.Tanh()\nself.gelu = nn.GELU()\nself.h = nn.Hardtanh()",
     "return self.h(self.gelu(self.tanh(x)))"), [X], "return self.gelu(self.tanh(x))"),
    (
        "constant_result",
        function("return torch.clamp(torch.clamp(x, max=0.0), min=0.0, max=1.0)"),
        [X],
        "torch.full_like(x, 0.0)",
    ),
    ("diagonal_product", function("return torch.diag(a) @ x", "a, x"), [X[0, 0], randn(8, 3)],
     "a.unsqueeze(-1) * x"),
    ("diagonal_product", function("return torch.matmul(x, torch.diag(a))", "a, x"),
     [X[0, 0], randn(3, 8)], "x * a"),
    ("sum_through_product", module("self.fc = nn.Linear(8, 5)", "return self.fc(x).sum(dim=-1)"),
     [X], "self.fc.weight.sum(0, keepdim=True)"),
    ("sum_through_product", module("self.fc = nn.Linear(8, 5)",
     "return self.fc(x).mean(-1, keepdim=True)"), [X], "self.fc.bias.mean()"),
    ("sum_through_product", function("return (x @ w).sum(-1)", "x, w"), [X, randn(8, 7)],
     "torch.matmul(x, w.sum(-1, keepdim=True)).squeeze(-1)"),
    ("sum_through_product", function("return (x @ w / 2).sum(-1, keepdim=True) * 3", "x, w"),
     [X, randn(8, 7)], "(torch.matmul(x, w.sum(-1, keepdim=True)) / 2) * 3"),
    ("sum_through_product", module("self.fc = nn.Linear(8, 5)",
     "x = self.fc(x)\nx = 4 * x\nreturn torch.sum(x, dim=-1)"), [X], ".squeeze(-1) * 4"),
    ("sum_through_product", function("x = torch.mm(x, w.t())\nreturn x.sum(dim=1)", "x, w"),
     [X[0], randn(4, 8)], "torch.matmul(x, w.t().sum(-1, keepdim=True)).squeeze(-1)"),
    ("mse_loss", function("return torch.mean((a - b) ** 2) * 3", "a, b"), [X, X.flip(0)],
     "return F.mse_loss(a, b) * 3"),
    ("mse_loss", function("d = a - b\nreturn (d * d).mean()", "a, b"), [X, X.flip(0)],
     "return F.mse_loss(a, b)"),
    ("reassociate_product", function("return (a @ b) @ v", "a, b, v"),
     [randn(6, 5), randn(5, 4), randn(4, 1)], "torch.matmul(a, torch.matmul(b, v))"),
    ("reassociate_product", function("return q @ k.transpose(1, 2) @ v", "q, k, v"),
     [randn(2, 9, 3), randn(2, 9, 3), randn(2, 9, 3)],
     "torch.matmul(q, torch.matmul(k.transpose(1, 2), v))"),
    ("sum_through_product", module("self.fc = nn.Linear(8, 5)",
     "x = self.fc(x)\nx = torch.sum(x, dim=-1, keepdim=True)\nx = x * 2\nreturn x"), [X],
     "        x = F.linear(x, self.fc.weight.sum(0, keepdim=True)"),
    ("reduction_of_one", function(
        "x = torch.sum(x, dim=1, keepdim=True)\nx = torch.max(x, dim=1, keepdim=True)[0]\n"
        "x = x.mean(1, keepdim=True)\nx = torch.logsumexp(x, dim=1, keepdim=True)\nreturn x"),
     [X], "        x = torch.sum(x, dim=1, keepdim=True)\n        return x"),
    ("reduction_of_one", function(
        "x = x.mean(dim=(1, 2), keepdim=True)\nreturn torch.logsumexp(F.gelu(x), dim=2)"), [X],
     "return F.gelu(x).squeeze(2)"),
    ("reduction_of_one", function("return x.mean([1, 2], keepdim=True).sum(dim=[1, 2])"), [X],
     "x.mean([1, 2], keepdim=True).squeeze([1, 2])"),
    ("extremum", function("return torch.max(x, dim=1, keepdim=True)[0] * 2"), [X],
     "torch.amax(x, dim=1, keepdim=True) * 2"),
    ("extremum", module("self.dim = 1", "return x.min(dim=self.dim).values"), [X],
     "return torch.amin(x, dim=self.dim)"),
    ("vector_norm", function("return x / x.abs().sum(dim=1, keepdim=True)"), [X],
     "x / torch.linalg.vector_norm(x, 1, dim=1, keepdim=True)"),
    ("vector_norm", function("return (x**2).sum(-1).sqrt()"), [X],
     "torch.linalg.vector_norm(x, dim=-1)"),
    ("vector_norm", function("return torch.mean(x**2, dim=1, keepdim=True)"), [X],
     "(torch.linalg.vector_norm(x, dim=1, keepdim=True) / x.shape[1] ** 0.5).square()"),
    ("pools_in_a_row", module("self.a = nn.MaxPool2d(2)\nself.b = nn.MaxPool2d(kernel_size=3)",
     "x = self.a(x)\nx = self.b(x)\nreturn x"), [randn(2, 3, 17, 19)],
     "        x = F.max_pool2d(x, 6)\n        return x"),
    ("pools_in_a_row", function("return F.avg_pool1d(F.avg_pool1d(x, 2), 2)"), [X],
     "F.avg_pool1d(x, 4)"),
    ("einsum_to_matmul", function("return torch.einsum('bhqd,bhkd->bhqk', q, k)", "q, k"),
     QKV[:2], "torch.matmul(q, k.transpose(-2, -1))"),
    ("einsum_to_matmul", function('return torch.einsum("bij, jk -> bik", x, w)', "x, w"),
     [X, randn(8, 3)], "torch.matmul(x, w)"),
    ("linear", module("self.b = nn.Parameter(torch.randn(3))", "return x @ w.t() + self.b",
                      "self, x, w"), [X, randn(3, 8)], "F.linear(x, w, self.b)"),
    ("addmm", function("return torch.bmm(x, y) + b", "x, y, b"),
     [X, randn(4, 8, 3), randn(4, 6, 3)], "torch.baddbmm(b, x, y)"),
    ("attention_weights", module("self.attn = nn.MultiheadAttention(8, 2, batch_first=True)",
     "y, _ = self.attn(x, x, x)\nreturn x + y"), [X],
     "y, _ = self.attn(x, x, x, need_weights=False)"),
    ("attention_weights", module("self.attn = nn.MultiheadAttention(8, 2)",
     "return self.attn(\n    x,\n    key=x,\n    value=x,\n)[0]"), [X],
     "            value=x,\n            need_weights=False,\n        )[0]"),
    ("softmax", function("e = torch.exp(x)\nreturn e / e.sum(dim=-1, keepdim=True)"), [X],
     "return torch.softmax(x, dim=-1)"),
    ("softmax", function(
        "e = torch.exp(x - x.max(dim=1, keepdim=True)[0])\n"
        "return e / torch.sum(e, dim=1, keepdim=True)"), [X], "torch.softmax(x, dim=1)"),
    ("log_softmax", function("return torch.log(F.softmax(x, dim=1))"), [X],
     "F.log_softmax(x, dim=1)"),
    ("logsumexp", function("return x.exp().sum(dim=-1).log()"), [X], "torch.logsumexp(x, dim=-1)"),
    ("cross_entropy", function(
        "p = F.log_softmax(x, dim=-1)\nreturn -p.gather(1, t.unsqueeze(1)).mean()", "x, t"),
     [X[0], torch.tensor([0, 3, 7, 1, 2, 2])], "return F.cross_entropy(x, t.long())"),
    ("normalize", function("return x / x.norm(dim=-1, keepdim=True).clamp(min=1e-12)"), [X],
     "F.normalize(x, dim=-1, eps=1e-12)"),
    ("create_on_device", function("return x + torch.ones(8).to(x.device)"), [X],
     "torch.ones(8, device=x.device)"),
    ("scalar_tensor", function("return x / torch.sqrt(torch.tensor(8.0))"), [X], "math.sqrt(8.0)"),
    ("scalar_bound", function("return torch.min(x, torch.tensor(0.5))"), [X],
     "torch.clamp(x, max=0.5)"),
    ("scalar_bound", module("self.low = -0.25", "return torch.maximum(torch.tensor(self.low), x)"),
     [X], "torch.clamp(x, min=self.low)"),
    ("diagonal_product", function("return torch.matmul(torch.diag(a), b).sum(0)", "a, b"),
     [randn(6), randn(6, 4)], "return (a.unsqueeze(-1) * b).sum(0)"),
    ("diagonal_product", function("return -torch.mm(torch.diag(a), b) ** 2 + b", "a, b"),
     [randn(6), randn(6, 4)], "return -(a.unsqueeze(-1) * b) ** 2 + b"),
    ("diagonal_product", function("return torch.diag(a) @ b + b", "a, b"),
     [randn(6), randn(6, 4)], "return (a.unsqueeze(-1) * b) + b"),
    ("transposed_convolution", module("self.up = nn.ConvTranspose1d(3, 4, 5, padding=2)",
     "return -F.relu(self.up(x))"), [randn(2, 3, 8)], "return -F.relu(untransposed(self.up, x))"),
    ("transposed_convolution", module("self.up = nn.ConvTranspose2d(3, 4, (3, 4), 1, (1, 0), "
     "dilation=(2, 1), bias=False)", "return self.up(x)"), [randn(2, 3, 8, 9)],
     "return untransposed(self.up, x)"),
    ("transposed_convolution", module("self.up = nn.ConvTranspose2d(3, 4, 3, (1, 1))",
     "return self.up(x)"), [randn(3, 8, 9)], "untransposed(self.up, x)"),
    ("transposed_convolution", module("self.up = nn.ConvTranspose2d(3, 4, 2, padding=3)",
     "return self.up(x)"), [randn(2, 3, 9, 9)], "untransposed(self.up, x)"),
    ("channels_last", module("self.conv = nn.Conv2d(3, 4, 3)", "return self.conv(x)"),
     [randn(2, 3, 8, 8)], "self.to(memory_format=torch.channels_last)"),
    ("channels_last", module("self.net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), "
     "nn.ReLU(inplace=True))", "return self.net(x)"), [randn(2, 3, 8, 8)],
     "        self.to(memory_format=torch.channels_last)\n"),
    ("channels_last", module("layers = []\nfor i in range(2):\n"
     "    layers.append(nn.Conv2d(3, 3, 3))\nself.net = nn.Sequential(*layers)",
     "return self.net(x)"), [randn(2, 3, 8, 8)],
     "x = x.contiguous(memory_format=torch.channels_last)"),
    ("channels_last", module("self.down = DoubleConv(3)\nself.pool = nn.MaxPool2d(2)",
     "return self.pool(self.down(x))") + DOUBLE_CONV, [randn(2, 3, 8, 8)],
     "x = x.contiguous(memory_format=torch.channels_last)"),
    ("solve", function("inverse = torch.inverse(a)\nreturn torch.mm(inverse, b) + 1", "a, b"),
     [randn(6, 6) + 9 * torch.eye(6), randn(6, 2)], "return torch.linalg.solve(a, b) + 1"),
    ("product_without_copies", function("return torch.matmul(a, b.unsqueeze(-1))", "a, b"),
     [randn(3, 8, 8), randn(16, 3, 8)], '"...ij,...jk->...ik", a, b.unsqueeze(-1)'),
    ("running_sum", function("n = x.size(1)\nreturn x @ torch.ones(n, n, dtype=x.dtype).triu()"),
     [randn(4, 6)], "return x.cumsum(-1)"),
    ("values_alone", function("_, s, _ = torch.svd(x)\nreturn s.sum(-1)"),
     [randn(2, 6, 4)], "s = torch.linalg.svdvals(x)\n"),
    ("patch_product", module("self.proj = nn.Conv3d(2, 4, (1, 2, 3), bias=False)",
     "return -self.proj(x.view(-1, 2, 1, 2, 3))"), [randn(5, 12)],
     "return -patch_product(self.proj, x.view(-1, 2, 1, 2, 3))"),
    ("unfolded_convolution", module("self.w = nn.Parameter(torch.randn(4, 2, 3, 3))",
     "y = F.unfold(x, kernel_size=3, stride=2)\nreturn self.w.flatten(1) @ y"),
     [randn(2, 2, 7, 7)], "return F.conv2d(x, self.w, stride=2).flatten(2)"),
    ("sum_of_stack", function("both = torch.stack([a, b], dim=1)\nreturn both.mean(1)", "a, b"),
     [randn(6, 4), randn(6, 4)], "return (a + b) / 2"),
    ("positions_of_logits", function("return F.softmax(x, dim=-1).argmax(dim=-1)"),
     [randn(6, 4)], "return torch.argmax(x, dim=-1)"),
    ("positions_of_max", function("return x.argmin(0, keepdim=True)"),
     [randn(6, 4)], "return torch.min(x, dim=0, keepdim=True).indices"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "source", "inputs", "expected"),
    CASES,
    ids=[f"{i}-{c[0]}" for i, c in enumerate(CASES)],
)
def test_a_form_computes_the_same(tmp_path, name, source, inputs, expected):
    text, new = rewritten(tmp_path, source, inputs, name)
    assert new is not None, "the rule does not match"
    assert expected in new or expected in on_one_line(new), new
    assert_same(tmp_path, text, new)


def test_every_rule_has_a_case():
    assert {*RULES} == {case[0] for case in CASES}


GRADIENTS = {"reduction_of_one", "mse_loss", "extremum", "vector_norm", "pools_in_a_row",
             "scalar_bound", "idempotent", "sum_through_product", "attention_weights",
             "sum_of_stack", "patch_product", "unfolded_convolution",
             "solve", "product_without_copies", "running_sum", "values_alone",
             "transposed_convolution", "softmax", "cross_entropy"}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "source", "inputs"), [case[:3] for case in CASES if case[0] in GRADIENTS]
)
def test_a_form_has_the_same_gradients_to_the_last_digits(tmp_path, name, source, inputs):
    def gradients(text):
        torch.manual_seed(0)
        model = loaded(text, tmp_path / "model.py")
        model = getattr(model, "ModelNew", None) or model.Model
        model = model().double().eval()
        given = [
            one.double().requires_grad_() if one.is_floating_point() else one for one in inputs
        ]
        output = model(*given)
        (output * torch.arange(1.0, output.numel() + 1).reshape(output.shape)).sum().backward()
        leaves = [one for one in given if one.is_floating_point()]
        return [output.detach(), *(one.grad for one in (*leaves, *model.parameters()))]

    text, new = rewritten(tmp_path, source, inputs, name)
    for before, after in zip(gradients(text), gradients(new), strict=True):
        torch.testing.assert_close(after, before, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["extremum", "reduction_of_one", "scalar_bound", "idempotent"])
def test_what_is_no_number_stays_so(tmp_path, name):
    for _, source, inputs, _ in (case for case in CASES if case[0] == name):
        strange = [one.clone() for one in inputs]
        for one in strange:
            one.view(-1)[:3] = torch.tensor([float("nan"), float("inf"), -float("inf")])
        text, new = rewritten(tmp_path, source, inputs, name)
        made = [loaded(one, tmp_path / "model.py") for one in (text, new)]
        before, after = ((getattr(one, "ModelNew", None) or one.Model)()(*strange) for one in made)
        torch.testing.assert_close(after, before, rtol=1e-5, atol=1e-5, equal_nan=True)


IMAGES = randn(2, 4, 8, 8)
PAIR = [X, X.flip(0)]
PRODUCT = [X[0], randn(8, 6)]

# name, source, inputs
NEAR_MISSES = [
    ("transposed_convolution", module("self.up = nn.ConvTranspose2d(4, 4, 3, stride=2)",
                                      "return self.up(x)"), [IMAGES]),
    ("transposed_convolution", module("self.up = nn.ConvTranspose2d(4, 4, 3, groups=4)",
                                      "return self.up(x)"), [IMAGES]),
    ("transposed_convolution", module("self.up = nn.ConvTranspose2d(4, 4, 3)",
                                      "return self.up(x, output_size=[10, 10])"), [IMAGES]),
    ("idempotent", function("return F.leaky_relu(F.gelu(x), 0.01)"), [X]),
    ("idempotent", function("return F.hardtanh(F.gelu(x), -1, 1)"), [X]),
    ("idempotent", function("return F.hardtanh(torch.tanh(x), -0.5, 1)"), [X]),
    ("idempotent", module("self.m = 1.0", "return F.hardtanh(torch.tanh(x), -1, self.m)"), [X]),
    ("idempotent", function("return torch.clamp(F.mish(x), min=-0.3)"), [X]),
    ("idempotent", function("y = x.exp()\nreturn torch.relu(y), y"), [X]),
    ("sum_through_product", module("self.fc = nn.Linear(8, 5)",
     "x = self.fc(x)\ny = x.sum(-1)\nreturn x, y"), [X]),
    ("sum_through_product", module("self.fc = nn.Linear(8, 5)",
     "x = self.fc(x)\nh = x\nx = x.sum(-1)\nreturn x, h"), [X]),
    ("sum_through_product", module("self.fc = nn.Linear(8, 5)",
     "x = self.fc(x)\nif x.ndim > 2:\n    x = x.sum(-1)\nreturn x"), [X]),
    ("sum_through_product", module("self.fc = nn.Linear(8, 5)",
     "x = self.fc(x)\nreturn x.sum(-1) * x.mean()"), [X]),
    ("sum_through_product", module("self.fc = nn.Linear(8, 5)",
     "x = self.fc(x)\nx += 1\nreturn x.sum(-1)"), [X]),
    ("sum_through_product", module("self.fc = nn.Linear(8, 5)", "return self.fc(x).sum(1)"), [X]),
    ("mse_loss", function("return ((x - 1) ** 2).mean()"), [X]),
    ("mse_loss", function("return ((x - y) ** 2).mean(dim=0)", "x, y"), PAIR),
    ("mse_loss", function("return ((x - y) ** 3).mean()", "x, y"), PAIR),
    ("mse_loss", module("self.power = 2", "return ((x - y) ** self.power).mean()", "self, x, y"),
     PAIR),
    ("mse_loss", function("return ((x - y[:1]) ** 2).mean()", "x, y"), PAIR),
    ("reduction_of_one", function("return x.sum(1, keepdim=True).logsumexp(dim=2)"), [X]),
    ("reduction_of_one", function("return x.sum(1, keepdim=True).logsumexp(dim=(1, 2))"), [X]),
    ("reduction_of_one", function("return (x.sum(1, keepdim=True) + y).logsumexp(dim=1)", "x, y"),
     PAIR),
    ("reduction_of_one", function("return x.amax(1, keepdim=True).sum(1)"), [X]),
    ("reduction_of_one", function("return x.sum(1, keepdim=True).mean(dim=1, dtype=torch.half)"),
     [X]),
    ("reduction_of_one", function("return x.sum(1, keepdim=True).softmax(dim=1)"), [X]),
    ("reduction_of_one", function("y = x.sum(1, keepdim=True)\nz = y.mean(1, keepdim=True)\n"
     "y += 1\nreturn z"), [X]),
    ("identity_arithmetic", function("y = x.exp()\nz = y + 0\ny.add_(1)\nreturn z"), [X]),
    ("identity_arithmetic", function("return x * 2.0 + 1"), [X]),
    ("identity_arithmetic", function("return (x > 0) * 1.0 + x"), [X]),
    ("extremum", function("return x.max(dim=1)[1]"), [X]),
    ("extremum", function("values, places = x.max(dim=1)\nreturn values, places"), [X]),
    ("extremum", function("return x.amax(dim=1)"), [X]),
    ("vector_norm", function("return x.abs().sum()"), [X]),
    ("vector_norm", function("return x.abs().sum(1, dtype=torch.double)"), [X]),
    ("vector_norm", function("return (x**2).mean(-1)"), [X]),
    ("vector_norm", function("return (x**3).sum(1).sqrt()"), [X]),
    ("pools_in_a_row", module("self.a = nn.MaxPool2d(2)\nself.b = nn.AvgPool2d(2)",
     "return self.b(self.a(x))"), [IMAGES]),
    ("pools_in_a_row", module("self.a = nn.MaxPool2d(2, stride=1)\nself.b = nn.MaxPool2d(2)",
     "return self.b(self.a(x))"), [IMAGES]),
    ("pools_in_a_row", module("self.a = nn.AvgPool2d(2, padding=1)\nself.b = nn.AvgPool2d(2)",
     "return self.b(self.a(x))"), [IMAGES]),
    ("pools_in_a_row", module("size = 2\nself.a = nn.MaxPool2d(size)\nself.b = nn.MaxPool2d(2)",
     "return self.b(self.a(x))"), [IMAGES]),
    ("pools_in_a_row", function("return F.max_pool2d(F.max_pool2d(x, 2, ceil_mode=True), 2)"),
     [IMAGES]),
    ("scalar_bound", function("return torch.min(x, torch.tensor([0.5]))"), [X]),
    ("scalar_bound", module("self.c = nn.Parameter(torch.ones(()))",
     "return torch.min(x, self.c)"), [X]),
    ("scalar_tensor", function("return x, torch.sqrt(torch.tensor(8.0))"), [X]),
    ("softmax", function("e = torch.exp(x)\nreturn e / e.sum(dim=-1)"), [X[:, :4, :4]]),
    ("softmax", function("e = torch.exp(x)\nreturn e / (e.sum(dim=-1, keepdim=True) + 1)"), [X]),
    ("softmax", function("e = torch.exp(x)\nreturn e / e.sum(dim=-1, keepdim=True), e"), [X]),
    ("addmm", function("return torch.mm(x, y) + 1.0", "x, y"), PRODUCT),
    ("addmm", function("return (x @ y) + y[:6]", "x, y"), PRODUCT),
    ("linear", function("return x @ w.t() + b", "x, w, b"), [X, randn(3, 8), randn(6, 3)]),
    ("einsum_to_matmul", function("return torch.einsum('bij,bij->b', x, x)"), [X]),
    ("einsum_to_matmul", function("return torch.einsum('ij,jk->ki', x, y)", "x, y"), PRODUCT),
    ("reassociate_product", function("return (a @ b) @ v", "a, b, v"),
     [randn(2, 5), randn(5, 6), randn(6, 6)]),
    ("reassociate_product", function("return (a @ b) @ v", "a, b, v"),
     [randn(3, 6, 5), randn(5, 4), randn(4, 1)]),
    ("diagonal_product", function("return torch.diag(a) @ x", "a, x"), [X[0, 0], randn(8)]),
    ("normalize", function("return x / x.norm(dim=-1, keepdim=True)"), [X]),
    ("constant_result", function("return torch.clamp(torch.clamp(x, max=1.0), min=0.0)"), [X]),
    ("constant_result", module("self.m = 0.0",
     "return torch.clamp(torch.clamp(x, max=self.m), min=0.0)"), [X]),
    ("attention_weights", module("self.attn = nn.MultiheadAttention(8, 2)",
     "y, weights = self.attn(x, x, x)\nreturn y * weights.mean()"), [X]),
    ("attention_weights", module("self.attn = nn.MultiheadAttention(8, 2)",
     "y, _ = self.attn(x, x, x, need_weights=True)\nreturn y"), [X]),
    ("attention_weights", module("self.attn = nn.MultiheadAttention(8, 2)\nself.wanted = False",
     "y, w = self.attn(x, x, x)\nif self.wanted:\n    return w\nreturn y"), [X]),
    ("channels_last", module("self.fc = nn.Linear(8, 4)", "return self.fc(x)"), [IMAGES]),
    ("channels_last", module("self.conv = nn.Conv2d(4, 4, 3)\n"
                             "self.to(memory_format=torch.channels_last)", "return self.conv(x)"),
     [IMAGES]),
    ("channels_last", module("self.conv = nn.Conv2d(4, 4, 3)", "return self.conv(x)"),
     [IMAGES[0]]),
    ("create_on_device", function("return x + torch.ones(8).to(torch.float32)"), [X]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "source", "inputs"),
    NEAR_MISSES,
    ids=[f"{i}-{c[0]}" for i, c in enumerate(NEAR_MISSES)],
)
def test_a_rule_leaves_alone_what_it_does_not_match(tmp_path, name, source, inputs):
    assert rewritten(tmp_path, source, inputs, name)[1] is None


def test_a_file_keeps_its_own_function_of_that_name(tmp_path):
    source = module("self.up = nn.ConvTranspose2d(4, 4, 3)", "return self.up(x)")
    theirs = source.replace(
        "\n\nclass Model", "\n\ndef untransposed(a, b):\n    return a\n\n\nclass Model"
    )
    assert rewritten(tmp_path, theirs, [IMAGES], "transposed_convolution")[1] is None
