from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from cudal1_ci.discover import DiscoveryConfig, discover, reading
from cudal1_ci.discover.changed import Selection, select_changed
from cudal1_ci.records import Change, FileChange

from .conftest import WriteTree

BASE = {
    "pkg/__init__.py": "from .model import Model\n",
    "pkg/ops.py": '''
import torch

SCALE = 2.0
UNUSED = 1

def rotate(x):
    """Rotate."""
    return torch.cat((-x, x)) * SCALE

def untouched(x):
    return torch.relu(x)
''',
    "pkg/shim.py": "from .ops import rotate as turn\n",
    "pkg/config.py": "class Config:\n    width = 3\n",
    "pkg/mixin.py": "class Mixin:\n    def helper(self, x):\n        return x\n",
    "pkg/model.py": """
import torch
from torch import nn
from . import ops
from .config import Config
from .mixin import Mixin
from .shim import turn

class Attention(nn.Module):
    def forward(self, x):
        return turn(x)

class Dotted(nn.Module):
    def forward(self, x):
        return ops.rotate(x)

class Local(nn.Module):
    def forward(self, x):
        from pkg.ops import rotate
        return rotate(x)

class Mixed(Mixin, nn.Module):
    def forward(self, x):
        return self.helper(x)

class Configured(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
    def forward(self, x):
        return x

class Model(nn.Module):
    class Head(nn.Module):
        def forward(self, x):
            return x
    def __init__(self):
        super().__init__()
        self.attention = Attention()
    def forward(self, x):
        return self.attention(x)

class Alone(nn.Module):
    def forward(self, x):
        return x + 1
""",
}


def change_of(
    before: Mapping[str, str], after: Mapping[str, str], renamed: Mapping[str, str] | None = None
) -> Change:
    renamed = renamed or {}
    files = []
    for path in sorted({*before, *after}):
        if path in renamed.values():
            continue
        new_path = renamed.get(path, path)
        old, new = before.get(path), after.get(new_path)
        if old != new or new_path != path:
            previous = path if new_path != path else None
            files.append(FileChange(path=new_path, previous_path=previous, before=old, after=new))
    return Change(repository="r", base_sha="0" * 40, head_sha=None, files=tuple(files))


def selected(
    write_tree: WriteTree,
    after: Mapping[str, str],
    before: Mapping[str, str] = BASE,
    renamed: Mapping[str, str] | None = None,
    config: DiscoveryConfig | None = None,
) -> Selection:
    root = write_tree(after)
    return select_changed(discover(root, config), change_of(before, after, renamed))


def reasons(selection: Selection) -> dict[str, str | None]:
    return {target.qualname: target.selected_because for target in selection.targets}


def edited(path: str, old: str, new: str) -> dict[str, str]:
    assert old in BASE[path]
    return {**BASE, path: BASE[path].replace(old, new)}


USERS_OF_ROTATE = dict.fromkeys(
    ("Attention", "Dotted", "Local", "Model"), "calls pkg/ops.py:rotate"
)


def test_a_changed_function_selects_itself_and_all_that_use_it(write_tree: WriteTree) -> None:
    selection = selected(write_tree, edited("pkg/ops.py", "(-x, x)", "(x, -x)"))
    assert reasons(selection) == {"rotate": "changed", **USERS_OF_ROTATE}
    assert selection.removed == ()


def test_a_changed_constant_selects_what_computes_with_it(write_tree: WriteTree) -> None:
    selection = selected(write_tree, edited("pkg/ops.py", "SCALE = 2.0", "SCALE = 3.0"))
    assert set(reasons(selection)) == {"rotate", *USERS_OF_ROTATE}
    assert set(reasons(selection).values()) == {"calls pkg/ops.py:SCALE"}


@pytest.mark.parametrize(
    ("path", "old", "new", "expected"),
    [
        ("pkg/model.py", "return x + 1", "return x + 2", {"Alone": "changed"}),
        (
            "pkg/model.py", "return turn(x)", "return turn(x) + 1",
            {"Attention": "changed", "Model": "calls pkg/model.py:Attention"},
        ),
        (
            "pkg/mixin.py", "return x", "return x + 1", {"Mixed": "calls pkg/mixin.py:Mixin"},
        ),
        ("pkg/config.py", "width = 3", "width = 4", {"Configured": "calls pkg/config.py:Config"}),
        (
            "pkg/model.py", "def forward(self, x):\n            return x",
            "def forward(self, x):\n            return x * 2", {"Head": "changed"},
        ),
        ("pkg/model.py", "class Alone(nn.Module)", "@torch.jit.script\nclass Alone(nn.Module)",
         {"Alone": "changed"}),
        ("pkg/ops.py", "UNUSED = 1", "UNUSED = 2", {}),
        ("pkg/__init__.py", "from .model import Model", "from .model import Model, Alone", {}),
        ("pkg/ops.py", "import torch\n", "import torch\nimport math\n", {}),
    ],
)  # fmt: skip
def test_a_change_selects_the_innermost_target_and_its_users(
    write_tree: WriteTree, path: str, old: str, new: str, expected: dict[str, str]
) -> None:
    found = reasons(selected(write_tree, edited(path, old, new)))
    assert {name.rpartition(".")[2]: reason for name, reason in found.items()} == expected


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""Rotate."""', '"""Rotate, said otherwise."""'),
        ('    """Rotate."""\n', ""),
        ("import torch\n", "# a comment\n\n\nimport torch\n"),
        (
            "torch.cat((-x, x)) * SCALE",
            "(\n        torch.cat((-x, x))\n        * SCALE  # why\n    )",
        ),
        ("2.0", "2.00"),
        ("def untouched", "\n\n\n\ndef untouched"),
    ],
)
def test_comments_docstrings_and_layout_select_nothing(
    write_tree: WriteTree, old: str, new: str
) -> None:
    selection = selected(write_tree, edited("pkg/ops.py", old, new))
    assert selection == Selection(targets=())


def test_a_statement_at_module_level_concerns_the_whole_file(write_tree: WriteTree) -> None:
    after = edited("pkg/ops.py", "UNUSED = 1", "torch.set_num_threads(1)")
    found = reasons(selected(write_tree, after))
    assert {"rotate", "untouched", "Attention"} <= set(found)
    assert found["untouched"] == "calls pkg/ops.py"
    assert "Alone" not in found


def test_an_import_that_brings_something_else_selects_its_users(write_tree: WriteTree) -> None:
    after = {**BASE, "pkg/shim.py": "from .ops import untouched as turn\n"}
    assert reasons(selected(write_tree, after)) == dict.fromkeys(
        ("Attention", "Model"), "calls pkg/shim.py:turn"
    )


def test_an_import_that_is_only_spelled_otherwise_selects_nothing(write_tree: WriteTree) -> None:
    after = edited("pkg/model.py", "from . import ops", "import pkg.ops as ops")
    after["pkg/model.py"] = after["pkg/model.py"].replace(
        "from torch import nn", "import torch.nn as nn"
    )
    assert selected(write_tree, after) == Selection(targets=())


def test_a_renamed_file_selects_nothing_though_its_importers_follow_it(
    write_tree: WriteTree,
) -> None:
    after = {
        path.replace("ops.py", "rotary.py"): text.replace(".ops", ".rotary").replace(
            "import ops", "import rotary as ops"
        )
        for path, text in BASE.items()
    }
    selection = selected(write_tree, after, renamed={"pkg/ops.py": "pkg/rotary.py"})
    # The import inside of Local's forward is part of its own text.
    assert reasons(selection) == {"Local": "changed"}
    assert selection.removed == ()


def test_a_renamed_and_edited_file_selects_what_was_edited(write_tree: WriteTree) -> None:
    before = {"old.py": BASE["pkg/ops.py"]}
    after = {"new.py": BASE["pkg/ops.py"].replace("torch.relu(x)", "torch.relu(x) + 1")}
    selection = selected(write_tree, after, before, {"old.py": "new.py"})
    assert reasons(selection) == {"untouched": "changed"}


def test_added_files_are_changed_and_deleted_targets_are_returned_apart(
    write_tree: WriteTree,
) -> None:
    after = {path: text for path, text in BASE.items() if path != "pkg/ops.py"}
    after["pkg/shim.py"] = "import torch\ndef turn(x):\n    return torch.relu(x)\n"
    after["pkg/new.py"] = "import torch\ndef fresh(x):\n    return torch.relu(x)\n"
    selection = selected(write_tree, after)
    found = reasons(selection)
    assert found["fresh"] == found["turn"] == "changed"
    assert found["Attention"] == "calls pkg/shim.py:turn"
    assert [(t.path, t.qualname) for t in selection.removed] == [
        ("pkg/ops.py", "rotate"),
        ("pkg/ops.py", "untouched"),
    ]


def test_a_removed_target_of_a_file_that_stays_is_returned_apart(write_tree: WriteTree) -> None:
    text = BASE["pkg/model.py"]
    after = {**BASE, "pkg/model.py": text[: text.index("class Alone")]}
    selection = selected(write_tree, after)
    assert [t.qualname for t in selection.removed] == ["Alone"]
    assert selection.targets == ()


def test_a_file_that_no_longer_parses_removes_its_targets(write_tree: WriteTree) -> None:
    selection = selected(write_tree, {**BASE, "pkg/ops.py": "def rotate(:\n"})
    assert [t.qualname for t in selection.removed] == ["rotate", "untouched"]


def test_changes_of_files_that_discovery_leaves_out_select_nothing(write_tree: WriteTree) -> None:
    text = "import torch\ndef helper(x):\n    return torch.relu(x)\n"
    after = {**BASE, "tests/test_a.py": text, "README.md": "words", "setup.cfg": "[x]\n"}
    assert selected(write_tree, after) == Selection(targets=())


def test_a_change_reaches_files_that_a_large_tree_passes_over(
    write_tree: WriteTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "THOROUGH_BYTES", 0)
    after = edited("pkg/config.py", "width = 3", "width = 4")
    assert reasons(selected(write_tree, after)) == {"Configured": "calls pkg/config.py:Config"}
    after = edited("pkg/ops.py", "(-x, x)", "(x, -x)")
    assert reasons(selected(write_tree, after)) == {"rotate": "changed", **USERS_OF_ROTATE}


CUDA = {
    "csrc/common.cuh": """
#define BLOCK 256
#define OTHER 1
__device__ int twice(int a) { return 2 * a; }
""",
    "csrc/scale.cu": """
#include "common.cuh"
constexpr int WIDTH = 4;
__global__ void scale_kernel(int* x) { x[0] = twice(x[0]); }
__global__ void block_kernel(int* x) { x[BLOCK] = WIDTH; }
__global__ void other_kernel(int* x) { x[0] = 1; }
void scale(int* x) { scale_kernel<<<1, 1>>>(x); }
TORCH_LIBRARY(my_ops, m) { m.def("scale", &scale); }
""",
    "ops.py": """
import torch
from torch.utils.cpp_extension import load
extension = load("ops", ["csrc/scale.cu"])

class Built(torch.nn.Module):
    def forward(self, x):
        return extension.scale(x)

def registered(x):
    return torch.ops.my_ops.scale(x)

def unrelated(x):
    return torch.relu(x)
""",
}


@pytest.mark.parametrize(
    ("path", "old", "new", "expected"),
    [
        (
            "csrc/scale.cu", "x[0] = twice(x[0])", "x[1] = twice(x[0])",
            {
                "scale_kernel": "changed",
                "Built": "calls csrc/scale.cu:scale_kernel",
                "registered": "calls csrc/scale.cu:scale_kernel",
            },
        ),
        (
            "csrc/common.cuh", "return 2 * a", "return a + a",
            {
                "scale_kernel": "calls csrc/common.cuh:twice",
                "Built": "calls csrc/common.cuh:twice",
                "registered": "calls csrc/common.cuh:twice",
            },
        ),
        (
            "csrc/common.cuh", "BLOCK 256", "BLOCK 128",
            {"block_kernel": "calls csrc/common.cuh:BLOCK", "Built": "calls csrc/common.cuh:BLOCK"},
        ),
        (
            "csrc/scale.cu", "WIDTH = 4", "WIDTH = 8",
            {"block_kernel": "calls csrc/scale.cu", "Built": "calls csrc/scale.cu"},
        ),
        ("csrc/common.cuh", "OTHER 1", "OTHER 2", {}),
        ("csrc/scale.cu", "x[0] = 1; }", "x[0] =   1; /* one */ }", {}),
    ],
)  # fmt: skip
def test_a_change_in_cuda_reaches_kernels_and_the_python_that_launches_them(
    write_tree: WriteTree, path: str, old: str, new: str, expected: dict[str, str]
) -> None:
    assert old in CUDA[path]
    after = {**CUDA, path: CUDA[path].replace(old, new)}
    assert reasons(selected(write_tree, after, CUDA)) == expected


INLINE = '''
import cupy
SOURCE = """
__global__ void first(int* x) { x[0] = 1; }
__global__ void second(int* x) { x[0] = 2; }
"""
def run(x):
    return cupy.RawKernel(SOURCE, "first")
'''


def test_of_two_kernels_in_a_string_the_changed_one_is_named_changed(write_tree: WriteTree) -> None:
    after = {"m.py": INLINE.replace("x[0] = 1", "x[0] = 3")}
    assert reasons(selected(write_tree, after, {"m.py": INLINE})) == {
        "first": "changed",
        "second": "calls m.py:SOURCE",
    }


TRITON = """
import triton
@triton.jit
def kernel(x):
    return x
def launch(x):
    kernel[(1,)](x)
    return x + 1
"""


def test_a_changed_triton_kernel_selects_the_modules_that_launch_it(
    write_tree: WriteTree, tmp_path: Path
) -> None:
    before = {
        "k.py": TRITON,
        "m.py": "import torch\nfrom k import launch\nclass M(torch.nn.Module):\n"
        "    def forward(self, x):\n        return launch(x)\n",
    }
    after = {**before, "k.py": TRITON.replace("return x\n", "return x * 2\n")}
    assert reasons(selected(write_tree, after, before)) == {
        "kernel": "changed",
        "M": "calls k.py:kernel",
    }


@pytest.mark.parametrize("name", ["by_name", "by_module", "by_launch", "deeper"])
def test_a_change_of_what_a_kernel_calls_selects_the_kernel_alone(
    write_tree: WriteTree, name: str
) -> None:
    names = ["by_name", "by_module", "by_launch", "deeper"]
    maths = "import triton\n" + "".join(
        f"@triton.jit\ndef {one}(x):\n    return x + {number}\n" for number, one in enumerate(names)
    ).replace("x + 2", "deeper(x)")
    kernels = (
        "import maths, triton\nfrom maths import by_launch, by_name\n"
        "@triton.jit\ndef kernel(x, F):\n    F(by_name(x) + maths.by_module(x))\n"
        "@triton.jit\ndef other(x):\n    return x\n"
        "def launch(x):\n    kernel[(1,)](x, F=by_launch)\n    other[(1,)](x)\n"
    )
    before = {"maths.py": maths, "k.py": kernels}
    first, found, rest = maths.partition(f"def {name}(x):\n    return ")
    after = {**before, "maths.py": f"{first}{found}7 * {rest}"}
    assert reasons(selected(write_tree, after, before)) == {"kernel": f"calls maths.py:{name}"}


def test_a_kernel_that_is_launched_otherwise_is_selected(
    write_tree: WriteTree,
) -> None:
    after = {"k.py": TRITON.replace("kernel[(1,)](x)", "kernel[(1,)](x, num_warps=8)")}
    assert reasons(selected(write_tree, after, {"k.py": TRITON})) == {
        "kernel": "launched by k.py:launch"
    }
    beside = {"k.py": TRITON.replace("def launch", "def other(x):\n    return x * 2\ndef launch")}
    assert "kernel" not in reasons(selected(write_tree, beside, {"k.py": TRITON}))


HELPERS = """
import torch

def one(x):
    return torch.relu(x)

def two(x):
    return torch.exp(x)
"""


@pytest.mark.parametrize("after", [HELPERS[: HELPERS.index("def two")], None])
@pytest.mark.parametrize(
    "path", ["tests/a.py", "pkg/test_a.py", "vendor/deep/a.py", "scratch/a.py", "old/a.py"]
)
def test_a_target_that_was_never_looked_at_was_not_removed(
    write_tree: WriteTree, path: str, after: str | None
) -> None:
    before = {**BASE, ".gitignore": "scratch/\n", path: HELPERS}
    then = {k: v for k, v in before.items() if k != path} | ({path: after} if after else {})
    config = DiscoveryConfig(exclude=("old/**",))
    assert selected(write_tree, then, before, config=config) == Selection(targets=())
    assert selected(write_tree, then, before, config=DiscoveryConfig(include=("pkg/ops.py",))) == (
        Selection(targets=())
    )
