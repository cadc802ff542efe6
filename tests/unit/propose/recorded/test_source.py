"""Values as code: only what means the same at another place is written there."""

from __future__ import annotations

import textwrap

import pytest

from cudal1_ci.propose.recorded.graph import Graph, Operation, graph_of
from cudal1_ci.propose.recorded.source import Source, parsed_file
from tests.unit.propose.recorded.rig import problem_and_recording

TEXT = """
import torch

{head}


def helper(x):
    return x.exp()


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 0.5
        self.weight = torch.nn.Parameter(torch.ones(3, 3))

    def forward(self, x, y):
        {body}


def get_inputs():
    return [torch.rand(3, 3), torch.rand(3, 3)]
"""


def recorded(tmp_path, body: str, head: str = "") -> tuple[Graph, Source]:
    lines = textwrap.indent(textwrap.dedent(body).strip(), " " * 8).strip()
    text = TEXT.replace("{body}", lines).replace("{head}", head)
    problem, recording = problem_and_recording(tmp_path, text)
    graph = graph_of(recording)
    return graph, Source(problem.reference, graph)


def one(graph: Graph, name: str) -> Operation:
    (found,) = (each for each in graph.operations if each.name == name)
    return found


def test_names_state_and_unchanged_expressions_are_code(tmp_path):
    graph, source = recorded(
        tmp_path,
        """
        q = x.sin()
        return torch.tanh(q @ self.weight.t() + y.cos() * self.scale)
        """,
    )
    here, product = one(graph, "tanh"), one(graph, "matmul")
    assert source.expression(product.value(0), at=here) == "q"
    assert source.expression(one(graph, "t").value(0), at=here) == "self.weight"
    assert source.expression(one(graph, "cos").output, at=here) == "y.cos()"
    assert source.argument_code(one(graph, "mul"), 1, at=here) == "self.scale"
    place = source.place(one(graph, "mul"))
    assert place is not None and place.function is not None
    assert place.function.name.value == "forward"


@pytest.mark.parametrize("again", ["x = x * 2", "x, y = y, x", "x *= 2"])
def test_a_name_that_is_bound_again_is_not_used_for_its_old_value(tmp_path, again):
    graph, source = recorded(
        tmp_path, f"a = x.sin() + 1\n{again}\nreturn torch.tanh(x + a).relu()\n"
    )
    sin, here = one(graph, "sin"), one(graph, "tanh")
    assert source.expression(sin.value(0), at=here) != "x"
    assert source.expression(sin.output, at=here) is None
    assert source.expression(sin.output, at=sin) == "x.sin()"


def test_what_a_write_through_a_view_changed_is_not_used(tmp_path):
    graph, source = recorded(
        tmp_path, "q = x.sin()\na = q.exp()\nq.view(-1).mul_(2)\nreturn torch.tanh(a + q)"
    )
    here, exp = one(graph, "tanh"), one(graph, "exp")
    assert source.expression(exp.value(0), at=exp) == "q"
    assert source.expression(exp.value(0), at=here) == "x.sin()"  # not `q`, which was written


def test_what_may_not_be_repeated_is_no_code(tmp_path):
    graph, source = recorded(tmp_path, "return torch.tanh(torch.rand_like(x) + y)")
    assert source.expression(one(graph, "rand_like").output, at=one(graph, "tanh")) is None


def test_values_of_another_frame_are_no_code(tmp_path):
    graph, source = recorded(tmp_path, "return torch.tanh(helper(x.sin()) + y)")
    exp, here = one(graph, "exp"), one(graph, "tanh")
    assert source.expression(exp.value(0), at=exp) == "x"  # helper's own name
    assert source.expression(exp.value(0), at=here) == "x.sin()"
    assert source.expression(exp.output, at=here) is None
    frame = source.frame(exp)
    assert frame is not None and frame.function == "helper"


def test_operands_are_in_the_order_of_the_recording(tmp_path):
    graph, source = recorded(tmp_path, "return torch.add(2.0 - x, y, alpha=2).clamp(0.0, 1.0)")
    file = source.file("")
    assert file is not None

    def codes(name: str) -> list[str | None]:
        return [n and file.code(n) for n in source.operands(one(graph, name))]

    (reversed_,) = (each.name for each in graph.operations if each.name.endswith("sub"))
    assert sorted(filter(None, codes(reversed_))) == ["2.0", "x"]
    first = one(graph, reversed_).value(0)
    if first is not None:  # the tensor comes first in the recording
        assert codes(reversed_) == ["x", "2.0"]
    assert codes("add") == ["2.0 - x", "y"]
    assert codes("clamp") == ["torch.add(2.0 - x, y, alpha=2)", "0.0", "1.0"]


LIBRARY = """
def heads(x, h):
    return x.unflatten(-1, (h, -1)).transpose(0, 1).exp()

def product(x, y, equation):
    return torch.einsum(equation, x, y)
"""


def with_library(tmp_path, body: str) -> tuple[Graph, Source]:
    """Return a recording of code that calls functions of a file outside of the checkout."""
    code = f"exec(compile({LIBRARY!r}, 'library.py', 'exec'))"
    return recorded(tmp_path, body, head=code)


def test_of_a_library_call_only_the_last_operation_is_its_expression(tmp_path):
    graph, source = with_library(tmp_path, "return torch.tanh(heads(x, 3)) + heads(y, 3).sum()")
    here = one(graph, "tanh")
    first, second = (each for each in graph.operations if each.name == "exp")
    assert source.expression(first.output, at=here) == "heads(x, 3)"
    assert source.expression(second.output, at=here) == "heads(y, 3)"
    for each in graph.operations:
        if each.name in ("unflatten", "transpose"):
            assert source.place(each) is None
            assert source.expression(each.output, at=here) is None
        if each.name in ("unflatten", "transpose", "exp"):
            assert source.operands(each) == []


def test_one_call_in_a_loop_is_one_call_each_time(tmp_path):
    graph, source = recorded(tmp_path, "for _ in range(3):\n    x = x * 2\nreturn torch.tanh(x)")
    places = [source.place(each) for each in graph.operations if each.name == "mul"]
    assert len(places) == 3
    assert None not in places


def test_an_equation_may_stand_last(tmp_path):
    graph, source = with_library(tmp_path, "return torch.tanh(product(x, y, 'ij,jk->ik'))")
    here = one(graph, "tanh")
    codes = [source.argument_code(one(graph, "einsum"), n, at=here) for n in range(3)]
    assert codes == ["'ij,jk->ik'", "x", "y"]


def test_one_of_several_results_is_not_their_call(tmp_path):
    graph, source = recorded(tmp_path, "return torch.tanh(x.chunk(3)[0])")
    assert source.expression(one(graph, "chunk").recorded.outputs[0], one(graph, "tanh")) is None


@pytest.mark.parametrize(
    "code",
    [
        "x.sin()\n    .cos()",
        "x.sin(\n    )\n    .cos(\n    )",
        "torch.sin(\n    x\n).cos()",
        "x.sin().mT\n    .cos()",
        "x.sin()\n    .mT",
    ],
)
def test_a_chain_of_methods_may_take_several_lines(tmp_path, code):
    graph, source = recorded(tmp_path, f"return (\n    {code}\n)")
    first, last = graph.operations[0], graph.operations[-1]
    assert source.expression(first.output, at=last) is not None
    place = source.place(last)
    assert place is not None
    assert source.file("").code(place.node).strip("( )\n").split() == code.strip("( )\n").split()


def test_a_file_has_the_same_nodes_though_many_others_were_read(tmp_path):
    graph, source = recorded(tmp_path, "return x.sin()")
    before = source.place(one(graph, "sin"))
    for number in range(20):
        parsed_file(f"x = {number}")
    file = source.file("")
    assert before is not None and file is not None and before.node in file.ranges
