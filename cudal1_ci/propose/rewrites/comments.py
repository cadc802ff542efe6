"""Lines that a rewrite takes out, and the comments that stood between them.

A comment on a line of its own may speak of more than the next line: it goes above the statement
that took the place of what was taken out. One behind code speaks of that code, and goes with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import takewhile

import libcst as cst

BLOCKS = (
    cst.BaseSuite, cst.BaseStatement, cst.Else, cst.Finally, cst.ExceptHandler,
    cst.ExceptStarHandler, cst.MatchCase,
)  # fmt: skip
"""What is below a statement and no part of its own line."""

Above = Mapping[cst.CSTNode, Sequence[cst.EmptyLine]]
"""What is to stand above a statement."""


def without_lines(
    function: cst.FunctionDef, gone: Set[cst.CSTNode], anchors: Set[cst.CSTNode]
) -> cst.FunctionDef:
    """A function without some of its lines. Their comments go above the next statement that has an
    anchor in it, an expression that is new; those of a line that has one itself go with it: what it
    says of an operation that did nothing (`x = x`) is said of nothing now."""
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


def with_comments(function: cst.FunctionDef, comments: Above) -> cst.FunctionDef:
    """A function with comments above the statements that have these expressions in them."""
    above: dict[cst.CSTNode, list[cst.EmptyLine]] = {}
    for line, _ in statements_of(function.body):
        more = [one for node in own_nodes(line) for one in comments.get(node, ())]
        if more:
            above[line] = [*leading(line), *more]
    return changed(function, Lines(frozenset(), above)) if above else function


def lost_comments(old: cst.CSTNode, new: cst.CSTNode) -> list[cst.EmptyLine]:
    """Comments on lines of their own in an expression, but for those in what takes its place."""
    kept = {one.comment.value for one in comments_in(new) if one.comment}
    return [one for one in comments_in(old) if one.comment and one.comment.value not in kept]


def comments_in(node: cst.CSTNode) -> list[cst.EmptyLine]:
    """Comments on lines of their own, in the order of the text, as they stand above a statement."""
    return [
        cst.EmptyLine(comment=one.comment, newline=one.newline)
        for one in in_order(node)
        if isinstance(one, cst.EmptyLine) and one.comment is not None
    ]


def first_of_row(
    line: cst.CSTNode, block: Sequence[cst.CSTNode], gone: Set[cst.CSTNode]
) -> cst.CSTNode:
    """The first of the lines that go without another between them and this one."""
    before = list(block[: block.index(line)])
    return [line, *takewhile(lambda one: one in gone, reversed(before))][-1]


def leading(line: cst.CSTNode) -> Sequence[cst.EmptyLine]:
    """What stands above a statement."""
    lines: Sequence[cst.EmptyLine] = getattr(line, "leading_lines", ())
    return lines


def blank(lines: Sequence[cst.EmptyLine]) -> list[cst.EmptyLine]:
    """The empty lines that come first."""
    return list(takewhile(lambda one: one.comment is None, lines))


def statements_of(suite: cst.CSTNode) -> Iterator[tuple[cst.CSTNode, Sequence[cst.CSTNode]]]:
    """Statements of a block and of those below it, in the order of the text, each with the
    statements of its own block."""
    block = [one for one in suite.children if isinstance(one, cst.BaseStatement)]
    for child in suite.children:
        if isinstance(child, cst.BaseStatement):
            yield child, block
        if not isinstance(child, cst.BaseExpression | cst.FunctionDef | cst.ClassDef):
            yield from statements_of(child)


def own_nodes(line: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """A statement's nodes, but for those of blocks below it."""
    for child in line.children:
        if not isinstance(child, BLOCKS):
            yield from in_order(child)


def in_order(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """A node and all below it, in the order of the text."""
    yield node
    for child in node.children:
        yield from in_order(child)


class Lines(cst.CSTTransformer):
    """Takes statements out, and changes what stands above others. Expressions and lines that stay
    are the same nodes after it."""

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
