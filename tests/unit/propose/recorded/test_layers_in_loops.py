"""Cells, layers, classes, pairs and ends in loops: found, equal, or left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudal1_ci.propose.recorded import cells, loops, nested
from tests.unit.propose.recorded.rig import (
    assert_found,
    assert_left_alone,
    assert_same,
    proposed,
)

RULES = (*cells.RULES, *nested.RULES, *loops.RULES)
START = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, bias=True):
        super().__init__()
        self.gru = nn.GRUCell(6, 5)
        self.lstm = nn.LSTMCell(6, 5)
        self.rnn = nn.RNNCell(6, 5)
        self.relu = nn.RNNCell(6, 5, nonlinearity="relu")
        self.bare = nn.GRUCell(6, 5, bias=bias)
        self.head = nn.Linear(5, 3)
        self.net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
        self.flat = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(0))
        self.normed = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
        self.register_buffer("kernel", torch.tensor([[1.0, 2.0], [0.5, -1.0]])[None, None])

    def distance(self, one, other):
        gap = torch.max(one, other) - torch.min(one[0], other[0])
        return (gap * gap).sum()

    def sampled(self, one, other):
        return (one - other).sum() if one[0] > 0 else other.sum()

    def forward(self, x, image, labels, h, y, last):
"""
END = """

def get_inputs():
    return [
        torch.randn(4, 7, 6),
        torch.rand(2, 5, 8, 8),
        torch.randint(0, 3, (12,)),
        torch.randn(4, 5),
        torch.randn(3, 6),
        torch.randn(6),
    ]
"""
FOUND = {
    "cell": (
        "cell_over_steps",
        """states = []
for t in range(x.size(1)):
    h = self.gru(x[:, t], h)
    states.append(h)
return torch.stack(states, dim=1)""",
    ),
    "cell with a state that is read later": (
        "cell_over_steps",
        """c = torch.zeros_like(h)
out = torch.zeros(x.size(0), x.size(1), 3)
for t in range(x.size(1)):
    step = x[:, t]
    h, c = self.lstm(step, (h, c))
    out[:, t] = self.head(torch.tanh(h))
return out, h, c""",
    ),
    "cell over the first dimension": (
        "cell_over_steps",
        """turned = x.transpose(0, 1)
states = []
for step in turned:
    h = self.rnn(step, h)
    states.append(h)
return torch.stack(states)""",
    ),
    "layer on each frame": (
        "batched_loop",
        """frames = []
for t in range(image.size(1)):
    frames.append(self.net(image[:, t].unsqueeze(1)))
return torch.stack(frames, dim=1)""",
    ),
    "layer on the batch of each frame": (
        "batched_loop",
        """out = torch.zeros(image.size(1), image.size(0), 18)
frames = image.transpose(0, 1).unsqueeze(2)
for t in range(frames.size(0)):
    out[t] = self.net(frames[t])
return out""",
    ),
    "filter of each channel": (
        "batched_loop",
        """edges = []
for i in range(image.shape[1]):
    edges.append(F.conv2d(image[:, i : i + 1], self.kernel, padding=1).abs())
return torch.cat(edges, dim=1)""",
    ),
    "classes": (
        "batched_loop",
        """losses = []
probs = x.flatten()[:36].view(3, 12)
for c in range(3):
    chosen = (labels == c).float()
    errors, order = torch.sort((chosen - probs[c]).abs(), descending=True)
    gaps = torch.cat([errors[:1], errors[1:] - errors[:-1]])
    losses.append((chosen[order].cumsum(0) * gaps).sum())
return torch.stack(losses)""",
    ),
    "pairs": (
        "pairs_at_once",
        """out = torch.zeros(x.size(0), y.size(0))
for i in range(x.size(0)):
    for j in range(y.size(0)):
        out[i, j] = self.distance(x[i, :, 0][:6], y[j])
return out""",
    ),
    "pairs in several steps": (
        "pairs_at_once",
        """out = torch.zeros(len(h), len(y))
for i in range(len(h)):
    for j in range(len(y)):
        low = torch.max(h[i, :2], y[j, :2])
        high = torch.min(h[i, 2:4], y[j, 2:4])
        sides = (high - low).clamp(min=0)
        inter = sides[0] * sides[1]
        out[i, j] = inter / (h[i, 2] * h[i, 3] + y[j, 2].square() - inter + 9)
return out""",
    ),
    "pairs of named rows": (
        "pairs_at_once",
        """out = torch.zeros(len(h), len(y))
for i, one in enumerate(h):
    for j, other in enumerate(y):
        out[i, j] = F.cosine_similarity(one[:4], other[:4], dim=0) * 2
return out""",
    ),
    "distances": (
        "pairs_at_once",
        """n, m = h.shape[0], y.shape[0]
out = torch.zeros((n, m))
for i in range(n):
    for j in range(m):
        out[i][j] = torch.norm(h[i] - y[j, :5], p=2)
return out""",
    ),
    "three loops": (
        "pairs_at_once",
        """n, m = x.size(0), x.size(1)
out = torch.zeros(n, m, y.size(0))
for i in range(n):
    for j in range(m):
        for k in range(y.size(0)):
            out[i, j, k] = self.distance(x[i, j], y[k])
return out""",
    ),
    "last value from elsewhere, backward": (
        "hoisted_from_loop",
        """out, total = torch.zeros_like(y), 0
for t in reversed(range(y.size(0))):
    if t == y.size(0) - 1:
        following = last
        going = 1.0 - last.sigmoid()
    else:
        following = y[t + 1]
        going = 1.0 - y[t + 1].sigmoid()
    out[t] = total = y[t].exp() + 0.9 * following * going + 0.5 * going * total
return out""",
    ),
    "first value from elsewhere": (
        "hoisted_from_loop",
        """total = torch.zeros_like(last)
for t in range(y.size(0)):
    before = y[t - 1] if t > 0 else last
    total = torch.tanh(total) * (y[t] - before).exp()
return total""",
    ),
}
LEFT = {
    "state that is read before the cell": (
        "cell_over_steps",
        """states = []
for t in range(x.size(1)):
    states.append(h)
    h = self.gru(x[:, t], h)
return torch.stack(states, dim=1)""",
    ),
    "state that changes": (
        "cell_over_steps",
        """states = []
for t in range(x.size(1)):
    h = self.gru(x[:, t], h) * 0.5
    states.append(h)
return torch.stack(states, dim=1)""",
    ),
    "input that reads the state": (
        "cell_over_steps",
        """states = []
for t in range(x.size(1)):
    h = self.gru(x[:, t] + h.sum(), h)
    states.append(h)
return torch.stack(states, dim=1)""",
    ),
    "states in another order": (
        "cell_over_steps",
        """c = h
for t in range(x.size(1)):
    h, c = self.lstm(x[:, t], (c, h))
return h""",
    ),
    "memory of each step": (
        "cell_over_steps",
        """c, states = torch.zeros_like(h), []
for t in range(x.size(1)):
    h, c = self.lstm(x[:, t], (h, c))
    states.append(c)
return torch.stack(states)""",
    ),
    "cell of another kind": (
        "cell_over_steps",
        """for t in range(x.size(1)):
    h = self.relu(x[:, t], h)
return h""",
    ),
    "cell that may have no biases": (
        "cell_over_steps",
        """for t in range(x.size(1)):
    h = self.bare(x[:, t], h)
return h""",
    ),
    "samples that a layer joins": (
        "batched_loop",
        """frames = []
for t in range(image.size(1)):
    frames.append(self.flat(image[:, t].unsqueeze(1)))
return torch.stack(frames)""",
    ),
    "statistics over samples": (
        "batched_loop",
        """frames = []
for t in range(image.size(1)):
    frames.append(self.normed(image[:, t].unsqueeze(1)))
return torch.stack(frames)""",
    ),
    "image without a batch": (
        "batched_loop",
        """frames = []
for t in range(image.size(0)):
    frames.append(F.conv2d(image[t, :1], self.kernel))
return torch.stack(frames)""",
    ),
    "pairs of which some are left out": (
        "pairs_at_once",
        """out = torch.zeros(x.size(0), y.size(0))
for i in range(x.size(0)):
    for j in range(i):
        out[i, j] = self.distance(x[i, 0], y[j % 3])
return out""",
    ),
    "pairs with a branch": (
        "pairs_at_once",
        """out = torch.zeros(h.size(0), y.size(0))
for i in range(h.size(0)):
    for j in range(y.size(0)):
        out[i, j] = self.sampled(h[i][:4], y[j][:4])
return out""",
    ),
    "pairs that carry a local": (
        "pairs_at_once",
        """out = torch.zeros(len(h), len(y))
gap = h.sum()
for i in range(len(h)):
    for j in range(len(y)):
        sides = h[i, :2] - y[j, :2] + gap
        gap = sides.sum()
        out[i, j] = gap
return out""",
    ),
    "pairs whose local is read later": (
        "pairs_at_once",
        """out = torch.zeros(len(h), len(y))
for i in range(len(h)):
    for j in range(len(y)):
        gap = (h[i, :2] - y[j, :2]).sum()
        out[i, j] = gap * gap
return out, gap""",
    ),
    "pairs that are added": (
        "pairs_at_once",
        """out = torch.zeros(x.size(0), y.size(0))
for i in range(x.size(0)):
    for j in range(y.size(0)):
        out[i, j] += self.distance(x[i, 0], y[j])
return out""",
    ),
    "pairs that read others": (
        "pairs_at_once",
        """out = torch.zeros(x.size(0), y.size(0))
for i in range(x.size(0)):
    for j in range(y.size(0)):
        out[i, j] = self.distance(x[i, 0], y[j]) + out[0, 0]
return out""",
    ),
    "end that the state makes": (
        "hoisted_from_loop",
        """total = torch.zeros_like(last)
for t in range(y.size(0)):
    before = y[t - 1] if t > 0 else total
    total = torch.tanh(total + before)
return total""",
    ),
    "branch in the middle": (
        "hoisted_from_loop",
        """total = torch.zeros_like(last)
for t in range(y.size(0)):
    before = y[t].exp() if t != 1 else last
    total = torch.tanh(total + before)
return total""",
    ),
}


def text_of(body: str) -> str:
    return START + "".join(f"        {line}\n" for line in body.splitlines()) + END


@pytest.mark.parametrize(("rule", "body"), FOUND.values(), ids=FOUND)
def test_loop_is_found_and_gives_the_same(tmp_path: Path, rule: str, body: str) -> None:
    assert_found(tmp_path, text_of(body), rule)


@pytest.mark.parametrize(("rule", "body"), LEFT.values(), ids=LEFT)
def test_look_alike_is_left_alone(tmp_path: Path, rule: str, body: str) -> None:
    assert_left_alone(tmp_path, text_of(body), rule)


def test_pairs_of_no_rows_are_left_out(tmp_path: Path) -> None:
    text = text_of(FOUND["three loops"][1])
    new = proposed(tmp_path, text, nested.RULES)["pairs_at_once"]
    empty = "torch.randn(3, 6)", "torch.randn(0, 6)"
    assert_same(tmp_path, text.replace(*empty), new.replace(*empty))
