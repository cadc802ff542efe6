"""Write calls of torch, of tensors' methods and of modules for all turns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import libcst as cst

from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.lift import Lift
from cudal1_ci.propose.recorded.lift_arithmetic import (
    lift_einsum,
    lift_elementwise,
    lift_matmul,
    lift_matrices,
    positions_read,
)
from cudal1_ci.propose.recorded.lift_dims import dims_of, is_method, lift_pair, lift_with_dims
from cudal1_ci.propose.recorded.lift_windows import lift_rolling
from cudal1_ci.propose.recorded.lifted import (
    ALIASING,
    BINARY,
    COPIES,
    IMAGES,
    LIKE,
    MATRICES,
    ROWWISE,
    SPECTRA,
    UNARY,
    WHOLE,
    Lifted,
    Refused,
    integer,
    is_pair_operation,
)
from cudal1_ci.propose.recorded.source import bracketed
from cudal1_ci.propose.recorded.spans import REDUCED, by_class, flipped, reduced, softmax_by_class

MOST_COMPARED = 2**24
"""Pairs of elements that are compared at once."""
ROLLING = frozenset(("sum", "mean", "amax", "amin"))
"""Reductions of windows that the ends of a tensor cut."""


def lift_call(lift: Lift, node: cst.Call, operation: Operation) -> Lifted:
    """Return a call, by the operation that it made."""
    own = None if lift.stacked is None else lift.stacked(lift, node)
    if own is not None:
        return own
    operands = lift.source.operands(operation)
    plain = [one.value for one in node.args if one.keyword is None and not one.star]
    named = [one.value for one in node.args if one.keyword is not None]
    if operation.name == "gather":
        named = [o.value for o in node.args if o.keyword and o.keyword.value != "index"]
    if any(one.star for one in node.args) or any(lift.varies(one) for one in named):
        raise Refused
    for one in named:
        lift.check_pure(one)
    if not is_torch(lift, node):
        return lift_layer(lift, node, operation, plain)
    names = {one.name for one in lift.operations[node]}
    if len(names) != 1 or not operands:
        if names == {"einsum"}:
            return lift_einsum(lift, node, plain)
        raise Refused
    real = [one for one in operands if one is not None]
    name = operation.name
    is_whole_max = name in ("max", "min") and len(node.args) + is_method(lift, node) == 1
    name = WHOLE[name] if is_whole_max else name
    if name == "softmax" and lift.varies(real[0]) and lift.bounds is not None:
        x = lift.lift_any(real[0])
        if x.classes and x.code and lift.is_float(real[0]):
            made = lift.operations[node]
            return softmax_by_class(node, made, x, lift.bounds.high, lift.kept)
    window = lift.edges.get(real[0].value) if isinstance(real[0], cst.Name) else real[0]
    if name in ROLLING and isinstance(window, cst.Subscript):
        rolling = lift_rolling(lift, node, name, window)
        if rolling is not None:
            return rolling
    if name in REDUCED and lift.varies(real[0]):
        of_part = lift_part_reduction(lift, node, name, real[0])
        if of_part is not None:
            return of_part
    name = operation.name
    if name == "flip" and lift.varies(real[0]):
        x, dims = lift.lift_any(real[0]), [lift.code(one) for one in (*real[1:], *named)]
        if x.valid and [one.strip("[(,)]") for one in dims] == ["0"]:
            return flipped(x, lift.kept)
    if name == "einsum":
        return lift_einsum(lift, node, plain)
    if name == "isin" and len(real) == len(node.args) == 2:
        return lift_isin(lift, node, *real)
    own = None if lift.loss is None else lift.loss(lift, node, name, real)
    if own is not None:
        return own
    if name == "matmul":
        return lift_matmul(lift, node, real)
    if name in MATRICES:
        return lift_matrices(lift, node, real)
    if name in ("cat", "concat", "stack") and lift.joined is not None:
        return lift.joined(lift, node, name)
    if name == "embedding" and not any(lift.varies(one) for one in real[1:]):
        for one in real[1:]:
            lift.check_pure(one)
        return lift_lookup(lift, node, operation, real[0])
    if name in SPECTRA and any(integer(one) != -1 for one in dims_of(node)):
        raise Refused
    if name in ROWWISE | SPECTRA or name in IMAGES:
        if any(lift.varies(one) for one in real[1:]):
            raise Refused
        for one in real[1:]:
            lift.check_pure(one)
        if name in IMAGES and lift.folded is not None:
            return lift.folded(lift, node, real[0])
        x = rows_last(lift.lift(real[0]))
        return Lifted(lift.swapped(node, {real[0]: x.code}), x.rank, x.turns, is_computed=True)
    if name in UNARY | LIKE and not any(lift.varies(one) for one in real[1:]):
        return lift_unary(lift, node, name, real)
    if name in BINARY or (name in ("max", "min") and operation.value(1, "other") is not None):
        return lift_elementwise(lift, node, real)
    if is_pair_operation(operation):
        return lift_pair(lift, node, name, real)
    return lift_with_dims(lift, node, name, real)


def lift_layer(
    lift: Lift, node: cst.Call, operation: Operation, plain: Sequence[cst.BaseExpression]
) -> Lifted:
    """Return a call of a module that is the same in all turns."""
    if len(plain) != 1 or lift.folded is None or lift.varies(node.func):
        raise Refused
    whole = lift.source.graph.in_one_call
    parts = {o.name for one in lift.operations[node] for o in whole(one)}
    if parts == {"embedding"}:
        return lift_lookup(lift, node, operation, plain[0])
    if not parts <= ROWWISE | UNARY - ALIASING | {"dim"}:
        return lift.folded(lift, node, plain[0])
    x = rows_last(lift.lift(plain[0]))
    code = lift.swapped(node, {plain[0]: x.code})
    return Lifted(code, x.rank, x.turns, is_computed=True)


def lift_part_reduction(
    lift: Lift, node: cst.Call, name: str, of: cst.BaseExpression
) -> Lifted | None:
    """Return a reduction of each turn's first positions, or of the rows of its class; None where
    it is of all elements."""
    x, made = lift.lift_any(of), lift.operations[node]
    if x.valid:
        return reduced(node, made, x, name, lift.dtype(of), lift.kept)
    if x.classes and x.code and lift.is_float(of) and lift.bounds is not None:
        return by_class(node, made, x, name, lift.bounds.high, lift.kept)
    return None


def lift_isin(
    lift: Lift, node: cst.Call, one: cst.BaseExpression, others: cst.BaseExpression
) -> Lifted:
    """Return whether each turn's elements are among its others."""
    x, y = lift.lift(one).first(), lift.lift(others).first()
    sizes = [lift.source.graph.of(made.output) for made in lift.operations[node]]
    if y.turns is None:
        return replace(x, code=lift.swapped(node, {one: x.code}), is_new=True, is_computed=True)
    given = [lift.source.graph.of(made.value(1)) for made in lift.operations[node]]
    compared = sum(
        math.prod((*a.shape, *b.shape))
        for a, b in zip(sizes, given, strict=True)
        if a is not None and b is not None
    )
    if x.rank != 1 or y.rank != 1 or compared > MOST_COMPARED:
        raise Refused
    code = f"({bracketed(x.code)}[..., None] == {bracketed(y.code)}[:, None]).any(-1)"
    return Lifted(code, 1, 0, is_computed=True)


def lift_lookup(
    lift: Lift, node: cst.Call, operation: Operation, index: cst.BaseExpression
) -> Lifted:
    """Return rows of a table that is the same in all turns."""
    norm, frequency = (
        operation.argument(at, name) for at, name in ((3, "max_norm"), (5, "scale_grad_by_freq"))
    )
    if (norm is not None and norm.text != "None") or (frequency and frequency.text != "False"):
        raise Refused("a turn changes the table, or counts what it reads")
    x = lift.lift(index)
    x = x.first() if x.is_kept else x
    code = lift.swapped(node, {index: x.code})
    return Lifted(code, x.rank + 1, x.turns, is_computed=True)


def is_torch(lift: Lift, node: cst.Call) -> bool:
    """Return whether a function of torch or a method of a tensor is called."""
    function = node.func
    if not isinstance(function, cst.Attribute):
        return False
    root = lift.code(function.value)
    if root in (
        "torch",
        "F",
        "torch.fft",
        "torch.linalg",
        "torch.nn.functional",
        "nn.functional",
    ):
        return True
    return function.value in lift.ranks


def rows_last(x: Lifted) -> Lifted:
    """Return a value whose last dimension is not the turns."""
    if x.rank < 1:
        raise Refused
    return x.first() if x.is_kept or x.turns == x.rank else x


def lift_unary(lift: Lift, node: cst.Call, name: str, operands: list[cst.BaseExpression]) -> Lifted:
    """Return a call that keeps the dimensions of its one tensor."""
    for one in operands[1:]:
        lift.check_pure(one)
    x = lift.dense(lift.lift_any(operands[0]))
    if not x.valid and not x.is_tensor and not (x.classes and x.code):
        raise Refused
    if name == "clone" and x.is_new and not lift.writes:
        return x
    code = lift.swapped(node, {operands[0]: x.code})
    is_new = x.is_new if name in COPIES - {"clone"} or name in ALIASING else True
    is_computed = x.is_computed or name not in COPIES
    picked = positions_read(lift, node, [x])
    return replace(x, code=code, is_new=is_new, is_computed=is_computed, picked=picked)
