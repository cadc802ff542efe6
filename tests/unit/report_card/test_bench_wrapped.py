"""Texts on top of a reference: they load, compute the same, and keep its parameters."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import pickle
import sys
from types import ModuleType, SimpleNamespace

import msgspec
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cudal1_ci.report_card.solvers import SOLVERS, Means, candidate
from cudal1_ci.report_card.wrapped import (
    AS_LAID_OUT,
    IN_A_GRAPH,
    LAYERS,
    compiled,
    compiled_and_graphed,
    graphed,
    in_channels_last,
    tuned,
    tuned_in_channels_last,
)
from cudal1_ci.verification import Session, TrialConfig
from cudal1_ci.verification.verify import problem_of
from tests.conftest import QUICK
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


def test_a_copy_of_a_compiled_model_computes_with_its_own_weights(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda forward, **given: forward)
    for text in (compiled(REFERENCE), compiled(REFERENCE, "reduce-overhead")):
        model = made(text)
        other = copy.deepcopy(model)
        torch.nn.init.zeros_(other.fc.weight)
        x = torch.ones(2, 3)
        assert not torch.equal(answers(model, x, x)[0], answers(other, x, x)[0])


class FakeGraph:
    """A CUDA graph on a CPU: what was computed while it was recorded, again."""

    call = None
    num_replays = 0

    def replay(self):
        self.num_replays += 1
        recorded, forward, module = self.call
        with torch.no_grad():
            found = recorded.tensors_of(forward(module, *recorded.args))
            for leaf, one in zip(recorded.leaves, found, strict=True):
                leaf.copy_(one)


@pytest.fixture
def on_a_gpu(monkeypatch):
    """Whatever torch.cuda would do for a graph; the graphs that were recorded."""
    graphs = []

    def new_graph():
        graphs.append(FakeGraph())
        return graphs[-1]

    class Stream:
        def wait_stream(self, other): ...

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", new_graph)
    monkeypatch.setattr(torch.cuda, "graph", lambda _, **given: contextlib.nullcontext())
    return graphs


def graph_model(text):
    """Of the text, for tensors that are not on a GPU."""
    namespace = {}
    exec(text.replace("one.is_cuda", "True"), namespace)
    recorded_call = namespace["RecordedCall"]
    recorded = recorded_call.__init__

    def remembered(self, forward, module, args):
        recorded(self, forward, module, args)
        self.graph.call = (self, forward, module)

    recorded_call.__init__ = remembered
    torch.manual_seed(0)
    return namespace["ModelNew"](3).eval()


def test_a_graph_copies_in_copies_out_and_is_recorded_for_each_form(on_a_gpu):
    model = graph_model(graphed(REFERENCE))
    x, y = torch.ones(2, 3), torch.zeros(2, 3)
    first = answers(model, x, y)
    kept = first[1].clone()
    second = answers(model, x * 5, y)
    assert torch.equal(first[1], kept), "an answer is not written by a later call"
    assert torch.equal(second[1], x * 5)
    assert [graph.num_replays for graph in on_a_gpu] == [2]
    full = torch.full((4, 3), 2.0)
    assert torch.equal(answers(model, torch.ones(4, 3), torch.ones(4, 3))[1], full)
    assert torch.equal(answers(model, x, y)[1], x), "the first form is still known"
    assert [graph.num_replays for graph in on_a_gpu] == [3, 1]
    answers(model, x.t().contiguous().t(), y)
    answers(model, x, 2.0)
    answers(model, x, 2)
    assert len(on_a_gpu) == 5, "other strides and other numbers are other forms"
    assert sorted(model.state_dict()) == ["fc.bias", "fc.weight"]


def test_a_graph_follows_weights_wherever_they_lie(on_a_gpu):
    model = graph_model(graphed(REFERENCE))
    x, y = torch.ones(2, 3), torch.zeros(2, 3)
    answers(model, x, y)
    model.load_state_dict({"fc.weight": torch.eye(3), "fc.bias": torch.zeros(3)})
    assert torch.equal(answers(model, x, y)[0], x * 2)
    assert len(on_a_gpu) == 1
    for change in (
        lambda: setattr(model.fc, "weight", torch.nn.Parameter(torch.eye(3) * 2)),
        lambda: setattr(model.fc.weight, "data", torch.eye(3) * 2),
        lambda: setattr(model, "fc", copy.deepcopy(model.fc)),
    ):
        before = len(on_a_gpu)
        change()
        assert torch.equal(answers(model, x, y)[0], x * 4)
        assert len(on_a_gpu) == before + 1
    other = copy.deepcopy(model)
    torch.nn.init.zeros_(other.fc.weight)
    assert torch.equal(answers(other, x, y)[0], x * 0)
    assert torch.equal(answers(model, x, y)[0], x * 4)
    pickle.dumps(model.state_dict())


def test_a_graph_follows_tensors_that_are_no_state(on_a_gpu):
    held = REFERENCE.replace("self.scale = scale", "self.scale = torch.tensor(scale)")
    moved = "self.scale = self.scale.cpu()\n        return self"
    model = graph_model(graphed(held.replace("return self", moved)))
    x, y = torch.ones(2, 3), torch.zeros(2, 3)
    double = answers(model, x, y)[0]
    answers(model, x, y)
    assert len(on_a_gpu) == 1
    model.scale = torch.tensor(4.0)
    torch.testing.assert_close(answers(model, x, y)[0], double * 2)
    assert len(on_a_gpu) == 2


def test_a_forward_that_replaces_what_its_module_holds_is_refused(on_a_gpu):
    counting = REFERENCE.replace("self.scale = scale", "self.scale = torch.tensor(scale)")
    text = counting.replace("return self", "self.scale = self.scale + 1\n        return self")
    with pytest.raises(RuntimeError, match="replaces what its module holds"):
        answers(graph_model(graphed(text)), torch.ones(2, 3), torch.ones(2, 3))


def test_a_graph_recorded_in_inference_mode_serves_calls_outside_of_it(on_a_gpu):
    model = graph_model(graphed(REFERENCE))
    x, y = torch.ones(2, 3), torch.zeros(2, 3)
    with torch.inference_mode():
        inside = model(x, y)[0]
    assert torch.equal(answers(model, x, y)[0], inside)
    assert len(on_a_gpu) == 1


def test_a_graph_is_the_plain_forward_off_the_gpu_and_in_training(monkeypatch, on_a_gpu):
    model = graph_model(graphed(REFERENCE))
    x, y = torch.ones(2, 3), torch.zeros(2, 3)
    assert model(x, y)[0].requires_grad
    with torch.no_grad():
        model(x, y=y)
        with monkeypatch.context() as patch:
            patch.setattr(torch, "is_autocast_enabled", lambda: True)
            model(x, y)
            patch.setattr(torch, "is_autocast_enabled", lambda: False)
            patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
            model(x, y)
    model.train()
    answers(model, x, y)
    answers(made(graphed(REFERENCE)), x, y)
    assert on_a_gpu == []


def test_a_compiled_forward_is_recorded_as_a_graph(monkeypatch, on_a_gpu):
    asked = []
    monkeypatch.setattr(torch, "compile", lambda forward, **given: asked.append(given) or forward)
    x, y = torch.ones(2, 3), torch.zeros(2, 3)
    for mode in (None, "max-autotune-no-cudagraphs"):
        model = graph_model(compiled_and_graphed(REFERENCE, mode))
        assert torch.equal(answers(model, x, y)[1], x)
        assert torch.equal(answers(model, x * 3, y)[1], x * 3)
    graph_model(compiled_and_graphed(REFERENCE, lays_out=False))
    assert asked == [
        {},
        {"mode": "max-autotune-no-cudagraphs"},
        {"options": {"layout_optimization": False}},
    ]
    assert [graph.num_replays for graph in on_a_gpu] == [2, 2]


class FakeNode:
    """A copy of bytes in a row from one address to another."""

    def __init__(self, source, target):
        self.srcPtr, self.dstPtr = (SimpleNamespace(ptr=one.data_ptr()) for one in (source, target))
        self.size = target.nbytes

    def run(self):
        ctypes.memmove(self.dstPtr.ptr, self.srcPtr.ptr, self.size)


class GraphOfNodes(FakeGraph):
    """One that hands out its copies as the runtime does."""

    def raw_cuda_graph(self):
        return self

    def raw_cuda_graph_exec(self):
        return self

    def __init__(self, keep_graph=False):
        self.keeps, self.nodes, self.is_instantiated = keep_graph, [], False

    def instantiate(self):
        assert self.keeps
        self.is_instantiated = True

    def replay(self):
        recorded = self.call[0]
        assert self.is_instantiated == (recorded.leads is not None)
        num_inputs = len(recorded.inputs)
        nodes = [] if recorded.leads is None else self.nodes
        for node in nodes[:num_inputs]:
            node.run()
        super().replay()
        for node in nodes[num_inputs:]:
            node.run()


class Copies(TorchDispatchMode):
    """What a capture sees of the copies that are made in it: those that are bytes in a row."""

    def __init__(self, graph):
        super().__init__()
        self.graph = graph

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        is_in_a_row = func is torch.ops.aten.copy_.default and args[0].stride() == args[1].stride()
        if is_in_a_row and args[0].numel():
            self.graph.nodes.append(FakeNode(args[1], args[0]))
        return func(*args, **(kwargs or {}))


@pytest.fixture
def bindings(monkeypatch, on_a_gpu):
    """NVIDIA's, as far as a recorded call asks them; the addresses that were set."""
    led = []

    def set_address(executable, node, target, source, size, kind):
        assert executable.is_instantiated
        assert (kind, size) == ("device to device", node.size)
        if not runtime.refusal:
            node.srcPtr.ptr, node.dstPtr.ptr = source, target
            led.append((source, target))
        return (runtime.refusal,)

    runtime = SimpleNamespace(
        refusal=0,
        cudaGraphGetNodes=lambda graph, numNodes: (0, graph.nodes[:numNodes], len(graph.nodes)),
        cudaGraphNodeGetType=lambda node: (0, "memcpy"),
        cudaGraphNodeType=SimpleNamespace(cudaGraphNodeTypeMemcpy="memcpy"),
        cudaGraphMemcpyNodeGetParams=lambda node: (0, node),
        cudaGraphExec_t=lambda executable: executable,
        cudaGraphExecMemcpyNodeSetParams1D=set_address,
        cudaMemcpyKind=SimpleNamespace(cudaMemcpyDeviceToDevice="device to device"),
        led=led,
    )
    cuda, module = ModuleType("cuda"), ModuleType("cuda.bindings")
    cuda.bindings, module.runtime = module, runtime
    monkeypatch.setitem(sys.modules, "cuda", cuda)
    monkeypatch.setitem(sys.modules, "cuda.bindings", module)

    class Recording(GraphOfNodes):
        def __init__(self, **given):
            super().__init__(**given)
            on_a_gpu.append(self)

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Recording)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, **given: Copies(graph))
    return runtime


def test_copies_are_nodes_of_the_graph_that_are_led_to_where_the_tensors_lie(bindings, on_a_gpu):
    model = graph_model(graphed(REFERENCE))
    x, y = torch.rand(2, 3), torch.rand(2, 3)
    first = answers(model, x, y)
    kept = [one.clone() for one in first]
    other = torch.rand(2, 3)
    second = answers(model, other, y)
    assert all(map(torch.equal, first, kept)), "an answer is not written by a later call"
    torch.testing.assert_close(second, (model.fc(other).detach() * 2, other + y))
    (graph,) = on_a_gpu
    assert graph.keeps
    assert graph.num_replays == 2
    sources = [source for source, _ in bindings.led[4:]]
    assert y.data_ptr() not in sources, "what lies where it lay is not told again"
    assert sources[0] == other.data_ptr()


def test_a_node_that_refuses_an_address_leaves_the_call_as_it_was(bindings, on_a_gpu):
    model = graph_model(graphed(REFERENCE))
    y = torch.zeros(2, 3)
    for refusal in (0, 1, 0):
        bindings.refusal = refusal
        x = torch.rand(2, 3)
        assert torch.equal(answers(model, x, y)[1], x)
    assert [graph.num_replays for graph in on_a_gpu] == [2]


@pytest.mark.parametrize(
    ("change", "x"),
    [
        (("", ""), torch.rand(2, 6)[:, ::2]),
        (("", ""), torch.rand(1, 3).expand(2, 3)),
        (("", ""), torch.rand(0, 3)),
        (("x + y", "x + y.imag"), torch.rand(2, 3)),
    ],
    ids=["with gaps", "expanded", "empty", "complex"],
)
def test_what_does_not_lie_in_a_row_is_copied_around_the_graph(bindings, on_a_gpu, change, x):
    model = graph_model(graphed(REFERENCE.replace(*change)))
    y = torch.full((len(x), 3), 3.0)
    y = torch.complex(y, y) if change[0] else y
    for _ in range(2):
        assert torch.equal(answers(model, x, y)[1], x + 3)
    assert not on_a_gpu[-1].keeps
    assert on_a_gpu[-1].num_replays == 2
    assert bindings.led == []


@pytest.mark.parametrize("answer", ["(x + y)[:, :2]", "(x + y).t()", "(x + y).expand(2, 2, 3)"])
def test_an_answer_of_any_layout_is_copied_by_a_node(bindings, on_a_gpu, answer):
    model = graph_model(graphed(REFERENCE.replace("x + y}", f"{answer}}}")))
    y = torch.rand(2, 3)
    for x in torch.rand(3, 2, 3):
        found, expected = answers(model, x, y)[1], eval(answer, {"x": x, "y": y})
        assert torch.equal(found, expected)
        assert found.stride() == torch.empty_like(expected).stride()
    assert [graph.num_replays for graph in on_a_gpu] == [3]
    assert on_a_gpu[0].keeps


def test_a_call_on_another_stream_waits_for_the_one_before(monkeypatch, on_a_gpu):
    """Where the copies are not part of the graph, which runs on one stream at a time."""
    waited, here = [], ["first"]

    class Stream(str):
        def wait_stream(self, other):
            waited.append((self, other))

    monkeypatch.setattr(torch.cuda, "current_stream", lambda: Stream(here[0]))
    model = graph_model(graphed(REFERENCE))
    x, y = torch.ones(2, 3), torch.zeros(2, 3)
    answers(model, x, y)
    waited.clear()
    for here[0] in ("first", "second", "second", "first"):
        answers(model, x, y)
    assert waited == [("second", "first"), ("first", "second")]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_compiler_knows_the_options():
    """It refuses those that it does not know."""
    with pytest.raises(RuntimeError, match="Unexpected optimization option"):
        torch.compile(lambda x: x, options={"no_such_thing": False})
    torch.compile(lambda x: x, options={"layout_optimization": False})


@pytest.mark.parametrize(
    ("layer", "shape"),
    [("Conv2d", (2, 3, 6, 5)), ("ConvTranspose2d", (2, 3, 4, 4)), ("Conv3d", (2, 3, 5, 4, 6))],
)
def test_channels_last_order_stays_inside(layer, shape):
    text = REFERENCE.replace("nn.Linear(dim, dim)", f"nn.{layer}(dim, 4, 3)").replace(
        "self.fc(x) * self.scale", "torch.relu(self.fc(x)) * self.scale"
    )
    plain, model = {}, made(in_channels_last(text))
    exec(text, plain)
    reference = plain["Model"](3).eval()
    reference.load_state_dict(model.state_dict())
    order = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    x, y = torch.randn(shape), torch.randn(shape)
    assert model.fc.weight.is_contiguous(memory_format=order)
    for found, expected in zip(answers(model, x, y), answers(reference, x, y), strict=True):
        torch.testing.assert_close(found, expected, check_stride=True)
    with torch.no_grad():
        inside = type(model).__mro__[1].forward(model, x.contiguous(memory_format=order), y)[0]
    assert inside.is_contiguous(memory_format=order)
    named = in_channels_last(text, name="Other")
    assert "class ModelNew(Other)" in graphed(named, base="Other")


@pytest.mark.parametrize("flag", [True, False])
def test_cudnn_tries_its_algorithms_inside_alone(monkeypatch, flag):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", flag)
    seen = []
    noted = "seen.append(torch.backends.cudnn.benchmark)\n        return self"
    text = REFERENCE.replace("return self", noted)
    namespace = {"seen": seen}
    exec(tuned(text), namespace)
    model = namespace["ModelNew"](3)
    model(torch.ones(2, 3), torch.ones(2, 3))
    assert (seen, torch.backends.cudnn.benchmark) == ([True], flag)
    with pytest.raises(RuntimeError):
        model(torch.ones(2, 4), torch.ones(2, 3))
    assert torch.backends.cudnn.benchmark is flag


def test_both_ways_of_convolutions_at_once():
    text = REFERENCE.replace("nn.Linear(dim, dim)", "nn.Conv2d(dim, 4, 3)")
    seen = "torch.relu((self.seen.append(torch.backends.cudnn.benchmark), self.fc(x))[1])"
    text = text.replace("self.fc(x) * self.scale", f"{seen} * self.scale")
    model = made(tuned_in_channels_last(text))
    vars(model)["seen"] = seen = []
    assert model.fc.weight.is_contiguous(memory_format=torch.channels_last)
    found = answers(model, torch.randn(2, 3, 6, 5), torch.randn(2, 3, 6, 5))
    assert all(one.is_contiguous() for one in found)
    assert seen and all(seen) and not torch.backends.cudnn.benchmark


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


NOISY = "timing.noisy"
GPU_REFERENCE = (
    REFERENCE.replace('self.fc(x) * self.scale, {"sum": x + y}', "self.fc(x) * self.scale + y")
    + """

def get_inputs():
    return [torch.randn(64, 128), torch.randn(64, 128)]


def get_init_inputs():
    return [128]
"""
)


def is_passed(verdict):
    """Or measured on a machine too busy for it. Says all of another verdict: pytest leaves out the
    middle of what it prints."""
    rules = [one.rule for one in verdict.findings]
    if verdict.status == "passed" or (verdict.status == "inconclusive" and rules == [NOISY]):
        return True
    messages = [f"{one.rule}: {one.message}" for one in verdict.findings]
    raise AssertionError("\n".join([verdict.status, *messages, verdict.log]))


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["compile", "compile-reduce-overhead", "cuda-graph"])
@pytest.mark.starts_verifier
def test_the_judge_passes_what_wraps_a_reference(session, name):
    problem = problem_of(GPU_REFERENCE, "reference")
    (candidate,) = SOLVERS[name](Means(kind=session.device().kind)).propose(problem, (), 1)
    verdict = session.evaluate(problem, candidate).verdict
    assert is_passed(verdict)


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*IN_A_GRAPH, *AS_LAID_OUT])
@pytest.mark.starts_verifier
def test_the_judge_passes_a_compiled_forward_in_a_graph(device, name):
    """With a benchmark's patience: a first call under max-autotune takes more than ten seconds."""
    problem = problem_of(GPU_REFERENCE, "reference")
    text = (IN_A_GRAPH | AS_LAID_OUT)[name].wrap(GPU_REFERENCE)
    config = msgspec.structs.replace(QUICK, call_s=TrialConfig().call_s)
    with Session(config, device=device) as patient:
        verdict = patient.evaluate(problem, candidate(problem, text, name)).verdict
    assert is_passed(verdict)


@pytest.mark.starts_verifier
@pytest.mark.compiles
def test_the_judge_passes_a_compiled_forward():
    """Its runner has the compiler from another process, and folders of its own."""
    problem = problem_of(GPU_REFERENCE, "reference")
    config = msgspec.structs.replace(QUICK, call_s=TrialConfig().call_s, num_launches=1)
    with Session(config) as patient:
        one = candidate(problem, compiled(GPU_REFERENCE), "compile")
        assert is_passed(patient.evaluate(problem, one).verdict)


@pytest.mark.gpu
@pytest.mark.parametrize("lay", [layer.lay for layer in LAYERS.values()])
@pytest.mark.starts_verifier
def test_the_judge_passes_another_way_of_convolutions(session, lay):
    text = GPU_REFERENCE.replace("nn.Linear(dim, dim)", "nn.Conv2d(dim, 8, 3, padding=1)")
    text = text.replace("torch.randn(64, 128)", "torch.randn(4, 128, 16, 16)").replace(
        "* self.scale + y", "* self.scale + y[:, :8]"
    )
    problem = problem_of(text, "reference")
    verdict = session.evaluate(problem, candidate(problem, lay(text), "x")).verdict
    assert verdict.status == "precision" or is_passed(verdict)
