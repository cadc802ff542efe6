"""Expressions of several lines as code that may stand anywhere."""

from __future__ import annotations

import ast

import libcst as cst
import pytest

from cudal1_ci.propose.editing.terms import portable

CASES = {
    "a\n.b(\n  1,\n)\n.c": "a.b(\n  1,\n).c",
    "a\n+ b\n* -c": "a + b * -c",
    "a\nif b\nelse c": "a if b else c",
    "a\nand not b\n== c": "a and not b == c",
    "a\n[\n1\n]": "a[\n1\n]",
    "f\n(\n  a\n)": "f(\n  a\n)",
    "f(\n  a\n)\n+ (\n  b\n)": "f(\n  a\n) + (\n  b\n)",
    "[\na\n]\n+ b": "[\na\n] + b",
    "a  # first\n+ b": "(a  # first\n+ b)",
    "a + b": "a + b",
}


@pytest.mark.parametrize("given", CASES)
def test_lines_end_within_brackets_alone(given):
    whole = cst.parse_expression(f"({given})")
    node = whole.with_changes(lpar=(), rpar=())
    found = portable(node)
    assert found == CASES[given]
    assert ast.dump(ast.parse(found)) == ast.dump(ast.parse(f"({given})"))
    assert portable(whole) == f"({given})"
