"""Calls of which few fit into the memory of a GPU."""

from __future__ import annotations

import statistics

import msgspec
import pytest
import torch

from cudal1_ci.stats import speedups
from cudal1_ci.verification import Session
from tests.unit.verification.test_session import QUICK, evaluate, problem_of, tensor

pytestmark = [pytest.mark.starts_verifier, pytest.mark.gpu]

SINGLE = msgspec.structs.replace(QUICK, num_launches=1, num_rounds=None)
SCALED = """
class Model(nn.Module):
    def forward(self, x):
        for number in range(12):
            x = x * 0.9 + number
        return x
"""
COMPILED = SCALED.replace("    def forward", "    @torch.compile\n    def forward")
WIDE = """
class Model(nn.Module):
    def forward(self, x):
        return x.repeat(1, 64)
"""
HUNGRY = """
class Model(nn.Module):
    def forward(self, x):
        return x + torch.ones({num_elements}, device=x.device)[0]
"""


def test_equal_code_is_as_fast_in_batches_of_one_call_and_what_compiles_is_faster():
    """A call of 1 ms, where a batch is to last 10: of 64 MiB one call fits into half of 2 GiB
    (test_memory_plan.py). Compiled it is one kernel instead of 24."""
    config = msgspec.structs.replace(SINGLE, memory_bytes=2**31)
    problem = problem_of(SCALED, tensor(4096, 4096))
    with Session(config, device="cuda") as session:
        found = [evaluate(session, problem, SCALED + f"\n# {number}\n") for number in range(5)]
        compiled = evaluate(session, problem, COMPILED)
    launches = [one.measurements[0].repetitions[0] for one in found]
    assert [one.num_calls for one in launches] == [1] * 5
    assert min(len(one.reference_us) for one in launches) > 6, "rounds"
    assert 0.95 < statistics.median(map(speedups.estimate, found)) < 1.05
    assert speedups.estimate(compiled) > 1.5


def test_a_reference_that_returns_much_leaves_room_for_itself():
    """64 times its input: a hundredth of the memory a call, of some thirty."""
    rows = torch.cuda.get_device_properties(0).total_memory // 100 // 64 // 4 // 1024
    problem = problem_of(WIDE, tensor(rows, 1024))
    with Session(SINGLE, device="cuda") as session:
        assert session.check(problem).status == "passed"
        evaluation = evaluate(session, problem, WIDE + "\n# the same\n")
    assert evaluation.verdict.status == "passed", evaluation.verdict


def test_a_launch_that_runs_out_of_memory_is_made_again_with_two_runners():
    """Each holds two fifths of the memory while it is called, and what it has cached afterwards:
    three do not fit."""
    num_elements = torch.cuda.get_device_properties(0).total_memory * 2 // 5 // 4
    text = HUNGRY.format(num_elements=num_elements)
    problem = problem_of(text, tensor(64, 64))
    with Session(SINGLE, device="cuda") as session:
        evaluation = evaluate(session, problem, text + "\n# the same\n")
    assert evaluation.verdict.status == "passed", evaluation.verdict
    (launch,) = evaluation.measurements[0].repetitions
    assert launch.num_calls == 1
    assert 0.8 < speedups.estimate(evaluation) < 1.25
