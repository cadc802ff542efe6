"""Write calls that name dimensions or sizes for all turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import libcst as cst

from cudal1_ci.propose.recorded.bounds import split
from cudal1_ci.propose.recorded.lift import Lift
from cudal1_ci.propose.recorded.lifted import (
    KEEPS_RANK,
    OVER_DIM,
    PAIRS,
    SCATTERS,
    WHOLE,
    Lifted,
    Refused,
    integer,
    shifted,
)
from cudal1_ci.propose.recorded.source import bracketed, calls_functional
from cudal1_ci.propose.recorded.spans import rolled


def lift_pair(lift: Lift, node: cst.Call, name: str, operands: list[cst.BaseExpression]) -> Lifted:
    """Return a call that returns values and positions."""
    x = lift.lift(operands[0]).first()
    given = operands[1:]
    new = {operands[0]: x.code}
    at = PAIRS[name] - 1
    dims = dims_of(node) or given[at : at + 1]
    for one in dims:
        new[one] = shifted(one)
    for one in [*given[:at], *given[at + 1 :]]:
        new[one] = lift.number(one)
    if x.turns is None or x.rank < 1 or (x.rank > 1 and not dims):
        raise Refused
    rank = lift.rank(node)
    return Lifted(lift.swapped(node, new), rank, 0, is_computed=True, pair=name)


def lift_with_dims(
    lift: Lift, node: cst.Call, name: str, operands: list[cst.BaseExpression]
) -> Lifted:
    """Return a call whose dimensions are counted from the turns."""
    x = lift.lift(operands[0])
    rank, given = lift.rank(node), operands[1:]
    if calls_functional(lift.file, node):  # F.softmax(x, -1) is recorded with a name
        given = [one.value for one in node.args if one.keyword is None][1:]
        if any(lift.varies(one) for one in given):
            raise Refused
    for argument in node.args:
        if argument.keyword is not None and argument.keyword.value == "dim":
            given = [argument.value]
        if argument.keyword is not None and argument.keyword.value == "index":
            given = [*given, argument.value]
    if name == "unsqueeze" and len(given) == 1:
        dim = integer(given[0])
        dim = dim + rank if dim < 0 else dim
        if x.turns == dim and not x.is_kept:
            return replace(x, rank=rank, is_kept=True)
    windows = x.code if x.has_windows and x.turns == 1 else ""
    x = x.first()
    if name in ("view", "reshape"):
        return lift_reshaped(lift, node, x, operands, windows)
    if name == "roll" and len(operands) in (2, 3) and lift.varies(operands[1]):
        named = [one for one in node.args if one.keyword is not None]
        dims = [*operands[2:], *(one.value for one in named)]
        shift = lift.lift_any(operands[1])
        is_plain = len(dims) == 1 and x.turns is not None and x.rank > 0
        if not is_plain or not shift.is_host:
            raise Refused
        return rolled(x, shift, integer(dims[0]), lift.kept)
    is_copied = name in ("repeat", "expand") and len(given) == rank and lift.varies(given[0])
    if is_copied and x.turns == 0 and x.rank + 1 == rank:
        rest = "1" if name == "repeat" else "-1"
        count = lift.lift_any(given[0])
        if not count.is_host or any(lift.code(one) != rest for one in given[1:]):
            raise Refused
        return Lifted(x.code, rank, 0, repeats=count.code)
    if name == "repeat" and x.turns is not None and len(given) == x.rank == rank:
        sizes = ", ".join(["1", *map(lift.number, given)])
        return Lifted(f"{bracketed(x.code)}.repeat({sizes})", rank, 0, is_computed=True)
    if name in ("flatten", "permute") and x.turns is not None and x.rank > 0:
        return lift_arranged(lift, node, name, x, operands[0])
    if name == "t" and x.rank == 2:
        return replace(x, code=f"{bracketed(x.code)}.mT", is_new=False)
    if name in WHOLE and rank == 0 and len(node.args) == (not is_method(lift, node)):
        return lift_reduced(name, x)
    return lift_over_dims(lift, node, name, x, operands[0], given)


def lift_arranged(
    lift: Lift, node: cst.Call, name: str, x: Lifted, receiver: cst.BaseExpression
) -> Lifted:
    """Return a call that joins dimensions of each turn or puts them in another order."""
    named = {one.keyword.value: one.value for one in node.args if one.keyword is not None}
    plain = [one.value for one in node.args if one.keyword is None and one.value is not receiver]
    if name == "flatten":
        ends = dict(zip(("start_dim", "end_dim"), plain, strict=False)) | named
        if len(plain) > 2 or ends.keys() - {"start_dim", "end_dim"}:
            raise Refused
        start, end = ends.get("start_dim"), ends.get("end_dim")
        listed = "1" if start is None else shifted(start)
        listed += "" if end is None else f", {shifted(end)}"
    else:
        if len(plain) == 1 and isinstance(plain[0], cst.Tuple | cst.List):
            plain = [one.value for one in plain[0].elements]
        if named or len(plain) != x.rank:
            raise Refused
        listed = ", ".join(["0", *map(shifted, plain)])
    code = f"{bracketed(x.code)}.{name}({listed})"
    return replace(x, code=code, rank=lift.rank(node), is_new=False)


def lift_over_dims(
    lift: Lift,
    node: cst.Call,
    name: str,
    x: Lifted,
    receiver: cst.BaseExpression,
    given: list[cst.BaseExpression],
) -> Lifted:
    """Return a call that names dimensions and does no more than shift them."""
    rank, new = lift.rank(node), {receiver: x.code}
    is_view = name in ("unsqueeze", "squeeze", "transpose")
    if not is_view and name != "gather" and name not in OVER_DIM | SCATTERS:
        raise Refused
    dims = given[:2] if name == "transpose" else given[:1]
    if name == "normalize" and not dims_of(node):
        raise Refused
    if not dims and not (name == "argsort" and x.rank == 1):
        raise Refused
    for one in dims:
        new[one] = shifted(one)
    if name in SCATTERS | {"gather"}:
        if len(given) != 2 + (name in SCATTERS):
            raise Refused
        for one in given[1:]:
            part = lift.lift(one).first()
            if part.turns is None and (name == "gather" or one in lift.ranks):
                raise Refused
            new[one] = part.code
    if x.turns is None or (name in KEEPS_RANK and rank != x.rank):
        raise Refused
    return Lifted(
        lift.swapped(node, new),
        rank,
        0,
        is_new=x.is_new or not is_view,
        is_computed=x.is_computed or not is_view,
        distinct="all" if name == "argsort" and rank == 1 else "",
    )


def is_method(lift: Lift, node: cst.Call) -> bool:
    """Return whether a method of a tensor is called."""
    return isinstance(node.func, cst.Attribute) and node.func.value in lift.ranks


def lift_reduced(name: str, x: Lifted) -> Lifted:
    """Return a reduction of all elements of each turn."""
    if x.turns is None or x.rank < 1:
        raise Refused
    flat = f"{bracketed(x.code)}.flatten(1)" if x.rank > 1 else bracketed(x.code)
    return Lifted(f"{flat}.{WHOLE[name]}(dim=1)", 0, 0, is_computed=True)


def lift_reshaped(
    lift: Lift, node: cst.Call, x: Lifted, operands: Sequence[cst.BaseExpression], windows: str = ""
) -> Lifted:
    """Return a view of each turn's elements by sizes that are the same in all turns."""
    function = node.func
    sizes = operands[1:]
    is_method = isinstance(function, cst.Attribute) and function.value is operands[0]
    if not is_method or lift.bounds is None or not sizes or len(sizes) != lift.rank(node):
        raise Refused
    if x.rank < 1 or x.turns is None:
        raise Refused
    for one in sizes:
        if lift.varies(one) or isinstance(one, cst.Tuple):
            raise Refused
        lift.check_pure(one)
    spelled = [lift.code(one) for one in sizes]
    if spelled == ["-1"]:
        flat = f"{bracketed(x.code)}.flatten(1)" if x.rank > 1 else x.code
        return replace(x, code=flat, rank=1, is_new=False)
    if x.rank == 1 and sorted(spelled) == ["-1", *["1"] * (len(spelled) - 1)]:
        listed = ", ".join([":", *(":" if one == "-1" else "None" for one in spelled)])
        return replace(x, code=f"{bracketed(x.code)}[{listed}]", rank=len(spelled), is_new=False)
    if "-1" in spelled and split(lift.bounds.count)[1] < 0:
        raise Refused
    if "-1" in spelled or lift.bounds.may_be_negative():
        lift.need_turn()
    of, _, kept = windows.partition(".unfold(1, ")
    if kept and spelled[0] in (f"{of}.size(0)", f"{of}.shape[0]"):  # the rows stay first
        listed = ", ".join([spelled[0], lift.bounds.count, *spelled[1:]])
        code = f"{windows}.reshape({listed})"
        return replace(x, code=code, rank=lift.rank(node), turns=1, is_new=False)
    listed = ", ".join([lift.bounds.count, *spelled])
    code = f"{bracketed(x.code)}.reshape({listed})"
    return replace(x, code=code, rank=lift.rank(node), is_new=False)


def dims_of(node: cst.Call) -> list[cst.BaseExpression]:
    """Return the argument `dim`, if it is named."""
    return [o.value for o in node.args if o.keyword is not None and o.keyword.value == "dim"]
