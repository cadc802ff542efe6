"""Scripts of a repository, run for their calls: what is recorded, and that hostile ones do no harm
outside of their sandbox."""

from __future__ import annotations

import functools
import json
import os
import socket
import sys
import textwrap
import time
from pathlib import Path

import pytest

from cudal1_ci.discover import DiscoveryConfig, discover
from cudal1_ci.discover.scripts import Cell, Script, scripts_of
from cudal1_ci.discover.traces import read_traces
from cudal1_ci.optimize.harvest import FOLDER, harvest, read_harvest, scripts_calling
from cudal1_ci.processes.harvest import Harvester, Limits

MIB = 2**20
LAYERS = """
    import torch
    from dataclasses import dataclass
    from torch import nn

    class Inner(nn.Module):
        def __init__(self, dim):
            super().__init__()
            self.fc = nn.Linear(dim, dim)

        def forward(self, x):
            return self.fc(x)

    class Model(nn.Module):
        def __init__(self, dim, depth=1):
            super().__init__()
            self.blocks = nn.ModuleList(Inner(dim) for _ in range(depth))

        def forward(self, x):
            for block in self.blocks:
                x = block(x)
            return x

    @dataclass
    class Config:
        vocab_size: int = 32
        n_embd: int = 8

    class GPT(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.embedding = nn.Embedding(config.vocab_size, config.n_embd)

        def forward(self, idx, targets=None):
            return self.embedding(idx)

    class Unknown(nn.Module):
        def __init__(self, thing):
            super().__init__()

        def forward(self, x):
            return x
    """
README = """
    ```python
    import torch
    from pkg.layers import Model
    model = Model(8, depth=2).cuda()
    ```
    Then:
    ```python
    y = model(torch.randn(4, 8))
    ```
    And this needs data:
    ```python
    z = model(torch.load_my_data("x.bin"))
    ```
    ```python
    import pkg.layers
    w = model(torch.ones(2, 8, device="cuda")).sum()
    ```
    """
TEST = """
    import torch
    from pkg.layers import Model

    def test_it():
        assert Model(4)(torch.ones(3, 4)).shape == (3, 4)

    def test_that_fails():
        assert Model(4)(torch.ones(3, 4)).sum() is None
    """


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    root = tmp_path_factory.mktemp("tree")
    write(root, {"pkg/__init__.py": "", "pkg/layers.py": LAYERS, "README.md": README})
    write(root, {"tests/test_layers.py": TEST, ".env": "PASSWORD=1", ".git/config": "[core]"})
    return root


def write(root, files):
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))


@pytest.fixture(scope="module")
def harvester(tree):
    limits = Limits(cell_s=10, script_s=20, memory_bytes=1024 * MIB)
    with Harvester(tree, limits=limits) as started:
        yield started


def block(text, kind="readme"):
    return Script(kind=kind, path="README.md", cells=(Cell(line=3, text=textwrap.dedent(text)),))


def run_block(harvester, text, **more):
    """Return what became of the only cell of a page."""
    ran = harvester.run(block(text), **more)
    return ran.cells[0] if ran.cells else None, ran


def calls_of(ran):
    return [json.loads(line) for line in ran.trace.splitlines()]


def test_blocks_that_continue_each_other_run_in_order_and_one_that_fails_ends_none(tree, harvester):
    (script,) = (one for one in scripts_of(tree) if one.kind == "readme")
    ran = harvester.run(script)
    assert [cell.outcome for cell in ran.cells] == ["ran", "ran", "failed", "ran"]
    assert "load_my_data" in ran.cells[2].reason
    assert "on the CPU instead of a GPU" in ran.notes
    models = [call for call in calls_of(ran) if call["target"].endswith(":Model")]
    assert {(call["provenance"], call["source"]) for call in models} >= {("readme", "README.md:9")}
    assert {call["mode"] for call in models} == {"train", "infer"}, "made again in inference"


def test_autocast_for_a_gpu_is_that_of_the_cpu(harvester):
    text = """
        import torch
        from pkg.layers import Inner
        inner = Inner(4).cuda().eval()
        for casts in ({"dtype": torch.bfloat16}, {}, {"enabled": False}):
            with torch.no_grad(), torch.autocast("cuda", **casts):
                inner(torch.randn(2, 4))
    """
    cell, ran = run_block(harvester, text)
    assert cell.outcome == "ran", cell
    calls = [call for call in calls_of(ran) if call["target"].endswith(":Inner")]
    assert {call.get("autocast") for call in calls} == {"bfloat16", "float16", None}


def test_what_a_cell_returns_is_the_same_when_it_runs_again(tree, harvester):
    (script,) = (one for one in scripts_of(tree) if one.kind == "readme")
    first, second = harvester.run(script), harvester.run(script)
    assert [cell.outputs for cell in first.cells] == [cell.outputs for cell in second.cells]
    (output,) = (one for one in first.cells[1].outputs if one.name == "y")
    assert (output.shape, output.dtype, len(output.sample)) == ((4, 8), "float32", 32)


def test_tests_run_one_by_one_with_their_names(tree, harvester):
    (script,) = (one for one in scripts_of(tree) if one.kind == "test")
    ran = harvester.run(script)
    assert {(cell.name.rpartition("::")[2], cell.outcome) for cell in ran.cells} == {
        ("test_it", "ran"),
        ("test_that_fails", "failed"),
    }
    assert any(call["source"].endswith("::test_it") for call in calls_of(ran))


def test_a_harvest_reaches_modules_by_page_by_test_and_by_configuration(tree, tmp_path):
    discovery = discover(tree, DiscoveryConfig())
    said: list[str] = []
    limits = Limits(cell_s=60, script_s=90, memory_bytes=1024 * MIB)
    found = harvest(
        discovery,
        tmp_path,
        python=sys.executable,
        budget_s=240,
        say=said.append,
        num_workers=2,
        limits=limits,
    )
    traces = read_traces(tmp_path / FOLDER)
    workloads = {one.qualname: traces.workloads(one) for one in discovery.targets}
    # The call that took most time comes first, whichever that was.
    assert "readme" in {one.provenance for one in workloads["Model"]}
    assert workloads["Model"][0].root == "pkg/layers.py:Model"
    assert workloads["Inner"][0].root == "pkg/layers.py:Model"
    assert workloads["GPT"][0].provenance == "config"
    assert workloads["GPT"][0].call.args == () or workloads["GPT"][0].call.kwargs
    assert workloads["Unknown"] == ()
    assert any("`thing`" in one.reason for one in found.left)
    assert read_harvest(tmp_path) == found
    (model,) = (one for one in discovery.targets if one.qualname == "Model")
    places = {script.place for script in scripts_calling(scripts_of(tree), found, model)}
    assert "README.md:3" in places
    assert said


SHOWN = """
    import torch
    from torch import nn

    class Configured(nn.Module):
        def __init__(self, rank, gain, depth):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(rank, rank) for _ in range(depth))

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    class Registered(nn.Module):
        def __init__(self, sides):
            super().__init__()
            self.fc = nn.Linear(*sides)

        def forward(self, x):
            return self.fc(x)

    def registered_large(): return Registered([2**16, 2**16])
    def registered_small(pretrained=True):
        return Registered([1, 1]) if pretrained else Registered([6, 6])

    class Huge(nn.Module):
        def __init__(self, sides):
            super().__init__()
            self.weight = nn.Parameter(torch.empty(*sides))

        def forward(self, x):
            return x

    def huge(): return Huge([2**15, 2**14])

    class Downloaded(nn.Module):
        def __init__(self, sides):
            super().__init__()

        def forward(self, x):
            return x

    def downloaded():
        torch.hub.load("some/model", "large")
        return Downloaded([1])
    """


def test_a_file_and_a_function_of_the_checkout_show_how_a_module_is_made(tmp_path):
    root = tmp_path / "tree"
    write(root, {"pkg/__init__.py": "", "pkg/models.py": SHOWN})
    settings = "model:\n  _target_: pkg.models.Configured\n  rank: 12\n  gain: 1\n  depth: 9\n"
    write(root, {"configs/net.yaml": settings})
    discovery = discover(root, DiscoveryConfig())
    found = harvest(
        discovery,
        tmp_path,
        python=sys.executable,
        budget_s=60,
        say=lambda _: None,
        kinds=("config",),
    )
    traces = read_traces(tmp_path / FOLDER)
    workloads = {one.qualname: traces.workloads(one) for one in discovery.targets}
    (configured,), (registered,) = workloads["Configured"], workloads["Registered"]
    assert configured.source == "configs/net.yaml: model (smaller: depth 9 -> 4)"
    assert (configured.provenance, configured.call.kwargs["x"].shape[-1]) == ("config", 12)
    assert registered.source == "pkg/models.py:registered_small"
    assert registered.call.kwargs["x"].shape[-1] == 6, "without pretrained weights"
    assert (workloads["Huge"], workloads["Downloaded"]) == ((), ())
    assert {one.outcome for one in found.left} == {"needs"}


def test_the_budget_ends_a_harvest_and_what_is_left_is_named(tree, tmp_path):
    found = harvest(
        discover(tree, DiscoveryConfig()),
        tmp_path,
        python=sys.executable,
        budget_s=0.0,
        say=lambda _: None,
    )
    assert not found.is_complete
    assert {one.reason for one in found.left} == {"the budget was spent"}


def test_a_harvest_continues_where_another_ended(tree, tmp_path):
    run = functools.partial(
        harvest, discover(tree, DiscoveryConfig()), tmp_path, python=sys.executable, budget_s=240.0
    )
    first = run(say=lambda _: None, kinds=("readme",))
    both = run(say=lambda _: None, kinds=("readme", "config"), before=first)
    assert both.num_scripts["readme"] == first.num_scripts["readme"] > 0
    assert both.targets.items() > first.targets.items()
    traces = read_traces(tmp_path / FOLDER)
    assert {name for names in both.targets.values() for name in names} <= set(traces.calls)


def test_pretrained_weights_are_random_and_other_downloads_are_the_reason(harvester):
    cell, ran = run_block(
        harvester,
        """
        import torch
        from pkg.layers import Model
        model = Model(8)
        model.load_state_dict(torch.load("weights/model.pt")["state_dict"])
        model.load_state_dict(torch.hub.load_state_dict_from_url("https://x.invalid/a.pt"))
        y = model(torch.ones(1, 8))
        """,
    )
    assert (cell.outcome, cell.reason) == ("ran", "")
    assert "random weights instead of pretrained ones" in ran.notes
    cell, _ = run_block(harvester, "import torch\ntorch.hub.load('some/model', 'large')")
    assert cell.outcome == "needs"
    assert "some/model" in cell.reason


def test_weights_of_a_hub_are_random_and_its_other_files_are_the_reason(harvester):
    pytest.importorskip("safetensors")
    hub = """
        from huggingface_hub import hf_hub_download
        from safetensors.torch import load_file
        from pkg.layers import Model
        """
    weights = 'Model(8).load_state_dict(load_file(hf_hub_download("a/b", "w.safetensors")))'
    cell, ran = run_block(harvester, textwrap.dedent(hub) + weights)
    assert (cell.outcome, cell.reason) == ("ran", "")
    assert "random weights instead of pretrained ones" in ran.notes
    other = 'open(hf_hub_download("a/b", filename="config.json"))'
    cell, _ = run_block(harvester, textwrap.dedent(hub) + other)
    assert (cell.outcome, cell.reason) == ("needs", "needs a download: a/b/config.json")


def test_a_model_of_transformers_has_its_default_configuration(harvester):
    pytest.importorskip("transformers")
    cell, ran = run_block(
        harvester,
        """
        import torch
        from transformers import DistilBertModel
        model = DistilBertModel.from_pretrained("distilbert-base-uncased")
        y = model(torch.ones(1, 4, dtype=torch.long)).last_hidden_state
        """,
        limits=Limits(cell_s=60, script_s=60, memory_bytes=4096 * MIB),
    )
    assert (cell.outcome, cell.reason) == ("ran", "")
    assert cell.outputs[0].shape == (1, 4, 768)
    assert "random weights instead of pretrained ones" in ran.notes


def test_a_block_that_is_too_large_runs_smaller_and_says_so(tree, tmp_path):
    root = tmp_path / "tree"
    write(root, {"pkg/__init__.py": "", "pkg/layers.py": LAYERS})
    page = """
        ```python
        import time, torch
        from pkg.layers import Model
        batch_size = 64
        model = Model(8, depth=12)
        for _ in range(batch_size):
            time.sleep(1)
        y = model(torch.ones(16, 8))
        ```
        """
    write(root, {"README.md": page})
    harvest(
        discover(root, DiscoveryConfig()),
        tmp_path,
        python=sys.executable,
        budget_s=60,
        say=lambda _: None,
        limits=Limits(cell_s=4, script_s=8, memory_bytes=1024 * MIB),
        kinds=("readme",),
    )
    (notes,) = read_harvest(tmp_path).notes.values()
    assert set(notes) == {"batch_size 64 -> 1", "depth 12 -> 2", "batch 16 -> 1"}
    (inner,) = (one for one in discover(root, DiscoveryConfig()).targets if one.qualname == "Inner")
    workload = read_traces(tmp_path / FOLDER).workloads(inner)[0]
    assert workload.call.args[0].shape == (1, 8)
    assert workload.source.startswith("README.md:3 (smaller: ")


HOSTILE = {
    "deletes the checkout": """
        import pathlib, shutil
        shutil.rmtree({root!r}, ignore_errors=True)
        for path in pathlib.Path({root!r}).rglob("*"):
            try: path.unlink()
            except OSError: pass
        """,
    "writes into the checkout": "open({root!r} + '/pkg/layers.py', 'a').write('x = 1')",
    "writes a hook": "open({root!r} + '/.git/post-checkout', 'w').write('x')",
    "takes the copy of the checkout off": """
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.umount2({root!r}.encode(), 2):
            raise OSError(ctypes.get_errno(), "umount2")
        """,
    "reads a hidden file by other names": """
        import os
        from pathlib import Path
        def tried(step):
            try: return step()
            except OSError: return ""
        root = {root!r}
        tried(lambda: os.rename(root + "/.env", root + "/pkg/env"))
        tried(lambda: os.link(root + "/.env", root + "/env"))
        tried(lambda: os.rename(root + "/.env", root + "/plain"))
        tried(lambda: os.symlink(root + "/.env", root + "/pkg/link"))
        for name in (".env", "pkg/env", "env", "plain", "pkg/link"):
            found = tried(lambda: Path(root, name).read_text())
            assert "PASSWORD" not in found, "a secret"
        raise OSError("no secret")
        """,
    "reads what the kernel copies of a hidden file": """
        import os, pathlib
        for name in (".env", ".git/config"):
            os.close(os.open({root!r} + "/" + name, os.O_WRONLY | os.O_APPEND))
        for folder, _, names in os.walk(pathlib.Path.home()):
            for name in names:
                text = pathlib.Path(folder, name).read_text(errors="replace")
                assert "PASSWORD" not in text and "[core]" not in text, "a secret"
        raise OSError("no secret")
        """,
    "renames what the kernel copies of a hidden file": """
        import os, pathlib
        os.close(os.open({root!r} + "/.env", os.O_WRONLY | os.O_APPEND))
        home = pathlib.Path.home()
        for upper in home.glob("layers/*/upper"):
            os.rename(upper, home / "other")
            assert "PASSWORD" not in (home / "other/.env").read_text(), "a secret"
        raise OSError("no secret")
        """,
    "writes next to it": "open({outside!r}, 'w').write('x')",
    "renames the checkout": "import os; os.rename({root!r}, {root!r} + '-gone')",
    "writes through a link of its folder": "open('README.md', 'a').write('x')",
    "reads a key": "print(open({secret!r}).read())",
    "reads the environment of its parents": """
        import os, pathlib
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
            try: found.append(path.read_bytes())
            except OSError: pass
        assert not any(b"HARVEST_SECRET" in one for one in found), "a secret"
        assert "HARVEST_SECRET" not in os.environ, "a secret"
        raise OSError("no secret")
        """,
    "opens a socket": """
        import socket
        socket.create_connection(("127.0.0.1", {port}), timeout=2)
        """,
    "kills its parents": """
        import os, signal
        for pid in (os.getppid(), {pid}):
            if pid > 1:
                os.kill(pid, signal.SIGKILL)
        raise OSError("nothing was killed")
        """,
    "fills the disk": """
        for number in range(100):
            open(f"big{{number}}", "wb").write(b"x" * (256 * 2**20 - 1))
        """,
    "takes all memory": "held = [bytearray(2**28) for _ in range(64)]",
}


TO_A_COPY = {
    "deletes the checkout",
    "writes into the checkout",
    "writes a hook",
    "writes through a link of its folder",
}
"""What it does there vanishes."""


@pytest.fixture
def server():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_block_fails_and_nothing_outside_changes(what, tree, harvester, tmp_path, server):
    outside, secret = tmp_path / "outside", tmp_path / "id_rsa"
    secret.write_text("private key")
    before = snapshot(tree)
    values = {
        "root": str(tree),
        "outside": str(outside),
        "secret": str(secret),
        "port": server.getsockname()[1],
        "pid": os.getpid(),
    }
    cell, ran = run_block(harvester, textwrap.dedent(HOSTILE[what]).format(**values))
    if what in TO_A_COPY:
        assert cell.outcome == "ran", cell
    else:
        assert (cell is None and ran.ending) or cell.outcome != "ran", cell
        assert cell is None or "a secret" not in cell.reason
    assert snapshot(tree) == before
    assert not outside.exists()
    server.setblocking(False)
    with pytest.raises(BlockingIOError):
        server.accept()
    cell, _ = run_block(harvester, "x = 1")
    assert cell.outcome == "ran", "the harvester serves on"


def test_what_a_script_writes_into_the_checkout_is_there_for_it_and_then_vanishes(tree, harvester):
    """As a constructor does that keeps a log in a folder of the repository."""
    text = """
        import os, torch
        from pathlib import Path
        os.makedirs("./tests/logs", exist_ok=True)
        with open("./tests/logs/history.txt", "w") as log:
            log.write("### started\\n")
        assert Path("./tests/logs/history.txt").read_text() == "### started\\n"
        Path("pkg/layers.py").rename("pkg/other.py")
        Path({root!r}, "at_the_top.txt").write_text("x")
        """
    before = snapshot(tree)
    for _ in range(2):  # nothing of the first one is left for the second one
        cell, _ = run_block(harvester, textwrap.dedent(text).format(root=str(tree)))
        assert cell.outcome == "ran", cell
    assert snapshot(tree) == before


def test_where_no_copy_can_be_made_the_reason_names_the_file(tmp_path):
    root = tmp_path / "a:b"  # no name for a layer
    write(root, {"model/notes.txt": "", "README.md": ""})
    with Harvester(root, limits=Limits(cell_s=10, script_s=20, memory_bytes=1024 * MIB)) as started:
        cell, _ = run_block(started, "open('./model/history.txt', 'w')")
    assert cell.outcome == "failed"
    assert cell.reason.startswith("`./model/history.txt`: Permission denied. A script can read")


def test_the_environment_of_a_harvester_has_no_secrets(tree, monkeypatch):
    monkeypatch.setenv("HARVEST_SECRET", "token")
    monkeypatch.setenv("HF_TOKEN", "token")
    with Harvester(tree, limits=Limits(cell_s=10, script_s=10, memory_bytes=1024 * MIB)) as started:
        cell, _ = run_block(
            started, textwrap.dedent(HOSTILE["reads the environment of its parents"])
        )
    assert "no secret" in cell.reason


def test_a_fork_bomb_ends_with_its_script(tree, harvester):
    start_s, before = time.monotonic(), num_processes()
    run_block(
        harvester,
        """
        import os
        while True:
            try:
                os.fork()
            except OSError:
                pass
        """,
        limits=Limits(cell_s=2, script_s=3, memory_bytes=1024 * MIB),
    )
    assert time.monotonic() - start_s < 60
    assert num_processes() < before + 50, "the bomb may have a thousand"
    cell, _ = run_block(harvester, "x = 1")
    assert cell.outcome == "ran"


def test_a_block_that_sleeps_for_an_hour_is_ended_and_the_next_one_runs(harvester):
    cells = (
        Cell(line=3, text="import time\ntry:\n    time.sleep(3600)\nexcept Exception:\n    pass"),
        Cell(line=9, text="x = 1"),
    )
    script = Script(kind="readme", path="README.md", cells=cells)
    limits = Limits(cell_s=1, script_s=10, memory_bytes=1024 * MIB)
    ran = harvester.run(script, limits=limits)
    assert [cell.outcome for cell in ran.cells] == ["out_of_time", "ran"]


def test_a_block_that_hears_no_alarm_is_killed(harvester):
    text = "import signal, time\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\ntime.sleep(3600)"
    start_s = time.monotonic()
    cell, ran = run_block(
        harvester, text, limits=Limits(cell_s=1, script_s=2, memory_bytes=1024 * MIB)
    )
    assert cell is None
    assert "did not end within 2 s" in ran.ending
    assert time.monotonic() - start_s < 30


def num_processes():
    return len(list(Path("/proc").glob("[0-9]*")))


def snapshot(root):
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_a_package_that_is_not_installed_is_stood_in_for(harvester):
    cell, ran = run_block(
        harvester,
        """
        import not_installed.plots as plots
        from not_installed import Base
        class Mine(Base):
            pass
        with plots.figure(Mine()) as figure:
            figure.axes[0].draw()
        @plots.typed
        def double(x):
            return 2 * x
        assert double(2) == 4 and not plots.is_on and sorted([plots.a, "b"])
        """,
    )
    assert (cell.outcome, cell.reason) == ("ran", "")
    assert "not installed: not_installed" in ran.notes
