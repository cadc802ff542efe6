"""Write windows that move with the turn: `x[:, i : i + 4]`, also those that an end cuts."""

from __future__ import annotations

import libcst as cst

from cudal1_ci.propose.editing.terms import names_in
from cudal1_ci.propose.recorded.lift import Lift
from cudal1_ci.propose.recorded.lifted import (
    Lifted,
    Refused,
    integer,
    is_ellipsis,
    is_whole,
    turns_of,
)
from cudal1_ci.propose.recorded.spans import FLOATS
from cudal1_ci.propose.recorded.windows import (
    clipped,
    cut_lengths,
    moving,
    reduced_windows,
    terms_of,
    unfolded,
    width,
)


def window_of(lift: Lift, part: cst.Slice) -> tuple[str, str] | None:
    """Return by how much a window moves in each turn, and its size; None for another slice."""
    if lift.bounds is None or lift.bounds.low or part.lower is None or part.upper is None:
        return None
    lower, upper = (
        moving(one, lift.bounds.index, lift.numbers, lift.changing)
        for one in (part.lower, part.upper)
    )
    size = width(lower, upper)
    if lower is None or size is None or (size == "1" and lower.step == "1"):
        return None
    lift.need(lower.step, 1)
    lift.need(size, 0)
    return lower.step, size


def is_backwards(lift: Lift, node: cst.BaseExpression) -> bool:
    """Return whether an index counts from the last position down: `n - 1 - i`."""
    bounds = lift.bounds
    if bounds is None or bounds.low or not bounds.index:
        return False
    if isinstance(node, cst.Name) and node.value in lift.edges:
        node = lift.edges[node.value]
    wanted = terms_of(cst.parse_expression(bounds.high), {})
    wanted.update({"": -1, bounds.index: -1})
    found = terms_of(node, {})
    return {k: n for k, n in found.items() if n} == {k: n for k, n in wanted.items() if n}


def lift_sliding(
    lift: Lift, node: cst.Subscript, parts: list[cst.BaseSlice], at: int
) -> Lifted | None:
    """Return windows that begin at each turn's position; None if they are single positions."""
    found = window_of(lift, cst.ensure_type(parts[at], cst.Slice))
    if found is None or lift.bounds is None:
        return None
    step, size = found
    rank, base = lift.rank(node), lift.code(node.value)
    turns, count = turns_of(parts, at, rank, is_kept=True), lift.bounds.count
    listed = [lift.spelled(one) for one in parts]
    listed[at] = ":"
    if lift.starts is not None:
        are_whole = all(one in (":", "...") for one in listed)
        more = lift.starts.more(size, (base, turns, rank)) if are_whole else None
        if more is None or more > 0:
            raise Refused  # the last window may be shorter
        count = count if more else ""
    else:
        lift.need_fit(node, at, step, size)
    lift.need_turn()
    while listed and listed[-1] in (":", "..."):
        listed.pop()
    base = f"{base}[{', '.join(listed)}]" if any(o != ":" for o in listed) else base
    code = unfolded(base, turns, size, step, count, rank)
    return Lifted(code, rank, turns, is_new=False, has_windows=True)


def lift_rolling(lift: Lift, node: cst.Call, name: str, of: cst.Subscript) -> Lifted | None:
    """Return the reduction of windows around each position that the ends of a tensor cut:
    `x[:, max(0, t - 4) : t + 1].mean(1)`. None for another one."""
    parts, rank = [one.slice for one in of.slice], lift.rank(of)
    turning = [i for i, one in enumerate(parts) if lift.varies(one)]
    bounds, base = lift.bounds, lift.code(of.value)
    if lift.varies(of.value) or len(turning) != 1 or bounds is None or bounds.low:
        return None
    at = turning[0]
    dim, part = turns_of(parts, at, rank, is_kept=True), parts[at]
    others = [one for i, one in enumerate(parts) if i != at]
    if not isinstance(part, cst.Slice) or not all(is_whole(o) or is_ellipsis(o) for o in others):
        return None
    sizes = {one for one, *where in bounds.sizes if where == [base, dim]}
    ends = sizes | {f"{base}.{how}" for how in (f"size({dim})", f"shape[{dim}]")}
    ends |= {f"len({base})"} if dim == 0 else set()
    reach = clipped(part, bounds.index, ends, lift.edges, lift.changing)
    is_float = lift.dtype(of).startswith(FLOATS)
    if reach is None or bounds.high not in ends or not (is_float and base.isidentifier()):
        return None
    held = {lift.code(of), *lift.edges}
    given = [one.value for one in node.args if lift.code(one.value) not in held]
    if [one % rank for one in map(integer, given)] != [dim] and (given or rank > 1):
        return None
    for one in reach[:2]:
        lift.need(one, 0)
    code = reduced_windows(base, dim, rank, reach, name, lift.kept)
    return Lifted(code, rank - 1, dim, is_computed=True)


def is_cut(lift: Lift, node: cst.BaseExpression) -> bool:
    """Return whether an expression is a window between ends that names of the turn hold."""
    return isinstance(node, cst.Subscript) and any(
        isinstance(one.slice, cst.Slice) and names_in(one.slice) & lift.edges.keys()
        for one in node.slice
    )


def cut_count(lift: Lift, node: cst.BaseExpression, near: cst.BaseExpression) -> str | None:
    """Return code of how many positions the turns' windows have, where `node` is the
    difference of their ends; None for another number."""
    bounds = lift.bounds
    if not isinstance(node, cst.BinaryOperation) or bounds is None or bounds.low:
        return None
    ends = [one.value for one in (node.left, node.right) if isinstance(one, cst.Name)]
    is_difference = isinstance(node.operator, cst.Subtract) and len(ends) == 2
    if not is_difference or not lift.edges.keys() >= {*ends}:
        return None
    part = cst.Slice(lower=node.right, upper=node.left)
    reach = clipped(part, bounds.index, {bounds.high}, lift.edges, lift.changing)
    if reach is None:
        return None
    for one in reach[:2]:
        lift.need(one, 0)
    steps = lift.kept(f"torch.arange({bounds.high}, device={lift.near(near)}.device)", "steps")
    return cut_lengths(steps, reach, bounds.high)
