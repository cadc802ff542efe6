"""Read functions of a recorded call: which operations each expression ran, and what it may be.

An operation belongs to the expression that called it, and to the call of the helper or submodule in
which it ran, in all functions up to the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import libcst as cst

from cudal1_ci.propose.editing.nodes import in_order
from cudal1_ci.propose.editing.terms import code
from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.purity import definition_of, is_pure_frame
from cudal1_ci.propose.recorded.rule import Call
from cudal1_ci.propose.recorded.source import IMPURE, File
from cudal1_ci.propose.wrappers.fusible import Fusible

QUERY_CALLS = frozenset(
    (
        *("len", "int", "float", "bool", "max", "min", "abs", "isinstance", "tuple", "list"),
        *("torch.finfo", "torch.iinfo", "torch.device", "torch.Size", "round", "slice"),
    )
)
QUERY_METHODS = frozenset(
    ("size", "dim", "numel", "ndimension", "stride", "is_floating_point", "element_size")
)
"""Calls that only look at sizes and numbers."""
UNREADABLE = (
    cst.Lambda,
    cst.BaseComp,
    cst.Await,
    cst.Yield,
    cst.NamedExpr,
    cst.FormattedString,
    cst.StarredElement,
)


@dataclass(frozen=True)
class Ran:
    """An operation of an expression."""

    operation: Operation
    node: cst.CSTNode | None
    frame: int
    """The activation of the function."""
    child: int | None
    """The activation of the helper or submodule in which it ran; None if in none."""


@dataclass
class Body:
    """One function, and the operations of all its recorded calls."""

    file: File
    name: str
    """The file's path below the checkout."""
    function: cst.FunctionDef
    ran: dict[cst.CSTNode, list[Ran]] = field(default_factory=dict)
    all: list[Ran] = field(default_factory=list)
    lost: set[int] = field(default_factory=set)
    """Lines with operations whose expression is not known."""
    is_recursive: bool = False

    @property
    def owner(self) -> cst.ClassDef | None:
        """Return the class of a method."""
        above = self.file.above(self.function)
        return next((one for one in above if isinstance(one, cst.ClassDef)), None)

    @property
    def receiver(self) -> str | None:
        """Return what a method calls its object."""
        parameters = self.function.params.params
        if self.owner is None or not parameters or self.has_decorator("staticmethod"):
            return None
        return parameters[0].name.value

    def has_decorator(self, *words: str) -> bool:
        decorators = [code(one.decorator) for one in self.function.decorators]
        return any(word in one for word in words for one in decorators)

    @property
    def is_readable(self) -> bool:
        """Return whether lines of the function may be moved to another one."""
        if self.is_recursive or self.function.asynchronous is not None:
            return False
        if self.has_decorator("compile", "jit", "classmethod", "property", "contextmanager"):
            return False
        if any(isinstance(a, cst.FunctionDef) for a in self.file.above(self.function)):
            return False
        refused = cst.Yield | cst.Await | cst.Global | cst.Nonlocal
        return not any(isinstance(one, refused) for one in in_order(self.function.body))

    def has_lost(self, node: cst.CSTNode) -> bool:
        """Return whether an operation of a statement is at no known expression."""
        where = self.file.ranges[node]
        return any(where.start.line <= line <= where.end.line for line in self.lost)


def bodies_of(call: Call) -> list[Body]:
    """Return the functions of the checkout that a recorded call ran, in the order of their first
    operation."""
    found: dict[cst.FunctionDef, Body] = {}
    frames = call.graph.recording.frames
    for operation in call.graph.operations:
        number, span, child = operation.recorded.frame, operation.recorded.span, None
        seen: set[cst.FunctionDef] = set()
        while number is not None:
            frame = frames[number]
            file = call.source.file(frame.file)
            function = None if file is None else definition_of(file, frame)
            if file is not None and function is not None:
                body = found.setdefault(function, Body(file, frame.file, function))
                node = None if span is None else file.node_at(span)
                ran = Ran(operation, node, number, child)
                body.all.append(ran)
                body.is_recursive |= function in seen
                seen.add(function)
                if node is not None:
                    body.ran.setdefault(node, []).append(ran)
                elif span is not None:
                    body.lost.update((span.line, span.last_line))
                else:
                    body.is_recursive = True
            number, span, child = frame.caller, frame.call, number
    return [*found.values()]


# --- what an expression is -----------------------------------------------------------------------


class Unmovable(Exception):
    """An expression can be no part of a region."""


@dataclass
class Reading:
    """The fused operations of an expression, and the parts of it that are not fused."""

    ran: list[Ran] = field(default_factory=list)
    holes: list[cst.BaseExpression] = field(default_factory=list)


class Reader:
    """Read the expressions of one body."""

    def __init__(self, call: Call, fusible: Fusible, body: Body):
        self.call, self.fusible, self.body = call, fusible, body
        self.safe_frames: dict[int, bool] = {}

    def read(self, node: cst.CSTNode) -> Reading:
        """Return what is fused of an expression; raise Unmovable where its parts may not run, or
        run several times."""
        found = Reading()
        self.into(node, found, may_not_run=False)
        return found

    def into(self, node: cst.CSTNode, found: Reading, may_not_run: bool) -> None:
        if isinstance(node, UNREADABLE):
            raise Unmovable
        ran = self.body.ran.get(node, [])
        is_call = isinstance(node, cst.Call)
        if (ran and not self.is_fused(node, ran)) or (
            is_call and not ran and not is_query(cst.ensure_type(node, cst.Call))
        ):
            if may_not_run or not isinstance(node, cst.BaseExpression) or self.is_drawn(node):
                raise Unmovable
            found.holes.append(node)
            return
        found.ran += ran
        conditional = may_not_run or isinstance(node, cst.IfExp | cst.BooleanOperation)
        for child in node.children:
            self.into(child, found, conditional)

    def is_fused(self, node: cst.CSTNode, ran: Sequence[Ran]) -> bool:
        """Return whether all that an expression ran is fused, in helpers that can be compiled."""
        if not all(one.operation in self.fusible for one in ran):
            return False
        return all(self.is_safe(one) for one in {r.child for r in ran}) and not self.is_method(
            node, ran
        )

    def is_drawn(self, node: cst.CSTNode) -> bool:
        """Return whether an expression draws random numbers, or makes the host wait: what it gives
        is another number at each call."""
        operations = [
            one.operation for each in in_order(node) for one in self.body.ran.get(each, [])
        ]
        return any(one.recorded.syncs or one.name in IMPURE - {"dropout"} for one in operations)

    def is_safe(self, frame: int | None) -> bool:
        """Return whether a helper does nothing but return a value."""
        if frame is None:
            return True
        if frame not in self.safe_frames:
            self.safe_frames[frame] = is_pure_frame(self.call.source, frame)
        return self.safe_frames[frame]

    def is_method(self, node: cst.CSTNode, ran: Sequence[Ran]) -> bool:
        """Return whether a call is of a method of the module itself: an object's bound method is
        another one at each call, so it would be compiled again."""
        function = node.func if isinstance(node, cst.Call) else None
        if not isinstance(function, cst.Attribute) or ran[0].child is None:
            return False
        if code(function.value) != self.body.receiver:
            return False
        called = self.call.graph.recording.frames[ran[0].child].function.rpartition(".")[2]
        return called == function.attr.value


def is_query(node: cst.Call) -> bool:
    """Return whether a call only looks at sizes and numbers."""
    name = code(node.func)
    if name.startswith("math.") or name in QUERY_CALLS:
        return True
    return isinstance(node.func, cst.Attribute) and node.func.attr.value in QUERY_METHODS
