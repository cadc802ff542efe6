"""Break lines that a rewrite made too long, inside a call's parentheses.

The arguments of the longest call go on a line of their own or, if they do not fit, on one line
each. Where all calls are short, an assigned value goes on a line of its own. Lines that are still
too long are broken again. The author's lines do not change.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

import libcst as cst

from cudal1_ci.propose.editing.terms import code
from cudal1_ci.propose.editing.walk import calls_in

USUAL, WIDEST = 88, 100
"""Columns that formatters allow, and the most allowed if the author has such lines."""
STEP = " " * 4
LEAST = 12
"""Characters of the longest arguments, below which a break between them gains too little."""
HERE = "arguments_of_the_call"


class Swap(cst.CSTTransformer):
    """Replace old nodes by new ones."""

    def __init__(self, chosen: Mapping[cst.CSTNode, cst.BaseExpression]):
        self.chosen = chosen

    def on_visit(self, node: cst.CSTNode) -> bool:
        return node not in self.chosen

    def on_leave(
        self, original_node: cst.CSTNodeT, updated_node: cst.CSTNodeT
    ) -> cst.CSTNodeT | cst.RemovalSentinel | cst.FlattenSentinel[cst.CSTNodeT]:
        new = self.chosen.get(original_node)
        return updated_node if new is None else new  # type: ignore[return-value]


def within_width(before: str, after: str, definitions: str) -> str:
    """Return the text after a rewrite with its own long lines broken, except in the definitions
    that it brings. The text is unchanged where a break would change its meaning.
    """
    there = set(before.splitlines(keepends=True))
    limit = min(WIDEST, max(USUAL, max((len(line.rstrip()) for line in there), default=0)))
    there |= set(definitions.splitlines(keepends=True))
    lines: list[str] = []
    for line in after.splitlines(keepends=True):
        is_long = len(line.rstrip()) > limit and line not in there
        lines += broken_line(line, limit) if is_long else [line]
    text = "".join(lines)
    return text if text != after and is_same(text, after) else after


def broken_line(line: str, limit: int) -> list[str]:
    """Return a line as several with the same line end; the last line of a file may have none."""
    said = line.rstrip("\r\n")
    end = line[len(said) :]
    *rows, last = broken(said, limit)
    return [*(one + (end or "\n") for one in rows), last + end]


def broken(line: str, limit: int) -> list[str]:
    """Return the lines of a statement or argument that is on one line."""
    said = line.strip()
    indent = line[: len(line) - len(line.lstrip())]
    try:
        statement = cst.parse_statement(said)
    except cst.ParserSyntaxError:
        return [line]
    calls = [call for call in calls_in(statement) if call.args]
    if len(line) - len(remark_of(statement)) <= limit:
        return [line]
    longest = max((length_of(one) for one in calls), default=0)
    if longest < LEAST and (rows := assigned_in_brackets(statement, indent, limit)):
        return rows
    if not calls:
        return [line]
    call = max(calls, key=length_of)
    whole = cst.Module(body=[]).code_for_node(
        statement.visit(  # type: ignore[arg-type]
            Swap({call: call.with_changes(args=[cst.Arg(cst.Name(HERE))])})
        )
    )
    head, _, tail = whole.strip().partition(HERE)
    arguments = [
        code(arg.with_changes(comma=cst.MaybeSentinel.DEFAULT, whitespace_after_arg=NOTHING))
        for arg in call.args
    ]
    together = f"{indent}{STEP}{', '.join(arguments)}"
    if len(together) <= limit:
        return [indent + head, together, indent + tail]
    middle: list[str] = []
    for argument in arguments:
        *rows, end = broken(f"{indent}{STEP}{argument}", limit)
        middle += [*rows, f"{end},"]
    return [indent + head, *middle, indent + tail]


def length_of(call: cst.Call) -> int:
    """Return how long a call's arguments are."""
    return sum(len(code(arg)) for arg in call.args)


def assigned_in_brackets(statement: cst.CSTNode, indent: str, limit: int) -> list[str]:
    """Return an assignment with its value on a line of its own; [] where that does not fit."""
    line = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    if not isinstance(line, cst.Assign) or len(line.targets) != 1 or remark_of(statement):
        return []
    rows = [
        f"{indent}{code(line.targets[0].target)} = (",
        f"{indent}{STEP}{code(line.value)}",
        f"{indent})",
    ]
    return rows if all(len(one) <= limit for one in rows) else []


def remark_of(statement: cst.CSTNode) -> str:
    """Return the comment behind a statement, with the space between; it may exceed the limit."""
    if not isinstance(statement, cst.SimpleStatementLine):
        return ""
    behind = statement.trailing_whitespace
    return behind.whitespace.value + behind.comment.value if behind.comment else ""


NOTHING = cst.SimpleWhitespace("")


def is_same(one: str, other: str) -> bool:
    """Return whether two texts are the same program."""
    try:
        return ast.dump(ast.parse(one)) == ast.dump(ast.parse(other))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
