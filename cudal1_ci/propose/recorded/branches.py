"""Read branches that choose one of several values: `x = a if test else b`."""

from __future__ import annotations

import libcst as cst

from cudal1_ci.propose.editing.terms import portable
from cudal1_ci.propose.recorded.loop_text import is_name


def branch_of(node: cst.BaseSuite) -> list[cst.BaseSmallStatement]:
    """Return the statements of a branch, if all but the last one bind a name; else []."""
    lines = list(node.body) if isinstance(node, cst.IndentedBlock) else []
    found = [o for one in lines if isinstance(one, cst.SimpleStatementLine) for o in one.body]
    if len(found) != len(lines) or not all(isinstance(one, cst.Assign) for one in found[:-1]):
        return []
    return found


def chosen_value(node: cst.If) -> list[cst.BaseSmallStatement]:
    """Return the statement `x = a if test else b` that branches are, after what their lines bind;
    [] for others. Parts of it are those of the file."""
    last = node.orelse
    other = chosen_value(last) if isinstance(last, cst.If) else []
    other = branch_of(last.body) if isinstance(last, cst.Else) else other
    own = branch_of(node.body)
    if not own or not other:
        return []
    pairs = list(zip(own, other, strict=False))
    if len(own) == len(other) > 1 and all(isinstance(o, cst.Assign) for o in (*own, *other)):
        chosen = [chosen_assign(node, one, two) for one, two in pairs]  # type: ignore[arg-type]
        if all(chosen):
            return [one for one in chosen if one is not None]
    (*before, first), (*more, second) = own, other
    if isinstance(first, cst.Assign) and isinstance(second, cst.Assign):
        assign = chosen_assign(node, first, second)
        return [] if assign is None else [*before, *more, assign]
    if isinstance(first, cst.Expr) and isinstance(second, cst.Expr):
        calls = [one.value for one in (first, second) if isinstance(one.value, cst.Call)]
        names = [portable(one.func) for one in calls]
        is_same = len(names) == 2 and names[0] == names[1] and names[0].endswith(".append")
        if not is_same or any(len(one.args) != 1 for one in calls):
            return []
        values = [one.args[0].value for one in calls]
        value = cst.IfExp(test=node.test, body=values[0], orelse=values[1])
        call = calls[0].with_changes(args=[cst.Arg(value)])
        return [*before, *more, first.with_changes(value=call)]
    return []


def chosen_assign(node: cst.If, first: cst.Assign, second: cst.Assign) -> cst.Assign | None:
    """Return `x = a if test else b` of a branch that binds x to one or the other."""
    targets = [portable(one.targets[0].target) for one in (first, second)]
    is_same = len(first.targets) == len(second.targets) == 1 and targets[0] == targets[1]
    if not is_same or not is_name(first.targets[0].target):
        return None
    value = cst.IfExp(test=node.test, body=first.value, orelse=second.value)
    return first.with_changes(value=value)
