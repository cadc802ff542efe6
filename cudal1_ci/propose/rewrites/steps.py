"""Check steps of a function that assign one name repeatedly (`x = f(x)`, `x = g(x)`), and in-place
changes of tensors.

A capture may read `x` as it was before such steps. The capture can be written after the steps only
if they are removed with the replaced code: if nothing else reads what they assigned.
"""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from cudal1_ci.propose.rewrites.nodes import children_of
from cudal1_ci.propose.rewrites.terms import Names, is_self, names_in
from cudal1_ci.propose.rewrites.walk import (
    assigned_name,
    calls_in,
    changes_state,
    handed_over,
    is_pure,
    statements,
    stored_names,
)

Lines = Sequence[cst.BaseStatement | cst.BaseSmallStatement]


def steps_between(
    method: cst.FunctionDef,
    name: str,
    captured: cst.CSTNode,
    matched: cst.CSTNode,
    names: Names,
) -> set[cst.CSTNode] | None:
    """Return the lines that assign a name between its capture and a match that replaces all that
    they compute. None if they cannot be removed: a line does more than assign, is outside the
    function's own body, or its result is read elsewhere.
    """
    lines = statements(method.body)
    first, last = line_of(lines, captured), line_of(lines, matched)
    if first is None or last is None or first >= last:
        return None
    steps = {line for line in lines[first:last] if name in stored_names(line)}
    others = [line for line in lines[first:last] if line not in steps]
    if any(
        assigned_name(line) != name or not is_pure(assigned(line).value, names) for line in steps
    ):
        return None
    if any(name in names_in(line) for line in others):
        return None
    if reads(lines[last], name, matched) or is_read_after(lines[last:], name):
        return None
    return set(steps)


def writes_into_tensors(method: cst.FunctionDef) -> bool:
    """Return whether a function may change a tensor that it holds. Two names for one tensor then
    cannot replace two tensors.
    """
    return any(map(writes, descendants(method)))


def writes(node: cst.CSTNode) -> bool:
    """Return whether a node is `x += 1`, `x[0] = 1`, `x.add_(1)`, `f(x, inplace=True)` or
    `kernel[grid](x)`.
    """
    if isinstance(node, cst.Expr):
        return bool(handed_over(node))
    if isinstance(node, cst.AssignTarget):
        return isinstance(node.target, cst.Subscript)
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        return node.func.attr.value.endswith("_") and not node.func.attr.value.endswith("__")
    if isinstance(node, cst.Arg) and node.keyword is not None:
        return node.keyword.value in ("inplace", "out")
    return isinstance(node, cst.AugAssign)


def calls_between(
    method: cst.FunctionDef, first: cst.CSTNode, last: cst.CSTNode
) -> list[cst.Call] | None:
    """Return calls after the line of one node and before another is computed; None if the lines are
    outside the function's own body.
    """
    lines = statements(method.body)
    start, end = line_of(lines, first), line_of(lines, last)
    if start is None or end is None:
        return None
    calls = [call for line in lines[start + 1 : end + 1] for call in calls_in(line)]
    return [call for call in calls if last not in descendants(call)[1:]]


HOLDERS = {"torch.nn.Sequential", "torch.nn.ModuleList", "torch.nn.ModuleDict"}
"""Layers of torch that call other layers, which are unknown here."""


def may_write(call: cst.Call, names: Names) -> bool:
    """Return whether a call may change a tensor in place. torch's layers do not, except with
    `inplace`; any other module may.
    """
    if writes(call) or any(writes(arg) for arg in call.args):
        return True
    held: cst.BaseExpression = call.func
    while isinstance(held, cst.Attribute | cst.Subscript) and not is_self(held.value):
        held = held.value
    if not isinstance(held, cst.Attribute):
        return changes_state(call, names)
    if held is not call.func:  # `self.weight.t()`, but also `self.block.attend(x)`
        return any(names_in(arg.value) for arg in call.args)
    made = names.attributes.get(held.attr.value)
    dotted = None if made is None else names.dotted(made.func)
    return dotted is None or not dotted.startswith("torch.nn.") or dotted in HOLDERS


def line_of(lines: Lines, node: cst.CSTNode) -> int | None:
    """Return the index of the simple line that contains a node."""
    for place, line in enumerate(lines):
        if isinstance(line, cst.SimpleStatementLine) and node in descendants(line):
            return place
    return None


def reads(line: cst.CSTNode, name: str, apart_from: cst.CSTNode) -> bool:
    """Return whether a line reads a name outside one of its expressions."""
    inside = sum(is_name(node, name) for node in descendants(apart_from))
    target = assigned_name(line)
    return sum(is_name(node, name) for node in descendants(line)) > inside + (target == name)


def is_read_after(lines: Lines, name: str) -> bool:
    """Return whether the value of a name after the first of these lines, which may assign it, is
    read.
    """
    for place, line in enumerate(lines):
        is_assigned = assigned_name(line) == name
        if place and name in names_in(assigned(line).value if is_assigned else line):
            return True
        if is_assigned:
            return False
    return False


def assigned(line: cst.CSTNode) -> cst.Assign:
    """Return the statement of a line that is just `x = ...`."""
    return cst.ensure_type(cst.ensure_type(line, cst.SimpleStatementLine).body[0], cst.Assign)


def is_name(node: cst.CSTNode, name: str) -> bool:
    return isinstance(node, cst.Name) and node.value == name


def descendants(node: cst.CSTNode) -> list[cst.CSTNode]:
    """Return a node and all below it."""
    found: list[cst.CSTNode] = []
    queue = [node]
    while queue:
        one = queue.pop()
        found.append(one)
        queue.extend(children_of(one))
    return found
