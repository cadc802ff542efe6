"""The playbook's CUDA graph of a module, on a GPU."""

from __future__ import annotations

import copy
import sys
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import msgspec
import pytest

from cudal1_ci.propose.apply import apply
from cudal1_ci.propose.wrappers.table import CUDA_GRAPH
from cudal1_ci.records import Problem, TextProgram
from cudal1_ci.stats import speedups
from cudal1_ci.verification import Session
from tests.conftest import QUICK
from tests.unit.verification.test_session import problem_of, tensor

pytestmark = pytest.mark.starts_verifier

CHAIN = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(64, 64)
        self.norm = nn.BatchNorm1d(64)

    def forward(self, x, y):
        for _ in range(8):
            x = torch.tanh(self.norm(self.fc(x))) + y
        return x, x.mean(1)
"""


def graphed(problem: Problem):
    candidate = apply(problem, None, [CUDA_GRAPH])
    assert isinstance(candidate.program, TextProgram)
    return candidate


@pytest.mark.gpu
def test_the_judge_passes_it_and_it_is_faster():
    problem = problem_of(CHAIN, tensor(32, 64), tensor(32, 64))
    with Session(msgspec.structs.replace(QUICK, load_s=120), device="cuda") as session:
        evaluation = session.evaluate(problem, graphed(problem))
    assert evaluation.verdict.status == "passed", evaluation.verdict
    assert speedups.score(evaluation) > 1.5


@pytest.mark.gpu
def test_calls_of_several_threads_on_their_own_streams_get_their_own_answers():
    """With NVIDIA's bindings, whose nodes copy in and out, and without them."""
    import torch

    pytest.importorskip("cuda.bindings")
    for hidden in ({}, {"cuda.bindings": None}):
        names: dict = {}
        exec(graphed(problem_of(CHAIN, tensor(32, 64), tensor(32, 64))).program.source, names)
        own, calls = names["RecordedCall"].__init__, []

        def noted(call, *given, own=own, calls=calls):
            own(call, *given)
            calls.append(call)

        names["RecordedCall"].__init__ = noted
        model = names["Model"]().cuda().eval()
        plain = type(model).forward.__wrapped__

        def ask(number: int, model=model, plain=plain) -> bool:
            agrees = []
            with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(200):
                    x, y = (torch.randn(32, 64, device="cuda") for _ in range(2))
                    found, expected = model(x, y), plain(model, x, y)
                    agrees.append(
                        [
                            torch.allclose(*both, atol=1e-5)
                            for both in zip(found, expected, strict=True)
                        ]
                    )
            return all(map(all, agrees))

        with mock.patch.dict(sys.modules, hidden):
            assert ask(0)
        with ThreadPoolExecutor(4) as threads:
            assert all(threads.map(ask, range(4)))
        (call,) = calls
        assert (call.moves is None) == bool(hidden)


@pytest.mark.gpu
def test_weights_that_lie_elsewhere_other_shapes_and_training_are_noticed():
    import torch

    names: dict = {}
    exec(graphed(problem_of(CHAIN, tensor(32, 64), tensor(32, 64))).program.source, names)
    plain: dict = {}
    exec(problem_of(CHAIN, tensor(32, 64)).reference.source, plain)
    model = names["Model"]().cuda().eval()
    reference = plain["Model"]().cuda().eval()
    reference.load_state_dict(model.state_dict())

    def agree(rows: int = 32) -> torch.Tensor:
        x, y = (torch.randn(rows, 64, device="cuda") for _ in range(2))
        found, expected = model(x, y), reference(x, y)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
        return found[0]

    with torch.no_grad():
        first = agree()
        before = first.clone()
        agree()
        agree(rows=7)
        assert torch.equal(first, before), "an earlier output is never written to again"
        negated = torch.randn(32, 64, dtype=torch.complex64, device="cuda").conj().imag
        assert negated.is_neg()
        for x in (negated, negated.resolve_neg(), negated):
            torch.testing.assert_close(model(x, x), reference(x, x), rtol=1e-4, atol=1e-5)
        for one in (model, reference):
            one.fc.weight.mul_(0.5)
        agree()
        state = {key: value * 0.5 for key, value in reference.state_dict().items()}
        reference.load_state_dict(state)
        model.load_state_dict(state, assign=True)
        agree()
        model = copy.deepcopy(model)
        agree()
        model, reference = model.double().float(), reference.double().float()
        agree()
    x = torch.randn(8, 64, device="cuda", requires_grad=True)
    model(x, x)[0].sum().backward()
    assert x.grad is not None
