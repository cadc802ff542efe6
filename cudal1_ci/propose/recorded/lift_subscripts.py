"""Write subscripts for all turns: rows, masks, lengths, positions."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import libcst as cst

from cudal1_ci.propose.recorded.lift import Lift
from cudal1_ci.propose.recorded.lift_arithmetic import classes_of, searched_of
from cudal1_ci.propose.recorded.lift_windows import is_backwards, lift_sliding
from cudal1_ci.propose.recorded.lifted import (
    INDEX_DTYPES,
    Lifted,
    Refused,
    is_basic,
    is_none,
    is_whole,
    one_more,
    turns_of,
)
from cudal1_ci.propose.recorded.source import bracketed
from cudal1_ci.propose.recorded.spans import masked


def lift_subscript(lift: Lift, node: cst.Subscript) -> Lifted:
    """Return a subscript of a tensor."""
    lift.operation(node)  # of a tensor
    base = node.value
    parts = [one.slice for one in node.slice]
    if lift.varies(base):
        if len(parts) == 1 and lift.is_span(parts[0]):
            return lift_span(lift, lift.lift(base).first(), parts[0], lift.rank(node))
        return lift_of_turn(lift, node, lift.lift(base).first(), parts)
    lift.check_pure(base)
    if len(parts) > 1 and lift.is_span(parts[1]) and all(map(is_whole, parts[2:])):
        return lift_span(lift, row_of(lift, base, parts[0]), parts[1], lift.rank(node))
    only = parts[0].value if len(parts) == 1 and isinstance(parts[0], cst.Index) else None
    mask = lift.known.get(only.value) if isinstance(only, cst.Name) else None
    if mask is None and only is not None:
        mask = classes_of(lift, only) or searched_of(lift, only)
    if mask is not None and mask.classes and not mask.code:
        return Lifted(lift.code(base), lift.rank(node), 0, classes=mask.classes)
    turning = [i for i, one in enumerate(parts) if lift.varies(one)]
    plain = are_views(lift, node, parts)
    if len(turning) == 1 and all(plain[i] for i in range(len(parts)) if i not in turning):
        return lift_picked(lift, node, parts, turning[0])
    return lift_gathered(lift, node, parts)


def row_of(lift: Lift, base: cst.BaseExpression, part: cst.BaseSlice) -> Lifted:
    """Return the row of a tensor that has the turn's number."""
    index = part.value if isinstance(part, cst.Index) else None
    if index is None or lift.bounds is None or lift.bounds.offset(index) != 0:
        raise Refused
    span = lift.span(0, (lift.code(base), 0))
    code = lift.code(base) if span == ":" else f"{bracketed(lift.code(base))}[{span}]"
    return Lifted(code, 1, 0, is_new=False)


def lift_span(lift: Lift, x: Lifted, part: cst.BaseSlice, rank: int) -> Lifted:
    """Return the first positions of each turn."""
    upper = cst.ensure_type(part, cst.Slice).upper
    if upper is None or x.turns != 0:
        raise Refused
    return masked(x, lift.number_of_turns(upper), rank, lift.kept)


def are_views(lift: Lift, node: cst.Subscript, parts: list[cst.BaseSlice]) -> list[bool]:
    """Return which parts of a subscript make a view, by its text or the recorded numbers."""
    given = lift.operation(node).argument(1)
    items = () if given is None else given.items or (given,)
    numbers = [(one.text or "").lstrip("-").isdigit() for one in items]
    if len(numbers) != len(parts):
        return [is_basic(one) for one in parts]
    return [is_basic(one) or known for one, known in zip(parts, numbers, strict=True)]


def lift_of_turn(lift: Lift, node: cst.Subscript, x: Lifted, parts: list[cst.BaseSlice]) -> Lifted:
    """Return a subscript of a value that differs between turns."""
    rank = lift.rank(node)
    if not any(lift.varies(one) for one in parts) and all(are_views(lift, node, parts)):
        code = f"{bracketed(x.code)}[:, {lift.listed(parts)}]"
        distinct = x.distinct and rank == 1 and "some"
        return Lifted(code, rank, 0, is_new=False, distinct=distinct or "")
    only = parts[0].value if len(parts) == 1 and isinstance(parts[0], cst.Index) else None
    if only is None:
        raise Refused
    index = lift.lift(only).first()
    if x.turns is None or index.turns is None:
        raise Refused
    if lift.dtype(only) == "bool" and x.rank == index.rank == 1 and x.distinct:
        return Lifted("", 1, 0, ragged=(x, index))
    if lift.dtype(only) == "bool" and index.rank == 1 and x.rank == rank:
        return replace(x, is_new=False, valid=lift.kept(index.code, "chosen"), distinct="")
    if lift.dtype(only) in INDEX_DTYPES and x.rank == index.rank == 1 and index.distinct:
        code = f"{bracketed(x.code)}.gather(1, {index.code})"
        return Lifted(code, 1, 0, is_computed=True, distinct=x.distinct and "some")
    if lift.dtype(only) in INDEX_DTYPES and x.rank >= index.rank == 1 and x.turns == 0:
        code = f"{bracketed(x.code)}[{lift.turn_column(x)}, {index.code}]"
        picked = f"{x.code}, {index.code}" if x.rank == 1 else ""
        return Lifted(code, x.rank, 0, is_computed=True, picked=picked)
    raise Refused


def lift_picked(lift: Lift, node: cst.Subscript, parts: list[cst.BaseSlice], at: int) -> Lifted:
    """Return a slice of a tensor in place of one position of it, or an index."""
    rank, base = lift.rank(node), lift.code(node.value)
    part = parts[at]
    is_kept = isinstance(part, cst.Slice)
    turns = turns_of(parts, at, rank, is_kept)
    source_dim = sum(not is_none(one) for one in parts[:at])
    if isinstance(part, cst.Slice):
        index = part.lower
        if index is None or part.upper is None or part.step is not None:
            raise Refused
        sliding = lift_sliding(lift, node, parts, at)
        if sliding is not None:
            return sliding
        if not one_more(lift.code(part.upper), lift.code(index)):
            raise Refused
    else:
        index = cst.ensure_type(part, cst.Index).value
    is_plain = not any(isinstance(one, cst.Index) for one in parts[:at])
    if lift.bounds is not None and (offset := lift.bounds.offset(index)) is not None:
        where = (lift.code(node.value), source_dim) if is_plain else None
        written = lift.span(offset, where)
        listed = [lift.spelled(one) for one in parts]
        listed[at] = written
        while listed and listed[-1] == ":":
            listed.pop()
        code = f"{base}[{', '.join(listed)}]" if listed else base
        return Lifted(code, rank, turns, is_kept, is_new=False)
    if not is_kept and is_plain and is_backwards(lift, index):
        span = lift.span(0, (base, source_dim)) if lift.bounds is not None else ":"
        listed = [lift.spelled(one) for one in parts]
        listed[at] = span
        code = base if all(one == ":" for one in listed) else f"{base}[{', '.join(listed)}]"
        return Lifted(f"{bracketed(code)}.flip({turns})", rank, turns, is_computed=True)
    picks = lift.lift(index)
    if picks.rank or picks.turns != 0 or lift.dtype(index) not in INDEX_DTYPES:
        raise Refused
    if not all(is_whole(one) for i, one in enumerate(parts) if i != at):
        raise Refused
    if is_kept:
        code = f"{base}.index_select({turns}, {picks.code})"
    else:
        code = f"{base}[{', '.join([*[':'] * at, picks.code])}]"
    return Lifted(code, rank, turns, is_kept, is_computed=True)


def lift_gathered(lift: Lift, node: cst.Subscript, parts: list[cst.BaseSlice]) -> Lifted:
    """Return a subscript by tensors, one position of the result each."""
    rank = lift.rank(node)
    found = lift.operation(node).argument(1)
    given = [] if found is None else list(found.items) if found.items else [found]
    while parts and is_whole(parts[-1]):
        parts = parts[:-1]
    if len(given) < len(parts):
        raise Refused
    indices: list[tuple[Lifted | str, int]] = []
    for part, argument in zip(parts, given, strict=False):
        if not isinstance(part, cst.Index):
            raise Refused
        value = lift.source.graph.of(argument.value)
        if value is not None and value.dtype in INDEX_DTYPES:
            indices.append((lift.lift(part.value).first(), len(value.shape)))
        else:
            indices.append((lift.positions_of(part, node.value), 0))
    most = max((one[1] for one in indices), default=0)
    if all(isinstance(index, str) for index, _ in indices):
        raise Refused
    listed = []
    for index, dims in indices:
        if isinstance(index, str):
            whole = f"{index}[{', '.join([':', *['None'] * most])}]" if most else index
            listed.append(lift.kept(whole, "positions"))
        elif index.turns is not None and dims != most:
            raise Refused
        else:
            listed.append(index.code)
    code = f"{lift.code(node.value)}[{', '.join(listed)}]"
    picked = ""
    if most == rank == 1 and len(parts) == 2 and not isinstance(indices[1][0], str):
        with suppress(Refused):
            picked = f"{row_of(lift, node.value, parts[0]).code}, {indices[1][0].code}"
    return Lifted(code, rank, 0, is_computed=True, picked=picked)
