"""Know what the names of a file mean, and which names an expression reads."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, fields

import libcst as cst

from cudal1_ci.propose.editing.nodes import children_of, in_order


@dataclass(frozen=True, eq=False)
class Names:
    """What the names of a file mean: imports, and the modules that `__init__` puts on self."""

    imports: Mapping[str, str]
    """Local name -> dotted name: `F` -> `torch.nn.functional`."""
    attributes: Mapping[str, cst.Call]
    """Attribute of self -> the constructor call assigned to it, if assigned once."""
    pure: Set[str] = frozenset()
    """Code of other calls that are known to do nothing but return a value."""

    def dotted(self, node: cst.BaseExpression) -> str | None:
        """Return `torch.nn.functional.relu` for `F.relu`; None if the name does not start at an
        import.
        """
        parts: list[str] = []
        while isinstance(node, cst.Attribute):
            parts.append(node.attr.value)
            node = node.value
        if not isinstance(node, cst.Name) or node.value not in self.imports:
            return None
        return ".".join([self.imports[node.value], *reversed(parts)])


def code(node: cst.CSTNode) -> str:
    """Return a node's source text."""
    return cst.Module(body=[]).code_for_node(node)


def portable(node: cst.CSTNode) -> str:
    """Return a node's source text as it may stand anywhere: an expression that takes several lines
    within another one's brackets is put on one line. With a comment it gets brackets."""
    text = code(node)
    if "\n" not in text or not isinstance(node, cst.BaseExpression) or node.lpar:
        return text
    joined = Joined(node)
    new = node.visit(joined)
    return f"({text})" if joined.has_comment or not isinstance(new, cst.CSTNode) else code(new)


class Joined(cst.CSTTransformer):
    """Take the ends of lines out of an expression, but for those within its own brackets."""

    def __init__(self, root: cst.BaseExpression):
        super().__init__()
        self.root = root
        self.has_comment = False

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, BRACKETED):
            return False
        return node is self.root or not (isinstance(node, cst.BaseExpression) and node.lpar)

    def on_leave(  # type: ignore[override]
        self,
        original_node: cst.CSTNode,  # noqa: ARG002 (libcst calls it by position)
        updated_node: cst.CSTNode,
    ) -> cst.CSTNode:
        if not isinstance(updated_node, SPACED):
            return updated_node
        gap = "" if isinstance(updated_node, TIGHT) else " "
        new = {}
        for field in fields(updated_node):
            value = getattr(updated_node, field.name)
            if field.name == IN_BRACKETS or not field.name.startswith("whitespace"):
                continue
            if isinstance(value, cst.ParenthesizedWhitespace):
                self.has_comment |= "#" in code(value)
                new[field.name] = cst.SimpleWhitespace(gap)
        return updated_node.with_changes(**new) if new else updated_node


BRACKETED = (
    cst.Arg,
    cst.SubscriptElement,
    cst.BaseList,
    cst.BaseDict,
    cst.BaseSet,
    cst.GeneratorExp,
)
TIGHT = (cst.Dot, cst.Subscript, cst.Call)
SPACED = (
    *TIGHT,
    *(cst.IfExp, cst.BaseBinaryOp, cst.BaseBooleanOp, cst.BaseCompOp, cst.BaseUnaryOp),
)
IN_BRACKETS = "whitespace_before_args"


def is_self(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Name) and node.value == "self"


def names_anywhere(node: cst.CSTNode) -> set[str]:
    """Return all names below a node, those of attributes and keywords too."""
    return {one.value for one in in_order(node) if isinstance(one, cst.Name)}


def names_in(node: cst.CSTNode) -> set[str]:
    """Return names read anywhere below a node (attributes and keywords are not names)."""
    found: set[str] = set()
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, cst.Name):
            found.add(one.value)
        elif isinstance(one, cst.Attribute | cst.Arg):
            waiting.append(one.value)
        else:
            waiting += children_of(one)
    return found
