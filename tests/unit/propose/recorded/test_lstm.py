"""LSTMs that a loop computes by hand: one library call with equal gradients, or left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cudal1_ci.propose.recorded import cells
from tests.unit.propose.recorded.rig import assert_same, loaded, proposed

START = """import torch
import torch.nn as nn


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
}


def text_of(body: str) -> str:
    return START + "".join(f"        {line}\n" for line in body.splitlines()) + END


@pytest.mark.parametrize("name", FOUND)
def test_steps_are_one_call(tmp_path: Path, name: str) -> None:
    text = text_of(FOUND[name])
    new = proposed(tmp_path, text, cells.RULES)["cell_over_steps"]
    assert "torch.lstm(" in new and "for t" not in new.split("def forward")[-1]
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
