"""Wrapped programs load, compute the same, and keep the parameters of what they wrap."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import functools
import pickle
import re
import sys
from types import ModuleType, SimpleNamespace

import msgspec
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cudal1_ci.propose.apply import apply
from cudal1_ci.propose.wrappers.table import WRAPPERS
from cudal1_ci.records import Call, Problem, TextProgram, Workload
from cudal1_ci.stats import speedups
from cudal1_ci.verification import Session, TrialConfig
from cudal1_ci.verification.verify import problem_of
from tests.conftest import QUICK

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


DRAWING = REFERENCE.replace("return self.fc(x)", "return self.fc(x + torch.randn_like(x))")
LISTS = REFERENCE.replace("self, x, y):", "self, x, y):\n        x, y = x[0], y['bias'][1]")
BY_NAME = {one.name: one for one in WRAPPERS}


def attempt(text, *names, modes=("infer",)):
    """Return the candidate of a text with wrappers put on, the last one outermost."""
    workloads = tuple(
        Workload(name=f"w{number}", provenance="declared", call=Call(), mode=mode)
        for number, mode in enumerate(modes)
    )
    problem = Problem(reference=TextProgram(source=text, entry="Model"), workloads=workloads)
    return apply(problem, None, [BY_NAME[name] for name in names])


def wrapped(text, *names):
    """Return the text of the candidate, on which all of them are."""
    candidate = attempt(text, *names)
    assert candidate is not None
    assert candidate.proposer == "playbook:" + "+".join(names)
    return candidate.program.source


def made(text):
    namespace = {}
    exec(text, namespace)
    torch.manual_seed(0)
    return namespace["Model"](3).eval()


def answers(model, *inputs):
    with torch.no_grad():
        first, rest = model(*inputs)
    return first, rest["sum"]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("compile", {}),
        ("compile_reduce_overhead", {"mode": "reduce-overhead"}),
        ("compile_max_autotune", {"mode": "max-autotune-no-cudagraphs"}),
        ("compile_as_laid_out", {"options": {"layout_optimization": False}}),
    ],
)
def test_a_compiled_reference_is_the_same_with_the_same_parameters(monkeypatch, name, options):
    asked = []

    def compile_(forward=None, **given):
        if forward is None:
            return lambda one: compile_(one, **given)
        asked.append(given)
        return forward

    monkeypatch.setattr(torch, "compile", compile_)
    model = made(wrapped(REFERENCE, name))
    assert asked == [options]
    assert sorted(model.state_dict()) == ["fc.bias", "fc.weight"]
    x, y = torch.ones(2, 3), torch.full((2, 3), 2.0)
    product, total = answers(model, x, y)
    assert torch.equal(product, model.fc(x).detach() * 2)
    assert torch.equal(total, x + y)


def test_a_copy_of_a_compiled_model_computes_with_its_own_weights(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda forward, **given: forward)
    for name in ("compile", "compile_reduce_overhead"):
        model = made(wrapped(REFERENCE, name))
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
            found = recorded.tensors_of(recorded.called(forward, module))
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
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda _: torch.get_rng_state())
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, _: torch.set_rng_state(state))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", new_graph)
    monkeypatch.setattr(torch.cuda, "graph", lambda _, **given: contextlib.nullcontext())
    return graphs


GRAPHLESS = """

class RecordedCall:
    graph = None
"""


def graph_model(text):
    """Of the text, for tensors that are not on a GPU."""
    namespace = {}
    exec(text.replace("one.is_cuda", "True"), namespace)
    recorded_call = namespace["RecordedCall"]
    recorded = recorded_call.__init__

    def remembered(self, forward, module, *args):
        recorded(self, forward, module, *args)
        self.graph.call = (self, forward, module)

    recorded_call.__init__ = remembered
    torch.manual_seed(0)
    return namespace["Model"](3).eval()


def test_a_graph_copies_in_copies_out_and_is_recorded_for_each_form(on_a_gpu):
    model = graph_model(wrapped(REFERENCE, "cuda_graph"))
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
    model = graph_model(wrapped(REFERENCE, "cuda_graph"))
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
    moved = "self.scale = self.scale.contiguous()\n        return self"
    model = graph_model(wrapped(held.replace("return self", moved), "cuda_graph"))
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
        answers(graph_model(wrapped(text, "cuda_graph")), torch.ones(2, 3), torch.ones(2, 3))


def test_a_graph_recorded_in_inference_mode_serves_calls_outside_of_it(on_a_gpu):
    model = graph_model(wrapped(REFERENCE, "cuda_graph"))
    x, y = torch.ones(2, 3), torch.zeros(2, 3)
    with torch.inference_mode():
        inside = model(x, y)[0]
    assert torch.equal(answers(model, x, y)[0], inside)
    assert len(on_a_gpu) == 1


def test_a_graph_is_the_plain_forward_off_the_gpu_and_in_training(monkeypatch, on_a_gpu):
    model = graph_model(wrapped(REFERENCE, "cuda_graph"))
    x, y = torch.ones(2, 3), torch.zeros(2, 3)
    assert model(x, y)[0].requires_grad
    with torch.no_grad():
        model(x, y.to_sparse())
        with monkeypatch.context() as patch:
            patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
            model(x, y)
    model.train()
    answers(model, x, y)
    answers(made(wrapped(REFERENCE, "cuda_graph")), x, y)
    assert on_a_gpu == []


def test_calls_of_many_shapes_are_not_recorded_again_and_again(on_a_gpu):
    model = graph_model(wrapped(REFERENCE, "cuda_graph"))

    def call(rows):
        x = torch.ones(rows, 3)
        assert torch.equal(answers(model, x, x)[1], x * 2)

    for _ in range(3):
        for rows in range(1, 12):
            call(rows)
    assert [graph.num_replays for graph in on_a_gpu] == [3] * 8
    model.fc = copy.deepcopy(model.fc)
    call(11)
    assert len(on_a_gpu) == 9, "those of the weights before make room"


def test_the_call_that_is_recorded_draws_what_a_plain_one_draws(on_a_gpu):
    ours, plain = graph_model(wrapped(DRAWING, "cuda_graph")), graph_model(DRAWING + GRAPHLESS)
    x, y = torch.ones(2, 3), torch.zeros(2, 3)
    found = []
    for model in (ours, plain):
        torch.manual_seed(5)
        found.append([answers(model, x, y)[0] for _ in range(3)])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)
    assert [graph.num_replays for graph in on_a_gpu] == [3]


def test_arguments_may_have_names(on_a_gpu):
    model = graph_model(wrapped(REFERENCE, "cuda_graph"))
    x, y = torch.ones(2, 3), torch.zeros(2, 3)
    with torch.no_grad():
        first = model(x, y=y)[0]
        for number in (2, 3):
            assert torch.equal(model(x, y=y + number)[1]["sum"], x + number)
        assert [graph.num_replays for graph in on_a_gpu] == [3]
        assert torch.equal(model(y=y, x=x)[0], first)
        assert torch.equal(model(x, y)[0], first)
    assert [graph.num_replays for graph in on_a_gpu] == [3, 1, 1], "each spelling is a form"


def test_arguments_may_be_lists_and_dicts(on_a_gpu):
    model = graph_model(wrapped(LISTS, "cuda_graph"))
    x, y = torch.ones(2, 3), torch.zeros(2, 3)
    with torch.no_grad():
        for number in (1, 2):
            found = model([x * number, None], {"bias": (3, y + number), "name": "a"})
            assert torch.equal(found[1]["sum"], x * 2 * number)
        assert [graph.num_replays for graph in on_a_gpu] == [2]
        model([x, None], {"bias": (4, y), "name": "a"})
        model([x, None, 1], {"bias": (3, y), "name": "a"})
        model((x, None), {"bias": (3, y), "name": "a"})
        model([x, None], {"name": "a", "bias": (3, y)})
        assert len(on_a_gpu) == 5, "other values, lengths, kinds and keys are other forms"
        model([x, object()], {"bias": (3, y)})
        assert len(on_a_gpu) == 5


@pytest.mark.parametrize(
    "change", ["x.append(y['bias'][1])", "y['more'] = x[0]", "x[0] = x[0] + 1"]
)
def test_a_forward_that_changes_a_list_it_is_given_is_refused(on_a_gpu, change):
    text = LISTS.replace("x, y = x[0]", f"{change}\n        x, y = x[0]")
    model = graph_model(wrapped(text, "cuda_graph"))
    with torch.no_grad(), pytest.raises(RuntimeError, match="changes lists"):
        model([torch.ones(2, 3)], {"bias": (3, torch.ones(2, 3))})


@pytest.mark.gpu
@pytest.mark.parametrize("casts", [False, True], ids=["plain", "autocast"])
@pytest.mark.parametrize(
    ("text", "call"),
    [
        (REFERENCE, lambda model, x, y: model(x, y)),
        (REFERENCE, lambda model, x, y: model(x, y=y)),
        (REFERENCE, lambda model, x, y: model(y=y, x=x)),
        (LISTS, lambda model, x, y: model([x, None], {"bias": (3, y)})),
        (DRAWING, lambda model, x, y: model(x, y)),
    ],
    ids=["in order", "one named", "all named", "lists", "draws"],
)
def test_on_a_gpu_a_graph_answers_as_the_plain_call(monkeypatch, text, call, casts):
    namespace: dict = {}
    exec(wrapped(text.replace('{"sum"', '{"none": None, "sum"'), "cuda_graph"), namespace)
    torch.manual_seed(0)
    ours = namespace["Model"](64).cuda().eval()
    graphed, plain = namespace["Model"].forward, namespace["Model"].forward.__wrapped__
    replayed = []
    one_call = namespace["RecordedCall"].__call__

    def counted(self, tensors):
        replayed.append(1)
        return one_call(self, tensors)

    monkeypatch.setattr(namespace["RecordedCall"], "__call__", counted)
    kept = []
    for number in range(4):
        if number == 2:
            torch.nn.init.ones_(ours.fc.weight)
        x, y = (torch.randn(8, 64, device="cuda") for _ in range(2))
        with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16, enabled=casts):
            both = []
            for forward in (graphed, plain):
                torch.manual_seed(number)
                both.append(call(functools.partial(forward, ours), x, y))
            kept.append(both)
    assert len(replayed) == 4
    for found, wanted in kept:
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)


def test_a_call_under_autocast_has_a_graph_of_its_own(monkeypatch, on_a_gpu):
    model = graph_model(wrapped(REFERENCE, "cuda_graph"))
    x, y = torch.ones(2, 3), torch.zeros(2, 3)
    kept = []
    forward = type(model.fc).forward

    def seen(self, x):
        kept.append(torch.is_autocast_cache_enabled())
        return forward(self, x)

    monkeypatch.setattr(type(model.fc), "forward", seen)
    answers(model, x, y)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind="cuda": True)
    answers(model, x, y)
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda kind: torch.bfloat16)
    answers(model, x, y)
    answers(model, x, y)
    assert [graph.num_replays for graph in on_a_gpu] == [1, 1, 2]
    assert not any(kept[:3]), "a graph reads no copy of a weight that autocast drops"
    assert torch.is_autocast_cache_enabled()


@pytest.mark.parametrize("kind", ["tuple", "named", "nothing"])
def test_an_output_may_hold_plain_values(on_a_gpu, kind):
    """A weight that was not asked for (None), named tuples, and containers that torch knows."""
    made = {
        "tuple": "return self.fc(x), (None, [x + y, 3])",
        "named": "return torch.return_types.max((self.fc(x), x.long()))",
        "nothing": "return {'out': self.fc(x), 'loss': None}",
    }[kind]
    text = REFERENCE.replace('return self.fc(x) * self.scale, {"sum": x + y}', made)
    assert text != REFERENCE
    ours, plain = graph_model(wrapped(text, "cuda_graph")), graph_model(text + GRAPHLESS)
    x, y = torch.ones(2, 3), torch.zeros(2, 3)
    with torch.no_grad():
        for number in (1, 2):
            found, wanted = ours(x, y + number), plain(x, y + number)
            assert type(found) is type(wanted)
            assert repr(found) == repr(wanted)
    assert [graph.num_replays for graph in on_a_gpu] == [2]


@pytest.mark.parametrize("name", ["compile", "compile_max_autotune", "compile_as_laid_out"])
def test_a_compiled_forward_is_recorded_as_a_graph(monkeypatch, on_a_gpu, name):
    def compile_(forward=None, **given):
        return (lambda one: one) if forward is None else forward

    monkeypatch.setattr(torch, "compile", compile_)
    x, y = torch.ones(2, 3), torch.zeros(2, 3)
    text = wrapped(REFERENCE, name, "cuda_graph")
    assert re.search(r"@cuda_graphed\n    @torch\.compile", text), "the graph is outermost"
    model = graph_model(text)
    assert torch.equal(answers(model, x, y)[1], x)
    assert torch.equal(answers(model, x * 3, y)[1], x * 3)
    assert [graph.num_replays for graph in on_a_gpu] == [2]


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
        assert self.is_instantiated == (recorded.moves is not None)
        num_inputs = len(recorded.inputs)
        nodes = [] if recorded.moves is None else self.nodes
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
    model = graph_model(wrapped(REFERENCE, "cuda_graph"))
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
    model = graph_model(wrapped(REFERENCE, "cuda_graph"))
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
    model = graph_model(wrapped(REFERENCE.replace(*change), "cuda_graph"))
    y = torch.full((len(x), 3), 3.0)
    y = torch.complex(y, y) if change[0] else y
    for _ in range(2):
        assert torch.equal(answers(model, x, y)[1], x + 3)
    assert not on_a_gpu[-1].keeps
    assert on_a_gpu[-1].num_replays == 2
    assert bindings.led == []


@pytest.mark.parametrize("answer", ["(x + y)[:, :2]", "(x + y).t()", "(x + y).expand(2, 2, 3)"])
def test_an_answer_of_any_layout_is_copied_by_a_node(bindings, on_a_gpu, answer):
    model = graph_model(wrapped(REFERENCE.replace("x + y}", f"{answer}}}"), "cuda_graph"))
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
    model = graph_model(wrapped(REFERENCE, "cuda_graph"))
    x, y = torch.ones(2, 3), torch.zeros(2, 3)
    answers(model, x, y)
    waited.clear()
    for here[0] in ("first", "second", "second", "first"):
        answers(model, x, y)
    assert waited == [("second", "first"), ("first", "second")]


LINEAR = """\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        return self.fc(x), x + 1
"""
REPORTING = f"""{LINEAR}
    def report(self):
        self.tell()

    def tell(self):
        print(self.fc.weight.sum().item())
"""
DROPPED = LINEAR.replace("self.fc = ", "self.drop = nn.Dropout(0.1)\n        self.fc = ")


def test_a_graphed_forward_is_the_same_wherever_there_is_no_graph():
    new = wrapped(LINEAR, "cuda_graph")
    assert "    @cuda_graphed\n    def forward" in new
    before, after = ({}, {})
    exec(LINEAR, before)
    exec(new, after)
    torch.manual_seed(0)
    ours, theirs = (names["Model"]().eval() for names in (before, after))
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(4, 8, requires_grad=True)
    for is_inference in (True, False):
        with torch.set_grad_enabled(not is_inference):
            for one, other in zip(ours(x), copy.deepcopy(theirs)(x), strict=True):
                torch.testing.assert_close(one, other)
                assert one.requires_grad == other.requires_grad
    pickle.dumps(theirs.state_dict())
    assert after["Model"].forward.__name__ == "forward"


@pytest.mark.parametrize(
    ("change", "is_noticed"),
    [
        (lambda model: model.fc.weight.data.mul_(2), False),
        (lambda model: model.load_state_dict(copy.deepcopy(model.state_dict())), False),
        (lambda model: model.load_state_dict(copy.deepcopy(model.state_dict()), assign=True), True),
        (lambda model: setattr(model, "fc", copy.deepcopy(model.fc)), True),
        (lambda model: setattr(model.fc, "bias", None), True),
        (lambda model: model.double(), True),
        (lambda model: model.eval(), True),
    ],
)
def test_a_recorded_call_notices_weights_that_lie_elsewhere_and_other_values(change, is_noticed):
    names: dict = {}
    exec(wrapped(LINEAR, "cuda_graph"), names)
    model = names["Model"]()
    recorded = object.__new__(names["RecordedCall"])
    recorded.remember_state(model)
    assert recorded.is_current()
    change(model)
    assert recorded.is_current() is not is_noticed


@pytest.mark.parametrize(
    ("change", "to"),
    [
        ("x + 1", "x + x.sum().item()"),
        ("return self", "print(x)\n        return self"),
        ("self, x)", "self)"),
        ("return self", "self.report()\n        return self"),
        ("class Model", "def cuda_graphed(f):\n    return f\n\n\nclass Model"),
        ("    def forward", "    @staticmethod\n    def forward"),
    ],
)
def test_what_cannot_be_recorded_is_left_alone(change, to):
    assert attempt(REPORTING.replace(change, to), "cuda_graph") is None


@pytest.mark.parametrize(
    "to", ["self, x)", "self, x, *, scale=1)", "self, *args)", "self, **named)"]
)
def test_a_forward_may_take_any_arguments(to):
    """And a method that it does not call may do what no graph holds."""
    assert attempt(REPORTING.replace("self, x)", to), "cuda_graph") is not None


@pytest.mark.parametrize(
    ("line", "decorator"),
    [
        ("import torch", "torch.no_grad()"),
        ("from torch.cuda.amp import autocast", "autocast(enabled=False)"),
        ("from torch import inference_mode as quiet", "quiet()"),
    ],
)
def test_a_wrapper_is_put_on_a_forward_that_runs_in_a_context_of_torch(line, decorator):
    text = LINEAR.replace("import torch\n", f"import torch\n{line}\n", 1)
    text = text.replace("    def forward", f"    @{decorator}\n    def forward")
    for name in ("compile", "cuda_graph"):
        assert f"    @{decorator}\n    def forward" in attempt(text, name).program.source
    unknown = text.replace(line, "from elsewhere import autocast, quiet").replace("torch.no", "no")
    assert attempt(unknown, "compile") is None


def test_a_module_that_also_trains_is_recorded_for_its_inference():
    assert attempt(LINEAR, "cuda_graph", modes=("train", "infer")) is not None
    assert attempt(LINEAR, "cuda_graph", modes=("train",)) is None


@pytest.mark.parametrize(
    ("text", "modes", "is_same"),
    [
        (DROPPED, ("train",), True),
        (DROPPED, ("infer", "train"), True),
        (DROPPED, ("infer",), False),
        (LINEAR, ("train",), False),
        (LINEAR.replace("x + 1", "x + torch.rand_like(x)"), ("infer",), True),
    ],
)
def test_a_compiled_program_draws_the_numbers_of_the_plain_one(text, modes, is_same):
    found = attempt(text, "compile", modes=modes).program.source
    options = '"fallback_random": True, "comprehensive_padding": False'
    assert (f"@torch.compile(options={{{options}}})\n" in found) is is_same
    found = attempt(text, "compile_as_laid_out", modes=modes).program.source
    assert (f'"layout_optimization": False, {options}' in found) is is_same
    assert "fallback" not in attempt(text, "compile_max_autotune", modes=modes).program.source


def test_a_module_is_compiled_for_its_inference_alone():
    assert attempt(LINEAR, "compile_in_inference", modes=("train",)) is None
    assert attempt(LINEAR, "compile_in_inference", modes=("infer",)) is None
    text = attempt(LINEAR, "compile_in_inference", modes=("train", "infer")).program.source
    assert "    @compiled_in_inference\n    def forward" in text
    assert attempt(text, "compile", modes=("train", "infer")) is None


def test_what_is_compiled_for_inference_trains_as_before(monkeypatch):
    def compile_(forward):
        def compiled(*args):
            first, rest = forward(*args)
            return first, rest + 1000

        return compiled

    monkeypatch.setattr(torch, "compile", compile_)
    namespace = {}
    text = attempt(LINEAR, "compile_in_inference", modes=("train", "infer")).program.source
    exec(text, namespace)
    model, x = namespace["Model"](), torch.randn(2, 8)
    assert torch.equal(model(x)[1], x + 1)
    with torch.no_grad():
        assert torch.equal(model(x)[1], x + 1001)
    with torch.inference_mode():
        assert torch.equal(model(x)[1], x + 1001)


def test_a_function_is_compiled_and_not_recorded():
    text = "import torch\n\n\ndef Model(x):\n    return x + 1\n"
    assert wrapped(text, "compile") == text.replace("def Model", "@torch.compile\ndef Model")
    assert attempt(text, "cuda_graph") is None
    assert attempt(text, "cudnn_benchmark", "channels_last_inside") is None


@pytest.mark.parametrize(
    "names", [("compile", "compile_max_autotune"), ("cuda_graph", "cuda_graph")]
)
def test_nothing_is_wrapped_twice_in_the_same_way(names):
    candidate = attempt(LINEAR, *names)
    assert [one.operator for one in candidate.edits] == [names[0]]


def test_decorators_of_the_users_are_left_alone():
    text = LINEAR.replace("    def forward", "    @somebodys\n    def forward")
    assert all(attempt(text, one.name) is None for one in WRAPPERS)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_compiler_knows_the_options():
    """It refuses those that it does not know."""
    with pytest.raises(RuntimeError, match="Unexpected optimization option"):
        torch.compile(lambda x: x, options={"no_such_thing": False})
    options = ["layout_optimization", "fallback_random", "comprehensive_padding"]
    torch.compile(lambda x: x, options=dict.fromkeys(options, False))


@pytest.mark.parametrize(
    ("layer", "shape"),
    [("Conv2d", (2, 3, 6, 5)), ("ConvTranspose2d", (2, 3, 4, 4)), ("Conv3d", (2, 3, 5, 4, 6))],
)
def test_channels_last_order_stays_inside(layer, shape):
    text = REFERENCE.replace("nn.Linear(dim, dim)", f"nn.{layer}(dim, 4, 3)").replace(
        "self.fc(x) * self.scale", "torch.relu(self.fc(x)) * self.scale"
    )
    plain, model = {}, made(wrapped(text, "channels_last_inside"))
    exec(text, plain)
    reference = plain["Model"](3).eval()
    reference.load_state_dict(model.state_dict())
    order = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    x, y = torch.randn(shape), torch.randn(shape)
    assert model.fc.weight.is_contiguous(memory_format=order)
    for found, expected in zip(answers(model, x, y), answers(reference, x, y), strict=True):
        torch.testing.assert_close(found, expected, check_stride=True)
    with torch.no_grad():
        inside = type(model).forward.__wrapped__(model, x.contiguous(memory_format=order), y)[0]
    assert inside.is_contiguous(memory_format=order)


@pytest.mark.parametrize("flag", [True, False])
def test_cudnn_tries_its_algorithms_inside_alone(monkeypatch, flag):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", flag)
    seen = []
    noted = "seen.append(flag())\n        return self"
    text = REFERENCE.replace("return self", noted).replace("nn.Linear", "nn.Conv2d and nn.Linear")
    namespace = {"seen": seen, "flag": lambda: torch.backends.cudnn.benchmark}
    exec(wrapped(text, "cudnn_benchmark"), namespace)
    model = namespace["Model"](3)
    model(torch.ones(2, 3), torch.ones(2, 3))
    assert (seen, torch.backends.cudnn.benchmark) == ([True], flag)
    with pytest.raises(RuntimeError):
        model(torch.ones(2, 4), torch.ones(2, 3))
    assert torch.backends.cudnn.benchmark is flag


def test_both_ways_of_convolutions_at_once():
    text = REFERENCE.replace("nn.Linear(dim, dim)", "nn.Conv2d(dim, 4, 3)")
    seen = "torch.relu((self.seen.append(self.flag()), self.fc(x))[1])"
    text = text.replace("self.fc(x) * self.scale", f"{seen} * self.scale")
    model = made(wrapped(text, "channels_last_inside", "cudnn_benchmark"))
    vars(model)["seen"] = seen = []
    vars(model)["flag"] = lambda: torch.backends.cudnn.benchmark
    assert model.fc.weight.is_contiguous(memory_format=torch.channels_last)
    found = answers(model, torch.randn(2, 3, 6, 5), torch.randn(2, 3, 6, 5))
    assert all(one.is_contiguous() for one in found)
    assert seen and all(seen) and not torch.backends.cudnn.benchmark


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
@pytest.mark.parametrize(
    "names",
    [
        ("compile",),
        ("compile_reduce_overhead",),
        ("cuda_graph",),
        ("compile", "cuda_graph"),
        ("compile_max_autotune", "cuda_graph"),
        ("compile_as_laid_out", "cuda_graph"),
    ],
    ids="+".join,
)
@pytest.mark.starts_verifier
def test_the_verifier_passes_what_wraps_a_reference(device, names):
    """A first call under max-autotune takes more than ten seconds."""
    problem = problem_of(GPU_REFERENCE, "reference")
    candidate = apply(problem, None, [BY_NAME[name] for name in names])
    config = msgspec.structs.replace(QUICK, call_s=TrialConfig().call_s)
    with Session(config, device=device) as patient:
        assert is_passed(patient.evaluate(problem, candidate).verdict)


ATTENTION = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(64, 192)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        weights = self.drop((q @ k.mT * 0.125).softmax(-1))
        return self.drop(weights @ v)


def get_inputs():
    return [torch.randn(2, 257, 64)]
"""


@pytest.mark.starts_verifier
@pytest.mark.compiles
def test_the_verifier_passes_a_compiled_forward_that_draws_dropout(device):
    """Its runner has the compiler from another process, and folders of its own."""
    problem = problem_of(ATTENTION, "reference")
    training = msgspec.structs.replace(problem.workloads[0], mode="train")
    problem = msgspec.structs.replace(problem, workloads=(training,))
    config = msgspec.structs.replace(QUICK, call_s=TrialConfig().call_s, num_launches=1)
    candidate = apply(problem, None, [BY_NAME["compile"]])
    assert "fallback_random" in candidate.program.source
    with Session(config, device=device) as patient:
        assert is_passed(patient.evaluate(problem, candidate).verdict)


TOKENS = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 64))
        self.positions = nn.Parameter(torch.randn(1, 17, 64))
        self.last = nn.Linear(64, 64)

    def forward(self, x):
        x = torch.cat((self.token, x), 1) + self.positions
        return self.last(x.relu())


def get_inputs():
    return [torch.randn(1, 16, 64)]
"""


@pytest.mark.starts_verifier
@pytest.mark.compiles
def test_the_verifier_sees_that_a_compiled_program_joins_gradients(device):
    """Once torch.compile does this no more, there is no need for what compiles inference alone."""
    problem = problem_of(TOKENS, "reference")
    training = msgspec.structs.replace(problem.workloads[0], name="training", mode="train")
    problem = msgspec.structs.replace(problem, workloads=(*problem.workloads, training))
    config = msgspec.structs.replace(QUICK, call_s=TrialConfig().call_s, num_launches=1)
    joined, repaired = (
        apply(problem, None, [BY_NAME[name]]) for name in ("compile", "compile_in_inference")
    )
    with Session(config, device=device) as patient:
        verdict = patient.evaluate(problem, joined).verdict
        assert [one.rule for one in verdict.findings] == ["gradients.joined"]
        assert "`token` and `positions`" in verdict.findings[0].message
        assert is_passed(patient.evaluate(problem, repaired).verdict)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("text", "gains"),
    [(ATTENTION, {"default", "training"}), (TOKENS, {"default"})],
    ids=["draws", "joins"],
)
@pytest.mark.parametrize(
    "names",
    [("training_graph", "cuda_graph"), ("compile", "training_graph", "cuda_graph")],
    ids="+".join,
)
@pytest.mark.starts_verifier
def test_the_verifier_passes_what_trains_in_graphs(device, names, text, gains):
    """Graphs copy gradients: those that the compiler joins are separate again. A training call of
    four operations may gain too little to show."""
    problem = problem_of(text, "reference")
    training = msgspec.structs.replace(problem.workloads[0], name="training", mode="train")
    problem = msgspec.structs.replace(problem, workloads=(*problem.workloads, training))
    config = msgspec.structs.replace(QUICK, call_s=TrialConfig().call_s)
    candidate = apply(problem, None, [BY_NAME[name] for name in names])
    with Session(config, device=device) as patient:
        evaluation = patient.evaluate(problem, candidate)
    assert is_passed(evaluation.verdict)
    assert not any(map(speedups.is_slower, evaluation.measurements))
    if evaluation.verdict.status == "passed":
        assert gains <= {one.workload for one in evaluation.measurements if speedups.is_gain(one)}


@pytest.mark.gpu
@pytest.mark.parametrize(
    "names",
    [
        ("channels_last_inside",),
        ("cudnn_benchmark",),
        ("channels_last_inside", "cudnn_benchmark"),
        ("channels_last_inside", "cudnn_benchmark", "compile", "cuda_graph"),
    ],
    ids="+".join,
)
@pytest.mark.starts_verifier
def test_the_verifier_passes_other_ways_of_convolutions(session, names):
    text = GPU_REFERENCE.replace("nn.Linear(dim, dim)", "nn.Conv2d(dim, 8, 3, padding=1)")
    text = text.replace("torch.randn(64, 128)", "torch.randn(4, 128, 16, 16)").replace(
        "* self.scale + y", "* self.scale + y[:, :8]"
    )
    problem = problem_of(text, "reference")
    candidate = apply(problem, None, [BY_NAME[name] for name in names])
    verdict = session.evaluate(problem, candidate).verdict
    assert verdict.status == "precision" or is_passed(verdict)
