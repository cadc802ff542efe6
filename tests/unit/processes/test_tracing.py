"""The tracer in real processes of a small package: what is recorded, and that nothing breaks."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from cudal1_ci.discover.traces import read_traces
from cudal1_ci.errors import ConfigError
from cudal1_ci.processes.tracing import run_trace
from cudal1_ci.records import Call, Constant, Instance, Items, Symbol, Target, TensorSpec
from cudal1_ci.sandboxed.runner.autocast import Autocast
from cudal1_ci.sandboxed.tracer.describe import autocast_dtype

PACKAGE = {
    "pkg/__init__.py": "",
    "pkg/ops.py": """
        import torch

        def scale(x, *, by=2.0):
            return shifted(x) * by

        @torch.autocast("cpu", enabled=False)
        def shifted(x):
            return x + 0

        def unlisted(x):
            return x
        """,
    "pkg/layers.py": """
        import functools
        from dataclasses import dataclass

        import torch
        from torch import nn

        from .ops import scale

        @dataclass
        class Config:
            dim: int = 8
            norm: type = nn.LayerNorm

        class Inner(nn.Module):
            def __init__(self, config):
                super().__init__()
                self.norm = config.norm(config.dim)

            def forward(self, x, mask=None):
                return self.norm(scale(x, by=3.0))

        class Outer(nn.Module):
            def __init__(self, inner, make=functools.partial(nn.Linear, bias=False), dims=(8, 4)):
                super().__init__()
                self.inner = inner
                self.fc = make(*dims)

            def forward(self, x, *, mask=None):
                return {"out": self.fc(self.inner(x, mask=mask))}

        class Grouped(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(3, 3)

            def parameters(self, rates):
                return [{"params": list(super().parameters()), "lr": rates[0]}]

            def forward(self, x):
                return self.fc(x)

        class Secret(nn.Module):
            def __init__(self, handle):
                super().__init__()

            def forward(self, x):
                return x

        class OwnNew(nn.Module):
            def __new__(cls, dim):
                return super().__new__(cls)

            def __init__(self, dim):
                super().__init__()

            def forward(self, ids):
                return ids + 1
        """,
    "run.py": """
        import copy
        import os
        import pickle
        import sys

        import torch
        from torch import nn
        from pkg.layers import Config, Grouped, Inner, Outer, OwnNew, Secret

        torch.set_num_threads(1)  # a pool of threads does not survive the fork below
        outer = Outer(Inner(Config(dim=8))).eval()
        x = torch.randn(2, 5, 8)
        x[0, 0, :3] = torch.tensor([-9.0, 0.31415926, 9.0])
        with torch.no_grad():
            for _ in range(3):
                outer(x.transpose(0, 1), mask=torch.ones(2, dtype=torch.bool))
            copy.deepcopy(outer)(x)
            pickle.loads(pickle.dumps(outer))(x)
        outer.train()(x.requires_grad_())["out"].sum().backward()
        Secret(object())(x)
        Grouped().half().float().eval()(torch.randn(4, 3))
        OwnNew(3)(torch.randint(2, 9, (4,)))
        inner = Inner(Config(dim=6)).eval()
        for dtype in (torch.float32, torch.bfloat16):
            inner.to(dtype)(torch.randn(7, 6, dtype=dtype))
        torch.set_default_dtype(torch.float64)
        Inner(Config(dim=6)).eval()(torch.randn(7, 6))
        torch.set_default_dtype(torch.float32)
        cast = Inner(Config(dim=3)).eval()
        for dtype in (torch.bfloat16, torch.float16):
            with torch.autocast("cpu", dtype):
                cast(torch.randn(5, 3, dtype=dtype))
                with torch.autocast("cpu", enabled=False):
                    cast(torch.randn(5, 3))
        cast(torch.randn(5, 3))
        scripted = torch.jit.trace(nn.Linear(2, 2), torch.randn(1, 2))
        scripted(torch.randn(1, 2))
        nn.Sequential(nn.Linear(2, 2), nn.ReLU())(torch.randn(1, 2))
        child = os.fork()
        if child == 0:
            Inner(Config(dim=4)).eval()(torch.randn(3, 4))
            sys.exit(0)
        os.waitpid(child, 0)
        if "--crash" in sys.argv:
            raise SystemExit(7)
        """,
}


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("project")
    for name, text in PACKAGE.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return root


@pytest.fixture(scope="module")
def traces(package):
    folder = package / "traces"
    code = run_trace(
        [sys.executable, "run.py", "--crash"],
        package,
        folder,
        {"pkg/ops.py": ["scale", "shifted"]},
        120,
    )
    assert code == 7, "the command's own exit code is returned"
    return read_traces(folder)


def workloads(traces, qualname: str, path: str = "pkg/layers.py"):
    target = Target(path=path, qualname=qualname, kind="torch_module", first_line=1, last_line=2)
    return traces.workloads(target)


def test_constructor_arguments_are_rebuilt_with_nested_modules_and_configs(traces):
    found = workloads(traces, "Outer")[0]
    (inner,) = found.init.args
    assert inner == Instance(
        factory="pkg.layers:Inner",
        args=(
            Instance(
                factory="pkg.layers:Config",
                kwargs={
                    "dim": Constant(value=8),
                    "norm": Symbol(path="torch.nn.modules.normalization:LayerNorm"),
                },
            ),
        ),
    )


def test_calls_have_shapes_strides_keywords_and_are_counted(traces):
    called = [w for w in workloads(traces, "Outer") if w.num_calls]
    found = {w.call.args[0].shape: w for w in called if w.mode == "infer"}
    strided = found[(5, 2, 8)]
    assert strided.num_calls == 3
    assert strided.call.args[0].stride == (8, 40, 1)
    assert strided.call.kwargs["mask"] == TensorSpec(
        shape=(2,), dtype="bool", device="cpu", low=1, high=1
    )
    plain = found[(2, 5, 8)]
    assert plain.num_calls == 2, "copies and pickled copies keep their constructor arguments"


def test_training_is_told_from_inference(traces):
    (trained,) = [w for w in workloads(traces, "Outer") if w.mode == "train"]
    assert trained.call.args[0].requires_grad


def test_a_module_has_the_dtype_that_its_caller_gave_it(traces):
    found = [w for w in workloads(traces, "Inner") if w.call.args[0].shape == (7, 6)]
    assert {(w.call.args[0].dtype, w.dtype, w.default_dtype) for w in found} == {
        ("float32", None, None),
        ("bfloat16", "bfloat16", None),
        ("float64", "float64", "float64"),
    }


def test_a_module_with_parameters_for_an_optimizer_is_recorded(traces):
    found = workloads(traces, "Grouped")
    assert {(w.call.args[0].shape, w.dtype) for w in found} == {((4, 3), None)}


def test_a_call_has_the_autocast_that_its_caller_entered(traces):
    expected = {("bfloat16", "bfloat16"), ("float16", "float16"), ("float32", None)}
    for name, path in (("Inner", "pkg/layers.py"), ("shifted", "pkg/ops.py")):
        calls = [w for w in workloads(traces, name, path) if w.call.args[0].shape == (5, 3)]
        assert {(w.call.args[0].dtype, w.autocast) for w in calls} == expected


@pytest.mark.parametrize(
    ("kinds", "args", "found"),
    [
        ((), [torch.ones(1)], None),
        (("cpu",), [torch.ones(1)], torch.float16),
        (("cuda",), [torch.ones(1)], None),
        (("cuda",), [{"x": [torch.ones(1)]}], None),
        (("cuda", "cpu"), [(torch.ones(1), 3)], torch.float16),
        (("cuda",), [3], torch.float16),
    ],
)
def test_autocast_is_that_of_the_devices_of_a_call(kinds, args, found):
    with contextlib.ExitStack() as stack:
        for kind in kinds:
            stack.enter_context(Autocast(kind, torch.float16))
        assert autocast_dtype(None, args, {}) == found
        assert autocast_dtype(torch.nn.Linear(1, 1), [], {}) == (
            found if kinds != ("cuda",) else None
        )
    for kind, usual in (("cpu", torch.bfloat16), ("cuda", torch.float16)):
        torch.set_autocast_dtype(kind, usual)


def test_what_was_only_called_in_training_is_also_called_in_inference(traces):
    (trained,) = [w for w in workloads(traces, "Outer") if w.mode == "train"]
    (derived,) = [w for w in workloads(traces, "Outer") if not w.num_calls]
    assert (derived.mode, derived.call, derived.init) == ("infer", trained.call, trained.init)
    assert derived.source.endswith("in inference")
    assert 0 < traces.train_share < 1


def test_functions_that_were_listed_are_recorded_and_others_are_not(traces):
    found = workloads(traces, "scale", "pkg/ops.py")
    assert found[0].init is None
    assert found[0].call.kwargs == {"by": Constant(value=3.0)}
    assert workloads(traces, "unlisted", "pkg/ops.py") == ()
    assert workloads(traces, "shifted", "pkg/ops.py"), "torch decorates it"


def test_a_forked_child_is_recorded(traces):
    shapes = {w.call.args[0].shape for w in workloads(traces, "Inner")}
    assert (3, 4) in shapes


def test_what_cannot_be_rebuilt_has_its_reason(traces):
    target = Target(
        path="pkg/layers.py", qualname="Secret", kind="torch_module", first_line=1, last_line=2
    )
    assert workloads(traces, "Secret") == ()
    assert "argument 0 is an object of builtins.object" in traces.reason(target)


def test_a_class_with_its_own_new_does_not_break(traces):
    target = Target(
        path="pkg/layers.py", qualname="OwnNew", kind="torch_module", first_line=1, last_line=2
    )
    found, _ = traces.workloads(target)
    assert found.init == Call(), "its own __new__ hides the arguments"
    assert found.call.args[0].shape == (4,)


def test_shares_of_the_time_add_up(traces):
    total = sum(call.total_s for calls in traces.calls.values() for call in calls)
    assert total == pytest.approx(traces.total_s)
    outer = "pkg/layers.py:Outer"
    later_s, first_s = traces.roots[outer]
    assert later_s > 0
    assert first_s > 0
    inside = [call for calls in traces.calls.values() for call in calls if outer in call.roots]
    assert {call.target for call in inside} == {
        outer,
        "pkg/layers.py:Inner",
        "pkg/ops.py:scale",
        "pkg/ops.py:shifted",
    }
    assert sum(traces.place(call)[1] for call in inside if called_most_in(call, outer)) <= 1.001
    assert all(w.root == outer for w in workloads(traces, "Outer"))


def called_most_in(call, root):
    return max(call.roots, key=lambda name: call.roots[name][0]) == root


def test_no_contents_of_tensors_are_written(package, traces):
    for path in (package / "traces").glob("*.jsonl"):
        for line in path.read_text().splitlines():
            assert "0.31415" not in line
            assert len(line) < 5000


def test_the_projects_own_sitecustomize_still_runs(package, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text("import os\nos.environ['SEEN'] = 'yes'\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    check = "import os, sys; sys.exit(0 if os.environ.get('SEEN') == 'yes' else 3)"
    assert run_trace([sys.executable, "-c", check], package, tmp_path / "t", {}, 60) == 0


def test_pytest_is_traced_and_names_its_tests(package, tmp_path):
    (package / "test_it.py").write_text(
        "import torch\nfrom pkg.layers import Config, Inner\n\n"
        "def test_inner():\n    assert Inner(Config()).eval()(torch.ones(1, 8)).shape == (1, 8)\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    assert run_trace(command, package, tmp_path / "t", {}, 120) == 0
    (found,) = workloads(read_traces(tmp_path / "t"), "Inner")
    assert found.source == "test_it.py::test_inner"


def test_a_command_that_hangs_is_ended_and_what_it_called_is_kept(package, tmp_path):
    script = (
        "import time, torch\nfrom pkg.layers import Config, Inner\n"
        "Inner(Config()).eval()(torch.ones(1, 8))\ntime.sleep(60)\n"
    )
    command = [sys.executable, "-c", script]
    # To import torch takes longer than the first limit where much else goes on.
    for limit_s in (8, 40):
        assert run_trace(command, package, tmp_path / "t", {}, limit_s) == 124
        if workloads(read_traces(tmp_path / "t"), "Inner"):
            break
    assert workloads(read_traces(tmp_path / "t"), "Inner")


def test_a_command_can_be_interrupted_where_this_tool_is_in_the_background(
    package, tmp_path, capfd
):
    """A shell starts what is in its background with interrupts ignored."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        script = (
            "import time\ntry:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('heard')\n"
        )
        # To start takes longer than the first limit where much else goes on.
        said = ""
        for limit_s in (2, 20):
            command = [sys.executable, "-c", script]
            assert run_trace(command, package, tmp_path / "t", {}, limit_s) == 124
            said += capfd.readouterr().err
            if "heard" in said:
                break
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert "heard" in said


def test_a_command_that_is_none_is_named(package, tmp_path):
    with pytest.raises(ConfigError, match="no-such-command"):
        run_trace(["no-such-command"], package, tmp_path / "t", {}, 5)


def test_damaged_lines_are_noticed_and_left_out(tmp_path):
    line = {
        "target": "a.py:f",
        "num_calls": 2,
        "total_s": 1.0,
        "call": {"type": "call", "args": [{"type": "items", "items": [], "container": "list"}]},
    }
    text = json.dumps(line) + "\n" + json.dumps(line)[:40] + "\n"
    (tmp_path / "trace-1-a.jsonl").write_text(text)
    (tmp_path / "trace-2-b.jsonl").write_text(json.dumps(line) + "\n")
    found = read_traces(tmp_path)
    assert [n.message for n in found.notices] == ["left out: 1 of the lines, damaged"]
    (call,) = found.calls["a.py:f"]
    assert call.num_calls == 4
    assert call.call.args == (Items(),)


# --- training steps ------------------------------------------------------------------------------


TRAINING = """
    import torch
    from torch import nn
    from pkg.layers import Config, Inner

    torch.set_num_threads(1)
    inner = Inner(Config(dim=8))
    x = torch.randn(4, 8)

    def step(optimizer, num_calls):
        for _ in range(num_calls):
            inner(x).sum().backward()
        optimizer.step()

    first = torch.optim.SGD(inner.parameters(), lr=0.1)
    for _ in range(5):
        inner(x)  # before any step
    step(first, 7)  # a step that did not begin with one
    for _ in range(3):
        step(first, 2)
        inner.eval()(x), inner.train()
    for _ in range(11):
        inner(x)  # after the last one
    second = torch.optim.Adam(inner.parameters())
    step(second, 13)
    step(second, 2)
    torch.optim.SGD(inner.parameters(), lr=0.1).step()
"""


def test_calls_and_times_of_steps_are_those_between_two_steps_of_one_optimizer(package):
    (package / "train.py").write_text(textwrap.dedent(TRAINING))
    folder = package / "steps"
    assert run_trace([sys.executable, "train.py"], package, folder, {}, 120) == 0
    found = workloads(read_traces(folder), "Inner")
    (trained,) = [w for w in found if w.mode == "train"]
    (evaluated,) = [w for w in found if w.mode == "infer"]
    assert trained.num_calls == 5 + 7 + 6 + 11 + 13 + 2
    assert len(trained.steps.durations_us) == 4, "three of the first optimizer, one of the second"
    assert all(0 < duration < 20e6 for duration in trained.steps.durations_us)
    assert trained.calls_per_step == 2
    assert evaluated.calls_per_step == 2 / 4, "those after the last step are in none"
    assert trained.steps.device is None, "no GPU was used"


def test_without_an_optimizer_nothing_is_known_of_steps(traces):
    for found in workloads(traces, "Outer"):
        assert found.steps is None
        assert found.calls_per_step is None
