"""Match statements that are equal but for some of their expressions, and fill in others.

    pattern = Pattern.of("x = x @ torch.diag(W)")      # capital letters stand for an expression
    bound = pattern.match(statements)                  # {"W": "self.weight"}
    filled("x = x * W", bound)                         # "x = x * self.weight"

`F` is `torch.nn.functional` and stands for itself. The same letters stand for the same expression,
and letters that are called for a submodule.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from model_training.variants.source import Statement

_VARIABLE = re.compile(r"\b(?!F\b)[A-Z][A-Z0-9]*\b")
_IGNORED = {"ctx", "type_comment", "kind"}


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """Hold statements in a row."""

    nodes: tuple[ast.stmt, ...]

    @staticmethod
    def of(text: str) -> Pattern:
        return Pattern(nodes=tuple(ast.parse(text).body))

    def match(self, statements: Sequence[Statement]) -> dict[str, str] | None:
        """Return what the letters stand for, where these statements begin with the pattern."""
        if len(statements) < len(self.nodes):
            return None
        bound: dict[str, str] = {}
        for wanted, one in zip(self.nodes, statements, strict=False):
            if not is_like(wanted, one.node, bound):
                return None
        return bound


def is_like(wanted: object, found: object, bound: dict[str, str]) -> bool:
    """Return whether two syntax trees are the same; `bound` grows with what letters stand for."""
    if isinstance(wanted, ast.Name) and _VARIABLE.fullmatch(wanted.id):
        if not isinstance(found, ast.expr):
            return False
        text = ast.unparse(found)
        return bound.setdefault(wanted.id, text) == text
    if is_layer(wanted) and not (
        isinstance(found, ast.Call) and ast.unparse(found.func).startswith("self.")
    ):
        return False
    if isinstance(wanted, ast.AST):
        return type(wanted) is type(found) and all(
            is_like(value, getattr(found, name), bound)
            for name, value in ast.iter_fields(wanted)
            if name not in _IGNORED
        )
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(wanted) == len(found)
            and all(is_like(a, b, bound) for a, b in zip(wanted, found, strict=True))
        )
    return type(wanted) is type(found) and wanted == found


def is_layer(wanted: object) -> bool:
    """Return whether it calls what letters stand for: a submodule, and no function of torch."""
    return (
        isinstance(wanted, ast.Call)
        and isinstance(wanted.func, ast.Name)
        and _VARIABLE.fullmatch(wanted.func.id) is not None
    )


def filled(template: str, bound: Mapping[str, str]) -> str:
    """Fill in what the letters of a text stand for."""
    return _VARIABLE.sub(lambda found: bound.get(found[0], found[0]), template)
