"""The tracer and libraries that call on behalf of others: Triton, benchmark fixtures, importers.

Stand-ins have the names that the tracer looks for; with a GPU the real Triton is traced too.
"""

from __future__ import annotations

import shutil
import sys
import textwrap

import pytest

from cudal1_ci.discover.traces import read_traces
from cudal1_ci.processes.tracing import run_trace
from cudal1_ci.records import Constant

STAND_INS = {
    "triton/__init__.py": "from .runtime.jit import jit, autotune\n",
    "triton/runtime/__init__.py": "",
    "triton/runtime/jit.py": """
        class KernelInterface:
            def __init__(self, fn):
                self.fn = fn
            def __getitem__(self, grid):
                return lambda *args, **kwargs: self.run(*args, grid=grid, **kwargs)

        class JITFunction(KernelInterface):
            def run(self, *args, grid, **kwargs):
                self.fn(*args, **kwargs)

        class Autotuner(KernelInterface):
            def run(self, *args, grid, **kwargs):
                self.fn.run(*args, grid=grid, BLOCK=64, **kwargs)

        jit = JITFunction
        autotune = Autotuner
        """,
    "triton/testing.py": "def do_bench(fn):\n    return fn()\n",
    "pytest_benchmark/__init__.py": "",
    "pytest_benchmark/fixture.py": "def call(fn, *args):\n    return fn(*args)\n",
    "pytest_codspeed/__init__.py": "",
    "pytest_codspeed/plugin.py": """
        def _measure(fn, *args):
            return fn(*args)
        def pytest_runtest_protocol(fn, *args):
            return fn(*args)
        """,
    "pkg/__init__.py": "",
    "pkg/kernels.py": """
        import triton

        @triton.autotune
        @triton.jit
        def tuned(x, n, BLOCK):
            x.add_(n)

        @triton.jit
        def plain(x, n, BLOCK):
            x.add_(n)
        """,
    "pkg/ops.py": "def double(x):\n    return x + x\n",
}


@pytest.fixture
def package(tmp_path):
    for name, text in STAND_INS.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return tmp_path


def traced(package, script, functions=None):
    (package / "run.py").write_text(textwrap.dedent(script))
    folder = package / "traces"
    assert run_trace([sys.executable, "run.py"], package, folder, functions or {}, 120) == 0
    return read_traces(folder).calls


def test_launches_are_recorded_for_the_kernel_below_its_autotuner(package):
    calls = traced(
        package,
        """
        import torch
        from pkg.kernels import plain, tuned
        x = torch.zeros(8)
        tuned[(1,)](x, 3)
        plain[(2, 1)](x, 4, BLOCK=32)
        assert x[0] == 7
        """,
    )
    assert set(calls) == {"pkg/kernels.py:tuned", "pkg/kernels.py:plain"}
    (tuned,), (plain,) = calls["pkg/kernels.py:tuned"], calls["pkg/kernels.py:plain"]
    assert tuned.call.args[0].shape == (8,)
    assert "BLOCK" not in tuned.call.kwargs, "what the autotuner chooses is not the caller's"
    assert plain.call.kwargs == {"BLOCK": Constant(value=32)}


@pytest.mark.parametrize(
    ("caller", "provenance"),
    [
        ("pytest_benchmark.fixture.call", "benchmark"),
        ("pytest_codspeed.plugin._measure", "benchmark"),
        ("pytest_codspeed.plugin.pytest_runtest_protocol", "traced"),
    ],
)
def test_what_a_benchmark_calls_is_told_from_what_a_test_calls(package, caller, provenance):
    module = caller.rpartition(".")[0]
    calls = traced(
        package,
        f"import torch, {module}\nfrom pkg.ops import double\n{caller}(double, torch.ones(3))\n",
        {"pkg/ops.py": ["double"]},
    )
    assert calls["pkg/ops.py:double"][0].provenance == provenance


def test_functions_that_another_finder_finds_are_recorded(package):
    """As with the finders of editable installs, which know folders that sys.path does not."""
    (package / "hidden").mkdir()
    (package / "hidden" / "found.py").write_text("def double(x):\n    return x + x\n")
    calls = traced(
        package,
        """
        import importlib.util, sys, torch
        class Editable:
            @staticmethod
            def find_spec(name, path=None, target=None):
                if name == "found":
                    return importlib.util.spec_from_file_location(name, "hidden/found.py")
        sys.meta_path.append(Editable)
        import found
        found.double(torch.ones(3))
        """,
        {"hidden/found.py": ["double"]},
    )
    assert set(calls) == {"hidden/found.py:double"}


def test_transforms_are_left_alone(package):
    shutil.rmtree(package / "triton")  # torch would look into it
    calls = traced(
        package,
        """
        import torch
        from torch.func import grad, vmap
        from pkg.ops import double
        x = torch.randn(4, 3)
        mask = torch.ones(3, dtype=torch.bool)
        assert torch.equal(vmap(double)(x), 2 * x)
        assert torch.equal(grad(lambda x: double(x).sum())(x), torch.full_like(x, 2.0))
        double(x)
        """,
        {"pkg/ops.py": ["double"]},
    )
    (call,) = calls["pkg/ops.py:double"]
    assert call.num_calls == 1


def test_a_value_that_cannot_even_be_looked_at_is_a_reason_and_no_error(package):
    calls = traced(
        package,
        """
        import torch
        from pkg.ops import double

        class Shy:
            def __getattr__(self, name):
                raise RuntimeError("do not touch me")
            def __add__(self, other):
                return "sum"

        assert double(Shy()) == "sum"
        """,
        {"pkg/ops.py": ["double"]},
    )
    (call,) = calls["pkg/ops.py:double"]
    assert "do not touch me" in call.reason


@pytest.mark.gpu
def test_launches_of_the_real_triton_are_recorded(package):
    shutil.rmtree(package / "triton")
    (package / "pkg" / "real.py").write_text(
        textwrap.dedent(
            """
            import triton
            import triton.language as tl

            @triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], ["n"])
            @triton.jit
            def double(x, y, n, BLOCK: tl.constexpr):
                at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
                tl.store(y + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)
            """
        )
    )
    calls = traced(
        package,
        """
        import torch, triton
        from pkg.real import double
        x = torch.randn(1000, device="cuda")
        y = torch.empty_like(x)
        double[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](x, y, 1000)
        assert torch.equal(y, 2 * x)
        """,
    )
    (launch,) = calls["pkg/real.py:double"]
    assert launch.num_calls == 1
    assert launch.call.args[0].device == "cuda:0"
