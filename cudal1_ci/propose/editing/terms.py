"""Know what the names of a file mean, and which names an expression reads."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

import libcst as cst


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


def is_self(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Name) and node.value == "self"


def names_in(node: cst.CSTNode) -> set[str]:
    """Return names read anywhere below a node (attributes and keywords are not names)."""
    found: set[str] = set()

    class Collect(cst.CSTVisitor):
        def visit_Name(self, node: cst.Name) -> None:  # noqa: N802
            found.add(node.value)

        def visit_Attribute(self, node: cst.Attribute) -> bool:  # noqa: N802
            node.value.visit(self)
            return False

        def visit_Arg(self, node: cst.Arg) -> bool:  # noqa: N802
            node.value.visit(self)
            return False

    node.visit(Collect())
    return found
