"""The order of scripts, what is left out, and the models that no script calls."""

from __future__ import annotations

import textwrap
import threading
import time

import pytest

from cudal1_ci.discover import DiscoveryConfig, discover
from cudal1_ci.discover.scripts import Cell, Script, scripts_of
from cudal1_ci.errors import WorkerError
from cudal1_ci.optimize.harvest import (
    NOTHING_NEW,
    Harvesting,
    called_in,
    configurations,
    in_order,
    named_smaller,
    packages_of,
    workers_for,
)
from cudal1_ci.processes.harvest import Limits
from cudal1_ci.sandboxed.wire.harvest import ScriptRan

MODULE = """
    import torch, einops
    class {name}(torch.nn.Module):
        def forward(self, x):
            return x
    """


class Called:
    """What a harvest has called, and left out."""

    def __init__(self):
        self.called = set()
        self.left = []

    def leave(self, script, reason):
        self.left.append((script.place, reason))


def write(root, files):
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))


def test_a_readme_comes_first_then_what_imports_most_and_nothing_is_run_for_nothing(tmp_path):
    modules = {f"pkg/m{n}.py": MODULE.format(name=f"M{n}") for n in range(4)}
    write(tmp_path, {"pkg/__init__.py": "", **modules})
    write(
        tmp_path,
        {
            "README.md": "```python\nfrom pkg.m0 import M0\n```\n",
            "examples/one.py": "import torch\nfrom pkg.m1 import M1\n",
            "examples/two.py": "import torch\nfrom pkg.m2 import M2\nfrom pkg.m3 import M3\n",
            "tests/test_m0.py": "import torch\nfrom pkg.m0 import M0\ndef test_it(): pass\n",
        },
    )
    discovery, harvesting = discover(tmp_path, DiscoveryConfig()), Called()
    order = []
    for script in in_order(scripts_of(tmp_path), discovery, harvesting.called, harvesting.leave):
        order.append(script.place)
        for target in discovery.targets:
            if f"pkg.{target.path[4:-3]}" in script.imports:
                harvesting.called.add(f"{target.path}:{target.qualname}")
    assert order == ["README.md:2", "examples/two.py", "examples/one.py"]
    assert harvesting.left == [("tests/test_m0.py", NOTHING_NEW)]
    assert packages_of(discovery, frozenset({"pkg"})) == ("einops",)


def test_five_thousand_modules_and_two_thousand_scripts_are_ordered_in_seconds(tmp_path):
    name, count = "pkg/m{}.py", 250
    classes = "".join(
        f"class C{n}(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
        for n in range(20)
    )
    write(tmp_path, {"pkg/__init__.py": ""})
    write(tmp_path, {name.format(n): f"import torch\n{classes}" for n in range(count)})
    discovery, harvesting = discover(tmp_path, DiscoveryConfig()), Called()
    assert len(discovery.targets) == 5000
    scripts = [
        Script(
            kind="docs",
            path="docs/a.md",
            cells=(Cell(line=n + 1, text=""),),
            imports=frozenset({f"pkg.m{n % count}"}),
        )
        for n in range(2000)
    ]
    start_s = time.process_time()
    for script in in_order(scripts, discovery, harvesting.called, harvesting.leave):
        (module,) = script.imports
        path = f"{module.replace('.', '/')}.py"
        harvesting.called |= {f"{path}:C{n}" for n in range(20)}
    assert time.process_time() - start_s < 20
    assert len(harvesting.left) == 2000 - count


def test_modules_that_nothing_called_are_made_the_longest_first(tmp_path):
    short = "class Short(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
    long = short.replace("Short", "Long").replace("return x", "x = x + 1\n        return x")
    write(tmp_path, {"m.py": f"import torch\n{short}{long}{short.replace('Short', 'Known')}"})
    targets = discover(tmp_path, DiscoveryConfig()).targets
    (script,) = configurations(targets, {"m.py:Known"})
    assert [(cell.text, cell.line) for cell in script.cells] == [("Long", 5), ("Short", 2)]


def test_what_was_made_smaller_is_part_of_the_source():
    line = '{"target":"m.py:A","call":{},"source":"README.md:3"}'
    ran = named_smaller(
        ScriptRan(trace=f"{line}\nnot json\n", notes=("depth 12 -> 2", "on the CPU"))
    )
    assert ran.trace.splitlines() == [
        line.replace("README.md:3", "README.md:3 (smaller: depth 12 -> 2)")
    ]
    assert called_in(ran.trace) == {"m.py:A"}


class Worker:
    """Runs scripts that wait until as many run at the same time."""

    limits = Limits()

    def __init__(self, meeting=None, fails=None):
        self.meeting, self.fails = meeting, fails
        self.ran, self.was_stopped = [], False

    def __enter__(self):
        if self.fails:
            raise self.fails
        return self

    def __exit__(self, *error):
        self.was_stopped = True

    def stop(self):
        self.was_stopped = True

    def run(self, script, **more):
        if self.meeting is not None:
            self.meeting.wait(20)
        self.ran.append(script.place)
        return ScriptRan()


@pytest.fixture
def harvesting(tmp_path):
    write(tmp_path, {"pkg/__init__.py": ""})
    discovery = discover(tmp_path, DiscoveryConfig())
    return Harvesting(discovery, tmp_path, time.monotonic() + 100.0, lambda _: None)


def pages(count):
    return [Script(kind="readme", path=f"page{n}.md", cells=()) for n in range(count)]


def test_scripts_run_at_the_same_time_and_each_once(harvesting):
    meeting = threading.Barrier(3)
    first, *others = [Worker(meeting) for _ in range(3)]
    harvesting.run_all(iter(pages(6)), first, others)
    assert sorted(first.ran + others[0].ran + others[1].ran) == [one.place for one in pages(6)]
    assert sorted(harvesting.done) == [one.place for one in pages(6)]
    assert [one.was_stopped for one in others] == [True, True]


def test_one_worker_that_does_not_start_leaves_its_work_to_the_others(harvesting):
    first, other = Worker(), Worker(fails=WorkerError("no memory"))
    harvesting.run_all(iter(pages(3)), first, [other])
    assert first.ran == [one.place for one in pages(3)]


def test_an_interrupt_ends_all_workers(harvesting):
    class Interrupted(Worker):
        def run(self, script, **more):
            self.meeting.wait(20)
            raise KeyboardInterrupt

    meeting = threading.Barrier(2)
    other = Worker(meeting)
    with pytest.raises(KeyboardInterrupt):
        harvesting.run_all(iter(pages(50)), Interrupted(meeting), [other])
    assert other.was_stopped and len(harvesting.done) <= 4


def test_a_bug_in_a_worker_is_seen(harvesting):
    with pytest.raises(ZeroDivisionError):
        harvesting.run_all(iter(pages(3)), Worker(), [Worker(fails=ZeroDivisionError())])


def test_small_machines_run_one_script_at_a_time(monkeypatch):
    pages_of = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 128 * 2**30 // 4096}
    monkeypatch.setattr("os.sysconf", lambda name: pages_of[name])
    assert [workers_for(cores, 6 * 2**30) for cores in (1, 4, 8, 16, 64)] == [1, 1, 2, 4, 4]
    pages_of["SC_PHYS_PAGES"] = 16 * 2**30 // 4096
    assert workers_for(64, 6 * 2**30) == 1
