"""A trial on one of a machine's GPUs has nothing of the others."""

from __future__ import annotations

import pytest
import torch

from cudal1_ci.verification import Session
from tests.unit.verification.test_session import QUICK, evaluate, problem_of, tensor

pytestmark = [
    pytest.mark.starts_verifier,
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]

COUNTING = """
import os

def opens(path):
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError:
        return False
    return True

class Model(nn.Module):
    def forward(self, x):
        opened = [n for n in range(64) if opens(f"/dev/nvidia{n}")]
        if len(opened) != 1 or torch.cuda.device_count() != 1:
            raise RuntimeError(f"{opened}, {torch.cuda.device_count()} GPUs")
        return x + 1
"""
PLAIN = """
class Model(nn.Module):
    def forward(self, x):
        return x + 1
"""


@pytest.mark.parametrize("device", ["cuda:0", "cuda:1"])
def test_a_program_sees_and_opens_the_own_gpu_alone(device):
    problem = problem_of(COUNTING, tensor(64, 64))
    with Session(QUICK, device=device) as session:
        assert session.device().sandbox_missing == ()
        verdict = session.check(problem)
        assert verdict.status == "passed", verdict
        assert evaluate(session, problem, PLAIN).verdict.status == "passed"
