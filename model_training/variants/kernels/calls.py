"""Calls of torch as the translator of kernels reads them, and what broadcasting makes of values."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from model_training.variants.shapes import Shape

Extent = Literal["full", "kept", "row", "column", "number"]
"""See terms.py."""


class Untranslatable(Exception):
    """The expression has no form in such a kernel."""


@dataclass(frozen=True, kw_only=True)
class Term:
    """An expression of a kernel."""

    node: ast.expr
    extent: Extent


@dataclass(frozen=True)
class Call:
    """A call of torch: `torch.exp(x)`, `x.exp()` and `self.norm(x)` alike by the last name."""

    parts: tuple[str, list[ast.expr], dict[str, ast.expr]]

    @staticmethod
    def of(node: ast.Call) -> Call:
        if not isinstance(node.func, ast.Attribute) or any(k.arg is None for k in node.keywords):
            raise Untranslatable(ast.unparse(node))
        owner = ast.unparse(node.func.value)
        keywords = {str(one.arg): one.value for one in node.keywords}
        if owner == "self":
            return Call((f"self.{node.func.attr}", node.args, keywords))
        own = [] if owner in ("torch", "F") else [node.func.value]
        return Call((node.func.attr, [*own, *node.args], keywords))


def made(template: str, *terms: Term, extent: Extent | None = None) -> Term:
    """A template with `A`, `B` and `C` replaced; as large as the largest of them."""
    letters = {letter: term.node for letter, term in zip("ABC", terms, strict=False)}
    node = Filled(letters).visit(ast.parse(template, mode="eval").body)
    largest: Extent = "number"
    for term in terms:
        largest = joined(largest, term.extent)
    return Term(node=node, extent=extent or largest)


class Filled(ast.NodeTransformer):
    def __init__(self, letters: Mapping[str, ast.expr]):
        self.letters = letters

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.letters.get(node.id, node)


def joined(one: Extent, other: Extent) -> Extent:
    """What broadcasting makes of two."""
    if one == other or other == "number":
        return one
    if one == "number":
        return other
    if "row" in (one, other):  # without its dimension it would be broadcast along columns
        raise Untranslatable(f"{one} with {other}")
    return "full"


def is_last(keywords: Mapping[str, ast.expr], shape: Shape) -> bool:
    """Whether `dim` is the last dimension of a tensor of that shape."""
    dim = constant(keywords["dim"]) if "dim" in keywords else None
    return dim is not None and dim in (-1, len(shape) - 1)


def constant(node: ast.expr) -> float | None:
    """The value of an expression of numbers alone: `math.sqrt(2.0 / math.pi)`."""
    allowed = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.expr_context)
    for one in ast.walk(node):
        is_math = isinstance(one, ast.Name) and one.id == "math"
        if not (isinstance(one, (*allowed, ast.Attribute, ast.Call)) or is_math):
            return None
    try:
        value = eval(ast.unparse(node), {"__builtins__": {}, "math": math})
    except (NameError, AttributeError, TypeError, ArithmeticError, ValueError):
        return None
    return value if isinstance(value, int | float) else None
