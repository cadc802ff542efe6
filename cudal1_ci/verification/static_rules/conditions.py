"""Conditions along a path: the same words, asked twice, get the same answer.

`if self.stream is not None:` around the work and again around the wait is one decision. Nothing is
known of words that differ, nor of what a call in between changed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from cudal1_ci.verification.static_rules.python_text import PythonText

DEEPEST = 20


def words(text: PythonText, node: ast.expr) -> str:
    """An expression as it is written, spaces aside."""
    first, end = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    lines = [line.encode() for line in text.lines[first : end + 1]]
    if not lines:
        return ""
    lines[-1] = lines[-1][: node.end_col_offset]
    lines[0] = lines[0][node.col_offset :]
    return " ".join(b" ".join(lines).decode("utf-8", "replace").split())


def atom(text: PythonText, test: ast.expr) -> tuple[str, bool]:
    """The question that a test asks, and the answer that makes it true."""
    match test:
        case ast.Compare(left=left, ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
            return f"{words(text, left)} is None", False
        case ast.Compare(left=left, ops=[ast.Is()], comparators=[ast.Constant(value=None)]):
            return f"{words(text, left)} is None", True
    return words(text, test), True


def assumptions(
    text: PythonText, test: ast.expr, answer: bool, depth: int = 0
) -> Iterator[tuple[str, bool]]:
    """What follows for single questions from the answer to a test."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=inner) if depth < DEEPEST:
            yield from assumptions(text, inner, not answer, depth + 1)
        case ast.BoolOp(op=op, values=values) if depth < DEEPEST:
            if isinstance(op, ast.And) == answer:  # all of an `and`, none of an `or`
                for value in values:
                    yield from assumptions(text, value, answer, depth + 1)
        case _:
            question, truth = atom(text, test)
            yield question, truth == answer


def decided(
    text: PythonText, test: ast.expr, known: Mapping[str, bool], depth: int = 0
) -> bool | None:
    """The answer to a test under what is known; None when it is open."""
    if not known:
        return None
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=inner) if depth < DEEPEST:
            found = decided(text, inner, known, depth + 1)
            return None if found is None else not found
        case ast.BoolOp(op=op, values=values) if depth < DEEPEST:
            found_all = [decided(text, value, known, depth + 1) for value in values]
            stops = not isinstance(op, ast.And)  # one answer that settles the whole
            if stops in found_all:
                return stops
            return None if None in found_all else not stops
    question, truth = atom(text, test)
    return None if question not in known else known[question] == truth
