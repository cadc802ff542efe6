"""Know what statements assign, and remove assignments that nothing reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

import libcst as cst

from cudal1_ci.propose.editing.comments import without_lines
from cudal1_ci.propose.editing.nodes import in_order
from cudal1_ci.propose.editing.terms import (
    Names,
    code,
    is_self,
    names_in,
)

PURE_MODULES = {
    "torch.nn.Dropout",
    "torch.nn.Identity",
    "torch.nn.Linear",
    "torch.nn.ReLU",
    "torch.nn.Softmax",
    "torch.nn.Sigmoid",
    "torch.nn.GELU",
    "torch.nn.SiLU",
    "torch.nn.Tanh",
    "torch.nn.LeakyReLU",
    "torch.nn.Hardtanh",
    *(f"torch.nn.{kind}Pool{n}d" for kind in ("Max", "Avg") for n in (1, 2, 3)),
}
"""Submodules whose unread call may be dropped."""
BINDING = (
    cst.AssignTarget,
    cst.AugAssign,
    cst.AnnAssign,
    cst.For,
    cst.NamedExpr,
    cst.Del,
)
"""Nodes with a target."""


def statements(
    suite: cst.BaseSuite,
) -> Sequence[cst.BaseStatement | cst.BaseSmallStatement]:
    return suite.body


def stored_names(node: cst.CSTNode) -> set[str]:
    """Return names that a statement assigns, or whose tensor it changes in place."""
    found: set[str] = set()
    for one in in_order(node):
        if isinstance(one, BINDING):
            found |= roots(one.target)
        elif isinstance(one, cst.AsName):
            found |= roots(one.name)
        elif isinstance(one, cst.Expr):
            found |= handed_over(one)
        elif isinstance(one, cst.Call):
            function = one.func
            if isinstance(function, cst.Attribute) and changes_in_place(function.attr.value):
                found |= roots(function.value)
    return found


ONLY_READ = {"print", "append", "extend", "insert", "debug", "info", "warning", "warn", "error"}
"""Functions and methods that are called for an effect, but not on their arguments."""


def handed_over(statement: cst.Expr) -> set[str]:
    """Return locals that are arguments of a call with an unused result. Such a call probably
    changes them: a Triton kernel writes into its arguments. A method like `add_` changes its owner.
    """
    call = statement.value
    if not isinstance(call, cst.Call):
        return set()
    name = call.func.attr if isinstance(call.func, cst.Attribute) else call.func
    if isinstance(name, cst.Name) and (name.value in ONLY_READ or "assert" in name.value):
        return set()
    if isinstance(call.func, cst.Attribute) and changes_in_place(call.func.attr.value):
        return set()
    return set().union(*map(names_in, call.args)) - {"self"}


def changes_in_place(method: str) -> bool:
    """Return whether a method is like `add_`, or one of the mutating methods of lists."""
    in_place = method.endswith("_") and not method.endswith("__")
    return in_place or method in ("append", "extend", "insert", "pop", "remove", "update")


def roots(target: cst.CSTNode) -> set[str]:
    """Return names whose value an assignment to the target changes: `x` for `x[0]` and `x.y`."""
    if isinstance(target, cst.Name):
        return {target.value}
    if isinstance(target, cst.Attribute | cst.Subscript):
        return set() if is_self(target.value) else roots(target.value)
    if isinstance(target, cst.Tuple | cst.List):
        return set().union(*(roots(e.value) for e in target.elements)) if target.elements else set()
    if isinstance(target, cst.StarredElement):
        return roots(target.value)
    return set()


def without_dead(
    function: cst.FunctionDef,
    suspects: set[str],
    names: Names,
    anchors: Set[cst.CSTNode] = frozenset(),
) -> cst.FunctionDef:
    """Return the function without unread assignments to suspects, and to what only those read.
    Comments of such lines go above `anchors`, the new expressions.
    """
    while True:
        dead = dead_lines(function, suspects, names)
        if not dead:
            return function
        for line in dead:
            suspects |= names_in(line)
        function = without_lines(function, dead, anchors)


def dead_lines(function: cst.FunctionDef, suspects: set[str], names: Names) -> set[cst.CSTNode]:
    """Return lines of the function, its branches and loops, whose only effect is an unread
    value.
    """
    dead: set[cst.CSTNode] = set()
    live_before(function.body, set(), dead, suspects, names)
    return dead


def live_before(
    body: cst.BaseSuite,
    live_after: set[str],
    dead: set[cst.CSTNode],
    suspects: set[str],
    names: Names,
) -> set[str]:
    """Return what may be read of what is assigned before a block, given what is read after it. Add
    the block's dead lines to `dead`.
    """
    live = set(live_after)
    for line in reversed(statements(body)):
        if isinstance(line, cst.If):
            live = live_before_branches(line, live, dead, suspects, names)
            continue
        if isinstance(line, cst.For | cst.While) and not leaves_early(line):
            live = live_before_loop(line, live, dead, suspects, names)
            continue
        if isinstance(line, cst.With):
            if only_turns_gradients_off(line):
                here: set[cst.CSTNode] = set()
                live_before(line.body, live, here, suspects, names)
                if here.issuperset(statements(line.body)):
                    dead.add(line)
                    continue
            items = set().union(*map(names_in, line.items))
            live = items | live_before_branch(line.body, live, dead, suspects, names)
            continue
        target = assigned_name(line)
        if target is None:
            live |= names_in(line)
            continue
        assert isinstance(line, cst.SimpleStatementLine)
        assign = line.body[0]
        assert isinstance(assign, cst.Assign)
        is_itself = isinstance(assign.value, cst.Name) and assign.value.value == target
        if target in suspects and is_itself:
            dead.add(line)  # `x = x` remains of an operation that did nothing
            continue
        if target in suspects and target not in live and is_pure(assign.value, names):
            dead.add(line)
            continue
        live.discard(target)
        live |= names_in(assign.value)
    return live


def live_before_branches(
    line: cst.If, live: set[str], dead: set[cst.CSTNode], suspects: set[str], names: Names
) -> set[str]:
    """Return what `live_before` does, for an `if` with all its branches."""
    before = names_in(line.test) | live_before_branch(line.body, live, dead, suspects, names)
    if line.orelse is None:
        return before | live
    if isinstance(line.orelse, cst.If):
        return before | live_before_branches(line.orelse, live, dead, suspects, names)
    return before | live_before_branch(line.orelse.body, live, dead, suspects, names)


def live_before_loop(
    line: cst.For | cst.While,
    live: set[str],
    dead: set[cst.CSTNode],
    suspects: set[str],
    names: Names,
) -> set[str]:
    """Return what `live_before` does, for a loop: the next iteration may read what one assigns."""
    heads = (line.target, line.iter) if isinstance(line, cst.For) else (line.test,)
    if line.orelse is not None:
        live = live_before_branch(line.orelse.body, live, dead, suspects, names)
    at_end = live | set().union(*map(names_in, heads))
    while True:
        before = live_before(line.body, at_end, set(), suspects, names)
        if before <= at_end:
            return at_end | live_before_branch(line.body, at_end, dead, suspects, names)
        at_end |= before


def leaves_early(line: cst.For | cst.While) -> bool:
    """Return whether an iteration may end before its last line."""
    found: list[cst.CSTNode] = []

    class Collect(cst.CSTVisitor):
        def visit_Break(self, node: cst.Break) -> None:  # noqa: N802
            found.append(node)

        def visit_Continue(self, node: cst.Continue) -> None:  # noqa: N802
            found.append(node)

    line.visit(Collect())
    return bool(found)


def live_before_branch(
    body: cst.BaseSuite,
    live: set[str],
    dead: set[cst.CSTNode],
    suspects: set[str],
    names: Names,
) -> set[str]:
    """Return what `live_before` does, for a block that must keep a line."""
    here: set[cst.CSTNode] = set()
    before = live_before(body, live, here, suspects, names)
    if here.issuperset(statements(body)):
        return names_in(body) | live
    dead |= here
    return before


def only_turns_gradients_off(line: cst.With) -> bool:
    """Return whether a `with` is `torch.no_grad()` or `torch.inference_mode()` and has no name."""
    return all(
        one.asname is None
        and isinstance(one.item, cst.Call)
        and not one.item.args
        and code(one.item.func) in ("torch.no_grad", "torch.inference_mode")
        for one in line.items
    )


def assigned_name(line: cst.CSTNode) -> str | None:
    """Return `x` for a line that is just `x = ...`."""
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        return None
    assign = line.body[0]
    if not isinstance(assign, cst.Assign) or len(assign.targets) != 1:
        return None
    target = assign.targets[0].target
    return target.value if isinstance(target, cst.Name) else None


def is_pure(value: cst.BaseExpression, names: Names) -> bool:
    """Return whether an expression can be dropped: nothing in place, no unknown call."""
    return not any(changes_state(call, names) for call in calls_in(value))


def calls_in(node: cst.CSTNode) -> Iterator[cst.Call]:
    found: list[cst.Call] = []

    class Collect(cst.CSTVisitor):
        def visit_Call(self, node: cst.Call) -> None:  # noqa: N802
            found.append(node)

    node.visit(Collect())
    yield from found


def changes_state(call: cst.Call, names: Names) -> bool:
    if names.pure and code(call) in names.pure:
        return False
    function = call.func
    dotted = names.dotted(function)
    if dotted is not None:
        return not dotted.startswith(("torch.", "math."))
    if isinstance(function, cst.Name):
        return function.value not in ("float", "int", "len", "min", "max", "tuple", "list", "range")
    if isinstance(function, cst.Attribute):
        if is_self(function.value):
            made = names.attributes.get(function.attr.value)
            return made is None or names.dotted(made.func) not in PURE_MODULES
        return changes_in_place(function.attr.value)
    return True
