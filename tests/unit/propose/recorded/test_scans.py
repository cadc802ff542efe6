"""Recurrences whose steps a Triton kernel can do: found, checked before use, or left alone."""

from __future__ import annotations

import ast
from pathlib import Path

import msgspec
import pytest

from cudal1_ci.propose.recorded import scans
from cudal1_ci.propose.recorded.strategy import RecordedRewrites
from cudal1_ci.records import TextProgram
from tests.unit.propose.recorded.rig import assert_same, problem_and_recording

START = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.alpha = 0.9
        self.log = nn.Parameter(torch.randn(4, 3))

    def forward(self, x, gate, c):
        b, l, d = x.shape
"""
END = """

def get_inputs():
    return [torch.randn(2, 5, 4), torch.rand(2, 5, 4), torch.randn(2, 5, 3)]
"""


def rewritten(tmp_path: Path, body: str, device: str = "cuda", kind: str = "cuda") -> list[str]:
    """Return new texts, as if the call had run on a device."""
    problem, recording = problem_and_recording(tmp_path, text_of(body))
    values = tuple(msgspec.structs.replace(one, device=device) for one in recording.values)
    recording = msgspec.structs.replace(recording, values=values)
    strategy = RecordedRewrites(rules=scans.RULES, kind=kind)
    found = []
    for one in strategy.propose_recorded(problem, recording, (), 9):
        assert isinstance(one.program, TextProgram)
        found.append(one.program.source)
    return found


def text_of(body: str) -> str:
    lines = body.strip("\n").splitlines()
    return START + "".join(f"        {one}\n" for one in lines) + END


GATED = """
h = torch.zeros(b, d)
hs = []
for t in range(l):
    h = gate[:, t] * h + (1 - gate[:, t]) * x[:, t]
    hs.append(h)
return torch.stack(hs, dim=1)
"""
SELECTIVE = """
A = -torch.exp(self.log)
dA = torch.exp(torch.einsum("bld,dn->bldn", gate, A))
h = torch.zeros(b, d, 3)
ys = []
for t in range(l):
    h = dA[:, t] * h + x[:, t].unsqueeze(-1)
    ys.append(torch.einsum("bdn,bn->bd", h, c[:, t]))
return torch.stack(ys, dim=1)
"""
BACKWARDS = """
out = torch.zeros_like(x)
total = torch.zeros(b, d)
for t in reversed(range(l)):
    total = x[:, t] + self.alpha * total
    out[:, t] = total
return out, total
"""


@pytest.mark.parametrize(
    ("body", "step"),
    [
        (GATED, "h = gate_t * h + (1 - gate_t) * x_t"),
        (SELECTIVE, "dA_t = tl.exp(gate_t * A)"),
        (SELECTIVE, "tl.sum(tl.where(is_n, h * c_t, 0.0), 1, keep_dims=True)"),
        (BACKWARDS, "total = x_t + alpha * total"),
    ],
)
def test_a_recurrence_becomes_a_kernel(tmp_path: Path, body: str, step: str) -> None:
    (new,) = rewritten(tmp_path, body)
    ast.parse(new)
    assert step in new
    assert "_fits(*scanned):" in new


def test_a_factor_that_only_the_loop_reads_is_computed_in_the_kernel(tmp_path: Path) -> None:
    (new,) = rewritten(tmp_path, SELECTIVE)
    before, _, after = new.partition("if h_scan_fits(*scanned):")
    assert "A = -tl.exp(log)" in before
    assert "dA = torch.exp(" not in before
    assert "dA = torch.exp(" in after


@pytest.mark.parametrize("body", [GATED, SELECTIVE, BACKWARDS])
def test_the_old_loop_runs_where_the_kernel_does_not(tmp_path: Path, body: str) -> None:
    (new,) = rewritten(tmp_path, body)
    without = new.replace("@triton.jit\n", "").replace(": tl.constexpr", "")
    without = without.replace("import triton.language as tl\n", "").replace("import triton\n", "")
    assert_same(tmp_path, text_of(body), without)


@pytest.mark.parametrize(
    "body",
    [
        GATED.replace("gate[:, t] * h", "gate[:, t] * h.roll(1, -1)"),
        GATED.replace("gate[:, t] * h", "h @ torch.eye(d)"),
        GATED.replace("gate[:, t] * h", "gate[:, t - 1] * h"),
        GATED.replace("hs.append(h)", "hs.append(h)\n    if t == 3:\n        break"),
        GATED.replace("gate[:, t] * h", "gate[:, t] * t * h"),
        GATED.replace("torch.stack(hs, dim=1)", "torch.stack(hs, dim=1), hs[0]"),
        GATED.replace("torch.stack(hs, dim=1)", "torch.stack(hs, dim=1) * t"),
        GATED.replace("for t in range(l):", "for t in range(0, l, 2):"),
    ],
)
def test_another_loop_is_left_alone(tmp_path: Path, body: str) -> None:
    assert rewritten(tmp_path, body) == []


@pytest.mark.parametrize(("device", "kind"), [("cpu", "cuda"), ("cuda", "cpu")])
def test_nothing_is_proposed_without_a_gpu(tmp_path: Path, device: str, kind: str) -> None:
    assert rewritten(tmp_path, GATED, device, kind) == []
