"""Where a target's definition stands in its file."""

from __future__ import annotations

import libcst as cst
import pytest

from cudal1_ci.propose.target_file import find, with_file
from cudal1_ci.records import TreeProgram

SOURCE = """\
try:
    import triton
except ImportError:
    triton = None

if triton is not None:

    def kernel(x): ...

    class Held:
        if True:
            def method(self): ...
elif maybe:
    pass
else:
    def fallback(x): ...

def twice(x): return 1

class Outer:
    class Inner:
        def call(self): ...

def twice(x): return 2

def outside():
    def local(): ...
"""


@pytest.mark.parametrize(
    ("qualname", "starts"),
    [
        ("kernel", "def kernel"),
        ("fallback", "def fallback"),
        ("Held.method", "def method"),
        ("Outer.Inner", "class Inner"),
        ("Outer.Inner.call", "def call"),
        ("twice", "def twice(x): return 2"),
    ],
)
def test_definitions_are_found_behind_conditions_and_the_last_one_counts(qualname, starts):
    module = cst.parse_module(SOURCE)
    found = find(module, qualname)
    assert found is not None
    assert module.code_for_node(found).strip().startswith(starts)


@pytest.mark.parametrize("qualname", ["local", "outside.local", "Inner", "Outer.twice", "gone"])
def test_what_is_local_or_elsewhere_is_not_found(qualname):
    assert find(cst.parse_module(SOURCE), qualname) is None


def test_a_file_that_is_replaced_again_still_names_the_text_of_the_checkout():
    """Or no patch could be made of a rewrite of a rewrite."""
    program = TreeProgram(root="/", import_root=".", import_path="m:f", digest="0")
    once = with_file(program, "m.py", "first", "second")
    twice = with_file(once, "m.py", "second", "third")
    assert [one.text for one in twice.overlay] == ["third"]
    assert twice.overlay[0].base_digest == once.overlay[0].base_digest is not None
