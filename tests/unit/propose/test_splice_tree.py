"""Answers in the user's file: exact results, what stays to the byte, what is refused.

splices/ holds one splice a file: the target (and what launches it), the user's file, the answer's
code, and the file that must come of them.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudal1_ci.propose.llm.answer import Unusable, tree_of
from cudal1_ci.propose.llm.splice.tree_form import with_answer

SPLICES = sorted((Path(__file__).parent / "splices").glob("*.txt"))


def parts(file: Path) -> tuple[str, list[str], str, str, str]:
    target, text, answer, result = re.split(
        r"^#### (?:file|answer|result)\n", file.read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    qualname, *others = target.removeprefix("#### target ").split()
    return qualname, others, text, answer, result


def span(text: str, qualname: str) -> tuple[int, int]:
    """First and last line of a definition, from 0, last not included; decorators are of it."""
    node: ast.AST = ast.parse(text)
    for part in qualname.split("."):
        # Breadth first: a method before one of the same name in a nested class.
        node = next(inner for inner in ast.walk(node) if getattr(inner, "name", None) == part)
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    return first - 1, node.end_lineno


@pytest.mark.parametrize("file", SPLICES, ids=lambda file: file.stem)
def test_the_file_is_exactly_what_must_come_of_the_answer(file):
    qualname, others, text, answer, result = parts(file)
    assert with_answer(text, qualname, answer, others=others, own="pkg") == result


@pytest.mark.parametrize("file", SPLICES, ids=lambda file: file.stem)
def test_every_line_outside_of_what_is_replaced_stays_and_in_its_order(file):
    qualname, others, text, answer, _ = parts(file)
    replaced = set()
    for name in (qualname, *others, *re.findall(r"def (\w+_kernel)\b", text)):
        replaced |= set(range(*span(text, name)))
    kept = [line for i, line in enumerate(text.splitlines(True)) if i not in replaced]
    result = iter(with_answer(text, qualname, answer, others=others).splitlines(True))
    assert all(line in result for line in kept)


@pytest.mark.parametrize("file", SPLICES, ids=lambda file: file.stem)
def test_an_answer_that_is_already_in_the_file_changes_nothing(file):
    qualname, others, _, answer, result = parts(file)
    again = with_answer(result, qualname, answer, others=others, own="pkg")
    # A helper that was renamed clashes with the file's again; nothing else may change.
    if "_fast" not in result and "functional as functional" not in result:
        assert isinstance(again, Unusable)
        assert again.kind == "unchanged"


def test_line_ends_tabs_and_the_byte_order_mark_are_the_files():
    text = (
        '\ufeffimport os\r\n\r\nclass A:\r\n\tdef f(self, x):\r\n\t\t"""Doc."""\r\n'
        "\t\treturn x\r\n\r\nz = 1\r\n"
    )
    answer = "import torch\ndef f(self, x):\n    if x:\n        x = torch.sin(x)\n    return x\n"
    assert with_answer(text, "A.f", answer) == (
        "\ufeffimport os\r\n\r\nimport torch\r\n\r\nclass A:\r\n\tdef f(self, x):\r\n"
        '\t\t"""Doc."""\r\n\t\tif x:\r\n\t\t\tx = torch.sin(x)\r\n\t\treturn x\r\n\r\nz = 1\r\n'
    )


def test_strings_of_several_lines_have_the_files_line_ends():
    answer = 'TEXT = """\n  a\n"""\n\n\ndef f(x):\n    return x + (\n        TEXT\n    )\n'
    spliced = with_answer("def f(x):\r\n    return x\r\n", "f", answer)
    assert spliced.count("\n") == spliced.count("\r\n") > 8


MODULE = """\
from torch import nn
import torch


class Gate(nn.Module):
    def __init__(self, dim, bias=True):
        super().__init__()
        self.proj = nn.Linear(dim, dim, bias=bias)
        self.register_buffer("count", torch.zeros(1))
        self.act = nn.SiLU()

    def forward(self, x, *, mask=None):
        return self.act(self.proj(x))
"""
INIT = """\
class Gate(nn.Module):
    def __init__(self, dim, bias=True):
        super().__init__()
"""
STATE = (
    '        self.proj = nn.Linear(dim, dim, bias=bias)\n        self.register_buffer("count", 0)\n'
)
FORWARD = "    def forward(self, x, *, mask=None):\n        return self.proj(x).sigmoid()\n"
PLAIN = "def twice(x, by=2):\n    return x * by\n"


def refused(text: str, qualname: str, answer: str) -> Unusable:
    found = with_answer(text, qualname, answer)
    assert isinstance(found, Unusable), found
    return found


@pytest.mark.parametrize(
    ("text", "qualname", "answer", "kind", "says"),
    [
        (
            MODULE,
            "Gate",
            INIT.replace("dim,", "dims,") + STATE,
            "signature",
            "self, dim, bias=True",
        ),
        (MODULE, "Gate", INIT.replace("=True", "=False") + STATE, "signature", "bias=True"),
        (MODULE, "Gate", INIT.replace("=True", "=True, block=64") + STATE, "signature", "add none"),
        (MODULE, "Gate", "class Gate:\n    def forward(self, x): return x\n", "signature", "mask"),
        (MODULE, "Gate", INIT + FORWARD, "state_keys", "`self.proj`, `self.count`"),
        (
            MODULE,
            "Gate",
            INIT + STATE.split("\n")[0] + "\n" + FORWARD,
            "state_keys",
            "`self.count`",
        ),
        (MODULE, "Gate", "def Gate(x): return x\n", "signature", "a class"),
        (MODULE, "Gate", "class A: pass\nclass B: pass\n", "no_entry", "`A`, `B`"),
        (MODULE, "Gate", MODULE, "unchanged", "faster"),
        (MODULE, "Gate", "class Gate(nn.Module):\n    ...\n", "unchanged", "faster"),
        (MODULE, "Lost", FORWARD, "unsupported", "`Lost`"),
        ("def (", "Gate", INIT, "unsupported", "Python"),
        (PLAIN, "twice", "def twice(x): return x + x\n", "signature", "by=2"),
        (PLAIN, "twice", "async def twice(x, by=2): return x\n", "signature", "async def"),
        (PLAIN, "twice", "def twice(x, by=2):\n    ...\n", "placeholder", "no body"),
        (PLAIN, "twice", "from torch import *\n" + PLAIN + "x=mul\n", "imports", "one by one"),
        (
            PLAIN + "def g(x): return x\n",
            "twice",
            "def g(x): return -x\ndef h(g): return g\ndef twice(x, by=2): return h(g(x))\n",
            "name_clash",
            "`g`",
        ),
        (
            PLAIN,
            "twice",
            "if 1:\n    N = 3\n    def twice(x, by=2): return x * N\n",
            "unsupported",
            "`N`",
        ),
    ],
)
def test_what_would_break_those_who_call_it_is_refused(text, qualname, answer, kind, says):
    found = refused(text, qualname, answer)
    assert found.kind == kind
    assert says in found.message


def test_modules_without_state_may_go():
    spliced = with_answer(MODULE, "Gate", INIT + STATE + FORWARD)
    assert isinstance(spliced, str)
    assert "self.act" not in spliced


def test_state_may_be_made_in_another_method():
    moved = (
        INIT + "        self.make(dim, bias)\n    def make(self, dim, bias):\n" + STATE + FORWARD
    )
    assert isinstance(with_answer(MODULE, "Gate", moved), str)


def test_the_setter_of_a_property_stays_when_the_answer_has_the_getter_only():
    text = (
        "class A:\n    @property\n    def x(self):\n        return 1\n\n"
        "    @x.setter\n    def x(self, to):\n        self.y = to\n"
    )
    answer = "class A:\n    @property\n    def x(self):\n        return 2\n"
    assert with_answer(text, "A", answer) == text.replace("return 1", "return 2")


def test_class_attributes_keep_their_values_and_private_ones_may_change():
    text = "class A:\n    size = 1\n    _tile = 2\n\n    def f(self):\n        return 3\n"
    answer = "class A:\n    size = 7\n    _tile = 8\n\n    def f(self):\n        return 9\n"
    expected = "class A:\n    size = 1\n    _tile = 8\n\n    def f(self):\n        return 9\n"
    assert with_answer(text, "A", answer) == expected


def test_what_is_said_of_attributes_stays_with_them():
    text = 'class A:\n    size = 1\n    """Of a tile."""\n\n    def f(self):\n        return 3\n'
    answer = "class A:\n    size = 1\n    depth = 4\n    def f(self):\n        return 9\n"
    assert with_answer(text, "A", answer) == text.replace(
        'e."""\n', 'e."""\n    depth = 4\n'
    ).replace("return 3", "return 9")


def test_an_import_for_type_checkers_binds_nothing_at_run_time():
    text = (
        "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    import torch\n\n\n"
        "def f(x):\n    return x\n"
    )
    spliced = with_answer(text, "f", "import torch\ndef f(x):\n    return torch.relu(x)\n")
    assert spliced == text.replace("CHECKING\n\nif", "CHECKING\n\nimport torch\n\nif").replace(
        "return x", "return torch.relu(x)"
    )


def test_imports_of_several_lines_are_sorted_by_their_first():
    text = (
        "# Head.\nfrom os import (\n    path,\n)\n\n"
        "# Theirs.\nfrom torch.nn import (\n    Linear,\n)\n\n"
        "from pkg.ops import (\n    a,\n)\n\n\ndef f(x):\n    return x\n"
    )
    answer = "import re, torch\nfrom pkg import b\ndef f(x):\n    return b(re, torch)\n"
    assert with_answer(text, "f", answer, own="pkg") == (
        "# Head.\nimport re\nfrom os import (\n    path,\n)\n\nimport torch\n# Theirs.\n"
        "from torch.nn import (\n    Linear,\n)\n\n"
        "from pkg import b\nfrom pkg.ops import (\n    a,\n)\n"
        "\n\ndef f(x):\n    return b(re, torch)\n"
    )


def test_the_future_stays_first_and_is_not_added():
    answer = "from __future__ import annotations\nimport math\ndef f(x):\n    return math.exp(x)\n"
    text = '"""Doc."""\n\nfrom __future__ import division\n\n\ndef f(x):\n    return x\n'
    assert with_answer(text, "f", answer) == (
        '"""Doc."""\n\nfrom __future__ import division\n\nimport math\n\n\n'
        "def f(x):\n    return math.exp(x)\n"
    )


def test_a_name_that_means_another_module_in_the_file_is_written_as_the_file_has_it():
    text = "import torch.nn.functional as fun\n\nF = 1\n\n\ndef f(x):\n    return F\n"
    answer = "import torch.nn.functional as F\ndef f(x):\n    return F.relu(x)\n"
    assert with_answer(text, "f", answer) == text.replace("return F", "return fun.relu(x)")


def test_demonstrations_and_settings_stay_behind():
    answer = (
        "import torch\nimport time\ntorch.backends.cudnn.benchmark = True\n"
        "def twice(x, by=2):\n    y = x\n    return y * by + 0\n\n"
        "y = torch.ones(3)\nprint(twice(y), time.time())\n"
    )
    assert with_answer(PLAIN, "twice", answer) == (
        "def twice(x, by=2):\n    y = x\n    return y * by + 0\n"
    )


def test_the_obvious_imports_that_an_answer_forgot_are_added():
    answer = "def twice(x, by=2):\n    return F.relu(x) * math.pi * nn.x * by\n"
    spliced = with_answer(PLAIN, "twice", answer)
    assert spliced.startswith(
        "import math\n\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
    )


def test_helpers_named_like_a_builtin_do_not_change_the_rest_of_the_file():
    answer = "def max(x): return x\ndef twice(x, by=2):\n    return max(x) * by\n"
    spliced = with_answer(PLAIN + "\n\nlimit = max(1, 2)\n", "twice", answer)
    assert "def max_fast(x): return x" in spliced
    assert "return max_fast(x) * by" in spliced
    assert "limit = max(1, 2)" in spliced


@pytest.mark.parametrize(
    "body",
    [
        "    return x" + " + 1" * 90 + "\n",
        "    return " + "-" * 90 + "x\n",
        "    return x" + ".abs()" * 45 + "\n",
        "    if x: return 0\n" + "".join(f"    elif x + {i}: return {i}\n" for i in range(90)),
        "".join("    " * i + "if x:\n" for i in range(1, 60)) + "    " * 60 + "return x\n",
    ],
    ids=["sum", "minus", "chain", "elif", "if"],
)
def test_code_as_deep_as_answers_may_be_is_spliced(body):
    answer = f"def twice(x, by=2):\n{body}"
    assert isinstance(tree_of(answer), ast.Module)
    assert with_answer(PLAIN, "twice", answer) == answer


STATEMENTS = st.sampled_from(
    [
        "import torch", "import torch.nn.functional as F", "from math import sqrt, pi as after",
        "import os.path", "from . import norm as RMSNorm", "import triton.language as tl",
        "N = 4", "N += 1", "scale = N", "cache = {}", "cache['a'] = after", "F = after",
        "def scale(x):\n    return helper(x) + N", "def helper(x):\n    return cache or F.relu(x)",
        "@triton.jit\ndef kernel(x, B: tl.constexpr):\n    tl.store(x, B)",
        "class Inner:\n    size = N", "class Norm(Inner):\n    pass",
        "if torch.cuda.is_available():\n    fast = kernel\nelse:\n    fast = helper",
        "try:\n    import triton\nexcept ImportError:\n    triton = None",
        "for N in range(3):\n    pass", "print(after(N))", "x, *rest = helper(1), 2",
        "if __name__ == '__main__':\n    print(scale(2))", "max = min",
        "with open('a') as file: pass",
        "def after(x):\n    return fast(scale(x), file, rest, max, sqrt, os, RMSNorm, Norm)",
        "async def later():\n    return await helper(1)", "lock = lambda x, after=1: after",
    ]
)  # fmt: skip


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.lists(STATEMENTS, max_size=14), st.sampled_from(["fast", "scale", "lock", "x"]))
def test_whatever_an_answer_holds_the_rest_of_the_file_stays(statements, used):
    text = parts(next(file for file in SPLICES if file.stem.startswith("class")))[2]
    entry = f"def after(x):\n    return {used}(x, helper, N, cache, F, after)"
    answer = "\n".join([*statements, entry]) + "\n"
    spliced = with_answer(text, "after", answer, own="pkg")
    if isinstance(spliced, Unusable):
        assert spliced.message
        return
    compile(spliced, "<spliced>", "exec", dont_inherit=True)
    first, _ = span(text, "after")
    lines = iter(spliced.splitlines())
    assert all(line in lines for line in text.splitlines()[:first])
    assert spliced.count("def after(") == 1
    # Names that clash with the file's are written anew.
    assert re.search(r"\ndef after\(x\):\n    return \w+\(x(, \w+){5}\)\n\Z", spliced)
