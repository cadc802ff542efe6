"""Write any expression of a loop's body for all turns, by its form."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import libcst as cst

from cudal1_ci.propose.editing.terms import names_in
from cudal1_ci.propose.recorded.lift import Lift
from cudal1_ci.propose.recorded.lift_arithmetic import classes_of, lift_elementwise, searched_of
from cudal1_ci.propose.recorded.lift_calls import lift_call, lift_part_reduction
from cudal1_ci.propose.recorded.lift_counts import counts_of
from cudal1_ci.propose.recorded.lift_located import located_of
from cudal1_ci.propose.recorded.lift_subscripts import lift_subscript
from cudal1_ci.propose.recorded.lifted import (
    INDEX_DTYPES,
    Lifted,
    Refused,
    integer,
    is_pair_operation,
    pair_parts,
)
from cudal1_ci.propose.recorded.source import bracketed
from cudal1_ci.propose.recorded.spans import host_number


def lift_expression(lift: Lift, node: cst.BaseExpression) -> Lifted:
    """Return an expression for all turns, or what is not one tensor for all of them."""
    if not lift.varies(node):
        lift.check_pure(node)
        return Lifted(lift.code(node), lift.rank(node), None)
    part = lift_part(lift, node)
    if part is not None:
        return part
    if isinstance(node, cst.Name):
        found = lift.known.get(node.value)
        if found is None and node.value in lift.numbers.keys() | lift.edges.keys():
            raise Refused
        if found is None:
            line = lift.line(node)
            raise Refused(f"line {line} carries `{node.value}` from one pass to the next")
        return found
    searched = searched_of(lift, node)
    if searched is not None:
        return searched
    located = located_of(lift, node)
    if located is not None:
        return located
    counts = counts_of(lift, node) if isinstance(node, cst.Call) else None
    if counts is not None:
        return counts
    if isinstance(node, cst.Subscript):
        return lift_subscript(lift, node)
    classes = classes_of(lift, node)
    if classes is not None:
        return classes
    read = host_number(node)
    if read is not None:
        number = lift.lift(read)
        if number.rank or number.turns != 0 or lift.dtype(read) not in INDEX_DTYPES:
            raise Refused
        return replace(number, is_host=True)
    if isinstance(node, cst.Call) and lift.distribution is not None:
        law = lift.distribution(lift, node)
        if law is not None:
            return law
    if isinstance(node, cst.Call) and node not in lift.operations and lift.helper is not None:
        return lift.helper(lift, node)
    if isinstance(node, cst.IfExp):
        return lift_choice(lift, node)
    operation = lift.operation(node)
    if isinstance(node, cst.BinaryOperation | cst.Comparison | cst.UnaryOperation):
        return lift_elementwise(lift, node, lift.children(node))
    if isinstance(node, cst.Call):
        return lift_call(lift, node, operation)
    if isinstance(node, cst.Attribute) and operation.name in ("mT", "T"):
        x = lift.lift(node.value).first()
        if x.rank != 2:
            raise Refused
        return replace(x, code=f"{bracketed(x.code)}.mT", is_new=False)
    raise Refused


def lift_choice(lift: Lift, node: cst.IfExp) -> Lifted:
    """Return one of two values, as a test of each turn's number says."""
    ending = lift_end(lift, node)
    if ending is not None:
        return ending
    test, *values = (lift.lift(one).first() for one in (node.test, node.body, node.orelse))
    dtypes = {lift.dtype(one) for one in (node.body, node.orelse)}
    ranks = {one.rank for one in values}
    if test.rank or test.turns is None or len(dtypes) != 1 or len(ranks) != 1:
        raise Refused
    if lift.dtype(node.test) != "bool" or not dtypes <= {"float32", "float64"}:
        raise Refused
    rank = ranks.pop()
    wide = f"{bracketed(test.code)}[{', '.join([':', *['None'] * rank])}]"
    lift.ranks[node] = rank, dtypes.pop()
    listed = ", ".join([wide if rank else test.code, *(one.code for one in values)])
    return Lifted(f"torch.where({listed})", rank, 0, is_computed=True)


def lift_end(lift: Lift, node: cst.IfExp) -> Lifted | None:
    """Return a value that the first or the last turn takes from elsewhere: `last_value if
    t == steps - 1 else values[t + 1]`. None for another test."""
    bounds, test = lift.bounds, node.test
    if bounds is None or not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return None
    end = lift.code(test.comparisons[0].comparator)
    if lift.code(test.left) != bounds.index or end not in (bounds.last, str(bounds.low)):
        return None
    operator = test.comparisons[0].operator
    is_last = end == bounds.last
    own, others = node.body, node.orelse
    if isinstance(operator, cst.NotEqual | (cst.LessThan if is_last else cst.GreaterThan)):
        own, others = others, own
    elif not isinstance(operator, cst.Equal):
        return None
    if lift.varies(own) or names_in(others) & lift.known.keys():
        raise Refused
    lift.check_pure(own)
    low, high = bounds.low + (not is_last), bounds.last if is_last else bounds.high
    lift.bounds = replace(bounds, low=low, high=high)
    try:
        rest = lift.lift(others).first()
    finally:
        lift.bounds = bounds
    known = lift.rank_of(own, others)
    if rest.turns is None or known != (lift.rank(others), lift.dtype(others)):
        raise Refused
    lift.ranks[node] = known
    parts = [rest.code, f"{bracketed(lift.code(own))}[None]"]
    code = f"torch.cat([{', '.join(parts if is_last else parts[::-1])}])"
    return Lifted(code, known[0], 0, is_computed=True)


def lift_part(lift: Lift, node: cst.BaseExpression) -> Lifted | None:
    """Return the values or the positions of `torch.sort(x)[0]`, `torch.topk(x, k).indices`."""
    index: int | None = None
    if isinstance(node, cst.Subscript) and len(node.slice) == 1:
        with suppress(Refused, cst.ParserSyntaxError):
            part = node.slice[0].slice
            index = integer(part.value) if isinstance(part, cst.Index) else None
    elif isinstance(node, cst.Attribute):
        index = {"values": 0, "indices": 1}.get(node.attr.value)
    if index is None or not isinstance(node, cst.Subscript | cst.Attribute):
        return None
    base, made = node.value, lift.operations.get(node.value, [])
    is_pair = isinstance(base, cst.Name) and base.value in lift.known
    is_pair = is_pair and bool(lift.known[base.value].pair)  # type: ignore[attr-defined]
    if not is_pair and not (made and is_pair_operation(made[0])):
        return None
    if index == 0 and made and made[0].name in ("max", "min") and isinstance(base, cst.Call):
        over = lift.source.operands(made[0])[0]
        if over is not None and lift.varies(over):
            of_part = lift_part_reduction(lift, base, f"a{made[0].name}", over)
            if of_part is not None:
                return of_part
    pair = lift.lift_any(base)
    if not pair.pair or index not in (0, 1):
        raise Refused
    return pair_parts(pair)[index]
