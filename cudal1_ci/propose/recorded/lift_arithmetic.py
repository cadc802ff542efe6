"""Write operations on elements, matrices and classes of rows for all turns."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import replace

import libcst as cst

from cudal1_ci.propose.recorded.graph import values_in
from cudal1_ci.propose.recorded.lift import Lift
from cudal1_ci.propose.recorded.lift_windows import cut_count
from cudal1_ci.propose.recorded.lifted import (
    BINARY,
    INDEX_DTYPES,
    UNARY,
    Lifted,
    Refused,
    aligned,
    size_of,
    within,
)
from cudal1_ci.propose.recorded.source import bracketed
from cudal1_ci.propose.recorded.spans import any_class, spread_to_rows


def classes_of(lift: Lift, node: cst.BaseExpression) -> Lifted | None:
    """Return what `classes == i` is, with the turn's number."""
    if not isinstance(node, cst.Comparison) or lift.bounds is None or lift.bounds.low:
        return None
    left, right = lift.children(node)
    for one, other in ((left, right), (right, left)):
        name = one.value if isinstance(one, cst.Name) else ""
        if name in lift.class_names and lift.code(other) == lift.class_names[name][0]:
            labels, listed = lift.class_names[name]
            if lift.operation(node).name != "eq" or lift.rank(node) != 1:
                return None
            if lift.dtype(other) not in INDEX_DTYPES:
                return None
            numbers = lift.kept(f"torch.searchsorted({listed}, {labels})", "numbers")
            return Lifted("", 1, 0, classes=numbers)
        if isinstance(one, cst.Name) and one.value == lift.bounds.index:
            is_fixed = not lift.varies(other) and lift.operation(node).name == "eq"
            if not is_fixed or lift.rank(node) != 1 or lift.dtype(other) not in INDEX_DTYPES:
                return None
            lift.check_pure(other)
            return Lifted("", 1, 0, classes=lift.code(other))
    return None


FLAT = {"squeeze": ("-1", "1"), "flatten": ("",), "view": ("-1",), "reshape": ("-1",)}
"""Calls that make a row of a column of positions, with their argument."""


def searched_of(lift: Lift, node: cst.BaseExpression) -> Lifted | None:
    """Return what the positions of a turn's class are: `torch.where(classes == i)[0]`."""
    call: cst.BaseExpression = node
    is_tuple = isinstance(node, cst.Subscript) and lift.code(node).endswith(")[0]")
    if isinstance(node, cst.Subscript) and is_tuple:
        call = node.value
    elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        given = ", ".join(lift.code(one) for one in node.args)
        call = node.func.value if given in FLAT.get(node.func.attr.value, ()) else node
    if call is node or not isinstance(call, cst.Call) or not isinstance(call.func, cst.Attribute):
        return None
    name, of = call.func.attr.value, call.func.value
    plain = [one.value for one in call.args if one.keyword is None]
    named = [lift.code(one).replace(" ", "") for one in call.args if one.keyword is not None]
    if lift.code(of) == "torch" and len(plain) == 1:
        [of] = plain
    elif plain:
        return None
    if name not in ("where", "nonzero") or (name == "where" and not is_tuple):
        return None
    if named != ["as_tuple=True"] * (is_tuple and name == "nonzero"):
        return None
    mask = lift.known.get(of.value) if isinstance(of, cst.Name) else classes_of(lift, of)
    if mask is None or not mask.classes or mask.code or mask.is_searched:
        return None
    return replace(mask, is_searched=True)


def has_rows(lift: Lift, test: cst.BaseExpression) -> Lifted | None:
    """Return the class of which a test asks whether it has rows: `mask.any()`, `len(idx) > 0`."""
    code = lift.code(test).strip("()" if test.lpar else "").replace(".item()", "")
    for one in within(test):
        own = lift.code(one) if isinstance(one, cst.Name | cst.Comparison) else ""
        mask = lift.known.get(own) if isinstance(one, cst.Name) else None
        if isinstance(one, cst.Comparison) and own:
            mask = classes_of(lift, one) if one is not test else None
            own = own if one.lpar else f"({own})"
        if mask is None or not mask.classes or mask.code:
            continue
        bare = own.strip("()")
        counts = [f"len({own})", f"{own}.numel()", f"{own}.size(0)", f"{own}.shape[0]"]
        if not mask.is_searched:
            counts = [f"{own}.sum()", f"torch.sum({bare})"]
            if code in (f"{own}.any()", f"torch.any({bare})"):
                return mask
        if code in [f"{one} {sign}" for one in counts for sign in ("> 0", "!= 0", ">= 1")]:
            return mask
    return None


def lift_elementwise(
    lift: Lift, node: cst.BaseExpression, operands: Sequence[cst.BaseExpression]
) -> Lifted:
    """Return an operation on elements, with its operands' dimensions above each other."""
    operation = lift.operation(node)
    if operation.name == "matmul":
        return lift_matmul(lift, node, operands)
    is_pairwise = operation.name in ("max", "min") and operation.value(1, "other") is not None
    is_search = operation.name == "where" and len(operands) == 1  # its results differ in size
    if is_search or (operation.name not in BINARY | UNARY and not is_pairwise):
        raise Refused
    parts = [lift_operand(lift, one, operands) for one in operands]
    if any(one.classes for one in parts):
        return lift_classes(lift, node, operands, parts)
    valid = {one.valid for one in parts} - {""}
    if len(valid) > 1 or (valid and any(one.rank and not one.valid for one in parts)):
        raise Refused
    tensors = [one for one in operands if one in lift.ranks and size_of(one) is None]
    dtypes = {lift.ranks[one][1] for one in tensors}
    if len(dtypes) > 1 and any(p.turns is not None and p.rank == 0 for p in parts):
        raise Refused  # a tensor without dimensions promotes no other
    picked = positions_read(lift, node, parts)
    new = rebuilt(lift, node, operands, aligned(parts))
    return replace(new, valid="".join(valid), picked=picked)


def lift_classes(
    lift: Lift,
    node: cst.BaseExpression,
    operands: Sequence[cst.BaseExpression],
    parts: list[Lifted],
) -> Lifted:
    """Return an operation on the rows of each class, at the rows of all of them."""
    x = next(one for one in parts if one.classes)
    if {one.classes for one in parts} - {x.classes, ""} or lift.bounds is None:
        raise Refused
    new, high = {}, lift.bounds.high
    for operand, part in zip(operands, parts, strict=True):
        if part.classes and not part.is_computed:
            safe = f"torch.where({any_class(x, high, lift.kept)}, {part.code}, 1)"
            part = replace(part, code=lift.kept(safe, "rows"))
        elif part.turns is not None and not part.classes:
            if part.turns or part.is_kept or part.rank != x.rank - 1:
                raise Refused
            part = spread_to_rows(part, x, high, lift.kept)
        if part.rank != (x.rank if part.classes else 0):
            raise Refused
        new[operand] = part.code
    dtypes = {lift.dtype(one) for one in operands if one in lift.ranks}
    if lift.rank(node) != x.rank or len(dtypes) > 1:
        raise Refused
    return replace(x, code=lift.swapped(node, new), is_computed=True)


def positions_read(lift: Lift, node: cst.BaseExpression, parts: Sequence[Lifted]) -> str:
    """Return the positions on whose elements alone an operation's elements depend."""
    given = values_in(lift.operation(node).recorded)
    read = [one for one in given if lift.source.graph.num_dims(one) > 0]
    picked = [one.picked for one in parts if one.rank]
    return picked[0] if len(read) == len(picked) and len({*picked}) == 1 else ""


def lift_operand(
    lift: Lift, node: cst.BaseExpression, operands: Sequence[cst.BaseExpression]
) -> Lifted:
    """Return an operand for all turns; the turn's number as a tensor, next to one whose dtype
    that does not change."""
    offset = None if lift.bounds is None else lift.bounds.offset(node)
    others = [one for one in operands if one is not node]
    if offset is None or len(others) != 1 or lift.bounds is None:
        count = cut_count(lift, node, others[0]) if len(others) == 1 else None
        if count is not None and lift.is_float(others[0]):
            return Lifted(count, 0, 0, is_computed=True)
        found = lift.lift_any(node)
        if found.is_host and len(others) == 1 and lift.is_float(others[0]):
            code = f"{bracketed(found.code)}.to({lift.near(others[0])}.device)"
            return replace(found, code=code, is_host=False)
        return found if found.valid or (found.classes and found.code) else lift.lift(node)
    if not lift.is_float(others[0]) and lift.dtype(others[0]) != "int64":
        raise Refused
    device = bracketed(lift.lift(others[0]).code)
    return Lifted(lift.arange(offset, f"{device}.device"), 0, 0, is_computed=True)


def lift_matmul(
    lift: Lift, node: cst.BaseExpression, operands: Sequence[cst.BaseExpression]
) -> Lifted:
    """Return a product of matrices, one for each turn."""
    parts = [lift.lift(one) for one in operands]
    if any(one.rank < 2 for one in parts):
        raise Refused
    parts = aligned([one.first() for one in parts])
    if isinstance(node, cst.Call) and lift.code(node.func).rpartition(".")[2] in ("mm", "bmm"):
        found = rebuilt(lift, node, operands, parts)  # which take no more dimensions
        code = " @ ".join(bracketed(one.code) for one in parts)
        return replace(found, code=code)
    return rebuilt(lift, node, operands, parts)


def lift_matrices(lift: Lift, node: cst.Call, operands: Sequence[cst.BaseExpression]) -> Lifted:
    """Return an operation that takes matrices, for those of all turns."""
    listed = [one for one in operands if one in lift.ranks or lift.varies(one)]
    parts = [lift.lift(one).first() for one in listed]
    if not listed or any(one.rank != 2 for one in parts):
        raise Refused
    new = {one: part.code for one, part in zip(listed, parts, strict=True)}
    for one in operands:
        if one not in new:
            lift.check_pure(one)
    return Lifted(lift.swapped(node, new), lift.rank(node), 0, is_computed=True)


def rebuilt(
    lift: Lift, node: cst.CSTNode, old: Sequence[cst.BaseExpression], new: Sequence[Lifted]
) -> Lifted:
    """Return an expression with other operands."""
    code = lift.swapped(node, dict(zip(old, (one.code for one in new), strict=True)))
    turning = [one for one in new if one.turns is not None]
    rank = lift.rank(node)
    if not turning or rank != max(one.rank for one in new):
        raise Refused
    return Lifted(code, rank, turning[0].turns, turning[0].is_kept, is_computed=True)


def lift_einsum(lift: Lift, node: cst.Call, plain: Sequence[cst.BaseExpression]) -> Lifted:
    """Return an einsum with a letter for the turns."""
    if not plain or not isinstance(plain[0], cst.SimpleString):
        raise Refused
    equation = str(plain[0].evaluated_value).replace(" ", "")
    reads, arrow, result = equation.partition("->")
    if not arrow or "." in equation:
        raise Refused
    letter = next(one for one in "t" + string.ascii_letters if one not in equation)
    new, spelled = {}, []
    for one, letters in zip(plain[1:], reads.split(","), strict=True):
        x = lift.lift(one)
        if x.turns is not None:
            x = x.first() if x.is_kept else x
            letters = f"{letters[: x.turns]}{letter}{letters[x.turns :]}"
        new[one] = x.code
        spelled.append(letters)
    new[plain[0]] = f'"{",".join(spelled)}->{letter}{result}"'
    return Lifted(lift.swapped(node, new), lift.rank(node), 0, is_computed=True)
