"""Write the least and the greatest positions in each turn's mask for all turns."""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from cudal1_ci.propose.editing.terms import names_in
from cudal1_ci.propose.recorded.lift import Lift
from cudal1_ci.propose.recorded.lifted import Lifted, Refused, integer, is_whole
from cudal1_ci.propose.recorded.source import bracketed

ENDS = {"min": "min", "amin": "min", "max": "max", "amax": "max"}


def located_of(lift: Lift, node: cst.BaseExpression) -> Lifted | None:
    """Return the positions in a turn's mask, `torch.where(mask)`, those along one dimension, or
    the least or greatest of them; None for another expression."""
    if isinstance(node, cst.Name):
        found = lift.known.get(node.value)
        return found if found is not None and found.located else None
    if isinstance(node, cst.Subscript):
        return part_of(lift, node)
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
        return None
    name, of = node.func.attr.value, node.func.value
    plain = [one.value for one in node.args if one.keyword is None]
    if lift.code(of) == "torch":
        of, plain = (plain[0], plain[1:]) if plain else (of, plain)
    named = [lift.code(one).replace(" ", "").strip(",") for one in node.args if one.keyword]
    if plain or not lift.varies(of):
        return None
    if name in ENDS and not named:
        x = located_of(lift, of)
        return None if x is None else end_of(lift, x, ENDS[name])
    if (name == "where" and not named) or (name == "nonzero" and named in ([], ["as_tuple=True"])):
        return searched(lift, of, is_tuple=name == "where" or bool(named))
    return None


def searched(lift: Lift, of: cst.BaseExpression, *, is_tuple: bool) -> Lifted | None:
    """Return the positions in a mask, if a guard can tell that each turn has one."""
    mask = lift.lift_any(of)
    if mask.classes or not mask.is_tensor or mask.turns is None:
        return None
    mask = mask.first()
    code = mask.code if lift.dtype(of) == "bool" else f"{bracketed(mask.code)} != 0"
    own = {one.partition(" = ")[0] for one in lift.lines or ()}
    if mask.rank not in (1, 2) or lift.guards is None or own & names_in(cst.parse_expression(code)):
        raise Refused
    if not code.isidentifier():
        code = lift.kept_early(code, "inside")
    rows = lift.kept_early(f"{code}.any(2)", "held") if mask.rank == 2 else code
    guard = f"{rows}.any(1).all()"
    lift.guards += [guard] * (guard not in lift.guards)
    return Lifted("", mask.rank, 0, located=code, axis=None if is_tuple else -1)


def part_of(lift: Lift, node: cst.Subscript) -> Lifted | None:
    """Return `torch.where(mask)[0]`, `torch.nonzero(mask)[:, 0]`, or the first or the last of
    positions that are in order."""
    if not lift.varies(node.value):
        return None
    x = located_of(lift, node.value)
    if x is None:
        return None
    parts = [one.slice for one in node.slice]
    if x.axis == -1 and len(parts) == 2 and is_whole(parts[0]):
        parts = parts[1:]
    elif x.axis == -1:
        raise Refused
    if len(parts) != 1 or not isinstance(parts[0], cst.Index):
        raise Refused
    number = integer(parts[0].value)
    if x.axis in (None, -1):
        return along(x, number)
    if x.axis or number not in (0, -1):  # only those along the first dimension are in order
        raise Refused
    return end_of(lift, x, "max" if number else "min")


def along(x: Lifted, dim: int) -> Lifted:
    """Return the positions along a dimension."""
    if not -x.rank <= dim < x.rank:
        raise Refused
    return replace(x, axis=dim % x.rank)


def end_of(lift: Lift, x: Lifted, end: str) -> Lifted:
    """Return the least or the greatest position along a dimension of each turn's mask."""
    if x.axis in (None, -1):
        raise Refused
    code = x.located
    if x.rank == 2:
        code = lift.kept_early(f"{code}.any({2 - (x.axis or 0)})", "held")
    if end == "min":
        return Lifted(f"{code}.byte().argmax(1)", 0, 0, is_computed=True)
    last = f"{code}.size(1) - 1 - {code}.flip(1).byte().argmax(1)"
    return Lifted(last, 0, 0, is_computed=True)
