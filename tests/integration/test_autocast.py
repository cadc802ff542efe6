"""A model that its test calls under autocast, from the trace to the reports."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.integration.conftest import ONE_LAUNCH, run

pytestmark = [pytest.mark.starts_verifier, pytest.mark.usefixtures("clock")]

LAYERS = """\
import torch
from torch import nn


class Inner(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        y = self.fc(x)
        return y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Model(nn.Module):
    def __init__(self, dim: int = 64):
        super().__init__()
        self.first = nn.Linear(dim, dim)
        self.inner = Inner(dim)

    def forward(self, x):
        return self.inner(self.first(x))
"""
TEST = """\
import torch
from pkg.layers import Model


def test_a_step():
    with torch.autocast("cpu", torch.bfloat16):
        found = Model()(torch.randn(32, 64))
    found.float().sum().backward()
"""
FASTER = LAYERS.replace("1e-6) * self.weight", "1e-6) * self.weight.clone()")


@pytest.fixture
def project(checkout):
    files = {"pkg/__init__.py": "", "pkg/layers.py": LAYERS, "tests/test_model.py": TEST}
    root = checkout({**files, "conftest.py": "", ".gitignore": "__pycache__\n.cudal1-ci\n"})
    traced = run("trace", root, "--", sys.executable, "-m", "pytest", "-q", cwd=root)
    assert traced.code == 0, traced.stderr
    return root


def test_an_inner_module_is_scanned_under_the_autocast_of_its_caller(project):
    scanned = run("scan", project, "--json", "-", "-q", "--fresh", **ONE_LAUNCH)
    assert scanned.code == 0, scanned.stderr
    entries = {entry["target"]["qualname"]: entry for entry in scanned.json["entries"]}
    workloads = entries["Inner"]["workloads"]
    assert {(w["mode"], w["autocast"]) for w in workloads} == {
        ("train", "bfloat16"),
        ("infer", "bfloat16"),
    }
    assert {w["call"]["args"][0]["dtype"] for w in workloads} == {"bfloat16"}
    assert "reference" not in str(entries["Inner"]["skipped"]), "it fails without autocast"
    statuses = {one["status"] for one in entries["Inner"]["evaluations"]}
    assert statuses and "invalid_reference" not in statuses, entries["Inner"]
    text = run("scan", project, "-q", **ONE_LAUNCH).stdout
    assert "bf16 autocast" in " ".join(text.split())


def test_an_inner_module_is_verified_and_compared_under_autocast(project):
    (project / "pkg/faster.py").write_text(FASTER)
    words = ("pkg/layers.py:Inner", "pkg/faster.py:Inner")
    verified = run("verify", *words, "--json", "-", cwd=project, **ONE_LAUNCH)
    assert verified.json["status"] in ("passed", "inconclusive"), verified.stdout
    (project / "pkg/faster.py").unlink()
    (project / "pkg/layers.py").write_text(FASTER)
    subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qam", "two"],
        cwd=project,
        check=True,
    )
    compared = run("compare", "HEAD~1", "--path", project, "--fresh", **ONE_LAUNCH)
    assert "bf16 autocast" in compared.stdout, compared.stdout + compared.stderr
    assert "Inner" in compared.stdout and "cannot" not in compared.stdout
