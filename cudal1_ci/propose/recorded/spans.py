"""Reduce the first rows of each turn, as many as its length is, with a mask for all turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import libcst as cst

from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.lifted import Lifted, Refused, integer
from cudal1_ci.propose.recorded.source import bracketed

REDUCED = ("sum", "mean", "amax", "amin", "std", "var")
FLOATS = ("float", "bfloat")
EMPTY = {"amax": "-inf", "amin": "inf"}
"""The extremum of no numbers."""


def host_number(node: cst.BaseExpression) -> cst.BaseExpression | None:
    """Return the tensor that `int(x)` and `x.item()` read."""
    if not isinstance(node, cst.Call):
        return None
    if isinstance(node.func, cst.Name) and node.func.value == "int" and len(node.args) == 1:
        return node.args[0].value
    is_item = isinstance(node.func, cst.Attribute) and node.func.attr.value == "item"
    return node.func.value if is_item and not node.args else None  # type: ignore[attr-defined]


def masked(x: Lifted, bound: Lifted, rank: int, keep: Callable[[str, str], str]) -> Lifted:
    """Return the first positions of each turn, with their mask.

    Args:
        x: The turns.
        bound: The number of positions of each turn.
        rank: Dimensions of one turn.
        keep: Returns a name for code.
    """
    whole, number = bracketed(x.code), bracketed(bound.code)
    number = keep(f"{number}.to({whole}.device)", "bound")
    size = f"{whole}.size(1)"
    limit = f"torch.where({number} < 0, {number} + {size}, {number})[:, None]"
    valid = keep(f"torch.arange({size}, device={whole}.device) < {limit}", "valid")
    return Lifted(whole, rank, 0, is_new=False, valid=valid, length=bound.code)


def flipped(x: Lifted, keep: Callable[[str, str], str]) -> Lifted:
    """Return the first positions of each turn in the opposite order."""
    whole = bracketed(x.code)
    steps = f"torch.arange({whole}.size(1), device={whole}.device)"
    count = f"{bracketed(x.valid)}.sum(1, keepdim=True)"
    index = keep(f"({count} - 1 - {steps}) % {whole}.size(1)", "index")
    return replace(x, code=gathered(x, index, 1), is_new=True, is_computed=True)


def gathered(x: Lifted, index: str, at: int) -> str:
    """Return code that reads a dimension of turns at a row of positions for each turn."""
    whole, before, after = bracketed(x.code), ", None" * (at - 1), ", None" * (x.rank - at)
    spread = f"[:{before}, :{after}]" if before or after else ""
    return f"{whole}.gather({at}, {bracketed(index)}{spread}.expand_as({whole}))"


def wide_mask(x: Lifted) -> str:
    """Return the mask of the positions of each turn, with as many dimensions as turns have."""
    nones = ", None" * (x.rank - 1)
    return f"{bracketed(x.valid)}[...{nones}]" if nones else x.valid


def reduced(
    node: cst.Call,
    operations: Sequence[Operation],
    x: Lifted,
    name: str,
    dtype: str,
    keep: Callable[[str, str], str],
) -> Lifted:
    """Return a reduction of the valid positions of each turn.

    Args:
        node: The call, or the one whose values are taken.
        operations: What it recorded.
        x: The positions.
        name: The operation.
        dtype: Of the positions.
        keep: Returns a name for code.
    """
    if not is_over_first(node, operations, x) or not dtype.startswith(FLOATS):
        raise Refused
    nones = "".join(", None" for _ in range(x.rank - 1))
    mask = wide_mask(x)
    count = f"{bracketed(x.valid)}.sum(1)"
    wide = f"[:{nones}]" if nones else ""
    total = f"torch.where({mask}, {x.code}, 0).sum(1)"
    code = total
    if name in ("amax", "amin"):
        code = f'torch.where({mask}, {x.code}, float("{EMPTY[name]}")).{name}(1)'
    elif name != "sum":
        code = f"{total} / {count}{wide}"
    if name in ("std", "var"):
        mean = keep(code, "mean")
        square = f"torch.where({mask}, {x.code} - {bracketed(mean)}[:, None], 0).square().sum(1)"
        code = f"{square} / ({count} - 1).clamp(min=0){wide}"
        code = f"({code}).sqrt()" if name == "std" else code
    return Lifted(code, x.rank - 1, 0, is_computed=True)


def by_class(
    node: cst.Call,
    operations: Sequence[Operation],
    x: Lifted,
    name: str,
    high: str,
    keep: Callable[[str, str], str],
    *,
    is_cut: bool = True,
) -> Lifted:
    """Return the sum, the mean or an extremum of the rows of each class. Rows of no class are
    added to a last one, which is cut off. A class without rows has no extremum: it raises.

    Args:
        node: The call.
        operations: What it recorded.
        x: The rows, of floating numbers.
        name: The operation.
        high: Code of the number of classes.
        keep: Returns a name for code.
        is_cut: Whether the last one is cut off.
    """
    if not is_over_first(node, operations, x) or name not in ("sum", "mean", "amax", "amin"):
        raise Refused
    first, more = f"[:{'' if high.isalnum() else ' '}{high}]" * is_cut, one_more_than(high)
    classes = numbers_of(x, high, keep)
    x = replace(x, code=keep(x.code, "rows")) if x.is_computed else x
    rows, nones = bracketed(x.code), "".join(", None" for _ in range(x.rank - 1))
    sizes = "".join(f", {rows}.size({dim})" for dim in range(1, x.rank))
    if name in ("amax", "amin"):
        start = f'{rows}.new_full(({more}{sizes or ","}), float("{EMPTY[name]}"))'
        spread = f"{bracketed(classes)}[:{nones}].expand_as({x.code})" if nones else classes
        code = f'{start}.scatter_reduce(0, {spread}, {x.code}, "{name}"){first}'
        return Lifted(code, x.rank - 1, 0, is_computed=True)
    code = f"{rows}.new_zeros({more}{sizes}).index_add_(0, {classes}, {x.code}){first}"
    if name == "mean":
        count = f"{bracketed(classes)}.bincount(minlength={more}){first}"
        code += f" / {count}" + (f"[:{nones}]" if nones else "")
    return Lifted(code, x.rank - 1, 0, is_computed=True)


def one_more_than(high: str) -> str:
    """Return code of the number after the last class."""
    return str(int(high) + 1) if high.isdigit() else f"{bracketed(high)} + 1"


def numbers_of(x: Lifted, high: str, keep: Callable[[str, str], str]) -> str:
    """Return the class of each row; that of a row of no class is the number of classes."""
    more = bracketed(one_more_than(high))
    return bracketed(keep(f"{bracketed(x.classes)}.clamp(-1, {high}) % {more}", "classes"))


def softmax_by_class(
    node: cst.Call,
    operations: Sequence[Operation],
    x: Lifted,
    high: str,
    keep: Callable[[str, str], str],
) -> Lifted:
    """Return the softmax over the rows of each class, as `by_class` takes its arguments."""
    classes = numbers_of(x, high, keep)
    highest = by_class(node, operations, x, "amax", high, keep, is_cut=False).code
    most = keep(f"{highest}.detach()", "most")  # a softmax is the same whatever is subtracted
    weights = keep(f"({x.code} - {most}[{classes}]).exp()", "weights")
    rows = replace(x, code=weights, is_computed=True)
    total = keep(by_class(node, operations, rows, "sum", high, keep, is_cut=False).code, "total")
    return replace(rows, code=f"{weights} / {total}[{classes}]")


def spread_to_rows(value: Lifted, x: Lifted, high: str, keep: Callable[[str, str], str]) -> Lifted:
    """Return the value of each class at its rows, and 1 at a row of no class."""
    each = bracketed(keep(value.code, "each"))
    whole = keep(f"torch.cat([{each}, {each}.new_ones(1, *{each}.shape[1:])])", "each")
    return replace(x, code=f"{whole}[{numbers_of(x, high, keep)}]", is_computed=True)


def has_rows_of(x: Lifted, high: str, rank: int, keep: Callable[[str, str], str]) -> str:
    """Return which classes have a row, with as many dimensions as their values."""
    classes, more = numbers_of(x, high, keep), one_more_than(high)
    blank = f"torch.zeros({more}, dtype=torch.bool, device={bracketed(x.classes)}.device)"
    first = f"[:{'' if high.isalnum() else ' '}{high}]"
    found = keep(f"{blank}.index_fill_(0, {classes}, True){first}", "has_rows")
    nones = ", None" * (rank - 1)
    return f"{found}[:{nones}]" if nones else found


def any_class(x: Lifted, high: str, keep: Callable[[str, str], str]) -> str:
    """Return the mask of the rows that are of a class, as wide as rows are."""
    nones = "".join(", None" for _ in range(x.rank - 1))
    mask = f"{numbers_of(x, high, keep)} < {high}"
    return keep(f"({mask})[:{nones}]" if nones else mask, "is_any")


def rolled(x: Lifted, shift: Lifted, dim: int, keep: Callable[[str, str], str]) -> Lifted:
    """Return turns that are rolled by a number each.

    Args:
        x: The turns.
        shift: Their numbers.
        dim: The dimension of a turn.
        keep: Returns a name for code.
    """
    whole, at = bracketed(x.code), dim % x.rank + 1
    number = f"{bracketed(shift.code)}.to({whole}.device)"
    steps = f"torch.arange({whole}.size({at}), device={whole}.device)"
    index = keep(f"({steps} - {number}[:, None]) % {whole}.size({at})", "index")
    return Lifted(gathered(x, index, at), x.rank, 0, is_computed=True)


def is_over_first(node: cst.Call, operations: Sequence[Operation], x: Lifted) -> bool:
    """Return whether a reduction is over the first dimension alone, without further options."""
    named = {one.keyword.value: one.value for one in node.args if one.keyword}
    plain = [one.value for one in node.args if one.keyword is None]
    own = len(plain) + len(named)
    receiver = {len(one.recorded.args) + len(one.recorded.kwargs) - own for one in operations}
    if receiver == {0}:  # torch.mean(x, dim=0)
        plain = plain[1:]
    elif receiver != {1}:
        return False
    given = [*plain, *(value for key, value in named.items() if key in ("dim", "axis"))]
    if len(given) != len(plain) + len(named) or len(given) > 1:
        return False
    if not given:
        return x.rank == 1
    try:
        return integer(given[0]) in (0, -x.rank)
    except Refused:
        return False
