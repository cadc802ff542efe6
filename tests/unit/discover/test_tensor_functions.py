from __future__ import annotations

import pytest

from cudal1_ci.discover.python_facts import python_facts

IMPORTS = """
import math
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor
from torch.nn.functional import softmax as sm
from einops import rearrange
from typing import Optional
"""


def functions(text: str) -> list[str]:
    facts = python_facts("m.py", f"{IMPORTS}\n{text}\n".encode(), "")
    assert facts.message is None, facts.message
    return [each.qualname for each in facts.functions]


@pytest.mark.parametrize(
    "text",
    [
        "def f(x): return torch.cat((-x[..., 1:], x[..., :1]), dim=-1)",
        "def f(x):\n    a, b = x.chunk(2, dim=-1)\n    return torch.cat((-b, a), dim=-1)",
        "def f(x, w): return F.linear(x, w)",
        "def f(x): return sm(x, -1)",
        "def f(x): return nn.functional.gelu(x)",
        "def f(x, shift, scale): return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)",
        "def f(a: Tensor, b: Tensor) -> Tensor: return a + b",
        "def f(a: 'torch.Tensor', n: int): return a.sum(n)",
        "def f(a: Optional[Tensor] = None): return a * 2",
        "def f(q, k): return q @ k.transpose(-2, -1)",
        "def f(x): return rearrange(x, 'b c -> c b')",
        "def f(x, w: int):\n    B, C = x.shape\n    return x.view(B, C // w, w).permute(0, 2, 1)",
        "def f(x):\n    x.clamp_(0)",
        "def f(x: Tensor):\n    x[0] = 0 * x[1]\n    return x",
        "def f(xs):\n    out = []\n    for x in xs:\n        out.append(torch.relu(x))\n"
        "    return torch.stack(out)",
        "def f(*xs): return torch.stack(xs)",
        "def f(x): return torch.linalg.norm(x)",
        "def f(x): return torch.ops.mylib.scale(x)",
        "@torch.compile\ndef f(x): return torch.relu(x)",
        "@torch.no_grad()\ndef f(x): return torch.relu(x)",
        "if True:\n    def f(x): return torch.relu(x)",
        "def f(x):\n    from torch import relu as r\n    return r(x)",
        "def f(module: nn.Module, query, key): return torch.matmul(query, key)",
        "def f(x): return (y := torch.relu(x))",
        "def f(lengths: Tensor, n: int): return torch.arange(n)[None] < lengths[:, None]",
        "def f(self, x): return torch.relu(x)",
        "def f(states, mask):\n    return (states * mask[:, :, None]).to(states.dtype)",
        "def f(x, y): return x[..., 0] * y",
        "def f(x: Tensor) -> Tensor: return (loss(x) + loss(x.T)) / 2.0",
        "def f(x, i):\n    x.size()\n    i.size()\n    return torch.arange(3), x[i % 4]",
        "def f(xs):\n    out = []\n    for x in xs:\n        out.append(x @ x)\n    return out[-1]",
    ],
)
def test_a_function_that_computes_with_tensors_is_found(text: str) -> None:
    assert functions(text) == ["f"]


@pytest.mark.parametrize(
    "text",
    [
        "def f(n): return torch.zeros(n)",
        "def f(n: int, dim: int): return torch.outer(torch.arange(n), torch.arange(dim))",
        "def f(path): return torch.load(path)",
        "def f(x): return torch.tensor(x)",
        "def f(x): return x.to('cpu').detach().numpy()",
        "def f(model, x):\n    model.eval()\n    return torch.relu(model(x))",
        "def f(net, x):\n    loss = F.mse_loss(net(x), x)\n    loss.backward()\n    return loss",
        "def f(): return torch.relu(torch.ones(3))",
        "def f(x: int, y: str) -> int: return x + len(y)",
        "def f(x): return math.sqrt(x)",
        "def f(x): return np.matmul(x, x)",
        "def f(x: np.ndarray): return torch.from_numpy(x)",
        "def f(x):\n    torch.relu(x)",
        "def f(x):\n    yield torch.relu(x)",
        "async def f(x): return torch.relu(x)",
        "def test_f(x): return torch.relu(x)",
        "import pytest\n@pytest.fixture\ndef f(x): return torch.relu(x)",
        "def f(weight):\n    nn.init.normal_(weight)\n    return torch.relu(weight)",
        "def f(state_dict):\n    return {k: torch.cat((v, v)) for k, v in state_dict.items()}",
        "def f(state_dict: dict[str, Tensor]): return state_dict['a'] * 2",
        "def f(x, y): return np.asarray(x)[..., None] * y[..., 0]",
        "def f(rows): return rows[1:, 2]",
        "def f(x: Tensor) -> bool: return bool(torch.isnan(x).any())",
        "def f(x):\n    def g(y):\n        return torch.relu(y)\n    return g",
        "def f(x, device: torch.device): return x.to(device)",
        "def f(x: Tensor): return x.shape[0] * 2",
        "def f(model: nn.Module) -> int: return sum(p.numel() for p in model.parameters())",
        "class A:\n    def f(self, x):\n        return torch.relu(x)",
        "def outer():\n    def f(x):\n        return torch.relu(x)\n    return f",
        "def f(a, b): return a + b",
        "def f(x: Tensor) -> Tensor: return len(x) + max(x)",
    ],
)
def test_makers_movers_scripts_and_plain_python_are_not(text: str) -> None:

    assert functions(text) == []
