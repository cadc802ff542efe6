"""Detect variants with the same code, and count the operators of a variant.

Two texts are near-duplicates if they differ only in names of variables, comments, docstrings and
layout. This module knows syntax, but not what code does.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from collections.abc import Mapping

from cudal1_ci.records import content_hash

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


@functools.lru_cache(maxsize=1024)
def fingerprint(text: str) -> str:
    """Return a value that is equal for texts of the same form. Text that is not Python is compared
    without comments and white space.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return content_hash(re.sub(r"\s+", "", _COMMENT.sub("", text)))
    bound = names_bound_in(tree)
    return content_hash(ast.dump(Anonymous(bound).visit(tree)))


def names_bound_in(tree: ast.AST) -> set[str]:
    """Return names that the text binds itself; imported names are excluded."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
    return found


class Anonymous(ast.NodeTransformer):
    """Rename names by their order of appearance and remove docstrings."""

    def __init__(self, bound: set[str]):
        self.bound = bound
        self.numbers: dict[str, str] = {}

    def named(self, name: str) -> str:
        if name not in self.bound:
            return name
        return self.numbers.setdefault(name, f"v{len(self.numbers)}")

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.Name):
            node.id = self.named(node.id)
        elif isinstance(node, ast.arg):
            node.arg = self.named(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            node.name = self.named(node.name)
            node.body = without_docstring(node.body)
        elif isinstance(node, ast.Module):
            node.body = without_docstring(node.body)
        self.generic_visit(node)
        return node


def without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0] if body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        return body[1:] or [ast.Pass()]
    return body


def operators(text: str) -> dict[str, int]:
    """Count calls by the last name of the function, and arithmetic operators: `{"Linear": 2,
    "softmax": 1, "MatMult": 2}`. Text that is not Python gives an empty count.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    counts: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            if isinstance(function, ast.Attribute):
                counts[function.attr] += 1
            elif isinstance(function, ast.Name):
                counts[function.id] += 1
        elif isinstance(node, ast.BinOp):
            counts[type(node.op).__name__] += 1
    for name in ("__init__", "super"):
        counts.pop(name, None)
    return dict(counts)


def likeness(one: Mapping[str, int], other: Mapping[str, int]) -> float:
    """Return the weighted Jaccard index of two operator counts, 0 to 1."""
    names = one.keys() | other.keys()
    union = sum(max(one.get(name, 0), other.get(name, 0)) for name in names)
    shared = sum(min(one.get(name, 0), other.get(name, 0)) for name in names)
    return shared / union if union else 0.0
