"""Every rewrite on code as people write it: the new text, and that it computes the same."""

from __future__ import annotations

import re
import textwrap

import pytest
import torch

from cudal1_ci.propose.config import PlaybookConfig
from cudal1_ci.propose.rewrites.strategy import Playbook
from cudal1_ci.propose.rewrites.table import REWRITES
from cudal1_ci.records import Call, Problem, TensorSpec, TextProgram, Workload
from tests import triton_on_torch

HEADER = """\
import math
import torch
import torch.nn as nn
import torch.nn.functional as F
"""


def function(body: str, arguments: str = "x") -> str:
    return f"{HEADER}\n\ndef Model({arguments}):\n" + textwrap.indent(textwrap.dedent(body), "    ")


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


def rewritten(source: str, name: str) -> str | None:
    """The source after one rewrite; None when it does not match."""
    config = PlaybookConfig(triton=True)
    playbook = Playbook(config, [r for r in REWRITES if r.name == name])
    assert playbook.rewrites, f"there is no rewrite {name}"
    workload = Workload(name="w", provenance="declared", init=Call(), call=Call())
    problem = Problem(reference=TextProgram(source=source, entry="Model"), workloads=(workload,))
    candidates = playbook.propose(problem, (), 5)
    if not candidates:
        return None
    (candidate,) = candidates
    assert isinstance(candidate.program, TextProgram)
    assert candidate.proposer == f"playbook:{name}"
    assert candidate.analysis
    assert candidate.design
    return candidate.program.source


def on_one_line(text: str) -> str:
    """What a rewrite wrote over several lines, as it would stand on one."""
    text = re.sub(r"(?<=\()\n\s+", "", text)
    return re.sub(r"(?<=,)\n\s+", " ", re.sub(r",?\n\s*(?=\))", "", text))


def outputs(source: str, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    namespace: dict[str, object] = {}
    with triton_on_torch.installed():
        exec(compile(source, "<program>", "exec"), namespace)
    model = namespace["Model"]
    torch.manual_seed(0)
    if isinstance(model, type):
        model = model().eval()
    with torch.no_grad():
        output = model(*(t.clone() for t in inputs))
    return list(output) if isinstance(output, tuple) else [output]


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


ATTENTION = """
scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.size(-1))
weights = F.softmax(scores, dim=-1)
return torch.matmul(weights, v)
"""
CAUSAL = """
T = q.shape[-2]
scores = (q @ k.transpose(-2, -1)) * (q.shape[-1] ** -0.5)
mask = torch.triu(torch.ones(T, T), diagonal=1).bool()
scores = scores.masked_fill(mask, float("-inf"))
return scores.softmax(dim=-1) @ v
"""
TRIL = """
att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
T = q.shape[-2]
att = att.masked_fill(torch.tril(torch.ones(T, T)) == 0, float("-inf"))
att = F.softmax(att, dim=-1)
y = att @ v
return y
"""
LAYER_NORM = """
mean = x.mean(dim=-1, keepdim=True)
var = ((x - mean) ** 2).mean(dim=-1, keepdim=True)
x = (x - mean) / torch.sqrt(var + 1e-5)
return self.g * x + self.b
"""
CHANNEL_NORM = """
u = x.mean(1, keepdim=True)
s = (x - u).pow(2).mean(1, keepdim=True)
x = (x - u) / torch.sqrt(s + 1e-6)
x = self.g[:, None, None] * x + self.b[:, None, None]
return x
"""
SCALE_AND_SHIFT = "self.g = nn.Parameter(torch.randn(8))\nself.b = nn.Parameter(torch.randn(8))"


def scaled(init: str, factor: str) -> str:
    """Attention whose scores have a factor."""
    forward = f"""
    B, H, T, D = q.shape
    scores = (q @ k.transpose(-2, -1)) {factor}
    return scores.softmax(dim=-1) @ v
    """
    return module(init, forward, "self, q, k, v")


SCALES = [
    ("self.scale = 8 ** -0.5", "* self.scale", "q, k, v, scale=self.scale"),
    ("dim = 8\nself.sharpness = 1 / math.sqrt(dim)", "* self.sharpness",
     "q, k, v, scale=self.sharpness"),
    ("self.heads = 4\nself.dim = 32 // self.heads", "/ self.dim ** 0.5",
     "q, k, v, scale=1.0 / (self.dim ** 0.5)"),
    ("scale = None\nself.scale = 8 ** -0.5 if scale is None else 1.0", "* self.scale",
     "q, k, v, scale=self.scale"),
    ("pass", "/ D ** 0.5", "q, k, v, scale=1.0 / (D ** 0.5)"),
    ("self.scale = nn.Parameter(torch.ones(1))", "* self.scale", "q * self.scale, k, v, scale=1.0"),
    ("self.temperature = nn.Parameter(torch.full((4, 1, 1), 2.0))", "/ self.temperature",
     "q / self.temperature, k, v, scale=1.0"),
    ("self.register_buffer('one', torch.ones(1))\nself.logit = nn.Parameter(torch.zeros(()))",
     "* self.logit.exp()", "q * self.logit.exp(), k, v, scale=1.0"),
    ("pass", "/ torch.sqrt(torch.tensor(8.0))",
     "q / torch.sqrt(torch.tensor(8.0)), k, v, scale=1.0"),
]  # fmt: skip
"""What the constructor does, a factor of the scores, and arguments of the call: `scale` takes
numbers only."""

QKV = [randn(2, 4, 6, 8), randn(2, 4, 6, 9)[..., :8], randn(2, 4, 6, 8)]
X = randn(4, 6, 8)
POSITIVE = X.abs() + 0.1

# name, source, inputs, a piece of the new text
CASES = [
    ("silu", function("return x * torch.sigmoid(x)"), [X], "F.silu(x)"),
    ("silu", function("g = x.sigmoid()\nreturn g * x"), [X], "return F.silu(x)"),
    ("silu", module("self.s = nn.Sigmoid()", "return x * self.s(x)"), [X], "F.silu(x)"),
    ("gelu", function("return 0.5 * x * (1 + torch.erf(x / math.sqrt(2.0)))"), [X], "F.gelu(x)"),
    ("gelu", function("return x * 0.5 * (1.0 + torch.erf(x * 0.7071067811865475))"), [X], "F.gelu"),
    (
        "gelu",
        function(
            "return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))"
        ),
        [X],
        "F.gelu(x, approximate='tanh')",
    ),
    (
        "gelu",
        function(
            "inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))\n"
            "return 0.5 * x * (1.0 + torch.tanh(inner))"
        ),
        [X],
        "return F.gelu(x, approximate='tanh')",
    ),
    ("sigmoid", function("return 1 / (1 + torch.exp(-x))"), [X], "torch.sigmoid(x)"),
    ("mish", function("return x * torch.tanh(F.softplus(x))"), [X], "F.mish(x)"),
    ("softplus", function("return torch.log(1 + torch.exp(x))"), [X], "F.softplus(x)"),
    ("hardswish", function("return x * torch.clamp(x + 3, 0, 6) / 6"), [X], "F.hardswish(x)"),
    ("hardswish", function("return x * torch.clamp((x + 3) / 6, 0, 1)"), [X], "F.hardswish(x)"),
    ("rsqrt", function("return 1.0 / torch.sqrt(x)"), [POSITIVE], "torch.rsqrt(x)"),
    ("rsqrt", function("return x.pow(2).sqrt()"), [X], "torch.abs(x)"),
    ("rsqrt", function("return (x.mean(-1) + 1.0) ** -0.5"), [POSITIVE], "torch.rsqrt("),
    ("identity_arithmetic", function("y = x * 1.0\nreturn y + 0"), [X], "y = x"),
    ("identity_arithmetic", function("return x * 2.0 * 4.0"), [X], "x * 8.0"),
    ("idempotent", function("return torch.relu(F.relu(x))"), [X], "F.relu(x)"),
    ("idempotent", function("return torch.sigmoid(x).clamp(0, 1)"), [X], "torch.sigmoid(x)"),
    ("idempotent", function("x = F.relu(x)\nx = F.leaky_relu(x, 0.01)\nreturn x"), [X],
     "    x = F.relu(x)\n    return x"),
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
    ("sum_through_product", module("self.fc = nn.Linear(8, 5)",
     "x = self.fc(x)\nx = torch.sum(x, dim=-1, keepdim=True)\nx = x * 2\nreturn x"), [X],
     "        x = F.linear(x, self.fc.weight.sum(0, keepdim=True)"),
    ("reduction_of_one", function(
        "x = torch.sum(x, dim=1, keepdim=True)\nx = torch.max(x, dim=1, keepdim=True)[0]\n"
        "x = x.mean(1, keepdim=True)\nx = torch.logsumexp(x, dim=1, keepdim=True)\nreturn x"),
     [X], "    x = torch.sum(x, dim=1, keepdim=True)\n    return x"),
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
    ("one_hot_product", function("return F.one_hot(i, 5).float() @ w", "i, w"),
     [torch.tensor([[0, 4], [2, 1]]), randn(5, 3)], "F.embedding(i, w)"),
    ("pairwise_distance",
     function("d = a.unsqueeze(1) - b.unsqueeze(0)\nreturn d.pow(2).sum(dim=-1)", "a, b"),
     [randn(6, 3), randn(5, 3)], "return _squared_pairwise_distances(a, b)"),
    ("pairwise_distance",
     function("d = a.unsqueeze(1) - b.unsqueeze(0)\nreturn d.pow(2).sum(dim=-1)", "a, b"),
     [torch.arange(6).reshape(3, 2), torch.arange(8).reshape(4, 2)], "_distances(a, b)"),
    ("pairwise_distance",
     function("distances = (a.unsqueeze(-2) - b.unsqueeze(-3)).pow(2).sum(dim=-1).sqrt()\n"
              "return distances", "a, b"),
     [randn(2, 6, 3), randn(2, 5, 3).double()], "distances = _pairwise_distances(a, b)"),
    ("sdpa", function(ATTENTION, "q, k, v"), QKV,
     "return F.scaled_dot_product_attention(q, k, v, scale=1.0 / math.sqrt(q.size(-1)))"),
    ("sdpa", function(CAUSAL, "q, k, v"), QKV, "is_causal=True"),
    ("sdpa", function(TRIL, "q, k, v"), QKV, "is_causal=True"),
    ("sdpa", function(
        "s = torch.einsum('bhqd,bhkd->bhqk', q, k) / 2.0 + m\nreturn F.softmax(s, -1) @ v",
        "q, k, v, m"), [*QKV, randn(6, 6)], "attn_mask=m"),
    ("sdpa", module("self.p = 0.1", """
sim = torch.einsum(f'b h i d, b h j d -> b h i j', q, k) * 0.3
attn = F.dropout(sim.softmax(dim=-1), p=self.p, training=self.training)
return torch.einsum('b h i j, b h j d -> b h i d', attn, v)
""", "self, q, k, v"), QKV,
     "dropout_p=self.p if self.training else 0.0, scale=0.3"),
    *(("sdpa", scaled(init, factor), QKV, f"return F.scaled_dot_product_attention({new})")
      for init, factor, new in SCALES),
    ("layer_norm", module(SCALE_AND_SHIFT, LAYER_NORM), [X],
     "x = F.layer_norm(x, x.shape[-1:], eps=1e-5)"),
    ("layer_norm", module(SCALE_AND_SHIFT, LAYER_NORM.replace("x = (", "y = (").replace(
         "g * x", "g * y")), [X],
     "return F.layer_norm(x, self.g.shape, self.g, self.b, 1e-5)"),
    ("layer_norm", function(
        "u = x.mean(-1, keepdim=True)\ns = x.var(-1, keepdim=True, unbiased=False)\n"
        "return (x - u) * torch.rsqrt(s + 1e-6)"), [X], "F.layer_norm(x, x.shape[-1:], eps=1e-6)"),
    ("layer_norm", module(SCALE_AND_SHIFT, CHANNEL_NORM), [randn(2, 8, 5, 7)],
     "x = F.layer_norm(x.permute(0, 2, 3, 1), self.g.shape, self.g, self.b, 1e-6)"
     ".permute(0, 3, 1, 2).contiguous()"),
    ("layer_norm", module(SCALE_AND_SHIFT,
     "s = x.var(1, keepdim=True, unbiased=False)\n"
     "n = (x - x.mean(1, keepdim=True)) * torch.rsqrt(s + 1e-5)\n"
     "return n * self.g.view(1, -1, 1) + self.b.view(1, -1, 1)"), [randn(2, 8, 5)],
     "F.layer_norm(x.permute(0, 2, 1), self.g.shape, self.g, self.b, 1e-5)"
     ".permute(0, 2, 1).contiguous()"),
    ("attention_weights", module("self.attn = nn.MultiheadAttention(8, 2, batch_first=True)",
     "y, _ = self.attn(x, x, x)\nreturn x + y"), [X],
     "y, _ = self.attn(x, x, x, need_weights=False)"),
    ("attention_weights", module("self.attn = nn.MultiheadAttention(8, 2)",
     "return self.attn(\n    x,\n    key=x,\n    value=x,\n)[0]"), [X],
     "            value=x,\n            need_weights=False,\n        )[0]"),
    ("rms_norm", module("self.w = nn.Parameter(torch.randn(8))",
     "n = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)\nreturn n * self.w"), [X],
     "F.rms_norm(x, self.w.shape, self.w, 1e-6)"),
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
    ("needless_copy", function("y = x.clone()\nreturn y * 2"), [X], "return x * 2"),
    ("needless_copy", module("self.fc = nn.Linear(8, 8)",
                             "y = x.clone()\nz = self.fc(x).relu()\nreturn z + y"),
     [X], "return z + x"),
    ("silu", function("s = torch.sigmoid(x)\ntorch._assert(x.ndim, '')\nreturn x * s"), [X],
     "return F.silu(x)"),
    ("double_transpose", function("return x.transpose(1, 2).transpose(1, 2)"), [X], "return x"),
    ("double_transpose", function("y = x.permute(1, 2, 0).contiguous()\nreturn y.permute(2, 0, 1)"),
     [X], "return x"),
    ("repeat_to_expand", function("return x.unsqueeze(1).repeat(1, 3, 1, 1) * 2"), [X],
     "x.unsqueeze(1).expand(-1, 3, -1, -1)"),
    ("item", function("return x / x.abs().max().item()"), [X], "x / x.abs().max().detach()"),
    ("item", function("y = torch.relu(x)\nreturn (y * 2) / (y + 1).max().item()"), [X],
     "(y + 1).max().detach()"),
    ("item", function("return torch.relu(x) + (x @ x.mT).mean().item()"), [X],
     "+ (x @ x.mT).mean().detach()"),
    ("create_on_device", function("return x + torch.ones(8).to(x.device)"), [X],
     "torch.ones(8, device=x.device)"),
    ("scalar_tensor", function("return x / torch.sqrt(torch.tensor(8.0))"), [X], "math.sqrt(8.0)"),
    ("scalar_bound", function("return torch.min(x, torch.tensor(0.5))"), [X],
     "torch.clamp(x, max=0.5)"),
    ("scalar_bound", module("self.low = -0.25", "return torch.maximum(torch.tensor(self.low), x)"),
     [X], "torch.clamp(x, min=self.low)"),
    ("loop_to_vmap", function(
        "outs = []\nfor h in range(x.shape[1]):\n    a = x[:, h] * w[h]\n"
        "    outs.append(torch.softmax(a, -1))\nreturn torch.stack(outs, dim=1)", "x, w"),
     [X, randn(6, 8)], "out_dims=1)(x, w.narrow(0, 0, x.shape[1]))"),
    ("loop_to_vmap", function(
        "B, T, D = x.shape\nouts = []\nfor t in range(T):\n    outs.append(x[:, t] * w[t])\n"
        "return torch.stack(outs)", "x, w"), [X, randn(9, 8)], "(x, w.narrow(0, 0, T))"),
    ("loop_to_vmap", module(
        "self.count = 3\nself.w = nn.Parameter(torch.randn(5, 8))",
        "return torch.stack([x[i] * self.w[i] for i in range(self.count)])"), [X],
     "(x.narrow(0, 0, self.count), self.w.narrow(0, 0, self.count))"),
    ("loop_to_vmap", function(
        "T = x.shape[1]\nx = torch.cat([x, x], 1)\n"
        "return torch.stack([x[:, t] * 2 for t in range(T)])"), [X], "(x.narrow(1, 0, T))"),
    ("loop_to_vmap", function(
        "return torch.stack([x[b] @ x[b].t() for b in range(x.shape[0])])"), [X],
     "torch.vmap(lambda x_b: x_b @ x_b.t())(x)"),
    ("loop_to_vmap", function(
        "return torch.stack([x[i] * w[i] + (0 if v is None else v * w[i]) for i in range(4)])",
        "x, w, v=None"), [X, randn(4, 6, 8)], "torch.vmap(lambda x_i, w_i: "),
    ("cat_in_loop", function(
        "out = x[:, :1]\nfor t in range(1, x.shape[1]):\n"
        "    out = torch.cat([out, x[:, t : t + 1] * 0.5], dim=1)\nreturn out"), [X],
     "out = torch.cat(out_parts, dim=1)"),
    ("hoist_table", module("self.dim = 8", "return x + torch.arange(self.dim) * 2"), [X],
     'self.register_buffer("_table", torch.arange(self.dim) * 2, persistent=False)'),
    ("hoist_table", module("self.max_len = 32",
     "T = x.shape[1]\nmask = torch.triu(torch.ones(T, T, device=x.device), diagonal=1).bool()\n"
     "return (x @ x.transpose(1, 2)).masked_fill(mask, -1.0)"), [X], "self._mask[:T, :T]"),
    ("hoist_table", module("self.dim = 8\nself.max_len = 32",
     "pos = torch.arange(x.shape[1]).unsqueeze(1)\n"
     "freq = torch.exp(torch.arange(0, self.dim, 2) * (-math.log(10000.0) / self.dim))\n"
     "table = torch.cat([torch.sin(pos * freq), torch.cos(pos * freq)], dim=-1)\n"
     "return x + table"), [X],
     "x + (self._table[:x.shape[1]] if x.shape[1] <= self.max_len else "
     "self._make_table(x.shape[1]).to(self._table.device))"),
    ("hoist_table", module("self.max_len = 32",
     "T = x.shape[1]\nassert T <= self.max_len\n"
     "return x + torch.arange(T)[:, None]"), [X],
     "return x + self._table[:T]"),
    ("hoist_table", module("self.dim = 8",
     "steps = torch.arange(8) * 2\ntable = torch.linspace(0, 1, steps=self.dim) + steps\n"
     "x.steps = 1\nreturn x + table * x.steps"), [X], "return x + self._table * x.steps"),
    ("hoist_table", module("self.dim = 8",
     "half = self.dim // 2\nreturn x + torch.arange(half, device=x.device).repeat(2)"), [X],
     'self.register_buffer("_table", torch.arange(self.dim // 2), persistent=False)'),
    ("hoist_table", module("self.max_len = 32",
     "T = x.shape[1]\nwhole = 0\nif x.dim() == 3:\n    whole = torch.arange(T)[:, None]\n"
     "return x + whole"), [X],
     "whole = self._table[:T] if T <= self.max_len else self._make_table(T).to(self."),
    ("hoist_table", module("self.dim = 8", "alpha = torch.arange(self.dim) / 2\n"
     "return torch.add(x, alpha, alpha=2)"), [X], "return torch.add(x, self._table, alpha=2)"),
    ("diagonal_product", function("return torch.matmul(torch.diag(a), b).sum(0)", "a, b"),
     [randn(6), randn(6, 4)], "return (a.unsqueeze(-1) * b).sum(0)"),
    ("diagonal_product", function("return -torch.mm(torch.diag(a), b) ** 2 + b", "a, b"),
     [randn(6), randn(6, 4)], "return -(a.unsqueeze(-1) * b) ** 2 + b"),
    ("diagonal_product", function("return torch.diag(a) @ b + b", "a, b"),
     [randn(6), randn(6, 4)], "return a.unsqueeze(-1) * b + b"),
    ("computed_once", function("return x * x.tanh() + x.tanh()"), [X], "x * tanh_x + tanh_x"),
    ("fp32_tensor_cores", function("return F.relu(a @ b.t())", "a, b"), [X[0], X[1]],
     "return F.relu(fp32_matmul(a, b.t()))"),
    ("fp32_tensor_cores", module("self.fc = nn.Linear(8, 5)", "x = self.fc(x)\nreturn x"), [X],
     "x = fp32_linear(x, self.fc.weight, self.fc.bias)"),
    ("fp32_tensor_cores", module("self.fc = nn.Linear(8, 6)",
     "q, k = self.fc(x).split(3, dim=2)\nreturn q - 2 * self.fc(x)[..., :3] ** 2 + k"), [X],
     "q, k = fp32_linear(x, self.fc.weight, self.fc.bias).split(3, dim=2)"),
    ("fp32_tensor_cores", module("self.fc = nn.Linear(8, 5)", "return -self.fc(x) * 2"), [X],
     "return -fp32_linear(x, self.fc.weight, self.fc.bias) * 2"),
    ("fp32_tensor_cores", function("return torch.mm(a, b)", "a, b"), [X[0], randn(8, 3)],
     "import triton\nimport triton.language as tl\n"),
    ("fp32_tensor_cores", function("return a.bmm(b) + torch.bmm(a, b)", "a, b"),
     [randn(2, 4, 8), randn(2, 8, 3)], "return fp32_matmul(a, b) + fp32_matmul(a, b)"),
    ("long_row_norm", module("self.norm = nn.InstanceNorm1d(6, affine=True)",
     "return F.relu(self.norm(x))"), [X], "return F.relu(long_row_norm(self.norm, x))"),
    ("long_row_norm", module("shape = (6, 8)\nself.norm = nn.LayerNorm(normalized_shape=shape)",
     "return self.norm(x)"), [X], "return long_row_norm(self.norm, x)"),
    ("long_row_norm", module("self.a = nn.GroupNorm(2, 6)\nself.b = nn.LayerNorm((6, 8))",
     "y = self.a(x)\nreturn self.b(y + x) - x"), [X],
     "y = long_row_norm(self.a, x)\n        return long_row_norm(self.b, y + x) - x"),
    ("transposed_convolution", module("self.up = nn.ConvTranspose1d(3, 4, 5, padding=2)",
     "return -F.relu(self.up(x))"), [randn(2, 3, 8)], "return -F.relu(untransposed(self.up, x))"),
    ("transposed_convolution", module("self.up = nn.ConvTranspose2d(3, 4, (3, 4), 1, (1, 0), "
     "dilation=(2, 1), bias=False)", "return self.up(x)"), [randn(2, 3, 8, 9)],
     "return untransposed(self.up, x)"),
    ("transposed_convolution", module("n = 2\nself.up = nn.ConvTranspose3d(3, 4, 3, stride=n, "
     "output_padding=1)", "return self.up(x)"), [randn(2, 3, 4, 5, 6)], "untransposed(self.up, x)"),
    ("transposed_convolution", module("self.up = nn.ConvTranspose2d(3, 4, 3, (1, 1))",
     "return self.up(x)"), [randn(3, 8, 9)], "untransposed(self.up, x)"),
    ("transposed_convolution", module("self.up = nn.ConvTranspose2d(3, 4, 2, padding=3)",
     "return self.up(x)"), [randn(2, 3, 9, 9)], "untransposed(self.up, x)"),
    ("rms_norm", function("y = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) "
     "+ 1e-6)\nreturn y.type_as(x)"), [X], "F.rms_norm(x.float(), x.shape[-1:], eps=1e-6)"),
    ("rms_norm", function("y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)\n"
     "return y * w.float()", "x, w"), [X, randn(8)],
     "F.rms_norm(x, w.shape, w.float(), 1e-6)"),
    ("layer_norm", function(
     "m = x.mean(-1, keepdim=True)\nv = (x - m).pow(2).mean(-1, keepdim=True)\n"
     "return (x - m) / torch.sqrt(v + 1e-5) * w.to(x.dtype) + b.to(x.dtype)", "x, w, b"),
     [X, randn(8), randn(8)], "F.layer_norm(x, w.shape, w.to(x.dtype), b.to(x.dtype), 1e-5)"),
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
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "source", "inputs", "expected"),
    CASES,
    ids=[f"{i}-{c[0]}" for i, c in enumerate(CASES)],
)
def test_a_rewrite_computes_the_same(name, source, inputs, expected):
    new = rewritten(source, name)
    assert new is not None, "the rewrite does not match"
    assert expected in new or expected in on_one_line(new), new
    for before, after in zip(outputs(source, inputs), outputs(new, inputs), strict=True):
        assert before.dtype == after.dtype
        torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-5)


GRADIENTS = {"reduction_of_one", "mse_loss", "extremum", "vector_norm", "pools_in_a_row",
             "scalar_bound", "idempotent", "hardswish", "sum_through_product", "attention_weights",
             "layer_norm", "computed_once", "transposed_convolution"}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "source", "inputs"), [case[:3] for case in CASES if case[0] in GRADIENTS]
)
def test_a_rewrite_has_the_same_gradients_to_the_last_digits(name, source, inputs):
    def gradients(text):
        namespace: dict[str, object] = {}
        exec(compile(text, "<program>", "exec"), namespace)
        torch.manual_seed(0)
        model = namespace["Model"]
        model = model().double().eval() if isinstance(model, type) else model
        given = [one.double().requires_grad_() for one in inputs]
        output = model(*given)
        (output * torch.arange(1.0, output.numel() + 1).reshape(output.shape)).sum().backward()
        parameters = list(model.parameters()) if isinstance(model, torch.nn.Module) else []
        return [output.detach(), *(one.grad for one in (*given, *parameters))]

    for before, after in zip(gradients(source), gradients(rewritten(source, name)), strict=True):
        torch.testing.assert_close(after, before, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["extremum", "reduction_of_one", "scalar_bound", "idempotent"])
def test_what_is_no_number_stays_so(name):
    for _, source, inputs, _ in (case for case in CASES if case[0] == name):
        strange = [one.clone() for one in inputs]
        for one in strange:
            one.view(-1)[:3] = torch.tensor([float("nan"), float("inf"), -float("inf")])
        pairs = zip(
            outputs(source, strange), outputs(rewritten(source, name), strange), strict=True
        )
        for before, after in pairs:
            torch.testing.assert_close(after, before, rtol=1e-5, atol=1e-5, equal_nan=True)


def test_a_file_gets_each_function_once_and_keeps_its_own():
    twice = function("a = a @ b\nreturn torch.mm(a, b)", "a, b")
    new = rewritten(twice, "fp32_tensor_cores")
    assert new.count("def fp32_matmul") == 1
    assert new.count("= fp32_matmul(a, b)") + new.count("return fp32_matmul(a, b)") == 2
    again = new.replace("return fp32_matmul(a, b)", "return torch.mm(a, b)")
    assert again != new
    assert rewritten(again, "fp32_tensor_cores") == new
    theirs = "def fp32_matmul(a, b):\n    return a\n"
    assert rewritten(theirs + twice, "fp32_tensor_cores") is None


@pytest.mark.parametrize(
    "forward",
    [
        "y, weights = self.attn(x, x, x)\nreturn y * weights.mean()",
        "y, _ = self.attn(x, x, x, need_weights=True)\nreturn y",
        "y, _ = self.attn(x, x, x, average_attn_weights=False)\nreturn y",
        "y, _ = self.attn(x, x, x, None, True)\nreturn y",
        "y, _ = self.attn(*x)\nreturn y",
        "return self.attn(x, x, x)",
        "return self.attn(x, x, x)[1]",
        "y, _ = self.other(x, x, x)\nreturn y",
    ],
)
def test_attention_whose_weights_are_asked_for_is_left_alone(forward):
    init = "self.attn = nn.MultiheadAttention(8, 2)\nself.other = Other()"
    assert rewritten(module(init, forward), "attention_weights") is None


@pytest.mark.parametrize("scale", ["self.g", "self.g[:, None]", "self.g[None, :]", "self.g[0]"])
def test_a_weight_that_is_not_of_the_channels_is_no_layer_norm_of_channels(scale):
    forward = CHANNEL_NORM.replace("self.g[:, None, None]", scale)
    assert forward != CHANNEL_NORM
    assert rewritten(module(SCALE_AND_SHIFT, forward), "layer_norm") is None


def test_every_rewrite_has_a_case():
    assert {r.name for r in REWRITES} == {case[0] for case in CASES}


NEAR_MISSES = [
    ("transposed_convolution", module("self.up = nn.ConvTranspose2d(3, 4, 3, stride=2)",
                                      "return self.up(x)")),
    ("transposed_convolution", module("self.up = nn.ConvTranspose2d(3, 4, 3, (1, 2))",
                                      "return self.up(x)")),
    ("transposed_convolution", module("self.up = nn.ConvTranspose2d(4, 4, 3, groups=4)",
                                      "return self.up(x)")),
    ("transposed_convolution", module("self.up = nn.ConvTranspose2d(4, 4, 3)",
                                      "return self.up(x, output_size=[9, 9])")),
    ("silu", function("return x * torch.sigmoid(y)", "x, y")),
    ("silu", function("g = torch.sigmoid(x)\nx = x + 1\nreturn x * g")),
    ("idempotent", function("return F.leaky_relu(F.gelu(x), 0.01)")),
    ("idempotent", function("return F.hardtanh(F.gelu(x), -1, 1)")),
    ("idempotent", function("return F.hardtanh(torch.tanh(x), -0.5, 1)")),
    ("idempotent", module("self.m = 1.0", "return F.hardtanh(torch.tanh(x), -1, self.m)")),
    ("idempotent", function("return torch.clamp(F.mish(x), min=-0.3)")),
    ("sum_through_product", module("self.fc = nn.Linear(8, 5)",
     "x = self.fc(x)\ny = x.sum(-1)\nreturn x, y")),
    ("sum_through_product", module("self.fc = nn.Linear(8, 5)",
     "x = self.fc(x)\nh = x\nx = x.sum(-1)\nreturn x, h")),
    ("sum_through_product", module("self.fc = nn.Linear(8, 5)",
     "x = self.fc(x)\nif x.mean() > 0:\n    x = x.sum(-1)\nreturn x")),
    ("sum_through_product", module("self.fc = nn.Linear(8, 5)",
     "x = self.fc(x)\nreturn x.sum(-1) * x.mean()")),
    ("sum_through_product", module("self.fc = nn.Linear(8, 5)",
     "x = x.mul_(2)\nx = self.fc(x)\nx += 1\nreturn x.sum(-1)")),
    ("sum_through_product", module("self.a = nn.Linear(8, 8)\nself.b = nn.BatchNorm1d(8)",
     "y = self.a(x)\nx = self.b(x)\nreturn y.sum(-1)")),
    ("mse_loss", function("return ((x - 1) ** 2).mean()")),
    ("mse_loss", function("return ((x - y) ** 2).mean(dim=0)", "x, y")),
    ("mse_loss", function("return ((x - y) ** 3).mean()", "x, y")),
    ("reduction_of_one", function("return x.sum(1).logsumexp(dim=1)")),
    ("reduction_of_one", function("return x.sum(1, keepdim=True).logsumexp(dim=2)")),
    ("reduction_of_one", function("return x.sum(1, keepdim=True).logsumexp(dim=(1, 2))")),
    ("reduction_of_one", function("return (x.sum(1, keepdim=True) + y).logsumexp(dim=1)", "x, y")),
    ("reduction_of_one", function("return x.amax(1, keepdim=True).sum(1)")),
    ("reduction_of_one", function("return x.sum(1, keepdim=True).mean(dim=1, dtype=torch.half)")),
    ("reduction_of_one", function("return x.sum(1, keepdim=True).softmax(dim=1)")),
    ("reduction_of_one", function("y = x.sum(1, keepdim=True)\nz = y.mean(1, keepdim=True)\n"
     "y += 1\nreturn z")),
    ("identity_arithmetic", function("y = x.exp()\nz = y + 0\ny.add_(1)\nreturn z")),
    ("identity_arithmetic", function("y = x.exp()\nz = y + 0\ny[0] = 1\nreturn z")),
    ("idempotent", module("self.act = nn.LeakyReLU(inplace=True)",
     "y = x.abs()\nz = y.relu()\ny = self.act(y - 1)\nreturn z")),
    ("double_transpose", function("y = x.exp()\nz = y.t().t()\nF.relu(y, inplace=True)\nreturn z")),
    ("long_row_norm", module("self.norm = nn.BatchNorm1d(6)", "return self.norm(x)")),
    ("long_row_norm", module("self.norm = nn.GroupNorm(2, 6)", "return self.norm.eps * x")),
    ("long_row_norm", module("self.norm = nn.LayerNorm(768)", "return self.norm(x)")),
    ("long_row_norm", module("dim = 8\nself.norm = nn.LayerNorm(dim)", "return self.norm(x)")),
    ("long_row_norm", module("self.norm = nn.LayerNorm(normalized_shape=768, eps=1e-6)",
     "return self.norm(x)")),
    ("extremum", function("return x.max(dim=1)[1]")),
    ("extremum", function("values, places = x.max(dim=1)\nreturn values, places")),
    ("extremum", function("return x.amax(dim=1)")),
    ("extremum", function("return x.max()[0]")),
    ("vector_norm", function("return x.abs().sum()")),
    ("vector_norm", function("return x.abs().sum(1, dtype=torch.double)")),
    ("vector_norm", function("return (x**2).mean(-1)")),
    ("vector_norm", function("return (x**3).sum(1).sqrt()")),
    ("pools_in_a_row", module("self.a = nn.MaxPool2d(2)\nself.b = nn.AvgPool2d(2)",
     "return self.b(self.a(x))")),
    ("pools_in_a_row", module("self.a = nn.MaxPool2d(2, stride=1)\nself.b = nn.MaxPool2d(2)",
     "return self.b(self.a(x))")),
    ("pools_in_a_row", module("self.a = nn.AvgPool2d(2, padding=1)\nself.b = nn.AvgPool2d(2)",
     "return self.b(self.a(x))")),
    ("pools_in_a_row", module("self.a = nn.MaxPool2d((2, 3))\nself.b = nn.MaxPool2d(2)",
     "return self.b(self.a(x))")),
    ("pools_in_a_row", function("return F.max_pool2d(F.max_pool2d(x, 2, ceil_mode=True), 2)")),
    ("hardswish", function("return x * torch.clamp((x + 3) / 5, 0, 1)")),
    ("scalar_bound", function("return torch.min(x, torch.tensor([0.5, 1.0]))")),
    ("scalar_bound", function("return torch.min(x, torch.tensor(y))", "x, y")),
    ("scalar_bound", function("return torch.min(x, torch.tensor(0.5, dtype=torch.double))")),
    ("scalar_bound", module("self.c = nn.Parameter(torch.ones(()))",
     "return torch.min(x, self.c)")),
    ("gelu", function("return 0.5 * x * (1 + torch.erf(x / 1.4))")),
    ("softmax", function("e = torch.exp(x)\nreturn e / e.sum(dim=-1)")),
    ("softmax", function("e = torch.exp(x)\nreturn e / (e.sum(dim=-1, keepdim=True) + 1)")),
    ("layer_norm", function(
        "m = x.mean(-1, keepdim=True)\nv = x.var(-1, keepdim=True)\n"
        "return (x - m) / torch.sqrt(v + 1e-5)")),
    ("layer_norm", function(
        "m = x.mean(1, keepdim=True)\nv = x.var(1, keepdim=True, unbiased=False)\n"
        "return (x - m) / torch.sqrt(v + 1e-5)")),
    ("rms_norm", function("return x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-6)")),
    ("rsqrt", function("d = x.shape[-1]\nreturn x * d ** -0.5")),
    ("rsqrt", function("return x * x.size(-1) ** -0.5")),
    ("rsqrt", module("self.dim = 8", "return x * self.dim ** -0.5")),
    ("rsqrt", module("self.dim = 8\nself.num = 2", "return x * (self.dim // self.num) ** -0.5")),
    ("rsqrt", function("return x * (1 + scale**2) ** -0.5", "x, scale")),
    ("rsqrt", function("return x * math.log(n) ** 0.5", "x, n")),
    ("item", function("return (x > 0).sum().item() / n", "x, n")),
    ("item", module("self.num = 2", "return x[0].item() - self.num")),
    ("item", function("num = (x > 0).sum().item()\nreturn num * 1.0 / len(x)")),
    ("item", function("return (x * scale).sum().item() / scale", "x, scale")),
    ("sdpa", function("w = torch.softmax(q @ k, dim=-1)\nreturn w @ v", "q, k, v")),
    ("sdpa", function(
        "w = torch.einsum('bhid,bhjd->bhij', q, k).softmax(-1)\n"
        "return torch.einsum('bhij,bhjd->bihd', w, v)", "q, k, v")),
    ("sdpa", function(
        "w = torch.softmax(q @ k.transpose(-2, -1), dim=-2)\nreturn w @ v", "q, k, v")),
    ("sdpa", scaled("self.scale = nn.Parameter(torch.ones(6))", "* self.scale")),
    ("sdpa", scaled("self.scale = nn.Linear(8, 6)", "* self.scale(q)")),
    ("sdpa", scaled("self.scale = nn.Identity()", "* self.scale")),
    ("sdpa", scaled("self.register_buffer('scale', torch.ones(6))", "* self.scale")),
    ("sdpa", scaled("self.scale = 2.0\nself.scale = torch.ones(6)", "* self.scale")),
    ("sdpa", scaled("self.scale, self.heads = torch.ones(6), 4", "* self.scale")),
    ("sdpa", scaled("if q:\n    self.scale = 2.0\nelse:\n    self.scale = torch.ones(6)",
                    "* self.scale")),
    ("sdpa", scaled("pass", "* scale_of_all")),
    ("sdpa", scaled("pass", "+ 1e-6")),
    ("sdpa", scaled("self.bias = 0.5", "+ self.bias")),
    ("sdpa", module("self.p = 0.1\nself.wanted = True", """
w = F.dropout((q @ k.transpose(-2, -1)).softmax(dim=-1), p=self.p, training=self.wanted)
return w @ v
""", "self, q, k, v")),
    ("sdpa", function("s = q @ k.transpose(-2, -1) * scale\nreturn s.softmax(-1) @ v",
                      "q, k, v, scale")),
    ("addmm", function("return torch.mm(x, y) + 1.0", "x, y")),
    ("addmm", function("return torch.mm(x, y) + eps", "x, y, eps=0.0")),
    ("addmm", function("more = torch.mm(y, y) if f else None\nif more is None:\n    more = 0.0\n"
                       "return torch.mm(x, y) + more", "x, y, f")),
    ("linear", function("b = 0\nfor y in ys:\n    b = b + y\nreturn x @ w.t() + b", "x, w, ys")),
    ("linear", function("return x @ w.t() + b", "x, w, b")),
    ("linear", module("self.b = nn.Parameter(torch.randn(6, 3))", "return x @ w.t() + self.b",
                      "self, x, w")),
    ("einsum_to_matmul", function("return torch.einsum('bij,bij->b', x, x)")),
    ("einsum_to_matmul", function("return torch.einsum('ij,jk->ki', x, y)", "x, y")),
    ("normalize", function("return x / x.norm(dim=-1, keepdim=True)")),
    ("constant_result", function("return torch.clamp(torch.clamp(x, max=1.0), min=0.0)")),
    ("identity_arithmetic", function("return x * 2.0 + 1")),
    ("needless_copy", function("y = x.clone()\ny.add_(1)\nreturn y * 2")),
    ("needless_copy", function("y = x.clone()\nx.view(-1).add_(1)\nreturn y * 2")),
    ("needless_copy", function("y = x.clone()\nx = attend(x)\nreturn x + y")),
    ("needless_copy", function("return x.clone() + F.relu(x, inplace=True)")),
    ("needless_copy", module("self.unit = Unit(8)",
                             "y = x.clone()\nx = self.unit(x)\nreturn x + y")),
    ("needless_copy", module("self.unit = Unit(8)", "return x.clone() + self.unit(x)")),
    ("needless_copy", module("self.units = nn.ModuleList([Unit(8)])",
                             "y = x.clone()\nx = self.units[0](x)\nreturn x + y")),
    ("needless_copy", module("self.act = nn.ReLU(inplace=True)",
                             "y = x.clone()\nx = self.act(x)\nreturn x + y")),
    ("needless_copy", function("y = torch.exp(x.clone())\nx[0] = 0\nreturn y")),
    ("needless_copy", function("y = torch.exp(x.clone())\nfill[(4,)](x)\nreturn y")),
    ("silu", function("s = torch.sigmoid(x)\nlaunch(grid, (x, 4))\nreturn x * s")),
    ("silu", function("s = torch.sigmoid(x)\nfill[(4,)](out=x)\nreturn x * s")),
    ("double_transpose", function("return x.transpose(1, 2).transpose(0, 1)")),
    ("double_transpose", function("return x.permute(1, 2, 0).permute(1, 2, 0)")),
    ("repeat_to_expand", function("return x.repeat(1, 3, 1)")),
    ("loop_to_vmap", function(
        "h = x[:, 0]\nouts = []\nfor t in range(x.shape[1]):\n    h = h * 0.5 + x[:, t]\n"
        "    outs.append(h)\nreturn torch.stack(outs, dim=1)")),
    ("loop_to_vmap", function(
        "outs = []\nfor t in range(x.shape[1]):\n    outs.append(x[:, t] * t)\n"
        "return torch.stack(outs, dim=1)")),
    ("loop_to_vmap", function(
        "outs = []\nfor i in range(len(x)):\n    y = bias[i] if bias is not None else 0\n"
        "    outs.append(x[i] + y)\nreturn torch.stack(outs)", "x, bias=None")),
    ("loop_to_vmap", function(
        "return torch.stack([attend(x[i], mask is not None and mask[i]) for i in range(len(x))])",
        "x, mask=None")),
    ("loop_to_vmap", module("self.bias = None", "return torch.stack("
     "[x[i] if self.bias is None else x[i] + self.bias[i] for i in range(len(x))])")),
    ("cat_in_loop", function(
        "out = x[:, :1]\nfor t in range(1, 4):\n"
        "    out = torch.cat([out, out[:, -1:] * 0.5], dim=1)\nreturn out")),
    ("hoist_table", module("self.dim = 8", "T = x.shape[1]\nreturn x[:, :, 0] + torch.arange(T)")),
    ("hoist_table", module("self.dim = 8", "return x + torch.randn(self.dim)")),
    ("hoist_table", module("self.max_len = -1",
     "if self.max_len > 0:\n    x = x + torch.arange(x.shape[1])[:, None]\nreturn x")),
    ("hoist_table", module("self.dim = 8",
     "if self.dim is None:\n    return x\nreturn x + torch.arange(self.dim)")),
    ("hoist_table", module("self.dim = 8",
     "return x + torch.arange(self.dim) if exists(self.dim) else x")),
    ("hoist_table", module("self.dim = 8\nfactory_kwargs = {}\nself.fc = nn.Linear(8, 8, **"
     "factory_kwargs)", "return x + torch.arange(self.dim)")),
    ("channels_last", module("self.conv = nn.Conv1d(3, 4, 3)", "return self.conv(x)")),
    ("channels_last", module("self.fc = nn.Linear(3, 4)", "return self.fc(x)") + DOUBLE_CONV),
    ("channels_last", module("self.conv = nn.Conv2d(3, 4, 3)\n"
                             "self.to(memory_format=torch.channels_last)", "return self.conv(x)")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "source"), NEAR_MISSES, ids=[f"{i}-{c[0]}" for i, c in enumerate(NEAR_MISSES)]
)
def test_a_rewrite_leaves_alone_what_it_does_not_match(name, source):
    assert rewritten(source, name) is None


@pytest.mark.parametrize(
    ("shapes", "is_tried"),
    [(((2, 3, 8, 8),), True), (((3, 8, 8),), False), (((2, 3, 8, 8), (3, 8, 8)), False)],
)
def test_channels_last_order_is_tried_where_all_calls_have_images(shapes, is_tried):
    source = module("self.conv = nn.Conv2d(3, 4, 3)", "return self.conv(x)")
    workloads = tuple(
        Workload(
            name=str(shape),
            provenance="traced",
            init=Call(),
            call=Call(args=(TensorSpec(shape=shape, dtype="float32"),)),
        )
        for shape in shapes
    )
    problem = Problem(reference=TextProgram(source=source, entry="Model"), workloads=workloads)
    names = [candidate.proposer for candidate in Playbook().propose(problem, (), 50)]
    assert ("playbook:channels_last" in names) is is_tried


def test_channels_last_order_imports_torch_where_only_a_part_of_it_is():
    source = module("self.net = nn.Sequential(nn.Conv2d(3, 4, 3))", "return self.net(x)")
    source = source.replace("import torch\n", "")
    new = rewritten(source, "channels_last")
    assert "\nimport torch\n" in f"\n{new}"
    images = [randn(2, 3, 8, 8)]
    (expected,), (found,) = outputs(source, images), outputs(new, images)
    torch.testing.assert_close(found, expected)


def test_an_attribute_that_is_as_the_caller_gave_it_scales_the_query():
    source = scaled("self.scale = scale", "* self.scale").replace("(self):", "(self, scale):")
    assert "(q * self.scale, k, v, scale=1.0)" in rewritten(source, "sdpa")
    for said in ("scale: float", "scale=0.5"):
        assert "(q, k, v, scale=self.scale)" in rewritten(
            source.replace("(self, scale)", f"(self, {said})"), "sdpa"
        )
    either = source.replace("= scale\n", "= scale or dim ** -0.5\n").replace(
        "scale):", "scale, dim):"
    )
    assert "(q, k, v, scale=self.scale)" in rewritten(either, "sdpa")


def test_a_tensor_that_scales_the_query_is_left_where_it_is():
    source = module(
        "self.scale = nn.Parameter(torch.ones(8))",
        "return ((q * self.scale) @ k.transpose(-2, -1)).softmax(-1) @ v",
        "self, q, k, v",
    )
    assert "(q * self.scale, k, v, scale=1.0)" in rewritten(source, "sdpa")


@pytest.mark.parametrize("said", ["T = x.shape[1]", "T = x.size(1)", None])
def test_a_table_serves_inputs_that_are_longer_than_the_class_says(said):
    size = "T" if said else "x.shape[1]"
    forward = (
        f"pos = torch.arange({size}, device=x.device).unsqueeze(1)\n"
        f"mask = torch.tril(torch.ones({size}, {size}))\n"
        "return mask @ (x + torch.sin(pos / self.dim))"
    )
    source = module("self.dim = 8\nself.max_len = 6", f"{said}\n{forward}" if said else forward)
    new = rewritten(source, "hoist_table")
    for length in (1, 5, 6, 7, 40):
        x = randn(2, length, 8)
        (expected,), (found,) = outputs(source, [x]), outputs(new, [x])
        torch.testing.assert_close(found, expected)
    assert "torch.arange" not in new.partition("def forward")[2]


@pytest.mark.parametrize(
    ("check", "is_refused"),
    [
        ("assert T <= self.max_len, 'too long'", True),
        ("if T > self.max_len:\n    raise ValueError(T)", True),
        ("if T > self.max_len:\n    print(T)", False),
        ("assert T <= self.max_length", False),
        ("assert T < 9", False),
    ],
)
def test_a_method_that_refuses_longer_inputs_needs_no_longer_table(check, is_refused):
    source = module(
        "self.max_len = 32", f"T = x.shape[1]\n{check}\nreturn x + torch.arange(T)[:, None]"
    )
    assert ("_make_table" not in rewritten(source, "hoist_table")) is is_refused


TABLES = {
    "of the constructor": ("self.dim = 8", "return x + torch.sin(torch.arange(self.dim) / 3)"),
    "of a size": (
        "self.max_len = 9",
        "T = x.shape[1]\nreturn x + torch.cos(torch.arange(T) / self.max_len)[:, None]",
    ),
    "of a size that has a limit": (
        "self.max_len = 9",
        "T = x.shape[1]\nassert T <= self.max_len\nreturn x + (torch.arange(T) ** -0.5)[:, None]",
    ),
    "of two tables": (
        "self.dim = 8\nself.max_len = 9",
        "ramp = torch.linspace(0, 1, self.dim)\n"
        "return x + ramp + torch.ones(x.shape[1], self.dim).tril() / 3",
    ),
}


@pytest.mark.parametrize("which", TABLES)
def test_a_table_of_floats_keeps_its_dtype_where_the_module_is_converted(which):
    source = module(*TABLES[which])
    source = source.replace("return x", "x = x + 1\n        return x")
    new = rewritten(source, "hoist_table")
    assert "register_buffer" in new
    models = []
    for text in (source, new):
        namespace: dict[str, object] = {}
        exec(compile(text, "<program>", "exec"), namespace)
        models.append(namespace["Model"]())
    for dtype in (torch.bfloat16, torch.float64, torch.float16, torch.float32):
        before, after = (model.to(dtype)(X.to(dtype)) for model in models)
        assert before.dtype == after.dtype
        assert torch.equal(before, after)


@pytest.mark.parametrize(
    "table",
    [
        "torch.ones(T, T).tril() == 0",
        "torch.ones(T, T, dtype=torch.bool).triu(1)",
        "torch.triu(torch.ones(T, T), diagonal=1).bool()",
        "torch.arange(T)[None, :] < torch.arange(T)[:, None]",
        "torch.full((T, T), True).tril()",
        "torch.arange(T)[:, None] - torch.arange(T)",
        "torch.ones(T, T).to(torch.int64)",
    ],
)
def test_a_table_that_no_conversion_changes_is_not_made_again(table):
    new = rewritten(
        module("self.max_len = 9", f"T = x.shape[1]\nreturn ({table}) * x"), "hoist_table"
    )
    assert "_table[:T, :T]" in new or "_mask[:T, :T]" in new
    assert "def _apply" not in new


@pytest.mark.parametrize("own", ["self.half()", "self.to(torch.float64)"])
def test_a_table_of_floats_stays_where_the_constructor_converts_the_module(own):
    source = module(f"self.dim = 8\n{own}", "return x + torch.arange(self.dim) / 2")
    new = rewritten(source, "hoist_table")
    assert "return x + self._table / 2" in new
    assert "def _apply" not in new


def test_a_table_is_made_where_the_constructor_makes_the_parameters():
    source = module("self.dim = 8", "return x + torch.arange(self.dim, device=x.device)")
    source = source.replace("(self):", "(self, device=None):")
    new = rewritten(source, "hoist_table")
    wanted = '("_table", torch.arange(self.dim).to(device=device), persistent=False)'
    assert wanted in on_one_line(new)
    torch.testing.assert_close(outputs(new, [X[0]]), outputs(source, [X[0]]))


def test_what_a_branch_no_longer_needs_goes_from_the_branch_too():
    source = module(
        "self.fast = False\nself.drop = nn.Dropout(0.1)",
        """
if self.fast:
    y = q
elif self.training:
    att = q
    y = att * 2
else:
    att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
    att = F.softmax(att, dim=-1)
    att = self.drop(att)
    y = att @ v
return y.transpose(1, 2)
""",
        "self, q, k, v",
    )
    found = rewritten(source, "sdpa")
    assert found is not None
    before, _, last = found.partition("    else:\n")
    assert before == source.partition("    else:\n")[0]
    assert on_one_line(last).count("\n") == 2, last  # the call and the return
    assert "y = F.scaled_dot_product_attention(q, k, v" in on_one_line(last)
    qkv = [randn(2, 3, 5, 4) for _ in range(3)]
    for one, other in zip(outputs(found, qkv), outputs(source, qkv), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        (
            "sdpa",
            """
            if q.size(0) > 1:
                w = (q @ k.transpose(-2, -1)).softmax(dim=-1)
                y = w @ v
            else:
                y = w = q
            return y, w
            """,
        ),
        ("linear", "y = q @ k.t()\nif v is not None:\n    y = y + v\nreturn y"),
        ("needless_copy", "y = q.clone()\nif v:\n    y = y * 2\nreturn y"),
        ("item", "n = q.abs().sum().item()\nreturn torch.relu(q) / n, n"),
        (
            "needless_copy",
            """
            z = y = q
            for i in range(3):
                z = z + y
                y = k.clone()
                z = z + (y * 2)
            return z
            """,
        ),
    ],
)
def test_nothing_is_computed_twice(name, source):
    """Its first result is read elsewhere: after a branch, in the other one, by the next turn."""
    assert rewritten(function(source, "q, k, v"), name) is None


def test_what_a_turn_of_a_loop_no_longer_needs_goes_from_the_loop():
    source = """
    outs = []
    with torch.no_grad():
        for i in range(x.shape[0]):
            y = torch.sigmoid(x[i])
            outs.append(x[i] * y)
    return torch.stack(outs)
    """
    source = function(source)
    found = rewritten(source, "silu")
    expected = source.replace("                y = torch.sigmoid(x[i])\n", "")
    expected = expected.replace("            y = torch.sigmoid(x[i])\n", "")
    assert found == expected.replace("x[i] * y", "F.silu(x[i])")


def test_a_line_that_does_nothing_is_left_to_its_author():
    source = function("y = y\nreturn x * torch.sigmoid(x) + y", "x, y")
    assert rewritten(source, "silu") == source.replace("x * torch.sigmoid(x)", "F.silu(x)")


def test_arithmetic_that_is_read_elsewhere_does_not_stand_in_the_way():
    square = "v = x.pow(2)\nreturn x * torch.rsqrt(v.mean(-1, keepdim=True) + 1e-6), v"
    assert "v = x.pow(2)\n    return F.rms_norm(" in rewritten(function(square), "rms_norm")
    mean = square.replace("pow(2)", "pow(2).mean(-1, keepdim=True)").replace(
        "v.mean(-1, keepdim=True)", "v"
    )
    assert rewritten(function(mean), "rms_norm") is None


def test_formatting_and_comments_are_kept():
    source = HEADER + textwrap.dedent(
        '''

        class Model(nn.Module):
            """Doc   string."""

            def forward(self, x):   # odd spacing
                # a remark
                y = x * torch.sigmoid( x )
                return  y
        '''
    )
    expected = source.replace("x * torch.sigmoid( x )", "F.silu(x)")
    assert rewritten(source, "silu") == expected


def test_a_missing_import_is_added_before_the_first_one():
    source = '"""Doc."""\nfrom __future__ import annotations\nfrom torch import exp, sigmoid\n\n\n'
    source += "def Model(x):\n    return x * sigmoid(x) + exp(x)\n"
    new = rewritten(source, "silu")
    assert new.startswith(
        '"""Doc."""\nfrom __future__ import annotations\nimport torch\nfrom torch'
    )
    assert "torch.nn.functional.silu(x)" in new


def test_crlf_line_ends_are_kept():
    source = function("return x * torch.sigmoid(x)").replace("\n", "\r\n")
    new = rewritten(source, "silu")
    assert new.count("\r\n") == new.count("\n") == source.count("\r\n")
