"""What the process that runners are forked from imports: it must not ask the driver, and has what
its programs will ask for."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import msgspec
import pytest
import torch

from cudal1_ci.records import (
    Call,
    Candidate,
    OverlayFile,
    Problem,
    TensorSpec,
    TreeProgram,
    Workload,
)
from cudal1_ci.sandboxed.builds import torch_compiler
from cudal1_ci.sandboxed.forkserver import server
from cudal1_ci.sandboxed.forkserver.client import Template
from cudal1_ci.sandboxed.memory.accelerators import Cpu
from cudal1_ci.sandboxed.verifier.calls import make_arguments
from cudal1_ci.sandboxed.wire.arguments import Made
from cudal1_ci.sandboxed.wire.programs import TextProgram
from cudal1_ci.sandboxed.wire.verifier import Limits
from tests.templates import start_template
from tests.unit.sandboxed.messages import load_of, text, tree
from tests.unit.verification.test_session import alive


@pytest.fixture
def driver(monkeypatch):
    """A build with CUDA whose driver may not be asked."""

    def asked():
        raise AssertionError("the driver was asked, no runner could use it")

    monkeypatch.setattr(torch._C, server.DRIVER_COUNT, asked, raising=False)
    return asked


@pytest.mark.parametrize(("visible", "count"), [("2", 1), ("0,1", 2), ("", 0)])
def test_modules_hear_of_the_gpus_that_the_process_was_given(driver, monkeypatch, visible, count):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with server.unasked_driver():
        assert getattr(torch._C, server.DRIVER_COUNT)() == count
    assert getattr(torch._C, server.DRIVER_COUNT) is driver


def test_a_module_that_asks_when_it_is_imported(driver, monkeypatch, tmp_path):
    name = "asks_how_many_gpus"
    (tmp_path / f"{name}.py").write_text("import torch\nCOUNT = torch._C._cuda_getDeviceCount()\n")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr(server, "is_installed", lambda name: True)
    monkeypatch.setattr(server.sys, "path", list(server.sys.path))
    server.sys.path.append(str(tmp_path))
    assert server.warm([name]) == 1
    assert server.sys.modules.pop(name).COUNT == 1


@pytest.mark.parametrize(
    ("folder", "expected"),
    [("lib/site-packages", True), ("lib/dist-packages", True), ("checkout", False)],
)
def test_packages_are_installed_wherever_they_are_and_a_checkout_is_not(
    monkeypatch, tmp_path, folder, expected
):
    place = tmp_path / folder
    place.mkdir(parents=True)
    (place / "found_by_its_path.py").write_text("")
    monkeypatch.syspath_prepend(place)
    assert server.is_installed("found_by_its_path") is expected


SEES = """
import sys
from torch import nn

SEEN = any(name.endswith(".compile_fx") for name in sys.modules)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        assert SEEN is {seen}
"""


def program(seen: bool, asks: str = "") -> TextProgram:
    return text(SEES.format(seen=seen) + asks)


ASKS = """
    import torch
    forward = torch.compile(nn.Module.forward)
"""


@pytest.fixture
def started():
    found = start_template(None)
    yield found
    found.close()


def load(started: Template, one: TextProgram) -> int:
    """By a runner of the program; its parent."""
    with started.runner(one) as runner:
        runner.ask(load_of(one), 60.0)
        stat = Path(f"/proc/{runner.process.group}/stat").read_text()
        return int(stat.rpartition(")")[2].split()[1])


@pytest.mark.starts_verifier
@pytest.mark.compiles
def test_a_program_that_asks_for_the_compiler_finds_it_and_no_other_one_does(started):
    parents = [
        load(started, one)
        for one in (
            program(seen=False),
            program(seen=True, asks=ASKS),
            program(seen=True, asks=f"{ASKS}    NUMBER = 2"),
            program(seen=False, asks="    NUMBER = 3"),
            program(seen=False, asks=f"    import os; os.environ['A'] = '1'{ASKS}"),
        )
    ]
    plain, compiling = parents[:2]
    assert parents == [plain, compiling, compiling, plain, plain]
    assert plain != compiling


@pytest.mark.parametrize("how", ["closed", "killed"])
@pytest.mark.starts_verifier
@pytest.mark.compiles
def test_the_process_that_knows_the_compiler_ends_with_the_other_one(started, how):
    compiling = load(started, program(seen=True, asks=ASKS))
    assert alive(compiling)
    if how == "killed":
        os.kill(started.pid, signal.SIGKILL)
    else:
        started.close()
    ends_s = time.monotonic() + 10
    while alive(compiling) and time.monotonic() < ends_s:
        time.sleep(0.01)
    assert not alive(compiling)


@pytest.mark.starts_verifier
def test_what_is_warmed_is_so_for_both(started):
    load(started, program(seen=True, asks=ASKS))
    started.warm(["wave"])
    has = "    import sys; assert 'wave' in sys.modules\n"
    load(started, program(seen=True, asks=has + ASKS))
    load(started, program(seen=False, asks=has))


@pytest.mark.starts_verifier
def test_what_made_arguments_imported_is_there_for_the_next_process(started):
    """`wave` is of the standard library, and nothing else here imports it."""
    one = text("import sys, wave\ndef get_inputs():\n    return [1]\n")
    found = make_arguments(
        started, Cpu(), one, {"call": Made(function="get_inputs")}, Limits(60.0, 30.0), seed=0
    )
    assert found.sets
    load(started, program(seen=False, asks="    assert 'wave' in sys.modules\n"))


@pytest.mark.parametrize(
    ("source", "asks"),
    [
        ("@torch.compile\ndef f(x): ...", True),
        ("from torch import compile", True),
        ("import torch._dynamo as d", True),
        ("from torch._inductor.runtime import triton_helpers", True),
        ("re.compile('x'); torch.compiler.is_compiling()", False),
        ("import torch", False),
        ("os.environ['TORCHINDUCTOR_MAX_AUTOTUNE'] = '1'; f = torch.compile(f)", False),
    ],
)
def test_who_asks_for_the_compiler(source, asks):
    modules = torch_compiler.modules_for(text(source), keeps_environment=False)
    assert modules == (torch_compiler.MODULES if asks else ())


def test_a_checkout_that_changes_the_environment_imports_the_compiler_itself():
    """What it sets may be what the compiler reads when it is imported."""
    asks, sets = "torch.compile(f)", "os.environ['TORCH_LOGS'] = '+inductor'"
    modules_for = torch_compiler.modules_for
    compiled = tree("/r", **{"a.py": asks, "b.py": "import torch"})
    assert modules_for(compiled, keeps_environment=True) == torch_compiler.MODULES
    assert modules_for(compiled, keeps_environment=False) == ()
    assert modules_for(tree("/r", **{"a.py": asks, "b.py": sets}), keeps_environment=True) == ()
    assert modules_for(tree("/r"), keeps_environment=True) == ()


@pytest.mark.starts_verifier
@pytest.mark.parametrize("changes", [False, True])
def test_a_candidate_in_a_checkout_finds_the_compiler_imported(tmp_path, session, changes):
    """Unless a file of the checkout sets what the compiler may read."""
    reference = (
        "import torch, settings\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
    )
    sets = "import os\n\nos.environ['TORCHDYNAMO_VERBOSE'] = '1'\n" if changes else ""
    (tmp_path / "settings.py").write_text(sets)
    (tmp_path / "m.py").write_text(reference + "        return x + 1\n")
    has = f"        assert ('torch._inductor.compile_fx' in sys.modules) is {not changes}\n"
    asks = "        # as torch.compile would\n        return 1 + x\n"
    overlay = OverlayFile(path="m.py", text="import sys\n" + reference + has + asks)
    program = TreeProgram(
        root=str(tmp_path), import_root=".", import_path="m:Model", digest=f"d{changes}"
    )
    call = Call(args=(TensorSpec(shape=(8,), dtype="float32"),))
    workload = Workload(name="w", provenance="declared", call=call)
    problem = Problem(reference=program, workloads=(workload,))
    changed = msgspec.structs.replace(program, overlay=(overlay,))
    candidate = Candidate(problem_id=problem.id, program=changed, proposer="test")
    verdict = session.examine(problem, candidate)
    assert verdict.status == "passed", verdict
