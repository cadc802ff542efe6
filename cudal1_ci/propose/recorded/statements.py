"""Read the statements of a loop's body: sums, lists and tensors that turns add to."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from cudal1_ci.propose.editing.terms import names_in
from cudal1_ci.propose.editing.walk import roots
from cudal1_ci.propose.recorded.lifted import is_ellipsis, is_whole


def row_writes(body: list[cst.BaseSmallStatement]) -> Iterator[str]:
    """Yield tensors into which a turn writes by more than its number."""
    for one in body:
        if is_write(one):
            target = cst.ensure_type(
                cst.ensure_type(one, cst.Assign).targets[0].target, cst.Subscript
            )
            is_plain = isinstance(target.value, cst.Name) and all(
                is_whole(part.slice) or is_ellipsis(part.slice) for part in target.slice[1:]
            )
            if not is_plain:
                yield from roots(target)


def results_of(node: cst.BaseSmallStatement) -> set[str]:
    """Return the sum, list or tensor to which a statement adds a turn."""
    if isinstance(node, cst.AugAssign):
        return roots(node.target)
    if isinstance(node, cst.Expr):
        found = append_of(node)
        return {found[0]} if found is not None else set()
    if isinstance(node, cst.Assign) and len(node.targets) == 1:
        target = node.targets[0].target
        if isinstance(target, cst.Subscript):
            return roots(target)
        if isinstance(target, cst.Name) and grown_by(node) is not None:
            return {target.value}
        if isinstance(target, cst.Name):
            terms = terms_of(node.value)
            first = terms[0][1]
            rest = [one for _, one in terms[1:]]
            is_same = isinstance(first, cst.Name) and first.value == target.value
            if is_same and rest and not any(target.value in names_in(one) for one in rest):
                return {target.value}
    return set()


def grown_by(node: cst.Assign) -> cst.BaseExpression | None:
    """Return what `x = torch.cat([x, more])` puts behind a tensor."""
    call, target = node.value, node.targets[0].target
    if not isinstance(call, cst.Call) or not isinstance(target, cst.Name) or not call.args:
        return None
    listed = call.args[0].value
    if not isinstance(listed, cst.List | cst.Tuple) or len(listed.elements) != 2:
        return None
    first, more = (one.value for one in listed.elements)
    is_cat = cst.Module([]).code_for_node(call.func) in ("torch.cat", "torch.concat")
    is_same = isinstance(first, cst.Name) and first.value == target.value
    return more if is_cat and is_same and target.value not in names_in(more) else None


def terms_of(node: cst.BaseExpression) -> list[tuple[str, cst.BaseExpression]]:
    """Return the terms of a sum with their signs, also of one in brackets."""
    return terms_within(node.with_changes(lpar=(), rpar=()))


def terms_within(node: cst.BaseExpression) -> list[tuple[str, cst.BaseExpression]]:
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add | cst.Subtract):
        sign = "+" if isinstance(node.operator, cst.Add) else "-"
        if not node.lpar:
            return [*terms_within(node.left), (sign, node.right)]
    return [("+", node)]


def bound_by(node: cst.BaseSmallStatement) -> set[str]:
    """Return the names that an assignment binds, but for sums."""
    if not isinstance(node, cst.Assign) or len(node.targets) != 1:
        return set()
    target = node.targets[0].target
    return set() if isinstance(target, cst.Subscript) or results_of(node) else roots(target)


def is_edge(node: cst.BaseExpression) -> bool:
    """Return whether an expression is the end of a window that another end cuts."""
    return (
        isinstance(node, cst.Call)
        and isinstance(node.func, cst.Name)
        and node.func.value in ("max", "min")
        and len(node.args) == 2
    )


def is_write(node: cst.BaseSmallStatement) -> bool:
    """Return whether a statement writes into a tensor."""
    return (
        isinstance(node, cst.Assign)
        and len(node.targets) == 1
        and isinstance(node.targets[0].target, cst.Subscript)
    )


def append_of(node: cst.Expr) -> tuple[str, cst.BaseExpression] | None:
    """Return list and value of `outs.append(value)`."""
    call = node.value
    if not isinstance(call, cst.Call) or len(call.args) != 1 or call.args[0].star:
        return None
    function = call.func
    if not isinstance(function, cst.Attribute) or function.attr.value != "append":
        return None
    return (
        (function.value.value, call.args[0].value) if isinstance(function.value, cst.Name) else None
    )
