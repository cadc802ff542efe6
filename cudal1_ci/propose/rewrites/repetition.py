"""Share the result of operations that are computed twice on the same tensors.

The search covers a block of a function that writes into no tensor. It finds the same operation,
with the same spelling, on names without an assignment in between. Only other operations may read
both results: two tensors that are returned or kept would become one.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import libcst as cst

from cudal1_ci.propose.rewrites.rewrite import (
    Rewrite,
    Site,
    SourceEdit,
    Swap,
    is_written_into,
    short,
)
from cudal1_ci.propose.rewrites.steps import descendants
from cudal1_ci.propose.rewrites.terms import Names, code, is_self, names_in, torch_op
from cudal1_ci.propose.rewrites.walk import assigned_name, stored_names

OPERATIONS = {
    "abs", "acos", "amax", "amin", "asin", "atan", "atan2", "baddbmm", "bmm", "cdist", "clamp",
    "cos", "cosh", "cross", "cumprod", "cumsum", "det", "diag", "einsum", "erf", "erfc", "exp",
    "expm1", "floor", "gelu", "inverse", "linear", "log", "log1p", "log2", "log_softmax",
    "logsumexp", "matmul", "mean", "mm", "norm", "normalize", "outer", "pow", "prod",
    "reciprocal", "relu", "round", "rsqrt", "sigmoid", "sign", "silu", "sin", "sinh", "softmax",
    "softplus", "sqrt", "square", "std", "sum", "tan", "tanh", "tril", "triu", "var",
    "vector_norm",
}  # fmt: skip
"""Operations that compute a new tensor, the same one each time. Random operations are excluded."""
VIEWS = {"expand", "flatten", "permute", "reshape", "squeeze", "transpose", "unsqueeze", "view"}
"""Operations whose result may share memory with the operand; their readers decide."""
GATHERING = {"cat", "stack", "tensor", "where", "maximum", "minimum"}
"""Further operations that only read their operands; sharing them gains nothing."""
OPERATORS = (cst.BinaryOperation, cst.UnaryOperation, cst.Comparison)
BETWEEN = (cst.Arg, cst.Attribute, cst.ComparisonTarget, cst.Element, cst.List)
"""Nodes that may be between an operand and the operation that reads it."""
NOT_ALWAYS = (cst.Lambda, cst.BaseComp, cst.IfExp, cst.BooleanOperation)
"""Nodes whose parts are not computed each time, or not once."""
NO_LINES = (cst.Assert, cst.Raise, cst.NamedExpr, cst.Await, cst.Yield)
"""Nodes that exclude a line from the search."""
Lines = Sequence[cst.BaseStatement | cst.BaseSmallStatement]


def computed_once(site: Site) -> SourceEdit | None:
    """Rewrite every block of every method."""
    functions: dict[cst.FunctionDef, cst.FunctionDef] = {}
    found: list[str] = []
    for method in site.methods():
        if is_written_into(method, site):
            continue
        sharing = Sharing(method, site.names)
        for block in blocks(method):
            sharing.read(block)
        if sharing.found:
            functions[method] = sharing.changed()
            found += sharing.found
    return SourceEdit(functions, tuple(found)) if functions else None


def blocks(function: cst.FunctionDef) -> Iterator[cst.IndentedBlock]:
    """Yield the blocks of the function, its loops and branches, without functions inside it."""
    queue: list[cst.CSTNode] = [function.body]
    while queue:
        node = queue.pop(0)
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            continue
        if isinstance(node, cst.IndentedBlock):
            yield node
        queue += node.children


@dataclass(frozen=True)
class Place:
    """An operation in a line of a block."""

    node: cst.Call
    line: int
    is_operand: bool
    """Whether only other operations read it."""


@dataclass
class Sharing:
    """Collect the changes to one method."""

    method: cst.FunctionDef
    names: Names
    found: list[str] = field(default_factory=list)
    chosen: dict[cst.CSTNode, cst.BaseExpression] = field(default_factory=dict)
    added: dict[cst.CSTNode, list[str]] = field(default_factory=dict)
    """Lines to insert before a line."""
    covered: set[cst.CSTNode] = field(default_factory=set)

    def __post_init__(self) -> None:
        nodes = descendants(self.method)
        self.taken = {node.value for node in nodes if isinstance(node, cst.Name)}
        self.taken |= {*self.names.imports, *keyword.kwlist}
        self.kept = {
            attribute
            for node in nodes
            if isinstance(node, cst.AssignTarget)
            for attribute in re.findall(r"self\.\w+", code(node.target))
        }
        """Attributes of self that it assigns."""

    def read(self, block: cst.IndentedBlock) -> None:
        """Find what the simple lines of a block compute twice, the largest expressions first."""
        lines = block.body
        places: dict[str, list[Place]] = {}
        for number, line in enumerate(lines):
            if is_readable(line):
                for place in self.operations(line, number):
                    places.setdefault(text_of(place.node), []).append(place)
        for text in sorted(places, key=len, reverse=True):
            for group in self.equal_groups(places[text], lines):
                self.share(group, lines)

    def operations(self, line: cst.CSTNode, number: int) -> Iterator[Place]:
        """Yield operations of a line that run whenever the line does."""
        queue: list[tuple[cst.CSTNode, tuple[cst.CSTNode, ...]]] = [(line, ())]
        while queue:
            node, above = queue.pop(0)
            if isinstance(node, NOT_ALWAYS):
                continue
            if isinstance(node, cst.Call) and self.is_worth_it(node):
                yield Place(node, number, self.is_operand(node, above))
            queue += [(child, (node, *above)) for child in node.children]

    def is_worth_it(self, node: cst.Call) -> bool:
        """Return whether a node is an operation that calls only operations and views."""
        if self.operation(node) not in OPERATIONS:
            return False
        if any(f"self.{name}" in self.kept for name in re.findall(r"self\.(\w+)", code(node))):
            return False
        inner = [one for one in descendants(node) if isinstance(one, cst.Call)]
        if any(self.operation(one) not in OPERATIONS | VIEWS | {"size"} for one in inner):
            return False
        return not any(isinstance(one, NOT_ALWAYS) for one in descendants(node))

    def operation(self, node: cst.Call) -> str | None:
        """Return `exp` for `torch.exp(x)` and `x.exp()`. None for other functions, and for possible
        layers: `self.norm(x)`, `self.block.norm(x)`.
        """
        dotted = self.names.dotted(node.func)
        if dotted is not None:
            return torch_op(dotted)
        if not isinstance(node.func, cst.Attribute) or is_self(node.func.value):
            return None
        receiver: cst.BaseExpression = node.func.value
        while isinstance(receiver, cst.Attribute | cst.Subscript):
            receiver = receiver.value
        is_held = is_self(receiver)
        if is_held and any(names_in(arg.value) for arg in node.args):
            return None
        return node.func.attr.value

    def is_operand(self, node: cst.CSTNode, above: Sequence[cst.CSTNode]) -> bool:
        """Return whether the surrounding expression, after views and lists, computes a new
        value.
        """
        for parent in above:
            if isinstance(parent, OPERATORS):
                return True
            if isinstance(parent, cst.Call):
                operation = self.operation(parent)
                if operation in OPERATIONS | GATHERING:
                    return True
                if operation not in VIEWS:
                    return False
            elif isinstance(parent, cst.Subscript):
                if parent.value is not node:
                    return False
            elif not isinstance(parent, BETWEEN):
                return False
            node = parent
        return False

    def equal_groups(self, places: Sequence[Place], lines: Lines) -> Iterator[list[Place]]:
        """Yield groups of two or more places that certainly hold the same value."""
        group: list[Place] = []
        for place in places:
            if place.node in self.covered:
                continue
            if group and changes(group[0], place, lines):
                if len(group) > 1:
                    yield group
                group = []
            if place.is_operand or (not group and holder(place, lines) is not None):
                group.append(place)
        if len(group) > 1:
            yield group

    def share(self, group: list[Place], lines: Lines) -> None:
        """Replace all of them by a name: the one that the first is assigned to, or a new one."""
        first, name = group[0], holder(group[0], lines)
        if name is None:
            name = self.named(first.node)
            text = f"{name} = {code(bare(first.node))}"
            self.added.setdefault(lines[first.line], []).append(text)
        else:
            group = group[1:]
        for place in group:
            self.chosen[place.node] = cst.Name(name)
            self.covered |= set(descendants(place.node))
        self.found.append(f"`{short(text_of(first.node))}` once, as `{name}`")

    def named(self, node: cst.Call) -> str:
        """Return a name: `cos_beta` for `torch.cos(beta)`."""
        operation = self.operation(node) or "value"
        words = re.findall(r"[A-Za-z_]\w*", code(node))
        others = {*self.names.imports, *OPERATIONS, *VIEWS, "self"}
        operand = next((word for word in words if word not in others), "value")
        stem = f"{operation}_{operand}"
        name, number = stem, 1
        while name in self.taken:
            number += 1
            name = f"{stem}_{number}"
        self.taken.add(name)
        return name

    def changed(self) -> cst.FunctionDef:
        """Return the method with all changes."""
        changed = self.method.visit(Write(self.chosen, self.added))
        assert isinstance(changed, cst.FunctionDef)
        return changed


def is_readable(line: cst.CSTNode) -> bool:
    """Return whether a line is one statement that evaluates its expressions in the usual way."""
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        return False
    return not any(isinstance(node, NO_LINES) for node in descendants(line))


def changes(first: Place, later: Place, lines: Lines) -> bool:
    """Return whether a name that the expression reads, or the name that holds it, is assigned in
    between.
    """
    between = lines[first.line : later.line]
    if any(names_in(first.node) & stored_names(line) for line in between):
        return True
    name = holder(first, lines)
    return name is not None and any(name in stored_names(line) for line in between[1:])


def holder(place: Place, lines: Lines) -> str | None:
    """Return `y` if the line is `y = ` this expression."""
    line = lines[place.line]
    name = assigned_name(line)
    if name is None or not isinstance(line, cst.SimpleStatementLine):
        return None
    (assign,) = line.body
    return name if isinstance(assign, cst.Assign) and assign.value is place.node else None


def bare(node: cst.BaseExpression) -> cst.BaseExpression:
    """Return a node without its parentheses."""
    return node.with_changes(lpar=(), rpar=())


def text_of(node: cst.BaseExpression) -> str:
    return " ".join(code(bare(node)).split())


class Write(Swap):
    """Replace expressions by names, and insert lines before lines."""

    def __init__(
        self,
        chosen: Mapping[cst.CSTNode, cst.BaseExpression],
        added: Mapping[cst.CSTNode, Sequence[str]],
    ):
        super().__init__(chosen)
        self.added = added

    def on_leave(
        self, original_node: cst.CSTNodeT, updated_node: cst.CSTNodeT
    ) -> cst.CSTNodeT | cst.RemovalSentinel | cst.FlattenSentinel[cst.CSTNodeT]:
        texts = self.added.get(original_node)
        if texts is None:
            return super().on_leave(original_node, updated_node)
        assert isinstance(updated_node, cst.SimpleStatementLine)
        lines = [cst.parse_statement(text) for text in texts]
        lines[0] = lines[0].with_changes(leading_lines=updated_node.leading_lines)
        last = updated_node.with_changes(leading_lines=())
        return cst.FlattenSentinel([*lines, last])  # type: ignore[list-item]


REWRITES = (
    Rewrite(
        name="computed_once",
        family="algebra",
        precondition="the same operation, spelled equally, on the same values in a block of a "
        "function that writes into no tensor; what it gives is only read by other operations",
        why="what was computed is read again, where it was computed again: an operation less for "
        "each time, and a launch on a GPU.",
        apply=computed_once,
    ),
)
