"""The order of scripts, what is left out, and the models that no script calls."""

from __future__ import annotations

import textwrap
import time

from cudal1_ci.discover import DiscoveryConfig, discover
from cudal1_ci.discover.scripts import Cell, Script, scripts_of
from cudal1_ci.optimize.harvest import (
    NOTHING_NEW,
    called_in,
    configurations,
    in_order,
    named_smaller,
    packages_of,
)
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
