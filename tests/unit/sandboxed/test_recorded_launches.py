"""What the recorder keeps of kernels: launches of Triton, operators and extensions of the user."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import torch

from cudal1_ci.sandboxed.recorder import launches
from cudal1_ci.sandboxed.recorder.kernel_source import accesses
from cudal1_ci.sandboxed.wire.recording import Launch
from tests import triton_on_torch
from tests.unit.sandboxed.test_recording import Case, named, spans

SILU = """
    import triton
    import triton.language as tl

    @triton.jit
    def silu(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < n)
        tl.store(out_ptr + at, x * tl.sigmoid(x), mask=at < n)

    def f(x):
        out = torch.empty_like(x)
        silu[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](
            x, out, x.numel(), BLOCK=64, num_warps=2
        )
        return out + 1
    """


@pytest.fixture(autouse=True)
def triton():
    with triton_on_torch.installed():
        yield


@spans
def test_a_launch_is_an_operation_with_its_grid_arguments_and_what_it_writes(tmp_path):
    case = Case(tmp_path, SILU)
    found = case.record(torch.ones(10, 15))
    assert [one.name for one in found.operations if one.name != "numel"] == [
        "empty_like",
        "triton:silu",
        "add",
    ]
    (one,) = named(found, "triton:silu")
    launch = one.launch
    assert launch is not None
    assert (launch.grid, launch.num_warps, launch.num_stages) == ((3,), 2, None)
    assert [(k.name, k.argument.text) for k in launch.constants] == [("BLOCK", "64")]
    assert (launch.reads, launch.writes, launch.is_sure) == (("x_ptr",), ("out_ptr",), True)
    assert case.text.splitlines()[(launch.first_line or 0) - 1] == "@triton.jit"
    given = {k.name: k.argument for k in one.kwargs}
    assert given["n"].text == "150"
    assert found.values[given["x_ptr"].value or 0].origin == "input"
    assert case.code(one.span).startswith("silu[lambda") and case.code(one.span).endswith(")")
    assert one.host_us > 0
    # What is added to is what the launch wrote, not what `empty_like` returned.
    (empty,), (add,) = named(found, "empty_like"), named(found, "add")
    assert add.args[0].value == one.outputs[0] != empty.outputs[0] == given["out_ptr"].value


def test_launches_of_an_autotuner_have_what_it_chose(tmp_path):
    text = SILU.replace("BLOCK=64, num_warps=2", "").replace(
        "@triton.jit",
        '@triton.autotune([triton.Config({"BLOCK": 32}, num_warps=8, num_stages=1)], key=["n"])\n'
        "    @triton.jit",
    )
    (one,) = named(Case(tmp_path, text).record(torch.ones(64)), "triton:silu")
    assert one.launch is not None and one.launch.grid == (2,)
    assert (one.launch.num_warps, one.launch.num_stages) == (8, 1)


def test_kernels_run_as_before_once_the_call_is_recorded(tmp_path):
    before = vars(triton_on_torch.JITFunction)["run"]
    case = Case(tmp_path, SILU)
    case.record(torch.ones(4))
    assert vars(triton_on_torch.JITFunction)["run"] is before
    with pytest.raises(RuntimeError, match="mine"):
        Case(tmp_path, "def f(x):\n    raise RuntimeError('mine')").record(torch.ones(4))
    assert vars(triton_on_torch.JITFunction)["run"] is before


def test_recording_does_not_import_triton(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        for name in triton_on_torch.MODULES:
            patch.delitem(sys.modules, name)
        Case(tmp_path, "def f(x):\n    return x + 1").record(torch.ones(4))
        assert not {*triton_on_torch.MODULES} & {*sys.modules}


def test_an_operator_of_a_library_writes_what_its_schema_says(tmp_path):
    library = torch.library.Library("recorded_launches", "DEF")
    library.define("scan(Tensor x, Tensor(a!) state, float by) -> Tensor")

    def scan(x, state, by):
        state += by
        return x * by

    library.impl("scan", scan, "CompositeExplicitAutograd")
    case = Case(
        tmp_path,
        """
        def f(x, state):
            return torch.ops.recorded_launches.scan(x, state, 2.0) + state
        """,
    )
    found = case.record(torch.ones(3), torch.ones(3))
    assert [one.name for one in found.operations] == ["recorded_launches::scan", "add"]
    launched, add = found.operations
    assert launched.launch == Launch(
        language="extension", kernel="scan", reads=("x", "state"), writes=("state",)
    )
    assert [k.name for k in launched.kwargs] == ["x", "state", "by"]
    assert [one.value for one in add.args] == [launched.outputs[1], launched.outputs[0]]


def test_a_function_of_a_built_module_may_write_all_its_tensors(tmp_path, monkeypatch):
    module = ModuleType("my_ext")
    module.__file__ = str(tmp_path / "my_ext.so")
    module.sin_ = torch.sin_  # a function in C that nothing is known of
    monkeypatch.setattr(launches, "extensions", lambda: [module])
    case = Case(tmp_path, "def f(x):\n    ext.sin_(x)\n    return x + 1")
    case.names["ext"] = module
    one, add = case.record(torch.ones(3)).operations
    assert one.name == "my_ext:sin_" and one.launch is not None
    assert (one.launch.writes, one.launch.is_sure) == (("arg0",), False)
    assert add.args[0].value == one.outputs[0] == one.outputs[1] != 0
    assert module.sin_ is torch.sin_


HEAD = "def k(x_ptr, y_ptr, idx_ptr, n, B: tl.constexpr):\n    at = tl.arange(0, B)\n"


@pytest.mark.parametrize(
    ("body", "reads", "writes"),
    [
        ("tl.store(y_ptr + at, tl.load(x_ptr + at))", "x", "y"),
        ("p = y_ptr\n    for i in range(n):\n        p += B\n        tl.store(p, 0)", "", "y"),
        ("tl.store(y_ptr + tl.load(idx_ptr + at), 1)", "idx", "y"),
        ("tl.atomic_add(y_ptr, tl.sum(tl.load(x_ptr + at)))", "x y", "y"),
        ("p = tl.make_block_ptr(y_ptr, (n,), (1,), (0,), (B,), (0,))\n    tl.store(p, 0)", "", "y"),
        ("T.store(pointer=y_ptr, value=T.load(x_ptr))", "x", "y"),
        ("tl.store(tl.where(n > 1, x_ptr, y_ptr) + at, 0)", "", "x y"),
        ("x_ptr.store([0], y_ptr.load([0]))", "y", "x"),
        ("x = tl.load(x_ptr).to(y_ptr.dtype.element_ty)\n    tl.store(y_ptr, gelu(x))", "x", "y"),
        ("p, q = x_ptr, y_ptr\n    tl.store(q, 0)", "", "x y"),
    ],
)
def test_the_source_shows_what_a_kernel_reads_and_writes(body, reads, writes):
    found = accesses(f"@triton.jit\n{HEAD}    {body}\n", {"x_ptr", "y_ptr", "idx_ptr"})
    assert (found.reads, found.writes) == (
        {f"{one}_ptr" for one in reads.split()},
        {f"{one}_ptr" for one in writes.split()},
    )
    assert found.is_sure


@pytest.mark.parametrize(
    ("body", "writes"),
    [
        ("helper(x_ptr + at)", "x"),
        ("mine.helper(x_ptr)", "x"),
        ("tl.store(tl.load(x_ptr).to(tl.pointer_type(tl.float32)), 0)", "x y idx"),
    ],
)
def test_where_the_source_does_not_show_it_pointers_may_be_written(body, writes):
    found = accesses(f"{HEAD}    {body}\n", {"x_ptr", "y_ptr", "idx_ptr"})
    assert not found.is_sure and found.writes == {f"{one}_ptr" for one in writes.split()}


@pytest.mark.parametrize("source", [None, "not python", "x = 1", "def k(x_ptr:"])
def test_without_a_source_all_pointers_may_be_written(source):
    found = accesses(source, {"x_ptr"})
    assert (found.writes, found.is_sure) == ({"x_ptr"}, False)
