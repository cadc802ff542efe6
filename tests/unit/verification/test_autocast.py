"""Calls under autocast: what a program sees, what it may compute, what it may leave."""

import msgspec
import pytest

from cudal1_ci.optimize.sweep.memory import code_of
from cudal1_ci.records import (
    Call,
    Candidate,
    Evaluation,
    Problem,
    TensorSpec,
    TextProgram,
    Workload,
)

pytestmark = pytest.mark.starts_verifier

BLOCK = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.norm = nn.Linear(64, 64), nn.LayerNorm(64)

    def forward(self, x):
        {before}
        return {result}
"""
RESULT = "self.norm(self.fc(x).relu())"
CHECKS = """if x.dtype != torch.float64:
            assert torch.is_autocast_enabled("cpu")
            assert torch.get_autocast_dtype("cpu") == torch.{dtype}
            assert torch.is_autocast_cache_enabled()
        else:
            assert not torch.is_autocast_enabled("cpu")"""


def problem_of(
    autocast: str | None = "bfloat16",
    dtype: str = "bfloat16",
    mode: str = "infer",
    result: str = RESULT,
    before: str = "pass",
) -> Problem:
    call = Call(args=(TensorSpec(shape=(32, 64), dtype=dtype, requires_grad=mode == "train"),))
    workload = Workload(
        name="w", provenance="traced", init=Call(), call=call, mode=mode, autocast=autocast
    )
    source = BLOCK.format(result=result, before=before)
    return Problem(reference=TextProgram(source=source, entry="Model"), workloads=(workload,))


def candidate_of(problem: Problem, result: str = RESULT, before: str = "pass") -> Candidate:
    text = BLOCK.format(result=result, before=before).replace("Model(", "ModelNew(")
    program = TextProgram(source=text, entry="ModelNew")
    return Candidate(problem_id=problem.id, program=program, proposer="test")


def test_autocast_is_part_of_a_problem():
    plain = problem_of(None)
    ids = {plain.id, problem_of("bfloat16").id, problem_of("float16").id}
    assert len(ids) == 3
    assert len({code_of(problem_of(one)) for one in (None, "bfloat16", "float16")}) == 3
    workload = msgspec.json.decode(msgspec.json.encode(problem_of().workloads[0]), type=Workload)
    assert workload.autocast == "bfloat16" and workload.conditions == ("bf16 autocast",)
    assert problem_of(mode="train").workloads[0].conditions == ("train", "bf16 autocast")


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("autocast", ["bfloat16", "float16"])
def test_a_program_is_called_under_autocast_and_its_oracle_is_not(session, autocast, mode):
    problem = problem_of(autocast, autocast, mode, before=CHECKS.format(dtype=autocast))
    found = session.check(problem)
    assert found.status == "passed", found
    assert "oracle.absent" not in {one.rule for one in found.findings}, found
    right = session.examine(
        problem, candidate_of(problem, RESULT.replace(".relu()", ".clamp_min(0)"))
    )
    assert right.status == "passed", right
    wrong = session.examine(problem, candidate_of(problem, RESULT.replace(".relu()", ".abs()")))
    assert wrong.status == "incorrect_values"


def test_without_autocast_the_same_call_fails(session):
    found = session.check(problem_of(None))
    assert found.status == "invalid_reference" and "dtype" in str(found.findings)


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_a_backward_pass_is_outside_of_autocast(session, mode):
    before = """def outside(grad):
            assert not torch.is_autocast_enabled("cpu")
            return grad
        x = x * 1
        if x.requires_grad:
            x.register_hook(outside)"""
    assert session.check(problem_of(mode=mode, before=before)).status == "passed"


def test_each_call_casts_the_weights_again(session):
    """Casts that a call leaves would be those of other weights."""
    before = """w = self.fc.weight
        one, other = (torch.nn.functional.linear(x, w) for _ in range(2))
        assert torch.equal(one, other)"""
    problem = problem_of(before=before)
    assert session.check(problem).status == "passed"
    kept = """if not hasattr(self, "kept"):
            self.kept = self.fc.weight.detach().to(torch.bfloat16)"""
    result = "self.norm(torch.nn.functional.linear(x, self.kept, self.fc.bias).relu())"
    found = session.examine(problem, candidate_of(problem, result, kept))
    assert (found.status, found.findings[0].rule) == ("incorrect_values", "state.baked")


@pytest.mark.parametrize(
    "statement",
    [
        'torch.set_autocast_enabled("cpu", False)',
        'torch.set_autocast_dtype("cpu", torch.float16)',
        "torch.set_autocast_cache_enabled(False)",
        "torch.autocast_increment_nesting()",
    ],
)
def test_a_changed_setting_is_seen_after_the_call(session, statement):
    problem = problem_of(dtype="float32")
    before = f"y = self.norm(self.fc(x).relu()); {statement}"
    found = session.examine(problem, candidate_of(problem, "y", before))
    assert (found.status, found.findings[0].rule) == ("reward_hack", "state.global")
    assert "torch.autocast" in found.findings[0].message


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_float32_that_autocast_makes_of_shorter_floats_has_their_tolerance(session, mode):
    """Another order of sums rounds other elements of a product to the other side."""
    problem = problem_of(dtype="float32", mode=mode, result="self.norm(self.fc(x).float())")
    parts = "(x[:, :32] @ self.fc.weight[:, :32].T + x[:, 32:] @ self.fc.weight[:, 32:].T)"
    result = f"self.norm({parts} + self.fc.bias)"
    found = session.examine(problem, candidate_of(problem, result))
    assert found.status == "passed", found
    shorter = "self.norm(self.fc(x).to(torch.float8_e4m3fn).float())"
    found = session.examine(problem, candidate_of(problem, shorter))
    assert found.status in ("precision", "incorrect_values"), found


def test_gradients_that_rounding_moves_much_have_the_tolerance_of_autocast(session):
    """A softmax of a low temperature: float64 explains none of its gradients."""
    before = """z = self.fc(x) / 0.05
        e = torch.exp(z - z.max(-1, keepdim=True).values)"""
    problem = problem_of(dtype="float32", mode="train", result="e / e.sum(-1, True)", before=before)
    result = "(self.fc(x) * 20.0).softmax(-1)"
    found = session.examine(problem, candidate_of(problem, result))
    assert found.status == "passed", found
    wrong = session.examine(problem, candidate_of(problem, result.replace("20.0", "18.0")))
    assert wrong.status == "incorrect_values", wrong


def test_what_autocast_leaves_in_float32_must_stay_in_it(session):
    problem = problem_of(dtype="float32", result="self.norm(x).softmax(-1)")
    assert session.check(problem).status == "passed"
    same = "torch.softmax(self.norm(x), 1)"
    assert session.examine(problem, candidate_of(problem, same)).status == "passed"
    shorter = "self.norm(x).bfloat16().softmax(-1).float()"
    assert session.examine(problem, candidate_of(problem, shorter)).status == "precision"


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_timed_calls_are_under_autocast(session, mode):
    before = CHECKS.format(dtype="bfloat16")
    problem = problem_of(mode=mode, before=before)
    faster = candidate_of(problem, RESULT.replace(".relu()", ".clamp_min(0)"), before)
    found = session.evaluate(problem, faster).verdict
    assert found.status in ("passed", "inconclusive"), found


def test_a_contract_is_tried_under_autocast(session):
    before = CHECKS.format(dtype="bfloat16")
    problem = problem_of(before=before)
    faster = candidate_of(problem, RESULT.replace(".relu()", ".clamp_min(0)"), before)
    evaluation = session.evaluate(problem, faster)
    if evaluation.verdict.status != "passed":
        pytest.skip("the machine was too noisy")
    contract = session.examine_contract(problem, evaluation).contract
    results = {check.result for check in contract}
    assert "held" in results and "broken" not in results, contract


@pytest.mark.parametrize(
    ("result", "before", "broken"),
    [
        ("self.fc(x) * 1", "pass", set()),
        (  # autocast casts what it gets in another one of its dtypes
            "nn.functional.linear(x.bfloat16(), *(one.bfloat16() for one in self.fc.parameters()))",
            "pass",
            {"without autocast"},
        ),
        (  # decided by the first call, as a wrapper that records it once
            "self.fc(x).to(self.first)",
            "self.first = getattr(self, 'first', None) or self.fc(x).dtype",
            {"without autocast", "autocast to float16"},
        ),
    ],
    ids=["right", "always", "first"],
)
def test_a_contract_has_other_autocasts(session, result, before, broken):
    problem = problem_of(dtype="float32", result="self.fc(x)")
    candidate = candidate_of(problem, result, before)
    verdict = session.examine(problem, candidate)
    assert verdict.status == "passed", verdict
    evaluation = Evaluation(
        candidate=candidate, device=session.device(), verdict=verdict, elapsed_s=1.0
    )
    contract = session.examine_contract(problem, evaluation).contract
    found = {one.aspect: one.result for one in contract if "autocast" in one.aspect}
    assert set(found) == {"without autocast", "autocast to float16"}
    assert {name for name, one in found.items() if one == "broken"} == broken, contract


def test_a_call_is_recorded_under_autocast(session):
    problem = problem_of()
    recording = session.record(problem, problem.workloads[0])
    names = {one.name for one in recording.operations}
    assert {"linear", "layer_norm"} <= names
    assert not any("autocast" in one for one in names)
    (linear,) = (one for one in recording.operations if one.name == "linear")
    assert recording.values[linear.outputs[0]].dtype == "bfloat16"
