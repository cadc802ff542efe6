"""Write the bounds of a loop over a range as slices."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from cudal1_ci.propose.editing.nodes import in_order


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

    def is_to_end(self, offset: int, where: tuple[str, int] | None) -> bool:
        """Return whether the positions of all turns end with a tensor's dimension, or before it."""
        name, less = split(plus(self.high, offset))
        return where is not None and (name, *where) in self.sizes and less <= 0

    def span(self, offset: int, where: tuple[str, int] | None) -> str:
        """Return the slice that takes the positions of all turns of a tensor's dimension."""
        low, high = self.low + offset, plus(self.high, offset)
        less = split(high)[1]
        if self.is_to_end(offset, where):
            high = str(less) if less else ""
        elif less < 0:
            high = f"max({high}, 0)"
        start = str(low) if low else ""
        spaced = (
            " "
            if high and not high.lstrip("-").isidentifier() and not high.lstrip("-").isdigit()
            else ""
        )
        return f"{start}{' ' if start and spaced else ''}:{spaced}{high}"

    def has_turn(self) -> str:
        """Return the test that there is a turn."""
        name, number = split(self.count)
        return f"{name} > {-number}"

    def may_be_negative(self) -> bool:
        """Return whether the number of turns is one that a difference gives."""
        return split(self.count)[1] < 0 or self.is_difference()

    def is_difference(self) -> bool:
        """Return whether the bound is no size less a number, but another difference."""
        node = cst.parse_expression(split(self.high)[0])
        return isinstance(node, cst.BinaryOperation) and any(
            isinstance(one, cst.Subtract) for one in in_order(node)
        )

    def arange(self, offset: int, device: str) -> str:
        """Return code of the numbers of all turns, which may be none."""
        low, high = self.low + offset, plus(self.high, offset)
        name, less = split(high)
        if name.isdigit() or (not low and less >= 0):
            return f"torch.arange({f'{low}, {high}' if low else high}, device={device})"
        part = f"{low or ''}:{min(less, 0) or ''}"
        return f"torch.arange({plus(name, max(less, 0))}, device={device})[{part}]"


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
