"""Kernels of candidates before a real judge."""

from __future__ import annotations

import msgspec
import pytest

from cudal1_ci import verify
from cudal1_ci.errors import UnsupportedError
from cudal1_ci.records import Demand
from cudal1_ci.verification import Session
from cudal1_ci.verification.verify import candidate_of, text_problem
from tests.conftest import QUICK

pytestmark = pytest.mark.starts_verifier

PATIENT = msgspec.structs.replace(QUICK, measure_s=10)

REFERENCE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.relu(x @ y)
def get_inputs():
    return [torch.randn(512, 512), torch.randn(512, 512)]
"""
KERNEL = """
import torch, triton
import triton.language as tl

@triton.jit
def relu_kernel(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(x + at, tl.maximum(value, 0.0), mask=at < n)

class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        {body}
"""
BODIES = {
    "works": "out = (x @ y).contiguous(); relu_kernel[(512,)](out, out.numel(), BLOCK=512)\n"
    "        return out",
    "decoy": "one = torch.zeros(4, device=x.device); relu_kernel[(1,)](one, 4, BLOCK=16)\n"
    "        for _ in range(20): out = torch.relu(x @ y)\n"
    "        return out",
    "never": "if x.shape[0] == 3: relu_kernel[(1,)](x, 1, BLOCK=16)\n"
    "        return torch.relu(x @ y)",
}


@pytest.fixture
def files(tmp_path):
    def written(body: str | None):
        reference, candidate = tmp_path / "reference.py", tmp_path / "candidate.py"
        reference.write_text(REFERENCE)
        text = KERNEL.format(body=BODIES[body]) if body else REFERENCE
        candidate.write_text(text)
        return reference, candidate

    return written


def test_a_required_kernel_cannot_be_seen_on_a_cpu(files, kept_verifiers):
    reference, candidate = files(None)
    with pytest.raises(UnsupportedError, match="--require-kernel needs a GPU"):
        verify(reference, candidate, device="cpu", require_kernel=True)


def test_a_profile_says_where_the_time_of_a_call_goes(files, kept_verifiers):
    reference, candidate = files(None)
    problem = text_problem(reference, "infer")
    with Session(QUICK, device="cpu") as session:
        assert session.check(problem).status == "passed"
        assert session.profile("other", is_candidate=False) == "the verifier excluded `other`"
        assert session.demand("other") == "the verifier excluded `other`"
        demand = session.demand("default")
        rows = session.profile("default", is_candidate=False)
        session.evaluate(problem, candidate_of(problem, candidate))
        own = session.profile("default", is_candidate=True)
    for found in (rows, own):
        assert {row["name"]: row["num_calls"] for row in found}["aten::mm"] == 1
        times_us = [row["time_us"] for row in found]
        assert times_us == sorted(times_us, reverse=True)
        assert times_us[0] > 0
    assert isinstance(demand, Demand)
    assert demand.product_flops == 2 * 512**3
    assert demand.num_bytes == 3 * 4 * 512**2


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("body", "required", "status", "rule"),
    [
        ("works", True, "passed", None),
        ("decoy", False, "passed", "kernel.decoy"),
        ("decoy", True, "reward_hack", "kernel.decoy"),
        ("never", True, "reward_hack", "kernel.unlaunched"),
        (None, True, "reward_hack", "kernel.missing"),
        (None, False, "passed", None),
    ],
)
def test_a_kernel_must_do_the_work(files, body, required, status, rule):
    evaluation = verify(*files(body), device="cuda", config=PATIENT, require_kernel=required)
    rules = [f.rule for f in evaluation.verdict.findings if f.rule.startswith("kernel.")]
    found = evaluation.verdict
    assert (found.status, rules) == (status, [rule] if rule else []), found
    own = [kernel.name for kernel in evaluation.kernels if kernel.is_own]
    assert own == (["relu_kernel"] if body in ("works", "decoy") else [])
