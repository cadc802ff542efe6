"""Read and change pieces of code that become arguments of attention."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import libcst as cst

from cudal1_ci.propose.editing.terms import names_in, portable
from cudal1_ci.propose.recorded.attention_match import VIEWS
from cudal1_ci.propose.recorded.attention_text import bare
from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.source import bracketed


def names_of_code(*codes: str) -> set[str]:
    """Return the names that pieces of code read."""
    return set().union(*(names_in(cst.parse_expression(one)) for one in codes))


def followed(code: str, suffix: str) -> str:
    """Return code with a method call or an index behind it."""
    return f"{bracketed(code)}{suffix}" if suffix else code


def computes(code: str) -> bool:
    """Return whether code does more than name a value or view it."""
    cheap = {*VIEWS, "transpose", "permute", "unsqueeze", "squeeze", "size", "contiguous"}
    for one in ast.walk(ast.parse(code, mode="eval")):
        if isinstance(one, ast.Call):
            is_view = isinstance(one.func, ast.Attribute) and one.func.attr in cheap
            if not is_view:
                return True
        elif isinstance(one, ast.BinOp | ast.UnaryOp):
            return True
    return False


def letters(operation: Operation) -> tuple[list[str], list[str], list[str]] | None:
    """Return the dimensions of an einsum of two tensors; None if it has an ellipsis."""
    equation = operation.literal(0, "equation")
    if not isinstance(equation, str) or "->" not in equation or "." in equation:
        return None
    left, _, out = equation.replace(" ", "").partition("->")
    parts = left.split(",")
    is_plain = len(parts) == 2 and all(len({*one}) == len(one) for one in (*parts, out))
    return ([*parts[0]], [*parts[1]], [*out]) if is_plain else None


def ordered(have: Sequence[str], wanted: Sequence[str]) -> str:
    """Return the method call that brings dimensions into an order."""
    if [*have] == [*wanted]:
        return ""
    moved = [n for n, (a, b) in enumerate(zip(have, wanted, strict=True)) if a != b]
    if len(moved) == 2:
        return f".transpose({moved[0]}, {moved[1]})"
    return f".permute({', '.join(str(have.index(one)) for one in wanted)})"


def inverted(code: str) -> str:
    """Return the code of a mask's opposite."""
    node = cst.parse_expression(code)
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.BitInvert):
        return bare(portable(node.expression))
    opposite = {cst.Equal: cst.NotEqual(), cst.NotEqual: cst.Equal()}
    if isinstance(node, cst.Comparison) and len(node.comparisons) == 1:
        other = opposite.get(type(node.comparisons[0].operator))
        if other is not None:
            target = node.comparisons[0].with_changes(operator=other)
            return portable(node.with_changes(comparisons=[target]))
    return f"~{bracketed(code)}"


def is_default(factor: tuple[str, str], q: str, k: str) -> bool:
    """Return whether a factor is one over the root of the last dimension."""
    kind, code = factor
    sizes = [f"{one}.{size}" for one in (q, k) for size in ("size(-1)", "shape[-1]")]
    roots = [f"math.sqrt({one})" for one in sizes] + [f"{one} ** 0.5" for one in sizes]
    if kind == "div":
        return code in (*roots, *(f"{one}**0.5" for one in sizes))
    powers = [f"{one}{power}-0.5" for one in sizes for power in (" ** ", "**")]
    return code in (*powers, *(f"{one} / {root}" for one in ("1", "1.0") for root in roots))
