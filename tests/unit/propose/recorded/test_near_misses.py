"""What rules say of places that they nearly matched."""

from __future__ import annotations

import pytest

from cudal1_ci.propose.recorded.strategy import RecordedRewrites
from tests.unit.propose.recorded.rig import problem_and_recording

TEXT = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.half = 0.5
        self.layers = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(2))

    def forward(self, q, k, v):
        {}


def get_inputs():
    return [torch.rand(2, 16, 16) for _ in range(3)]
"""
SCORES = "s = q @ k.mT * 0.25"
WEIGHTS = "w = torch.softmax(s, -1)"
MEAN = "m = q.mean(-1, keepdim=True)"
NORM = "return (q - m) / torch.sqrt(z + 1e-5)"


def missed(tmp_path, *lines: str) -> list[tuple[str, int, str]]:
    problem, recording = problem_and_recording(tmp_path, TEXT.format("\n        ".join(lines)))
    found = RecordedRewrites().noticed(problem, recording)
    assert found.failures == ()
    return [(one.rule, one.line - 11, one.fact) for one in found.near_misses]


@pytest.mark.parametrize(
    ("lines", "rule", "line", "fact"),
    [
        (
            [SCORES, WEIGHTS, "return w @ v, w"],
            "attention",
            2,
            "the softmax output is returned to the caller",
        ),
        (
            [SCORES, WEIGHTS, "o = w @ v", "self.kept = w", "return o"],
            "attention",
            2,
            "the softmax output, `w`, is read again at line 15",
        ),
        (
            [SCORES, "s = torch.tanh(s)", WEIGHTS, "return w @ v"],
            "attention",
            3,
            "the scores go through `tanh` at line 13",
        ),
        (
            [SCORES, WEIGHTS, "w = w ** 2", "return w @ v"],
            "attention",
            2,
            "the softmax output goes through `pow` at line 14",
        ),
        (
            [SCORES, WEIGHTS, "return w @ v + s.sum()"],
            "attention",
            2,
            "the scores are read again at line 14, by `sum`",
        ),
        (
            ["m = q.mean((-1, -2), keepdim=True)", "z = (q - m).pow(2).mean(-1, True)", NORM],
            "norm",
            3,
            "the mean at line 12 is over two dimensions, the variance over one",
        ),
        (
            [MEAN, "z = q.var(-1, keepdim=True)", NORM],
            "norm",
            3,
            "the variance at line 13 divides by n - 1: write `unbiased=False`",
        ),
        (
            [MEAN, "z = (q - m).pow(2).mean(-1, True)", "if self.half: m = m + 0", NORM],
            "norm",
            4,
            "a branch or a loop is between the lines 12 and 15 of layer_norm",
        ),
        (
            ["return q * self.half * (1 + torch.erf(q / 2 ** 0.5))"],
            "activation",
            1,
            "the code does not state `self.half` at line 12, which gelu needs",
        ),
        (
            ["h = q[:, 0]", "for t in range(4):", "    h = torch.tanh(h + q[:, t])", "return h"],
            "batched_loop",
            2,
            "line 14 carries `h` from one pass to the next",
        ),
        (
            ["d = (q[0][:, None] - k[0][None]) ** 2", "return d.sum(-1), d"],
            "pair_distances",
            2,
            "the difference of all pairs is returned to the caller",
        ),
    ],
)
def test_the_missing_fact_is_said_with_its_line(tmp_path, lines, rule, line, fact):
    assert missed(tmp_path, *lines) == [(rule, line, fact)]


@pytest.mark.parametrize(
    "lines",
    [
        [SCORES, WEIGHTS, "return w @ v"],  # it is proposed
        [WEIGHTS.replace("s,", "q,"), "return w @ v"],  # no product makes the scores
        [SCORES, WEIGHTS, "return w"],  # no product reads the weights
        ["return q.mean(-1) / torch.sqrt(k.mean(-1))"],
        ["return q * self.half"],
        ["for i in range(2):", "    q = self.layers[i](q)", "return q"],  # a loop over layers
    ],
)
def test_nothing_is_said_where_the_core_is_missing_or_it_is_proposed(tmp_path, lines):
    assert missed(tmp_path, *lines) == []


def test_one_miss_is_said_of_a_statement_whatever_runs_it_how_often(tmp_path):
    lines = ["for _ in range(3):", "    s = q @ k.mT", "    w = torch.softmax(s, -1)"]
    found = missed(tmp_path, *lines, "    q = w @ v + w.sum()", "return q")
    assert found == [("attention", 3, "the softmax output is read again at line 15, by `sum`")]
