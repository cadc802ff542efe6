"""What may be allowed beyond the reference's precision, and that it is told."""

from __future__ import annotations

import msgspec
import pytest
import torch

from cudal1_ci.records import Candidate, TextProgram
from cudal1_ci.sandboxed.verifier.precision import cut
from cudal1_ci.verification import Session
from cudal1_ci.verification.verify import problem_of
from tests.conftest import QUICK

REFERENCE = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(128, 128)

    def forward(self, x):
        return torch.sigmoid(self.fc(x))


def get_inputs():
    return [torch.randn(32, 128)]


def get_init_inputs():
    return []
"""
SHORT = {
    "tf32": "(t.detach().view(torch.int32) >> 13 << 13).view(torch.float32)",
    "bfloat16": "t.bfloat16().float()",
    "nothing": "t * 1.0",
}


def shortened(to):
    """The reference with its product's operands cut."""
    head, _, tail = REFERENCE.partition("class Model")
    body = tail.replace(
        "self.fc(x)", "nn.functional.linear(cut(x), cut(self.fc.weight), self.fc.bias)"
    )
    return f"{head}def cut(t):\n    return {SHORT[to]}\n\n\nclass Model{body}"


@pytest.fixture(scope="module")
def problem():
    return problem_of(REFERENCE, "reference.py")


def session_of(precision):
    return Session(msgspec.structs.replace(QUICK, precision=precision), device="cpu")


@pytest.mark.parametrize(
    ("precision", "expected", "told"),
    [
        ("strict", {"nothing"}, set()),
        ("tf32", {"nothing", "tf32"}, {"tf32"}),
    ],
)
@pytest.mark.starts_verifier
def test_tf32_is_allowed_where_somebody_says_so_and_nothing_shorter(
    problem, kept_verifiers, precision, expected, told
):
    candidates = {
        to: Candidate(
            problem_id=problem.id,
            program=TextProgram(source=shortened(to), entry="Model"),
            proposer="test",
        )
        for to in SHORT
    }
    with session_of(precision) as session:
        verdicts = {to: session.examine(problem, one) for to, one in candidates.items()}
    for to, verdict in verdicts.items():
        if to not in expected:
            assert verdict.status in ("precision", "incorrect_values"), to
            continue
        assert verdict.status == "passed", (to, verdict.findings)
        said = [one.message for one in verdict.findings if one.rule == "values.precision"]
        assert len(said) == (to in told), to
        assert all("`precision = tf32` allows it" in one for one in said)


@pytest.mark.starts_verifier
def test_kernelbench_allows_a_hundredth(problem, kept_verifiers):
    off = REFERENCE.replace("self.fc(x))", "self.fc(x)) + {}")
    with session_of("kernelbench") as session:
        for error, status in ((0.009, "passed"), (0.03, "incorrect_values")):
            program = TextProgram(source=off.format(error), entry="Model")
            candidate = Candidate(problem_id=problem.id, program=program, proposer="test")
            verdict = session.examine(problem, candidate)
            assert verdict.status == status, verdict.findings
            assert "values." in verdict.findings[0].rule


def test_numbers_are_cut_toward_zero_to_ten_bits():
    found = cut(torch.tensor([1 + 2**-10, 1 + 2**-11, -1 - 2**-11, 0.0, float("inf")]))
    assert found.tolist() == [1 + 2**-10, 1.0, -1.0, 0.0, float("inf")]
    assert cut(torch.tensor([float("nan")])).isnan().all()
    assert cut(torch.ones(2, dtype=torch.float64) / 3).tolist() == [1 / 3, 1 / 3]
    strided = torch.randn(4, 6).t()
    assert torch.equal(cut(strided), cut(strided.contiguous()))


@pytest.mark.starts_verifier
def test_a_reference_may_return_as_many_outputs_as_it_has_rows(problem, kept_verifiers):
    source = REFERENCE.replace("self.fc(x))", "self.fc(x)).unbind()")
    program = TextProgram(source=source, entry="Model")
    by_row = msgspec.structs.replace(problem, reference=program)
    for precision in ("strict", "tf32"):
        same = TextProgram(source=f"{source}\n# again\n", entry="Model")
        candidate = Candidate(problem_id=by_row.id, program=same, proposer="test")
        with session_of(precision) as session:
            verdict = session.examine(by_row, candidate)
        assert verdict.status == "passed", verdict.findings
