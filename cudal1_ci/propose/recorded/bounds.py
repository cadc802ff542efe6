"""Write the bounds of a loop over a range as slices."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst


@dataclass(frozen=True)
class Bounds:
    """What an index counts."""

    index: str
    low: int
    high: str
    """Code of the first number that it does not reach."""
    sizes: frozenset[tuple[str, str, int]] = frozenset()
    """Code that is the size of a tensor's dimension: ("steps", "x", 1)."""

    @property
    def count(self) -> str:
        """Return code of the number of turns."""
        return plus(self.high, -self.low)

    @property
    def last(self) -> str:
        """Return code of the last number."""
        return plus(self.high, -1)

    def offset(self, node: cst.BaseExpression) -> int | None:
        """Return what an expression adds to the index; None if it is another thing."""
        if isinstance(node, cst.Name):
            return 0 if node.value == self.index else None
        if not isinstance(node, cst.BinaryOperation) or not isinstance(node.right, cst.Integer):
            return None
        if not isinstance(node.left, cst.Name) or node.left.value != self.index:
            return None
        number = node.right.evaluated_value
        if isinstance(node.operator, cst.Subtract):
            number = -number
        elif not isinstance(node.operator, cst.Add):
            return None
        return number if self.low + number >= 0 else None

    def span(self, offset: int, where: tuple[str, int] | None) -> str:
        """Return the slice that takes the positions of all turns of a tensor's dimension."""
        low, high = self.low + offset, plus(self.high, offset)
        name, less = split(high)
        if where is not None and (name, *where) in self.sizes and less <= 0:
            high = str(less) if less else ""
        start = str(low) if low else ""
        spaced = (
            " "
            if high and not high.lstrip("-").isidentifier() and not high.lstrip("-").isdigit()
            else ""
        )
        return f"{start}{' ' if start and spaced else ''}:{spaced}{high}"

    def limits(self, offset: int) -> str:
        """Return what `arange` takes."""
        low, high = self.low + offset, plus(self.high, offset)
        return f"{low}, {high}" if low else high


def split(code: str) -> tuple[str, int]:
    """Return code without a number that it adds, and the number."""
    node = cst.parse_expression(code)
    if isinstance(node, cst.BinaryOperation) and isinstance(node.right, cst.Integer):
        number = node.right.evaluated_value
        rest = cst.Module([]).code_for_node(node.left)
        if isinstance(node.operator, cst.Add):
            return rest, number
        if isinstance(node.operator, cst.Subtract):
            return rest, -number
    return code, 0


def plus(code: str, number: int) -> str:
    """Return code of a sum."""
    rest, known = split(code)
    if rest.isdigit():
        return str(int(rest) + known + number)
    total = known + number
    if total == 0:
        return rest
    return f"{rest} {'+' if total > 0 else '-'} {abs(total)}"
