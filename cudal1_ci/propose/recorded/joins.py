"""Write the join of a list to which each turn appends: `torch.stack(outs)`, `outs[-1]`."""

from __future__ import annotations

import libcst as cst

from cudal1_ci.propose.recorded.lifted import Lifted, Refused, integer, within
from cudal1_ci.propose.recorded.source import bracketed


def reads_of(function: cst.FunctionDef, name: str) -> int:
    """Return how often a function names a local but to assign it."""
    stores = 0
    count = 0
    for one in within(function):
        if isinstance(one, cst.Name) and one.value == name:
            count += 1
        if isinstance(one, cst.AssignTarget | cst.For | cst.Param):
            target = one.name if isinstance(one, cst.Param) else one.target
            parts = (
                [o.value for o in target.elements] if isinstance(target, cst.Tuple) else [target]
            )
            stores += sum(isinstance(o, cst.Name) and o.value == name for o in parts)
    return count - stores


def arg_of(call: cst.Call) -> cst.BaseExpression | None:
    return call.args[0].value if call.args else None


def the_join(node: cst.CSTNode, name: str) -> cst.Call | None:
    """Return the call that joins a list, if nothing else in a node reads it."""
    found = [
        one
        for one in within(node)
        if isinstance(one, cst.Call)
        and isinstance(arg_of(one), cst.Name)
        and arg_of(one).value == name  # type: ignore[union-attr]
    ]
    names = [one for one in within(node) if isinstance(one, cst.Name) and one.value == name]
    return found[0] if len(found) == len(names) == 1 else None


def the_reader(node: cst.CSTNode, name: str) -> cst.Call | cst.Subscript | None:
    """Return the only expression of a node that reads a list: `torch.stack(outs)`, `outs[-1]`."""
    names = [one for one in within(node) if isinstance(one, cst.Name) and one.value == name]
    items = [
        one for one in within(node) if isinstance(one, cst.Subscript) and one.value is names[0]
    ]
    return items[0] if len(items) == len(names) == 1 else the_join(node, name)


def last_of(read: cst.Subscript, lifted: Lifted) -> str:
    """Return what `outs[-1]` is. Raises: Refused, for another subscript."""
    part = read.slice[0].slice
    if len(read.slice) != 1 or not isinstance(part, cst.Index) or integer(part.value) != -1:
        raise Refused
    if lifted.turns is None or lifted.valid or lifted.repeats or not lifted.is_tensor:
        raise Refused
    lifted = lifted.first() if lifted.is_kept else lifted
    return f"{bracketed(lifted.code)}[{':, ' * (lifted.turns or 0)}-1]"


def kind_and_dimension(function: str, join: cst.Call) -> tuple[str, int]:
    """Return whether a list of tensors is stacked (`stack`) or concatenated (`cat`), and where."""
    kind = {"torch.stack": "stack", "torch.cat": "cat", "torch.concat": "cat"}.get(function)
    if kind is None or len(join.args) > 2:
        raise Refused
    if len(join.args) < 2:
        return kind, 0
    keyword = join.args[1].keyword
    if keyword is not None and keyword.value != "dim":
        raise Refused
    return kind, integer(join.args[1].value)


def joined(function: str, join: cst.Call, lifted: Lifted, dtype: str = "") -> str:
    """Return what joins the turns as `torch.stack`, `torch.cat` or `sum` did."""
    if lifted.valid and kind_and_dimension(function, join) == ("cat", 0):
        return f"{lifted.code}[{lifted.valid}]"
    if lifted.repeats and kind_and_dimension(function, join) == ("cat", 0):
        return f"torch.repeat_interleave({lifted.code}, {lifted.repeats}, dim=0)"
    if lifted.turns is None or not (lifted.is_new or lifted.has_windows) or not lifted.is_tensor:
        raise Refused
    if function == "sum" and len(join.args) == 1 and dtype.startswith(("float", "bfloat")):
        first = lifted.first()
        return f"{bracketed(first.code)}.sum(0)"
    kind, dim = kind_and_dimension(function, join)
    if dim < 0:
        dim += lifted.rank + (kind == "stack")
    if kind == "cat" and lifted.is_kept and lifted.turns == dim:
        return lifted.code
    code = moved(lifted, dim)
    code = f"{bracketed(code)}.flatten({dim}, {dim + 1})" if kind == "cat" else code
    return code if lifted.is_new else f"{bracketed(code)}.clone()"


def moved(lifted: Lifted, dim: int) -> str:
    """Return code with the turns at another dimension."""
    if lifted.is_kept:
        lifted = lifted.first()
    if lifted.turns == dim:
        return lifted.code
    code = bracketed(lifted.code)
    if {lifted.turns, dim} == {0, 1}:
        return f"{code}.transpose(0, 1)"
    return f"{code}.movedim({lifted.turns}, {dim})"


def bound_value(node: cst.CSTNode) -> cst.BaseExpression | None:
    """Return what a line assigns."""
    line = node.body[0] if isinstance(node, cst.SimpleStatementLine) else None
    return line.value if isinstance(line, cst.Assign) and len(node.body) == 1 else None  # type: ignore[attr-defined]


def binds(node: cst.CSTNode, name: str) -> bool:
    """Return whether a line is an assignment to a name alone."""
    return bound_value(node) is not None and all(
        isinstance(one.target, cst.Name) and one.target.value == name
        for one in within(node)
        if isinstance(one, cst.AssignTarget)
    )


def is_empty_list(node: cst.CSTNode, names: set[str]) -> bool:
    """Return whether a line is `outs = []`, or `outs, sums = [], []`."""
    if not isinstance(node, cst.SimpleStatementLine) or len(node.body) != 1:
        return False
    assign = node.body[0]
    if not isinstance(assign, cst.Assign) or len(assign.targets) != 1:
        return False
    target, value = assign.targets[0].target, assign.value
    targets: list[cst.CSTNode] = [target]
    values: list[cst.CSTNode] = [value]
    if isinstance(target, cst.Tuple) and isinstance(value, cst.Tuple):
        targets = [one.value for one in target.elements]
        values = [one.value for one in value.elements]
    are_empty = all(isinstance(one, cst.List) and not one.elements for one in values)
    return are_empty and all(isinstance(o, cst.Name) and o.value in names for o in targets)
