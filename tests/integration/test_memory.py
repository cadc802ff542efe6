"""Trials under a limit of memory: fewer things at a time, and a clear word where it is too low."""

from __future__ import annotations

import msgspec
import pytest

from cudal1_ci.records import Call, Candidate, Problem, TensorSpec, TextProgram, Workload
from cudal1_ci.verification import Session
from tests.conftest import QUICK

pytestmark = pytest.mark.starts_verifier

SOURCE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        for _ in range({repeats}):
            out = {forward}
        return out
"""
REPEATS = {"cpu": 1, "cuda": 500}
"""One call is all that fits, and must take long enough to be timed."""
NUM_BYTES = 4 * 2**20
"""Of the input, and of the output."""


def evaluate(limit_bytes: int, forward: str, device: str):
    spec = TensorSpec(shape=(1024, NUM_BYTES // 4096), dtype="float32")
    workload = Workload(name="w", provenance="declared", init=Call(), call=Call(args=(spec,)))
    reference = TextProgram(
        source=SOURCE.format(forward="torch.tanh(x) + x", repeats=REPEATS[device]), entry="Model"
    )
    problem = Problem(reference=reference, workloads=(workload,))
    program = TextProgram(
        source=SOURCE.format(forward=forward, repeats=REPEATS[device]), entry="Model"
    )
    candidate = Candidate(problem_id=problem.id, program=program, proposer="test")
    config = msgspec.structs.replace(QUICK, memory_bytes=limit_bytes)
    # Again where the machine is too busy to measure on, by another judge: where a process's memory
    # lies sways single calls, and stays as it is.
    for _ in range(8):
        with Session(config, device=device) as session:
            evaluation = session.evaluate(problem, candidate)
        if [f.rule for f in evaluation.verdict.findings[:1]] != ["timing.noisy"]:
            break
    return evaluation


@pytest.mark.times
@pytest.mark.parametrize("calls_that_fit", [20, 11.5])
def test_a_verdict_and_both_times_under_a_limit(calls_that_fit, device):
    limit_bytes = int(calls_that_fit * NUM_BYTES)
    evaluation = evaluate(limit_bytes, "x.tanh().add(x)", device)
    assert evaluation.verdict.status == "passed", evaluation.verdict
    (measurement,) = evaluation.measurements
    for launch, control in zip(measurement.repetitions, measurement.control, strict=True):
        assert launch.num_calls == 1
        # Where less fits, the control is measured beside a reference of its own.
        assert (launch.reference_us != control.reference_us) == (calls_that_fit < 15)


def test_a_wrong_answer_is_found_under_a_limit(device, kept_verifiers):
    evaluation = evaluate(int(11.5 * NUM_BYTES), "torch.tanh(x)", device)
    assert evaluation.verdict.status == "incorrect_values"


def test_too_little_memory_is_said_with_what_is_needed(device, kept_verifiers):
    evaluation = evaluate(8 * NUM_BYTES, "x.tanh().add(x)", device)
    assert evaluation.verdict.status == "inconclusive"
    (finding,) = [f for f in evaluation.verdict.findings if f.rule == "memory.device"]
    assert "needs 0.0 GiB" in finding.message


@pytest.mark.parametrize(
    ("forward", "status"),
    [("x.exp().expand(1024, -1) * 1", "passed"), ("x.exp().repeat(1024, 2)", "incorrect_shape")],
)
def test_outputs_much_larger_than_inputs_are_tried_fewer_times(
    forward, status, device, kept_verifiers
):
    spec = TensorSpec(shape=(1, 1024), dtype="float32")
    workload = Workload(name="w", provenance="declared", init=Call(), call=Call(args=(spec,)))
    texts = [SOURCE.format(forward=one, repeats=1) for one in ("x.exp().repeat(1024, 1)", forward)]
    reference, program = (TextProgram(source=text, entry="Model") for text in texts)
    problem = Problem(reference=reference, workloads=(workload,))
    candidate = Candidate(problem_id=problem.id, program=program, proposer="test")
    config = msgspec.structs.replace(QUICK, memory_bytes=2 * 8 * NUM_BYTES)
    with Session(config, device=device) as session:
        (few,) = session.check(problem).findings
        verdict = session.examine(problem, candidate)
    assert few.rule == "trials.few"
    assert few.message.endswith("sets of inputs: 3 are tried")
    assert verdict.status == status, verdict
