"""Where a target's definition stands in its file."""

from __future__ import annotations

import libcst as cst
import pytest

from cudal1_ci.propose.target_file import find

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
