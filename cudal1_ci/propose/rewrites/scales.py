"""Fold constants that scale one tensor into one constant. Each constant remains as its author wrote
it (`math.pi * 0.5`, `half`), except literals whose product is as short (`2.0 * 4.0`).

    x * math.pi * 0.5  ->  x * (math.pi * 0.5)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import libcst as cst

from cudal1_ci.propose.rewrites.rewrite import Replacement
from cudal1_ci.propose.rewrites.terms import Term, code


@dataclass(frozen=True)
class Scaled:
    """A scaled term: `x * c`, `c * x` or `x / c`."""

    term: Term
    constant: Term
    divides: bool = False
    is_first: bool = False
    """Whether the constant is before the scaled term."""

    @property
    def factor(self) -> float:
        value = float(self.constant.value)
        return 1 / value if self.divides else value

    @property
    def operator(self) -> str:
        return "/" if self.divides else "*"


def number(term: Term | None) -> float | None:
    """Return the value of a numeric constant."""
    if term is None or term.op != "const" or isinstance(term.value, bool):
        return None
    return float(term.value) if isinstance(term.value, int | float) else None


def scaled(term: Term) -> Scaled | None:
    """Return what is scaled, and by what."""
    if term.op not in ("mul", "div") or len(term.args) != 2 or term.named:
        return None
    left, right = term.args
    if (number(left) is None) == (number(right) is None):
        return None
    if term.op == "div":
        return Scaled(left, right, divides=True) if number(right) else None
    return Scaled(left, right) if number(left) is None else Scaled(right, left, is_first=True)


def folded(term: Term) -> Replacement | None:
    """Fold `x * 2.0 * 0.5` and `x * 2.0 / 4.0`: two constants of a product become one."""
    outer = scaled(term)
    inner = None if outer is None else scaled(outer.term)
    if outer is None or inner is None:
        return None
    if inner.factor * outer.factor == 1.0:
        return Replacement("X", {"X": inner.term})
    bindings = {"X": inner.term, "K": inner.constant, "KB": outer.constant}
    if inner.divides and outer.divides:
        joined = in_digits("*", inner, outer) or "(K * KB)"
        return Replacement(f"X / {joined}", bindings)
    if inner.divides:
        joined = in_digits("/", outer, inner) or "KB / K"
    else:
        joined = in_digits(outer.operator, inner, outer) or f"K {outer.operator} KB"
    if inner.is_first or outer.is_first:
        return Replacement(f"{joined} * X", bindings)
    return Replacement(f"X * ({joined})" if "K" in joined else f"X * {joined}", bindings)


def in_digits(operator: str, one: Scaled, other: Scaled) -> str | None:
    """Return two literals as one number, if it has no more digits than they have."""
    left, right = one.constant, other.constant
    if not (is_literal(left.node) and is_literal(right.node)):
        return None
    value = left.value * right.value if operator == "*" else left.value / right.value
    text = repr(value)
    num_digits = sum(len(code(term.node)) for term in (left, right) if term.node is not None)
    return text if math.isfinite(value) and len(text) <= num_digits else None


def is_literal(node: cst.BaseExpression | None) -> bool:
    """Return whether a node is `2`, `0.5` or `-1.0`."""
    if isinstance(node, cst.UnaryOperation):
        return isinstance(node.operator, cst.Minus) and is_literal(node.expression)
    return isinstance(node, cst.Integer | cst.Float)
