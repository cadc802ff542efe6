"""A file that trains at its top level, from the harvest to the verdict."""

from __future__ import annotations

import pytest

from tests.integration.conftest import ONE_LAUNCH, run

pytestmark = [pytest.mark.starts_verifier, pytest.mark.usefixtures("clock")]

SCRIPT = """\
import torch
from torch import nn

WIDTH = 64


class Gate(nn.Module):
    def __init__(self, dim: int = WIDTH):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        y = self.fc(x)
        return y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)


data = torch.load("rows.pt")
model = Gate()
for row in data:
    model(row).sum().backward()
"""


def test_a_class_of_a_script_that_trains_is_called_and_verified(checkout):
    root = checkout({"train.py": SCRIPT, ".gitignore": "__pycache__\n.cudal1-ci\n"})
    words = ("scan", root, "--harvest", "--no-compile", "--json", "-", "-q")
    scanned = run(*words, **ONE_LAUNCH)
    assert scanned.code == 0, scanned.stderr
    (entry,) = scanned.json["entries"]
    assert entry["target"]["qualname"] == "Gate"
    assert {one["provenance"] for one in entry["workloads"]} == {"config"}
    assert entry["evaluations"], entry["skipped"]
    assert all(one["status"] in ("passed", "inconclusive") for one in entry["evaluations"])
