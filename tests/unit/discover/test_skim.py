from __future__ import annotations

import ast
import textwrap

import pytest

from cudal1_ci.discover.python_facts import python_facts
from cudal1_ci.discover.skim import skimmed

METHODS = '''
import torch
from torch import nn

@torch.jit.script
class Model(nn.Module):
    """A docstring
class NotMine(nn.Module):
    that looks like code."""

    limit: int = 3

    def __init__(
        self,
        dim: int,  # a (comment
        name: str = "a)b:",
        fn=lambda x: (x, [1]),
    ) -> None:
        super().__init__()
        self.proj = nn.Linear(dim, dim)

    def one_line(self): return 1

    async def waits(self):
        # only a comment
        await x

    @property
    def size(self) -> dict[str, int]:  # noqa: why
        return {"a": 1,
                "b": 2}

    @staticmethod
    def static(x):
        return torch.relu(x)

    def forward(self, x):
        text = """
left of everything
"""
        def inner(y):
            return y
        if x is None:
            return text

        return inner(x)

    # a trailing comment

    class Nested(nn.Module):
        def forward(self, x):
            return x


def free(self, x):
    """Doc."""
    return torch.relu(x)


def plain(x):
    return x

if True:
    def conditional(x):
        return torch.relu(x)
'''


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_skimming_changes_no_fact(ending: str) -> None:
    source = METHODS.replace("\n", ending).encode()
    whole = python_facts("m.py", source, "", skim=False)
    short = python_facts("m.py", source, "", skim=True)
    assert short == whole
    assert [c.qualname for c in short.classes] == ["Model", "Model.Nested"]
    assert [f.qualname for f in short.functions] == ["free", "conditional"]


def test_bodies_are_dropped_and_lines_are_kept() -> None:
    result = skimmed(METHODS.encode())
    assert result.text.count(b"\n") == METHODS.count("\n")
    assert b"super().__init__" not in result.text
    assert b"torch.relu(x)" in result.text
    whole = {n.name: n.lineno for n in ast.walk(ast.parse(METHODS)) if isinstance(n, ast.ClassDef)}
    short = ast.parse(result.text)
    assert {n.name: n.lineno for n in ast.walk(short) if isinstance(n, ast.ClassDef)} == whole


@pytest.mark.parametrize(
    "method",
    [
        'def f(self):\n        x = """\n  left """\n        return x',
        "def f(self):\n        x = (1,\n2)\n        return x",
        "def f(self):\n        x = 1 + \\\n2\n        return x",
        'def f(self, x=")"): return [\n        1]',
        "def f(self):\n        '''\nclass A(nn.Module): pass\n'''",
        "def f(self,\n          x):\n        return x",
    ],
)
def test_odd_layouts_are_parsed_whole(method: str) -> None:
    source = (
        textwrap.dedent(
            """\
        from torch import nn
        class Model(nn.Module):
            {}
            def forward(self, x):
                return x
        class Other(nn.Module):
            def forward(self, x):
                return x
        """
        )
        .replace("{}", method)
        .encode()
    )
    short = python_facts("m.py", source, "", skim=True)
    assert short == python_facts("m.py", source, "", skim=False)
    assert short.message is None
    assert [c.qualname for c in short.classes] == ["Model", "Other"]
