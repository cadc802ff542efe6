"""Cells that a loop computes by hand: one library call with equal gradients, or left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cudal1_ci.propose.recorded import cells
from tests.unit.propose.recorded.rig import assert_same, loaded, proposed

START = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Cell(nn.Module):
    def __init__(self, dim, size):
        super().__init__()
        self.size, self.calls = size, 0
        self.of_input, self.of_state = nn.Linear(dim, 4 * size), nn.Linear(size, 4 * size)

    def forward(self, x, h, c):
        forget, write, show, new = torch.split(self.of_input(x) + self.of_state(h), self.size, -1)
        c_next = c * torch.sigmoid(forget) + torch.tanh(new) * torch.sigmoid(write)
        return torch.tanh(c_next) * show.sigmoid(), c_next


class Counted(Cell):
    def forward(self, x, h, c):
        self.calls += 1
        i, f, g, o = (self.of_input(x) + self.of_state(h)).chunk(4, 1)
        c_next = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c_next), c_next


class Gated(nn.Module):
    def __init__(self, dim, size):
        super().__init__()
        self.of_input = nn.Linear(dim, 3 * size, bias=False)
        self.of_state = nn.Linear(size, 3 * size)

    def forward(self, x, old):
        new, keep, reset = self.of_state(old).chunk(3, -1)
        x_new, x_keep, x_reset = self.of_input(x).chunk(3, -1)
        keep = torch.sigmoid(keep + x_keep)
        new = torch.tanh(x_new + new * torch.sigmoid(x_reset + reset))
        return old * keep + (1.0 - keep) * new


class Model(nn.Module):
    def __init__(self, dim=6, size=5):
        super().__init__()
        self.size = size
        self.x2h, self.h2h = nn.Linear(dim, 4 * size), nn.Linear(size, 4 * size)
        self.both = nn.Linear(dim + size, 4 * size)
        self.xi, self.xf, self.xg, self.xo = (nn.Linear(dim, size) for _ in range(4))
        self.hi, self.hf, self.hg, self.ho = (nn.Linear(size, size, bias=False) for _ in range(4))
        self.bi, self.bf, self.bg, self.bo = (nn.Linear(dim + size, size) for _ in range(4))
        self.w, self.u, self.b = (nn.Parameter(torch.randn(n, 20)) for n in (dim, size, 1))
        self.bias = nn.Parameter(torch.randn(4 * size))
        self.x3, self.h3 = nn.Linear(dim, 3 * size), nn.Linear(size, 3 * size)
        self.both2 = nn.Linear(dim + size, 2 * size)
        self.w3, self.u3 = (nn.Parameter(torch.randn(3 * size, n)) for n in (dim, size))
        self.w1, self.u1 = (nn.Parameter(torch.randn(n, size)) for n in (dim, size))
        self.b3, self.c3 = (nn.Parameter(torch.randn(3 * size)) for _ in range(2))
        self.gated = Gated(dim, size)
        self.cell, self.counted = Cell(dim, size), Counted(dim, size)
        self.norm, self.drop = nn.LayerNorm(4 * size), nn.Dropout(0.5)
        self.head = nn.Linear(size, 3)

    def forward(self, x):
        h = x.new_zeros(x.size(0), self.size)
        c = torch.ones_like(h)
        outs = []
"""
END = """

def get_inputs():
    return [torch.randn(BATCH, STEPS, 6)]


BATCH, STEPS = 3, 7
"""
STEP = """    i, f, g, o = (self.x2h(x[:, t]) + self.h2h(h)).chunk(4, 1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(c)
"""
FOUND = {
    "two layers": f"""for t in range(x.size(1)):
{STEP}    outs.append(h)
return torch.stack(outs, dim=1)""",
    "the last state alone": f"""for t in range(x.size(1)):
{STEP}return self.head(h)""",
    "one layer of both, other order": """for t in range(x.size(1)):
    z = self.both(torch.cat([x[:, t], h], 1))
    i, f, o, g = z.chunk(4, dim=1)
    i, f, o, g = torch.sigmoid(i), torch.sigmoid(f), torch.sigmoid(o), torch.tanh(g)
    c = f * c + i * g
    h = o * torch.tanh(c)
    outs.append(h.unsqueeze(1))
return torch.cat(outs, dim=1), (h, c)""",
    "parts of each of two layers": """for t in range(x.size(1)):
    i, f, g, o = self.x2h(x[:, t]).chunk(4, 1)
    hi, hf, hg, ho = self.h2h(h).chunk(4, 1)
    i, f, o = torch.sigmoid(i + hi), torch.sigmoid(f + hf), torch.sigmoid(o + ho)
    c = f * c + i * torch.tanh(g + hg)
    h = o * torch.tanh(c)
    outs.append(h)
return outs[-1]""",
    "a layer for each gate": """for step in x.transpose(0, 1):
    z = torch.cat((h, step), dim=-1)
    forget, write = torch.sigmoid(self.bf(z)), torch.sigmoid(self.bi(z))
    c = forget * c + write * torch.tanh(self.bg(z))
    h = torch.sigmoid(self.bo(z)) * torch.tanh(c)
    outs.append(h)
return torch.stack(outs, dim=1), h""",
    "eight layers": """out = torch.zeros(x.size(0), x.size(1), self.size)
for t in range(x.shape[1]):
    now = x[:, t, :]
    i = torch.sigmoid(self.xi(now) + self.hi(h))
    f = torch.sigmoid(self.xf(now) + self.hf(h))
    g = torch.tanh(self.hg(h) + self.xg(now))
    o = torch.sigmoid(self.xo(now) + self.ho(h))
    c = f * c + i * g
    h = o * torch.tanh(c)
    out[:, t] = h
return out""",
    "matrices": """for t in range(x.size(1)):
    gates = x[:, t] @ self.w + h @ self.u + self.bias
    i, f = gates[:, : self.size].sigmoid(), gates[:, self.size : 2 * self.size].sigmoid()
    g = gates[:, 2 * self.size : 3 * self.size].tanh()
    c = f * c + i * g
    h = gates[:, 3 * self.size :].sigmoid() * c.tanh()
    outs.append(self.head(h))
return torch.stack(outs, dim=1)""",
    "sigmoid of three gates": """for t, step in enumerate(x.unbind(1)):
    gates = self.x2h(step) + self.h2h(h)
    i, f, o = torch.sigmoid(gates[:, : 3 * self.size]).chunk(3, 1)
    c = f * c + i * torch.tanh(gates[:, 3 * self.size :])
    h = o * torch.tanh(c)
    outs.append(h)
return torch.stack(outs)""",
    "a state that is expanded": f"""h = self.b[:, : self.size].expand(x.size(0), -1)
for t in range(x.size(1)):
{STEP}    outs.append(h)
return torch.stack(outs, dim=1), c""",
    "a module of the checkout": """for t in range(x.size(1)):
    h, c = self.cell(x[:, t], h, c)
    outs.append(h)
return torch.stack(outs, 1), c""",
    "other names for the new state": """for x_t in x.unbind(1):
    i, f, g, o = (self.x2h(x_t) + self.h2h(h)).chunk(4, 1)
    c_new = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    h_new = torch.sigmoid(o) * torch.tanh(c_new)
    h, c = h_new, c_new
    outs.append(h_new)
return torch.stack(outs), h""",
}
RESET = """    r, z, n = self.x3(x[:, t]).chunk(3, 1)
    hr, hz, hn = self.h3(h).chunk(3, 1)
    r, z = torch.sigmoid(r + hr), torch.sigmoid(z + hz)
    n = torch.tanh(n + r * hn)
    h = (1 - z) * n + z * h
"""
FOUND_GRU = {
    "two layers": f"""for t in range(x.size(1)):
{RESET}    outs.append(h)
return torch.stack(outs, dim=1), h""",
    "two layers that are sliced": """for t in range(x.size(1)):
    gi, gh, s = self.x3(x[:, t]), self.h3(h), self.size
    rz = torch.sigmoid(gi[:, : 2 * s] + gh[:, : 2 * s])
    n = (gi[:, 2 * s :] + rz[:, :s] * gh[:, 2 * s :]).tanh()
    h = n + rz[:, s:] * (h - n)
    outs.append(h)
return torch.stack(outs, 1)""",
    "a layer for each gate, other gate": """for step in x.unbind(1):
    z = torch.sigmoid(self.xi(step) + self.hi(h))
    r = torch.sigmoid(self.hf(h) + self.xf(step))
    n = torch.tanh(self.xg(step) + r * self.hg(h))
    h = z * n + (1 - z) * h
    outs.append(h)
return torch.stack(outs, 1)""",
    "one layer of both for two gates": """for t in range(x.size(1)):
    r, z = torch.sigmoid(self.both2(torch.cat([x[:, t], h], 1))).chunk(2, 1)
    n = torch.tanh(self.xg(x[:, t]) + self.hg(h) * r)
    h = torch.lerp(n, h, z)
return self.head(h)""",
    "matrices": """for t in range(x.size(1)):
    r, z, n = (x[:, t] @ self.w3.t() + self.b3).split(self.size, 1)
    hr, hz, hn = F.linear(h, self.u3, self.c3).split(self.size, 1)
    n = torch.tanh(n + torch.sigmoid(r + hr) * hn)
    z = torch.sigmoid(z + hz)
    h = h - z * (h - n)
    outs.append(h)
return torch.stack(outs)""",
    "a module of the checkout": """for t in range(x.size(1)):
    h = self.gated(x[:, t], h)
    outs.append(h)
return self.head(outs[-1])""",
}
FOUND_RNN = {
    "two layers": """for t in range(x.size(1)):
    h = torch.tanh(self.xi(x[:, t]) + self.hi(h))
    outs.append(h)
return torch.stack(outs, dim=1), h""",
    "one layer of both, and a head": """for t in range(x.size(1)):
    h = F.relu(self.bi(torch.cat((x[:, t], h), 1)))
    outs.append(self.head(h))
return torch.stack(outs, dim=1)""",
    "matrices": """for x_t in x.transpose(0, 1):
    h = (x_t @ self.w1 + h @ self.u1.t()).tanh()
return self.head(h)""",
}
LEFT = {
    "a state that is dropped in part": f"{STEP}    h = self.drop(h)\n    outs.append(h)",
    "a state that is scaled": f"{STEP}    h = h * 0.5\n    outs.append(h)",
    "a state that is read before": f"    outs.append(h)\n{STEP}",
    "the cell of each step": f"{STEP}    outs.append(c)",
    "a gate of each step": f"{STEP}    outs.append(h * f)",
    "a cell that is clipped": STEP.replace("tanh(c)", "tanh(c.clamp(0))") + "    outs.append(h)",
    "a cell without its activation": STEP.replace("torch.tanh(c)", "c") + "    outs.append(h)",
    "another activation": STEP.replace("torch.tanh(g)", "torch.relu(g)") + "    outs.append(h)",
    "coupled gates": STEP.replace("sigmoid(i)", "sigmoid(1 - f)") + "    outs.append(h)",
    "a gate used twice": STEP.replace("sigmoid(i)", "sigmoid(f)") + "    outs.append(h)",
    "gates that are normalized": STEP.replace("(self.x2h", "self.norm(self.x2h")
    + "    outs.append(h)",
    "gates that see the cell": STEP.replace("self.h2h(h)", "self.h2h(c)") + "    outs.append(h)",
    "a state of the step before the last": "    before = outs[-2] if t > 1 else h\n"
    + STEP.replace("self.h2h(h)", "self.h2h(before)")
    + "    outs.append(h)",
    "a module that counts": "    h, c = self.counted(x[:, t], h, c)\n    outs.append(h)",
    "one step": None,
    "a reset before the product": RESET.replace("r * hn", "self.hi(r * h)") + "    outs.append(h)",
    "a reset of the input": RESET.replace("n + r * hn", "hn + r * n") + "    outs.append(h)",
    "a reset of both": RESET.replace("n + r * hn", "r * (n + hn)") + "    outs.append(h)",
    "a reset twice": RESET.replace("n + r * hn", "n + r * (r * hn)") + "    outs.append(h)",
    "a gate of the input": RESET.replace("z * h", "z * x[:, t, :5]") + "    outs.append(h)",
    "a gate of another state": RESET.replace("z * h", "z * c") + "    outs.append(h)",
    "two other gates": RESET.replace("(1 - z) * n", "(1 - r) * n") + "    outs.append(h)",
    "an update that adds": RESET.replace("(1 - z) * n", "n") + "    outs.append(h)",
    "an RNN that leaks": "    h = 0.5 * h + torch.tanh(self.xi(x[:, t]) + self.hi(h))\n"
    "    outs.append(h)",
    "an RNN of two steps": "    h, c = torch.tanh(self.xi(x[:, t]) + self.hi(c)), h\n"
    "    outs.append(h)",
    "an RNN that drops": "    h = self.drop(torch.tanh(self.xi(x[:, t]) + self.hi(h)))\n"
    "    outs.append(h)",
    "layers that follow each other": "    outs.append(torch.tanh(self.xi(x[:, t]) + self.hi(c)))",
}


def text_of(body: str) -> str:
    return START + "".join(f"        {line}\n" for line in body.splitlines()) + END


CALLS = {"lstm": FOUND, "gru": FOUND_GRU, "rnn_": FOUND_RNN}


@pytest.mark.parametrize(("kind", "name"), [(a, b) for a, some in CALLS.items() for b in some])
def test_steps_are_one_call(tmp_path: Path, kind: str, name: str) -> None:
    text = text_of(CALLS[kind][name])
    new = proposed(tmp_path, text, cells.RULES)["cell_over_steps"]
    assert f"torch.{kind}" in new and "for t" not in new.split("def forward")[-1]
    for sizes in ("3, 7", "1, 4", "5, 1"):
        sized = f"BATCH, STEPS = {sizes}"
        assert_same(tmp_path, *(one.replace("BATCH, STEPS = 3, 7", sized) for one in (text, new)))
    old_gradients, new_gradients = (gradients(one, tmp_path) for one in (text, new))
    assert old_gradients.keys() == new_gradients.keys()
    for key, one in old_gradients.items():
        torch.testing.assert_close(new_gradients[key], one, rtol=1e-4, atol=1e-5)


def gradients(text: str, tmp_path: Path) -> dict[str, torch.Tensor]:
    """Return the gradients of the input and of the parameters, for inference."""
    module = loaded(text, tmp_path / "module.py")
    torch.manual_seed(0)
    model = getattr(module, "ModelNew", None) or module.Model
    made = model().eval()
    (x,) = module.get_inputs()
    x.requires_grad_()
    output = made(x)
    first = output[0] if isinstance(output, tuple) else output
    (first.square() * torch.arange(first.numel()).view_as(first)).sum().backward()
    named = {name: one.grad for name, one in made.named_parameters() if one.grad is not None}
    return {"x": x.grad, **named}


@pytest.mark.parametrize("name", LEFT)
def test_other_recurrences_are_left_alone(tmp_path: Path, name: str) -> None:
    steps = LEFT[name] or f"{STEP}    outs.append(h)\n"
    body = f"for t in range(x.size(1)):\n{steps.rstrip()}\nreturn torch.stack(outs)"
    text = text_of(body)
    if LEFT[name] is None:
        text = text.replace("BATCH, STEPS = 3, 7", "BATCH, STEPS = 3, 1")
    assert proposed(tmp_path, text, cells.RULES) == {}
