"""Texts on top of a reference: they load, compute the same, and keep its parameters."""

from __future__ import annotations

import contextlib

import pytest
import torch

from cudal1_ci.bench.solvers import SOLVERS, Means
from cudal1_ci.bench.wrapped import compiled, graphed
from cudal1_ci.verification import problem_of
from tests.fakes import a_problem

REFERENCE = """\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, dim, scale=2.0):
        super(Model, self).__init__()
        self.fc = nn.Linear(dim, dim)
        self.scale = scale

    def forward(self, x, y):
        return self.fc(x) * self.scale, {"sum": x + y}
"""


def made(text):
    namespace = {}
    exec(text, namespace)
    torch.manual_seed(0)
    return namespace["ModelNew"](3).eval()


def answers(model, *inputs):
    with torch.no_grad():
        first, rest = model(*inputs)
    return first, rest["sum"]


@pytest.mark.parametrize("mode", [None, "reduce-overhead", "max-autotune"])
def test_a_compiled_reference_is_the_same_with_the_same_parameters(monkeypatch, mode):
    asked = []

    def compile_(forward, **given):
        asked.append(given)
        return forward

    monkeypatch.setattr(torch, "compile", compile_)
    model = made(compiled(REFERENCE, mode))
    assert asked == [{"mode": mode} if mode else {}]
    assert sorted(model.state_dict()) == ["fc.bias", "fc.weight"]
    x, y = torch.ones(2, 3), torch.full((2, 3), 2.0)
    product, total = answers(model, x, y)
    assert torch.equal(product, model.fc(x).detach() * 2)
    assert torch.equal(total, x + y)


class Recorded:
    """A CUDA graph on a CPU: what was computed while it was recorded, again."""

    def __init__(self, model):
        self.model = model
        self.num_replays = 0

    def replay(self):
        self.num_replays += 1
        with torch.no_grad():
            product, rest = type(self.model).__mro__[1].forward(self.model, *self.model.kept)
            self.model.answer[0].copy_(product)
            self.model.answer[1]["sum"].copy_(rest["sum"])


@pytest.fixture
def graph_model(monkeypatch):
    model = made(graphed(REFERENCE).replace("one.is_cuda", "True"))
    recorded = []

    def new_graph():
        recorded.append(Recorded(model))
        return recorded[-1]

    class Stream:
        def wait_stream(self, other): ...

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", new_graph)
    monkeypatch.setattr(torch.cuda, "graph", lambda _: contextlib.nullcontext())
    return model, recorded


def test_a_graph_copies_in_clones_out_and_is_recorded_again_for_another_shape(graph_model):
    model, recorded = graph_model
    x, y = torch.ones(2, 3), torch.zeros(2, 3)
    first = answers(model, x, y)
    kept = first[1].clone()
    second = answers(model, x * 5, y)
    assert torch.equal(first[1], kept), "an answer is not written by a later call"
    assert torch.equal(second[1], x * 5)
    assert (len(recorded), recorded[0].num_replays) == (1, 2)
    assert torch.equal(
        answers(model, torch.ones(4, 3), torch.ones(4, 3))[1], torch.full((4, 3), 2.0)
    )
    assert len(recorded) == 2
    model.load_state_dict({"fc.weight": torch.eye(3), "fc.bias": torch.zeros(3)})
    assert torch.equal(
        answers(model, torch.ones(4, 3), y[:1].expand(4, 3))[0], torch.full((4, 3), 2.0)
    )
    assert sorted(model.state_dict()) == ["fc.bias", "fc.weight"]


def test_a_graph_is_the_plain_forward_off_the_gpu_and_in_training(graph_model):
    model, recorded = graph_model
    x, y = torch.ones(2, 3), torch.zeros(2, 3)
    assert model(x, y)[0].requires_grad
    model.train()
    answers(model, x, y)
    plain = made(graphed(REFERENCE))
    answers(plain, x, y)
    assert recorded == []
    assert plain.graph is None


def test_columns_write_what_they_are_named_after():
    problem = a_problem(REFERENCE)
    means = Means(kind="cpu")
    (eager,) = SOLVERS["eager"](means).propose(problem, (), 9)
    assert eager.program == problem.reference
    (one,) = SOLVERS["compile-reduce-overhead"](means).propose(problem, (), 9)
    assert 'mode="reduce-overhead"' in one.program.source
    assert one.program.source.startswith(REFERENCE.rstrip())
    assert SOLVERS["cuda-graph"](means).propose(problem, (), 9) == []
    (graph,) = SOLVERS["cuda-graph"](Means(kind="cuda")).propose(problem, (), 9)
    assert "CUDAGraph" in graph.program.source


GPU_REFERENCE = (
    REFERENCE.replace('self.fc(x) * self.scale, {"sum": x + y}', "self.fc(x) * self.scale + y")
    + """

def get_inputs():
    return [torch.randn(64, 128), torch.randn(64, 128)]


def get_init_inputs():
    return [128]
"""
)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["compile", "compile-reduce-overhead", "cuda-graph"])
def test_the_judge_passes_what_wraps_a_reference(session, name):
    problem = problem_of(GPU_REFERENCE, "reference")
    (candidate,) = SOLVERS[name](Means(kind=session.device().kind)).propose(problem, (), 1)
    verdict = session.evaluate(problem, candidate).verdict
    assert verdict.status in ("passed", "inconclusive"), verdict
