"""The programs of a repository are run before and after a patch."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from cudal1_ci.discover import DiscoveryConfig, discover
from cudal1_ci.discover.readers import Readers
from cudal1_ci.discover.scripts import Cell, Script, scripts_of
from cudal1_ci.optimize.own_programs import (
    Compared,
    OwnPrograms,
    difference_of,
    is_same_text,
    patched_copy,
)
from cudal1_ci.processes.harvest import Harvester
from cudal1_ci.records import OverlayFile
from cudal1_ci.sandboxed.wire.harvest import CellRan, Output, ScriptRan

MODEL = """\
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)
        self.layer = nn.Linear(4, 4)
        self.last = None

    def forward(self, x):
        y = self.drop(self.layer(x))
        self.last = y
        return y * 2
"""
README = """\
# A block

```python
import torch
from pkg.model import Block

block = Block()
y = block(torch.ones(2, 4))
print(f"mean {y.mean().item():.4f}")
last = block.last
```

```python
import torch
from pkg.other import one

z = one(torch.ones(2))
```

```python
from pkg.model import Block
raise RuntimeError("never worked")
```
"""
TESTS = """\
import torch
from pkg.model import Block


def test_shape():
    assert Block()(torch.ones(2, 4)).shape == (2, 4)


def test_last():
    block = Block()
    block(torch.ones(2, 4))
    assert block.last is not None


def test_always_fails():
    assert False
"""


def tree(root: Path) -> Path:
    folder = root / "repository"
    files = {
        "pkg/__init__.py": "",
        "pkg/model.py": MODEL,
        "pkg/other.py": "def one(x):\n    return x + 1\n",
        "README.md": README,
        "tests/test_block.py": TESTS,
    }
    for path, text in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder


def programs(root: Path, start) -> OwnPrograms:
    config = DiscoveryConfig(tests=True)
    return OwnPrograms(Readers(discover(root, config)), scripts_of(root, config), start)


def overlay(text: str) -> tuple[OverlayFile, ...]:
    return (OverlayFile(path="pkg/model.py", text=text),)


def compared(root: Path, text: str, limit_s: float = 120.0) -> Compared:
    def start(root: Path, import_roots: tuple[str, ...]) -> Harvester:
        return Harvester(root, import_roots=import_roots)

    with contextlib.closing(programs(root, start)) as own:
        return own.compared(overlay(text), "Block", time.monotonic() + limit_s)


def test_the_programs_of_a_tree_give_the_same_with_an_honest_patch(tmp_path: Path) -> None:
    fused = MODEL.replace(
        "self.drop(self.layer(x))",
        "nn.functional.dropout(self.layer(x), 0.5, self.training) + torch.rand(1) * 0",
    )
    found = compared(tree(tmp_path), fused)
    assert (found.num_tests, found.num_blocks) == (2, 1)
    assert [(one.path, one.line, one.result) for one in found.lines] == [
        ("README.md", 21, "not_run")
    ]
    assert "never worked" in found.lines[0].detail


def test_what_a_patch_breaks_is_named_with_its_place(tmp_path: Path) -> None:
    found = compared(tree(tmp_path), MODEL.replace("        self.last = y\n", ""))
    broken = [one for one in found.lines if one.result == "broken"]
    assert [(one.kind, one.path, one.line) for one in broken] == [
        ("block", "README.md", 4),
        ("test", "tests/test_block.py", None),
    ]
    assert broken[0].detail == "differs with the patch: `last` is no longer a tensor"
    assert broken[1].detail.startswith("test_last fails with the patch: ")
    assert (found.num_tests, found.num_blocks) == (1, 0)


class Scripted:
    """Gives what a list says, one after the other, for the tree itself and for the copy."""

    def __init__(self, root: Path, here: Sequence[ScriptRan], there: Sequence[ScriptRan]):
        self.root, self.given = root, {True: list(here), False: list(there)}
        self.asked: list[bool] = []

    @contextlib.contextmanager
    def start(self, root: Path, import_roots: tuple[str, ...]) -> Iterator[Scripted.One]:
        assert import_roots == (".",)
        yield Scripted.One(self, root == self.root.resolve())

    class One:
        def __init__(self, of: Scripted, is_here: bool):
            self.of, self.is_here = of, is_here

        def run(self, script, *, module="", limits=None, compares=False) -> ScriptRan:
            self.of.asked.append(self.is_here)
            return self.of.given[self.is_here].pop(0)


def of_values(*values: float, outcome="ran") -> ScriptRan:
    sample = tuple(map(str, values))
    output = Output(name="y", shape=(len(values),), dtype="float32", sample=sample)
    return ScriptRan(cells=(CellRan(line=4, outcome=outcome, outputs=(output,)),))


def told(tmp_path: Path, here, there, limit_s: float = 120.0) -> tuple[Compared, list[bool]]:
    root = tree(tmp_path)
    scripted = Scripted(root, here, there)
    script = Script(kind="readme", path="README.md", cells=(Cell(line=4, text="import pkg.model"),))
    own = OwnPrograms(Readers(discover(root, DiscoveryConfig())), [script], scripted.start)
    return own.compared(overlay(MODEL), "Block", time.monotonic() + limit_s), scripted.asked


def test_what_differs_between_two_runs_of_the_tree_itself_is_chance(tmp_path: Path) -> None:
    found, asked = told(
        tmp_path,
        [of_values(1.0, 2.0), of_values(1.0, 2.5)],
        [of_values(1.0, 3.0), of_values(1.0, 3.5)],
    )
    assert (found.num_blocks, found.lines) == (0, [])
    assert asked == [True, False, True, False]


def test_what_differs_once_alone_is_chance(tmp_path: Path) -> None:
    found, _ = told(
        tmp_path,
        [of_values(1.0), of_values(1.0)],
        [of_values(3.0), of_values(1.0)],
    )
    assert (found.num_blocks, found.lines) == (1, [])


def test_a_difference_that_is_seen_twice_refuses(tmp_path: Path) -> None:
    found, _ = told(
        tmp_path,
        [of_values(1.0), of_values(1.0)],
        [of_values(3.0), of_values(3.0)],
    )
    [one] = found.lines
    assert (one.result, one.line) == ("broken", 4)
    assert one.detail == "differs with the patch: `y` differs: 3.0 and was 1.0"


def test_what_is_out_of_time_with_the_patch_is_not_decided(tmp_path: Path) -> None:
    found, asked = told(tmp_path, [of_values(1.0)], [of_values(outcome="out_of_time")])
    assert [one.result for one in found.lines] == ["not_run"]
    assert found.num_blocks == 0
    assert asked == [True, False]


def test_without_time_what_was_not_run_is_named(tmp_path: Path) -> None:
    found, asked = told(tmp_path, [], [], limit_s=1.0)
    [one] = found.lines
    assert (one.result, one.detail, one.path) == ("not_run", "its time was spent", "README.md")
    assert asked == []


@pytest.mark.parametrize(
    ("before", "after", "is_same"),
    [
        (("1.0", "2.0"), ("1.0", "2.001"), True),
        (("1.0", "2.0"), ("1.0", "2.1"), False),
        (("0.0001", "100.0"), ("0.01", "100.0"), True),
        (("nan",), ("nan",), True),
        (("1.0",), ("nan",), False),
    ],
)
def test_values_have_the_tolerance_of_their_tensor(before, after, is_same) -> None:
    def output(sample: tuple[str, ...]) -> Output:
        return Output(name="y", shape=(len(sample),), dtype="float32", sample=sample)

    assert (difference_of([output(before)], [output(after)]) is None) == is_same


def test_whole_numbers_have_no_tolerance() -> None:
    def output(value: str) -> Output:
        return Output(name="y", shape=(), dtype="int64", sample=(value,))

    assert difference_of([output("1000")], [output("1001")]) == "`y` differs: 1001 and was 1000"


@pytest.mark.parametrize(
    ("before", "after", "is_same"),
    [
        ("loss 0.12345\n", "loss 0.12346\n", True),
        ("loss 0.1\n", "loss 0.3\n", False),
        ("loss 0.1\n", "cost 0.1\n", False),
        ("shape (2, 4)", "shape (2, 4)", True),
        ("a", "a 1", False),
    ],
)
def test_printed_numbers_have_a_tolerance(before: str, after: str, is_same: bool) -> None:
    assert is_same_text(before, after) == is_same


def test_a_copy_has_the_patch_and_no_hidden_files(tmp_path: Path) -> None:
    root = tree(tmp_path)
    for name in (".git", ".venv", "data"):
        (root / name).mkdir()
        (root / name / "file").write_text("x", encoding="utf-8")
    with patched_copy(root, overlay("patched = True\n")) as copy:
        assert (copy / "pkg" / "model.py").read_text(encoding="utf-8") == "patched = True\n"
        assert (copy / "pkg" / "other.py").is_file()
        assert sorted(one.name for one in copy.iterdir()) == ["README.md", "data", "pkg", "tests"]
    assert not copy.exists()
    assert (root / "pkg" / "model.py").read_text(encoding="utf-8") == MODEL
