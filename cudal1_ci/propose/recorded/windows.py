"""Write windows that slide over a tensor as one view, for all turns of a loop."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from cudal1_ci.propose.editing.terms import names_in
from cudal1_ci.propose.recorded.lifted import within
from cudal1_ci.propose.recorded.source import bracketed


@dataclass(frozen=True)
class Moving:
    """A number that grows with the index of a turn."""

    step: str
    """Code of what it grows by."""
    terms: tuple[str, ...] = ()
    """Code of what is added."""


def moving(
    node: cst.BaseExpression, index: str, known: dict[str, Moving], changing: set[str]
) -> Moving | None:
    """Return how a number of the host depends on the index of a turn; None if not so, or if it
    is not written with sums and one product.

    Args:
        node: The number.
        index: The name that counts from 0.
        known: Locals of a turn that are such numbers.
        changing: Names that turns bind.
    """
    if isinstance(node, cst.Name):
        return Moving("1") if node.value == index else known.get(node.value)
    if not isinstance(node, cst.BinaryOperation):
        return None
    left, right = node.left, node.right
    if isinstance(node.operator, cst.Multiply):
        for one, other in ((left, right), (right, left)):
            if isinstance(one, cst.Name) and one.value == index and is_fixed(other, changing):
                return Moving(code_of(other))
        return None
    if not isinstance(node.operator, cst.Add):
        return None
    for one, other in ((left, right), (right, left)):
        found = moving(one, index, known, changing)
        if found is not None and is_fixed(other, changing):
            return Moving(found.step, (*found.terms, code_of(other)))
    return None


def width(lower: Moving | None, upper: Moving | None) -> str | None:
    """Return code of how many positions a window has; None if windows do not begin at the first
    position, or are not of one size."""
    if lower is None or upper is None or lower.terms or lower.step != upper.step:
        return None
    return " + ".join(upper.terms) or None


def is_fixed(node: cst.BaseExpression, changing: set[str]) -> bool:
    """Return whether a number is the same in all turns, and costs nothing to compute."""
    if names_in(node) & changing:
        return False
    allowed = cst.Name | cst.Attribute | cst.Integer | cst.BinaryOperation | cst.BaseBinaryOp
    ignored = cst.BaseParenthesizableWhitespace | cst.LeftParen | cst.RightParen | cst.Dot
    return all(isinstance(one, allowed | ignored) for one in within(node))


def code_of(node: cst.BaseExpression) -> str:
    return cst.Module([]).code_for_node(node)


def unfolded(base: str, dim: int, size: str, step: str, count: str, rank: int) -> str:
    """Return a view with windows after their number.

    Args:
        base: Code of the tensor.
        dim: The dimension that windows slide over, where their number will be.
        size: Code of a window's positions.
        step: Code of how far a window is from the next one.
        count: Code of the number of windows.
        rank: Dimensions of the tensor.
    """
    code = f"{bracketed(base)}.unfold({dim}, {size}, {step}).narrow({dim}, 0, {count})"
    return code if dim == rank - 1 else f"{code}.movedim(-1, {dim + 1})"
