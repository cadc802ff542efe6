"""Write the counts and histograms of each turn's elements for all turns."""

from __future__ import annotations

import math

import libcst as cst

from cudal1_ci.propose.recorded.lift import Lift
from cudal1_ci.propose.recorded.lifted import Lifted, Refused, integer
from cudal1_ci.propose.recorded.source import bracketed

FLAT = {"flatten": "", "ravel": "", "view": "-1", "reshape": "-1"}
MOST_ELEMENTS = 4096
"""Elements of a turn up to which one count for all turns is faster on a CPU."""


def counts_of(lift: Lift, node: cst.Call) -> Lifted | None:
    """Return `torch.bincount(x[i], minlength=n)` and `torch.histc(x[i], n, 0, 1)` for all turns;
    None for another call."""
    name = node.func.attr.value if isinstance(node.func, cst.Attribute) else ""
    if name not in ("bincount", "histc"):
        return None
    arguments = {one.keyword.value: one.value for one in node.args if one.keyword}
    plain = [one.value for one in node.args if one.keyword is None and not one.star]
    if isinstance(node.func, cst.Attribute) and lift.code(node.func.value) != "torch":
        plain = [node.func.value, *plain]
    order = ("input", "weights", "minlength") if name == "bincount" else HISTOGRAM
    arguments |= dict(zip(order, plain, strict=False))
    if len(arguments) != len(node.args) + (plain[:1] == [getattr(node.func, "value", None)]):
        raise Refused
    x = rows_of(lift, arguments.pop("input"))
    made = [lift.source.graph.of(one.value(0)) for one in lift.operations.get(node, [])]
    if not made or any(one is None or one.requires_grad for one in made):
        raise Refused
    if any(one.device == "cpu" and math.prod(one.shape) > MOST_ELEMENTS for one in made if one):
        raise Refused("its passes are long")
    dtypes = {one.dtype for one in made if one is not None}
    if name == "bincount":
        return counted(lift, x, arguments)
    return histogram(lift, x, arguments, dtypes)


HISTOGRAM = ("input", "bins", "min", "max")


def rows_of(lift: Lift, node: cst.BaseExpression) -> str:
    """Return code of the elements of all turns, as a matrix."""
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        given = ", ".join(lift.code(one) for one in node.args)
        if FLAT.get(node.func.attr.value) == given:
            node = node.func.value
    x = lift.lift(node)
    if x.turns is None or x.rank < 1:
        raise Refused
    x = x.first()
    return x.code if x.rank == 1 else f"{bracketed(x.code)}.flatten(1)"


def counted(lift: Lift, x: str, arguments: dict[str, cst.BaseExpression]) -> Lifted:
    """Return how often each number is in each row. A guard tells that all of them are below the
    length that is stated."""
    if set(arguments) != {"minlength"} or lift.guards is None or lift.lines is None:
        raise Refused
    high = bracketed(lift.number(arguments["minlength"]))
    x = x if x.isidentifier() else lift.kept_early(x, "rows")
    guard = lift.kept_early(f"(({x} >= 0) & ({x} < {high})).all()", "fits")
    lift.guards += [guard] * (guard not in lift.guards)
    turns = f"torch.arange(len({x}), device={x}.device)[:, None]"
    total = f"({x} + {turns} * {high}).flatten().bincount(minlength=len({x}) * {high})"
    return Lifted(f"{total}.view(-1, {high})", 1, 0, is_computed=True)


def histogram(
    lift: Lift, x: str, arguments: dict[str, cst.BaseExpression], dtypes: set[str]
) -> Lifted:
    """Return the histogram of each row between two whole numbers."""
    if set(arguments) != {"bins", "min", "max"} or not dtypes <= {"float32", "float64"}:
        raise Refused
    low, high = (integer(arguments[one]) for one in ("min", "max"))
    if low >= high or len(dtypes) != 1:
        raise Refused
    bins = bracketed(lift.number(arguments["bins"]))
    if lift.lines is None:
        raise Refused
    x = lift.kept(x, "rows")
    more = f"({x} - {low})" if low > 0 else f"({x} + {-low})" if low else x
    scaled = f"{more} * {bins}" + f" / {high - low}" * (high - low != 1)
    index = f"({scaled}).long().clamp(0, {bins} - 1)"
    index = f"torch.where(({x} >= {low}) & ({x} <= {high}), {index}, {bins})"
    turns = f"torch.arange(len({x}), device={x}.device)[:, None]"
    total = f"({index} + {turns} * ({bins} + 1)).flatten()"
    total = f"{total}.bincount(minlength=len({x}) * ({bins} + 1))"
    code = f"{total}.view(-1, {bins} + 1)[:, :-1].to({x}.dtype)"
    return Lifted(code, 1, 0, is_computed=True)
