from __future__ import annotations

from pathlib import Path

import pytest

from cudal1_ci.discover import discover, reference_program
from cudal1_ci.discover.import_graph import ImportStatement, import_statements
from cudal1_ci.discover.imports import Symbol
from cudal1_ci.errors import DiscoveryError
from cudal1_ci.records import Target, TreeProgram

from .conftest import WriteTree

NET = "from torch import nn\n\nclass Net(nn.Module):\n    def forward(self, x):\n        return x\n"


def program(root: Path, path: str, qualname: str = "Net") -> TreeProgram:
    discovery = discover(root)
    target = next(t for t in discovery.targets if (t.path, t.qualname) == (path, qualname))
    return reference_program(root, target, discovery)


@pytest.mark.parametrize(
    ("files", "path", "import_root", "module"),
    [
        ({"net.py": NET}, "net.py", ".", "net"),
        ({"pkg/__init__.py": "", "pkg/net.py": NET}, "pkg/net.py", ".", "pkg.net"),
        ({"pkg/__init__.py": NET}, "pkg/__init__.py", ".", "pkg"),
        ({"src/pkg/__init__.py": "", "src/pkg/net.py": NET}, "src/pkg/net.py", "src", "pkg.net"),
        ({"src/net.py": NET}, "src/net.py", "src", "net"),
        ({"a/b/__init__.py": "", "a/b/net.py": NET}, "a/b/net.py", "a", "b.net"),
        ({"scripts/net.py": NET}, "scripts/net.py", "scripts", "net"),
        # Namespace packages: no __init__.py, but the tree imports them as packages.
        (
            {"space/net.py": NET, "main.py": "import torch\nfrom space.net import Net\n"},
            "space/net.py", ".", "space.net",
        ),
        (
            {"src/a/b/net.py": NET, "src/main.py": "import torch, a.b.net\n"},
            "src/a/b/net.py", "src", "a.b.net",
        ),
        (
            {"ex/one/nets/net.py": NET, "ex/one/run.py": "import torch\nimport nets.net\n"},
            "ex/one/nets/net.py", "ex/one", "nets.net",
        ),
        (
            {"space/net.py": NET + "from .other import y\n", "space/other.py": "y = 1\n"},
            "space/net.py", ".", "space.net",
        ),
    ],
)  # fmt: skip
def test_a_target_is_imported_as_its_layout_says(
    write_tree: WriteTree, files: dict[str, str], path: str, import_root: str, module: str
) -> None:
    found = program(write_tree(files), path)
    assert (found.import_root, found.import_path) == (import_root, f"{module}:Net")


def test_a_root_that_is_itself_a_package_is_imported_from_above(write_tree: WriteTree) -> None:
    top = write_tree({"pkg/__init__.py": "", "pkg/sub/__init__.py": "", "pkg/sub/net.py": NET})
    found = program(top / "pkg", "sub/net.py")
    assert (found.import_root, found.import_path) == ("..", "pkg.sub.net:Net")
    found = program(top / "pkg/sub", "net.py")
    assert (found.import_root, found.import_path) == ("../..", "pkg.sub.net:Net")


@pytest.mark.parametrize("mark", ["setup.py", "pyproject.toml", ".git/HEAD"])
def test_the_top_of_a_project_is_no_package(write_tree: WriteTree, mark: str) -> None:
    """A stray `__init__.py` beside `setup.py` is in many repositories."""
    files = {"__init__.py": "", mark: "", "kan/__init__.py": "", "kan/net.py": NET, "own.py": NET}
    top = write_tree(files)
    assert program(top, "kan/net.py").import_path == "kan.net:Net"
    assert program(top, "kan/net.py").import_root == "."
    assert program(top, "own.py").import_path == "own:Net"
    inside = program(top / "kan", "net.py")
    assert (inside.import_root, inside.import_path) == ("..", "kan.net:Net")


def test_nested_classes_are_named_by_their_qualname(write_tree: WriteTree) -> None:
    text = """
    from torch import nn
    class A(nn.Module):
        class B(nn.Module):
            def forward(self, x): return x
    """
    assert program(write_tree({"m.py": text}), "m.py", "A.B").import_path == "m:A.B"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (Target(path="k.cu", qualname="k", kind="cuda_kernel", first_line=1, last_line=1), "CUDA"),
        (
            Target(
                path="a.py", qualname="f.<locals>.k", kind="triton_kernel",
                first_line=1, last_line=1,
            ),
            "made inside a function",
        ),
        (
            Target(path="gone.py", qualname="f", kind="torch_function", first_line=1, last_line=1),
            "not among those found",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_imported_is_an_error_that_says_why(
    write_tree: WriteTree, target: Target, words: str
) -> None:
    root = write_tree({"a.py": NET})
    with pytest.raises(DiscoveryError, match=words):
        reference_program(root, target, discover(root))


TREE = {
    "pkg/__init__.py": "from .net import Net\nfrom .unrelated import other\n",
    "pkg/net.py": "from pkg.layers import Block\nfrom . import ops as o\nimport torch\n" + NET,
    "pkg/layers/__init__.py": "from .block import Block\nfrom .extra import Extra\n",
    "pkg/layers/block.py": "import pkg.constants\nfrom torch import nn\n",
    "pkg/layers/extra.py": "Extra = 1\n",
    "pkg/ops.py": "def f():\n    from .lazy import late\n    return late\n",
    "pkg/lazy.py": "late = 1\n",
    "pkg/constants.py": "N = 1\n",
    "pkg/unrelated.py": "other = 1\n",
}


@pytest.mark.parametrize(
    ("path", "matters"),
    [
        ("pkg/net.py", True),
        ("pkg/layers/__init__.py", True),
        ("pkg/layers/block.py", True),
        ("pkg/constants.py", True),
        ("pkg/ops.py", True),
        ("pkg/lazy.py", True),
        ("pkg/__init__.py", True),
        ("pkg/layers/extra.py", False),
        ("pkg/unrelated.py", False),
    ],
)
def test_the_digest_covers_what_the_target_imports_and_nothing_else(
    write_tree: WriteTree, path: str, matters: bool
) -> None:
    before = program(write_tree(TREE), "pkg/net.py").digest
    root = write_tree({**TREE, path: TREE[path] + "\n# changed\n"})
    assert (program(root, "pkg/net.py").digest != before) == matters


def test_the_digest_does_not_depend_on_where_the_tree_lies(tmp_path: Path) -> None:
    digests = set()
    for name in ("one", "two"):
        root = tmp_path / name
        for path, text in TREE.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        digests.add(program(root, "pkg/net.py").digest)
    assert len(digests) == 1


def test_files_that_discovery_leaves_out_count_when_they_are_imported(
    write_tree: WriteTree,
) -> None:
    files = {"net.py": "from third_party.fast import op\n" + NET, "third_party/fast.py": "op = 1\n"}
    before = program(write_tree(files), "net.py").digest
    root = write_tree({**files, "third_party/fast.py": "op = 2\n"})
    assert program(root, "net.py").digest != before


def test_imports_are_read_from_the_text() -> None:
    source = b"""
import a
import b.c as d, e
from f import (g,  # a comment (
    h as i,
)
from . import j
    from ..k.l import m, \\
        n
from o import *
x = "import not_this"
"""
    assert list(import_statements(source)) == [
        ImportStatement("a", None),
        ImportStatement("b.c", None),
        ImportStatement("e", None),
        ImportStatement("f", (("g", "g"), ("h", "i"))),
        ImportStatement(".", (("j", "j"),)),
        ImportStatement("..k.l", (("m", "m"), ("n", "n"))),
        ImportStatement("o", (("*", "*"),)),
    ]


@pytest.mark.parametrize(
    ("dotted", "symbol"),
    [
        ("nn.Linear", Symbol(None, "torch.nn.Linear")),
        ("Block", Symbol("pkg/blocks.py", "Block")),
        ("blocks.Block.Inner", Symbol("pkg/blocks.py", "Block.Inner")),
        ("alias", Symbol("pkg/blocks.py", "Block")),
        ("blocks", Symbol("pkg/blocks.py", "")),
        ("unknown.thing", Symbol(None, "unknown.thing")),
        ("far.far", Symbol(None, "far.far")),
    ],
)
def test_a_name_resolves_to_a_definition_or_to_the_outside(
    write_tree: WriteTree, dotted: str, symbol: Symbol
) -> None:
    root = write_tree(
        {
            "pkg/__init__.py": "",
            "pkg/blocks.py": """
            from torch import nn
            class Block(nn.Module):
                class Inner: pass
            """,
            "pkg/user.py": """
            from torch import nn
            from . import blocks
            from pkg.blocks import Block
            alias = blocks.Block
            from .... import too_far
            import far
            """,
        }
    )
    modules = discover(root).modules
    found = modules.resolve_all("pkg/user.py", dotted)
    assert symbol in found


def test_two_scripts_of_one_name_are_each_imported_by_their_neighbors(
    write_tree: WriteTree,
) -> None:
    root = write_tree(
        {
            "a/models.py": NET,
            "a/main.py": "import torch\nfrom models import Net\n",
            "b/models.py": NET,
            "b/main.py": "import torch\nfrom models import Net\n",
            "c/main.py": "import torch\nfrom models import Net\n",
        }
    )
    modules = discover(root).modules
    assert modules.resolve("a/main.py", "Net") == Symbol("a/models.py", "Net")
    assert modules.resolve("b/main.py", "Net") == Symbol("b/models.py", "Net")
    assert modules.resolve("c/main.py", "Net") == Symbol(None, "models.Net")
