"""Arguments of a call are laid out as the others are."""

from __future__ import annotations

import libcst as cst
import pytest

from cudal1_ci.propose.editing.layout import with_argument
from cudal1_ci.propose.editing.terms import code


@pytest.mark.parametrize(
    ("call", "longer"),
    [
        ("f()", "f(b=c)"),
        ("f(a)", "f(a, b=c)"),
        ("f(a, )", "f(a, b=c, )"),
        ("f(a,x)", "f(a,x,b=c)"),
        ("f(\n    a\n)", "f(\n    a,\n    b=c\n)"),
        ("f(a,  # one\n  x)  ", "f(a,  # one\n  x,\n  b=c)"),
        ("f(a, x,  # both\n)", "f(a, x, b=c,  # both\n)"),
    ],
)
def test_an_argument_comes_after_the_others(call, longer):
    node = cst.ensure_type(cst.parse_expression(call.strip()), cst.Call)
    assert code(with_argument(node, "b", cst.Name("c"))) == longer
