"""All proposals of a scan on one tree, from the command line: two modules under a root, and a
training step."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.integration.conftest import ONE_LAUNCH, run, run_until

pytestmark = [pytest.mark.starts_verifier, pytest.mark.usefixtures("clock")]

PARTS = """\
import torch
from torch import nn


class Columns(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(dim))

    def forward(self, x):
        x = x.nan_to_num()
        return x @ torch.diag(self.scale)


class Rows(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(dim))

    def forward(self, x):
        x = x.nan_to_num()
        return torch.diag(self.scale) @ x
"""
MODEL = """\
from torch import nn

from pkg.parts import Columns, Rows


class Net(nn.Module):
    def __init__(self, dim: int = 256):
        super().__init__()
        self.columns, self.rows = Columns(dim), Rows(dim)

    def forward(self, x):
        return self.rows(self.columns(x))
"""
CONFIG = """\
[tool.cudal1-ci]
trace = "{python} train.py"
"""
TRAIN = """\
import torch
from pkg.model import Net

net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range(3):
    optimizer.zero_grad()
    net(torch.randn(256, 256)).square().mean().backward()
    optimizer.step()
"""


QUICKEST = {
    **ONE_LAUNCH,
    "CUDAL1_CI_TRIAL_CALL": "30s",
    "CUDAL1_CI_TRIAL_CONTRACT": "0s",
    "CUDAL1_CI_REVIEW_ACCEPT": "0s",
}
"""A busy machine takes seconds for a training step. A proposal's contract is not asked for."""


def is_whole(ran):
    """Whether the root was reached, with both proposals, faster than before."""
    found, together = ran.json["impact"], ran.json["together"]
    return bool(found) and len(together["included"]) == 2 and found[0]["low"] > 1


def test_two_modules_are_measured_under_their_root_and_in_a_training_step(checkout, tmp_path):
    files = {
        "pkg/__init__.py": "",
        "pkg/parts.py": PARTS,
        "pkg/model.py": MODEL,
        "train.py": TRAIN,
        "pyproject.toml": CONFIG.format(python=sys.executable),
    }
    root = checkout(files)
    assert run("trace", root, "--", sys.executable, "train.py").code == 0
    page = tmp_path / "report.html"
    words = ("scan", root, "--json", "-", "-q", "--html", page)
    ran = run_until(is_whole, *words, **QUICKEST)
    impact = ran.json["impact"]
    assert {one["root"] for one in impact} == {"pkg/model.py:Net"}
    (step,) = (one for one in impact if one["kind"] == "step")
    calls = {one["mode"]: one for one in impact if one["kind"] == "call"}
    assert "train" in calls
    call = calls["train"]
    assert call["before"]["num_launches"] > call["after"]["num_launches"]
    assert call["before"]["peak_bytes"] > call["after"]["peak_bytes"]
    assert step["optimizer"] == "SGD"
    parts = {entry["target"]["qualname"]: entry["in_roots"] for entry in ran.json["entries"]}
    assert 0 < parts["Rows"][0]["share"] < 1 and not parts["Net"]
    # The patch beside the report is what was measured.
    assert page.with_suffix(".patch").read_text() == ran.json["together"]["patch"]
    subprocess.run(["git", "apply", page.with_suffix(".patch")], cwd=root, check=True)
    text = (root / "pkg/parts.py").read_text()
    assert "torch.diag" not in text
