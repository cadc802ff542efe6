"""Names that a rewrite uses no more are imported no more; all else stays."""

from __future__ import annotations

import libcst as cst
import pytest

from cudal1_ci.propose.editing.unused_imports import without_unused

BODY = "\n\ndef f(x):\n    return {}\n"


def left(imports: str, before: str = "einsum('ij,jk->ik', x, x)", after: str = "x @ x") -> str:
    old, new = (cst.parse_module(imports + BODY.format(said)) for said in (before, after))
    code = without_unused(old, new).code
    assert code.endswith(BODY.format(after))
    return code.removesuffix(BODY.format(after))


@pytest.mark.parametrize(
    ("imports", "expected"),
    [
        ("from torch import einsum, nn\n", "from torch import nn\n"),
        ("from torch import nn, einsum\n", "from torch import nn\n"),
        ("from torch import (\n    nn,\n    einsum,\n)\n", "from torch import (\n    nn,\n)\n"),
        ("import torch\nfrom torch import einsum\nimport math\n", "import torch\nimport math\n"),
        ("import os\n\nfrom torch import einsum\nimport b\n", "import os\n\nimport b\n"),
        ("# A remark.\nimport os\n# Of torch.\nfrom torch import einsum\nimport b\n",
         "# A remark.\nimport os\n# Of torch.\nimport b\n"),
        ("from torch import matmul as einsum\n", ""),
    ],
)  # fmt: skip
def test_a_name_without_uses_goes(imports, expected):
    assert left(imports) == expected


@pytest.mark.parametrize(
    "imports",
    [
        "from torch import einsum\n__all__ = ['einsum']\n",
        "from torch import einsum\nother = einsum\n",
        "from torch import *\n",
        "import einsum\n",
        "try:\n    from torch import einsum\nexcept ImportError:\n    einsum = None\n",
        "from torch import sigmoid\n",
    ],
)
def test_what_is_used_or_was_unused_before_stays(imports):
    assert left(imports) == imports


SOURCE = """\
import torch
from torch import einsum, nn


class Model(nn.Module):
    def forward(self, x, y):
        return einsum('b i d, b j d -> b i j', x, y)
"""


NEW = SOURCE.replace("einsum('b i d, b j d -> b i j', x, y)", "x @ y.transpose(-2, -1)")


def left_in(file, root) -> str:
    """Return a file of a checkout after its rewrite."""
    return without_unused(cst.parse_module(SOURCE), cst.parse_module(NEW), file, root).code


def test_a_package_may_import_for_others(tmp_path):
    (tmp_path / "pkg").mkdir()
    file = tmp_path / "pkg" / "__init__.py"
    file.write_text(SOURCE)
    assert "from torch import einsum, nn\n" in left_in(file, tmp_path)


@pytest.mark.parametrize(
    ("other", "stays"),
    [
        ("", False),
        ("from pkg.model import Model\n", False),
        ("from torch import einsum\nfrom pkg.model import Model\neinsum\n", False),
        ("from pkg.model import Model, einsum\n", True),
        ("from .model import (\n    Model,\n    einsum,\n)\n", True),
        ("from pkg.model import Model, \\\n    einsum\n", True),
        ("def later():\n    from pkg.model import *\n", True),
        ("import pkg.model as m\n\nm.einsum('ij->ji', x)\n", True),
        ("from pkg import model\n\nmodel.einsum('ij->ji', x)\n", True),
        ("from pkg.supermodel import einsum\n", False),
    ],
)
def test_what_other_files_take_from_a_module_stays_there(tmp_path, other, stays):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "model.py").write_text(SOURCE)
    (tmp_path / "other.py").write_text(other)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "a.py").write_text("from pkg.model import einsum\n")
    text = left_in(tmp_path / "pkg" / "model.py", tmp_path)
    assert ("from torch import einsum, nn\n" in text) == stays
