"""What the recorder keeps of a call: operations with their expressions, values, frames."""

from __future__ import annotations

import importlib.util
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

from cudal1_ci.sandboxed.recorder import recording as recorder
from cudal1_ci.sandboxed.recorder.recording import recorded
from cudal1_ci.sandboxed.wire.codec import Form, decode, encode
from cudal1_ci.sandboxed.wire.recording import RecordedOperation, Recording, Span

HEAD = "import torch\nimport torch.nn.functional as F\n\n\n"


class Case:
    """A text with a function or module, one call of which is recorded."""

    def __init__(self, folder: Path, text: str):
        self.path = folder / "given.py"
        self.text = HEAD + textwrap.dedent(text)
        self.path.write_text(self.text, encoding="utf-8")
        code = compile(self.text, str(self.path), "exec")
        self.names: dict[str, Any] = {"__name__": "given"}
        exec(code, self.names)

    def record(self, *inputs: Any, name: str = "f") -> Recording:
        call = self.names[name]
        model = call() if isinstance(call, type) else None
        tensors = [one for one in inputs if isinstance(one, torch.Tensor)]
        with torch.no_grad():
            found = recorded(lambda: (model or call)(*inputs), model, tensors, None, self.path)
        assert decode(Form(Recording), encode(found)) == found  # it crosses the wall
        return found

    def code(self, span: Span | None) -> str:
        """The text of a span, whose columns count bytes."""
        assert span is not None and span.column is not None and span.last_column is not None
        lines = self.text.encode().splitlines(keepends=True)[span.line - 1 : span.last_line]
        lines[-1] = lines[-1][: span.last_column]
        lines[0] = lines[0][span.column :]
        return b"".join(lines).decode()


@pytest.fixture
def case(tmp_path):
    return lambda text: Case(tmp_path, text)


def named(found: Recording, name: str) -> list[RecordedOperation]:
    return [one for one in found.operations if one.name == name]


def exact(case: Case, found: Recording) -> list[tuple[str, str]]:
    return [(one.name, case.code(one.span)) for one in found.operations]


spans = pytest.mark.skipif(sys.version_info < (3, 11), reason="columns came with Python 3.11")


@spans
def test_spans_are_those_of_operators_calls_methods_and_attributes(case):
    one = case(
        """
        def f(x, y):
            z = (x @ y.T) * 2.0
            return -torch.softmax(z, dim=-1).sum(0)[1:]
        """
    )
    assert exact(one, one.record(torch.ones(3, 4), torch.ones(3, 4))) == [
        ("T", "y.T"),
        ("matmul", "x @ y.T"),
        ("mul", "(x @ y.T) * 2.0"),
        ("softmax", "torch.softmax(z, dim=-1)"),
        ("sum", "torch.softmax(z, dim=-1).sum(0)"),
        ("__getitem__", "torch.softmax(z, dim=-1).sum(0)[1:]"),
        ("neg", "-torch.softmax(z, dim=-1).sum(0)[1:]"),
    ]


@spans
def test_spans_of_lines_that_are_not_ascii_and_of_several_lines_are_exact(case):
    one = case(
        """
        def f(größe):
            s = "äöü€"; y = größe.exp(); t = "ß"; z = torch.tanh(y)
            return torch.add(
                z,
                y.mul(
                    2,
                ),
            )
        """
    )
    found = exact(one, one.record(torch.ones(2)))
    assert [code for _, code in found[:2]] == ["größe.exp()", "torch.tanh(y)"]
    assert [" ".join(code.split()) for _, code in found[2:]] == [
        "y.mul( 2, )",
        "torch.add( z, y.mul( 2, ), )",
    ]


def test_a_branch_that_is_not_taken_is_absent(case):
    one = case(
        """
        def f(x, mask=None):
            if mask is not None:
                x = x.masked_fill(mask, 0.0)
            return x.relu() if x.dim() == 2 else x.sigmoid()
        """
    )
    assert [o.name for o in one.record(torch.ones(2, 2)).operations] == ["dim", "relu"]
    names = [o.name for o in one.record(torch.ones(2), torch.ones(2).bool()).operations]
    assert names == ["masked_fill", "dim", "sigmoid"]


@spans
def test_helpers_and_submodules_have_frames_and_callers(case):
    one = case(
        """
        def helper(x):
            return x.exp()

        class Inner(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = torch.nn.Linear(3, 3)

            def forward(self, x):
                return helper(self.lin(x))

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = Inner()

            def forward(self, x):
                return self.inner(x) + 1
        """
    )
    found = one.record(torch.ones(2, 3), name="Model")
    linear, _, add = found.operations
    assert [o.name for o in found.operations] == ["linear", "exp", "add"]
    frames = {o.name: found.frames[o.frame or 0] for o in found.operations}
    assert [frames[o].function for o in ("linear", "exp", "add")] == [
        "Inner.forward",
        "helper",
        "Model.forward",
    ]
    assert one.code(linear.span) == "self.lin(x)"  # torch's own frames are not the user's
    assert frames["exp"].caller == linear.frame
    assert one.code(frames["exp"].call) == "helper(self.lin(x))"
    assert frames["linear"].caller == add.frame
    assert one.code(frames["linear"].call) == "self.inner(x)"
    weight = found.values[linear.args[1].value or 0]
    assert (weight.origin, weight.path) == ("parameter", "inner.lin.weight")


@pytest.mark.parametrize(
    "write",
    [
        "y.mul_(2)",
        "y *= 2",
        "y[0] = 2.0",
        "torch.mul(x, 2, out=y)",
        "y.view(-1).mul_(2)",
        "torch.nn.functional.relu6(y, True)",
    ],
)
def test_what_is_written_in_place_is_a_new_value(case, write):
    one = case(f"def f(x):\n    y = x.exp()\n    a = y.sin()\n    {write}\n    return a, y.sin()\n")
    first, second = named(one.record(torch.ones(3)), "sin")
    assert first.args[0].value != second.args[0].value


@pytest.mark.parametrize("write", ["x.mul(2)", "x.view(-1)", "x[0]", "x.clone().mul_(2)"])
def test_what_is_only_read_stays_the_same_value(case, write):
    one = case(f"def f(x):\n    y = x.exp()\n    a = y.sin()\n    {write}\n    return a, y.sin()\n")
    first, second = named(one.record(torch.ones(3)), "sin")
    assert first.args[0].value == second.args[0].value


def test_a_base_that_is_written_makes_new_values_of_its_views(case):
    one = case(
        """
        def f(x):
            y = x.exp()
            v = y[0]
            a = v.sin()
            y[0] = 1.0
            return a, v.sin()
        """
    )
    first, second = named(one.record(torch.ones(3)), "sin")
    assert first.args[0].value != second.args[0].value


def test_a_name_that_is_bound_again_is_another_value_with_its_own_scope(case):
    one = case(
        """
        def f(q):
            q = q * 2
            return q.exp()
        """
    )
    found = one.record(torch.ones(3))
    (mul,), (exp,) = named(found, "mul"), named(found, "exp")
    before, after = (
        {k.name: k.argument.value for k in found.scopes[o.scope or 0].locals} for o in (mul, exp)
    )
    assert before["q"] == mul.args[0].value != mul.outputs[0] == exp.args[0].value == after["q"]
    assert found.outputs == exp.outputs


def test_a_loop_repeats_its_spans_with_other_values(case):
    one = case(
        """
        def f(x):
            for step in range(3):
                x = torch.tanh(x)
            return x
        """
    )
    found = one.record(torch.ones(3))
    assert [o.name for o in found.operations] == ["tanh"] * 3
    assert len({o.span for o in found.operations}) == 1
    for before, after in zip(found.operations, found.operations[1:], strict=False):
        assert after.args[0].value == before.outputs[0]
    steps = [
        k.argument.text
        for o in found.operations
        for k in found.scopes[o.scope or 0].locals
        if k.name == "step"
    ]
    assert steps == ["0", "1", "2"]


def test_what_the_host_waits_for_is_marked(case):
    one = case(
        """
        def f(x):
            if x.sum() > 0:
                x = x + x.max().item()
            return x * float(x[0])
        """
    )
    found = one.record(torch.ones(3))
    assert [o.name for o in found.operations if o.syncs] == ["__bool__", "item", "__float__"]
    by_value = case(
        """
        def f(x):
            mask = x > 0
            x = torch.where(mask, x, 0)[None, :2]
            return x[:, mask[:2]], torch.where(mask)
        """
    )
    found = by_value.record(torch.ones(3))
    assert [o.name for o in found.operations if o.syncs] == ["__getitem__", "where"]


def test_one_number_and_lower_triangles_are_recognized(case):
    one = case(
        """
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("ones", torch.ones(4, 4))
                self.register_buffer("causal", torch.tril(torch.ones(1, 4, 4)))
                self.register_buffer("upper", torch.triu(torch.ones(4, 4)))
                self.register_buffer("inf", torch.full((4,), float("inf")))

            def forward(self, x):
                mask = torch.ones(4, 4, dtype=torch.bool).tril()
                return x + self.ones + self.causal + self.upper + self.inf + mask
        """
    )
    found = one.record(torch.arange(16.0).view(4, 4), name="Model")
    facts = {v.path: (v.fill, v.is_tril) for v in found.values if v.origin == "buffer"}
    assert facts == {
        "ones": (1.0, False),
        "causal": (None, True),
        "upper": (None, False),
        "inf": (None, False),
    }
    (tril,) = named(found, "tril")
    assert found.values[tril.outputs[0]].is_tril
    given = next(v for v in found.values if v.origin == "input")
    assert (given.fill, given.is_tril) == (None, False)


def test_arguments_are_kept_as_they_were_given(case):
    one = case(
        """
        def f(x):
            a, b = torch.split(x, [1, 2], dim=0)
            return torch.cat((a, b))[0:2, None].to(torch.float64)
        """
    )
    found = one.record(torch.ones(3))
    (split,), (cat,), (item,), (to,) = (
        named(found, name) for name in ("split", "cat", "__getitem__", "to")
    )
    assert [i.text for i in split.args[1].items] == ["1", "2"]
    assert [(k.name, k.argument.text) for k in split.kwargs] == [("dim", "0")]
    assert tuple(i.value for i in cat.args[0].items) == split.outputs
    index = item.args[1]
    assert [i.kind for i in index.items] == ["slice", "literal"]
    assert [i.text for i in index.items[0].items] == ["0", "2", "None"]
    assert to.args[1].text == "torch.float64"
    assert found.values[to.outputs[0]].dtype == "float64"


def test_more_operations_than_are_kept_are_cut(case, monkeypatch):
    monkeypatch.setattr(recorder, "MAX_OPERATIONS", 5)
    one = case("def f(x, n):\n    for _ in range(n):\n        x = x + 1\n    return x\n")
    cut = one.record(torch.ones(2), 9)
    assert cut.is_cut and len(cut.operations) == 5
    whole = one.record(torch.ones(2), 4)
    assert not whole.is_cut and len(whole.operations) == 4


def test_a_long_recording_is_cut_where_its_tensors_take_much_memory(case, monkeypatch):
    monkeypatch.setattr(recorder, "FEW_OPERATIONS", 3)
    monkeypatch.setattr(recorder, "MOST_KEPT_BYTES", 1000)
    one = case("def f(x, n):\n    for _ in range(n):\n        x = x + 1\n    return x\n")
    small, large = one.record(torch.ones(2), 9), one.record(torch.ones(500), 9)
    assert not small.is_cut and len(small.operations) == 9
    assert large.is_cut and len(large.operations) == 3


def test_calls_that_are_recorded_are_not_timed(case):
    one = case(
        """
        import time
        calls = []
        def f(x):
            calls.append(1)
            if len(calls) != 2:
                time.sleep(0.2)
            return x.exp()
        """
    )
    found = one.record(torch.ones(2))
    assert len(one.names["calls"]) == 5
    assert 0 < found.total_us < 2e5
    assert found.operations[0].host_us > 0


@pytest.mark.parametrize("disturbed", [3, 4, 5])
def test_a_disturbed_recording_does_not_decide_what_an_operation_takes(case, disturbed):
    one = case(
        f"""
        import time
        calls = []
        def slow(value):
            time.sleep(0.1 if len(calls) == {disturbed} else 0.0)
            return value
        def f(x):
            calls.append(1)
            return x.clone().apply_(slow).exp()
        """
    )
    by_name = {o.name: o.host_us for o in one.record(torch.ones(1)).operations}
    assert 0 < by_name["apply_"] < 5e4


def test_a_long_call_is_called_three_times(case, monkeypatch):
    monkeypatch.setattr(recorder, "SHORT_US", 0.0)
    one = case("calls = []\ndef f(x):\n    calls.append(1)\n    return x.exp()\n")
    one.record(torch.ones(2))
    assert len(one.names["calls"]) == 3


def test_functions_of_other_packages_are_part_of_what_called_them(tmp_path):
    """Of a checkout, files below its root are its own, and no others."""
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "other.py").write_text("def twice(x):\n    return x.exp().exp()\n")
    (root / "own.py").write_text("def f(x, twice):\n    return twice(x) + 1\n")
    loaded = {}
    for name, path in (("own", root / "own.py"), ("other", tmp_path / "other.py")):
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec and spec.loader
        loaded[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded[name])
    own, other = loaded["own"], loaded["other"]
    x = torch.ones(2)
    found = recorded(lambda: own.f(x, other.twice), None, [x], str(root), root / "none.py")
    assert [o.name for o in found.operations] == ["exp", "exp", "add"]
    assert {found.frames[o.frame or 0].file for o in found.operations} == {"own.py"}
    assert {o.span.line for o in found.operations if o.span} == {2}


TRAINED = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(64, 64)

    def forward(self, x):
        h = self.inner(x).tanh()
        with torch.no_grad():
            constant = h.exp()
        {code}
        return (h @ h.T).sum() + constant.sum()
"""


def trained(case: Case, x: torch.Tensor) -> tuple[torch.nn.Module, Recording]:
    model = case.names["Net"]()
    return model, recorded(lambda: model(x), model, [x], None, case.path)


def test_the_backward_pass_is_timed_by_operation_where_gradients_are_on(case):
    one = case(TRAINED.replace("{code}", "pass"))
    x = torch.randn(128, 64, requires_grad=True)
    model, found = trained(one, x)
    assert decode(Form(Recording), encode(found)) == found
    timed = {o.name for o in found.operations if o.backward_us is not None}
    assert {"linear", "tanh", "matmul", "sum"} <= timed
    assert not timed & {"exp", "_set_grad_enabled"}
    assert all(o.backward_us is None or o.backward_us > 0 for o in found.operations)
    assert x.grad is None and all(p.grad is None for p in model.parameters())
    with torch.no_grad():
        _, found = trained(one, x)
    assert all(o.backward_us is None for o in found.operations)


def test_the_backward_pass_of_a_custom_function_is_not_that_of_its_neighbors(case):
    code = "h = Slow.apply(h)"
    slow = """
import time


class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(0.05)
        return gradient

"""
    _, found = trained(case(slow + TRAINED.replace("{code}", code)), torch.randn(8, 64))
    around = [*named(found, "tanh"), *named(found, "matmul")]
    assert len(around) == 2 and all(0 < (o.backward_us or 0.0) < 50_000 for o in around)


def test_a_backward_pass_that_fails_is_unknown(case):
    one = case(TRAINED.replace("{code}", "h.mul_(2)"))
    _, found = trained(one, torch.randn(8, 64))
    assert found.operations and all(o.backward_us is None for o in found.operations)
