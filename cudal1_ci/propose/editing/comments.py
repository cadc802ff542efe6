"""Remove lines, and keep the comments that were between them.

A comment on its own line may describe more than the next line, so it goes above the statement that
replaces the removed lines. A comment behind code describes that code, and is removed with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import takewhile

import libcst as cst

from cudal1_ci.propose.editing.nodes import in_order

BLOCKS = (
    cst.BaseSuite, cst.BaseStatement, cst.Else, cst.Finally, cst.ExceptHandler,
    cst.ExceptStarHandler, cst.MatchCase,
)  # fmt: skip
"""Parts below a statement that are not on its own line."""

Above = Mapping[cst.CSTNode, Sequence[cst.EmptyLine]]
"""New lines above a statement."""


def without_lines(
    function: cst.FunctionDef, gone: Set[cst.CSTNode], anchors: Set[cst.CSTNode]
) -> cst.FunctionDef:
    """Return a function without some of its lines. Their comments go above the next statement with
    an anchor, a new expression. A removed line that has an anchor itself loses its comments: the
    operation did nothing (`x = x`).
    """
    above: dict[cst.CSTNode, list[cst.EmptyLine]] = {}
    pending: list[cst.EmptyLine] = []
    for line, block in statements_of(function.body):
        has_anchor = not anchors.isdisjoint(own_nodes(line))
        if line in gone:
            pending += [] if has_anchor else comments_in(line)
        elif has_anchor:
            there = leading(line)
            first = first_of_row(line, block, gone)
            above[line] = [*blank(leading(first)), *pending, *there[len(blank(there)) :]]
            pending = []
    return changed(function, Lines(gone, above))


def comments_in(node: cst.CSTNode) -> list[cst.EmptyLine]:
    """Return comments on lines of their own, in text order, in the form for above a statement."""
    return [
        cst.EmptyLine(comment=one.comment, newline=one.newline)
        for one in in_order(node)
        if isinstance(one, cst.EmptyLine) and one.comment is not None
    ]


def first_of_row(
    line: cst.CSTNode, block: Sequence[cst.CSTNode], gone: Set[cst.CSTNode]
) -> cst.CSTNode:
    """Return the first of the removed lines that directly precede this one."""
    before = list(block[: block.index(line)])
    return [line, *takewhile(lambda one: one in gone, reversed(before))][-1]


def leading(line: cst.CSTNode) -> Sequence[cst.EmptyLine]:
    """Return the lines above a statement."""
    lines: Sequence[cst.EmptyLine] = getattr(line, "leading_lines", ())
    return lines


def blank(lines: Sequence[cst.EmptyLine]) -> list[cst.EmptyLine]:
    """Return the leading empty lines."""
    return list(takewhile(lambda one: one.comment is None, lines))


def statements_of(suite: cst.CSTNode) -> Iterator[tuple[cst.CSTNode, Sequence[cst.CSTNode]]]:
    """Yield the statements of a block and its inner blocks in text order, each with its block's
    statements.
    """
    block = [one for one in suite.children if isinstance(one, cst.BaseStatement)]
    for child in suite.children:
        if isinstance(child, cst.BaseStatement):
            yield child, block
        if not isinstance(child, cst.BaseExpression | cst.FunctionDef | cst.ClassDef):
            yield from statements_of(child)


def own_nodes(line: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield a statement's nodes, except those of inner blocks."""
    for child in line.children:
        if not isinstance(child, BLOCKS):
            yield from in_order(child)


class Lines(cst.CSTTransformer):
    """Remove statements, and change what is above others. Remaining expressions and lines are the
    same nodes afterwards.
    """

    def __init__(self, gone: Set[cst.CSTNode], above: Above):
        self.gone = gone
        self.above = above

    def on_visit(self, node: cst.CSTNode) -> bool:
        return not isinstance(node, cst.BaseExpression | cst.SimpleStatementLine)

    def on_leave(
        self, original_node: cst.CSTNodeT, updated_node: cst.CSTNodeT
    ) -> cst.CSTNodeT | cst.RemovalSentinel | cst.FlattenSentinel[cst.CSTNodeT]:
        if original_node in self.gone:
            return cst.RemoveFromParent()
        if original_node in self.above:
            return updated_node.with_changes(leading_lines=self.above[original_node])
        return updated_node


def changed(function: cst.FunctionDef, lines: Lines) -> cst.FunctionDef:
    new = function.visit(lines)
    assert isinstance(new, cst.FunctionDef)
    return new
