"""Add products in one pass, and sum products of the same shape without a product of matrices."""

from __future__ import annotations

import math
from collections.abc import Iterator

import libcst as cst

from cudal1_ci.propose.editing.terms import portable
from cudal1_ci.propose.recorded.attention_code import letters
from cudal1_ci.propose.recorded.graph import Graph, Operation, time_us
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule, shown
from cudal1_ci.propose.recorded.scalars import is_number, is_tensor
from cudal1_ci.propose.recorded.source import File, Place, bare, bracketed

SUMS = {"add": "+", "sub": "-", "add_": "+", "sub_": "-"}
SIGNS = (cst.Add, cst.Subtract)

LEAST_SHARE = 0.03
"""Least share of the recorded time that is spent on what is found. One of two passes is saved, and
a gain of less than 2 % is not proven."""


def find_sums(call: Call) -> Iterator[Change]:
    """Find `x * s + y`, where s is a number or all three are tensors, where it takes time."""
    found = list(sums_in(call))
    spent_us = sum(time_us(one) for _, *operations in found for one in operations)
    if spent_us >= LEAST_SHARE * sum(map(time_us, call.graph.operations)):
        yield from (change for change, *_ in found)


def sums_in(call: Call) -> Iterator[tuple[Change, Operation, Operation]]:
    """Yield each sum with a product in it, and the two operations."""
    graph, source = call.graph, call.source
    for outer in graph.operations:
        place = source.place(outer)
        file = None if place is None else source.file(place.file)
        if place is None or file is None or outer.name not in SUMS or outer.recorded.kwargs:
            continue
        nodes = source.operands(outer)
        if len(nodes) != 2 or not is_sum(place.node):
            continue
        for position in (0, 1) if outer.name == "add" else (1,):
            inner = graph.made_by(outer.value(position), "mul")
            there = None if inner is None else source.place(inner)
            y = nodes[1 - position]
            if inner is None or there is None or there.node is not nodes[position] or y is None:
                continue
            if graph.sole_reader(inner.output) is not outer or not is_tensor(file, place, y):
                continue
            code = sum_of(call, file, place, (outer, inner), y)
            if code is not None:
                words = shown(outer, source)
                change = Change(place.file, {place.node: code}, words, frozenset(("torch",)))
                yield change, outer, inner
                break


def is_sum(node: cst.BaseExpression) -> bool:
    """Return whether an expression is a sum or a difference: an operator or a method."""
    if isinstance(node, cst.BinaryOperation):
        return isinstance(node.operator, SIGNS)
    return (
        isinstance(node, cst.Call)
        and isinstance(node.func, cst.Attribute)
        and node.func.attr.value in SUMS
        and len(node.args) == 1
    )


def argument(code: str) -> str:
    """Return code as an argument has it."""
    return portable(bare(code))


def sum_of(
    call: Call,
    file: File,
    place: Place,
    operations: tuple[Operation, Operation],
    y: cst.BaseExpression,
) -> str | None:
    """Return the call that adds a product to y."""
    outer, inner = operations
    graph = call.graph
    addend = outer.value(0) if outer.value(1) == inner.output else outer.value(1)
    known = [graph.of(one) for one in (addend, inner.output, outer.output)]
    factors = call.source.operands(inner)
    if None in known or len(factors) != 2 or factors[0] is None or factors[1] is None:
        return None
    dtypes = {one.dtype for one in known if one is not None}
    sizes = {math.prod(one.shape) for one in known[1:] if one is not None}
    if len(dtypes) > 1 or "float" not in min(dtypes) or len(sizes) > 1:
        return None
    x, s = (file.code(one).strip() for one in factors if one is not None)
    base, name, is_written = file.code(y).strip(), outer.name.rstrip("_"), outer.name[-1] == "_"
    if inner.value(1) is None:
        if not is_number(file, place, factors[1]):
            return None
        if is_written:
            return f"{bracketed(base)}.{outer.name}({argument(x)}, alpha={argument(s)})"
        return f"torch.{name}({argument(base)}, {argument(x)}, alpha={argument(s)})"
    if not all(is_tensor(file, place, one) for one in factors if one is not None):
        return None
    if not is_fast(graph, [addend, inner.value(0), inner.value(1)], outer.output):
        return None
    minus = ", value=-1" if name == "sub" else ""
    if is_written:
        return f"{bracketed(base)}.addcmul_({argument(x)}, {argument(s)}{minus})"
    return f"torch.addcmul({argument(base)}, {argument(x)}, {argument(s)}{minus})"


def is_fast(graph: Graph, values: list[int | None], result: int | None) -> bool:
    """Return whether `addcmul` reads tensors of one dtype in one pass: on a CPU it is slower than
    two passes where one of them is broadcast along the last dimension."""
    whole = graph.of(result)
    known = [graph.of(one) for one in values]
    if whole is None or any(one is None or one.dtype != whole.dtype for one in known):
        return False
    if whole.device == "cuda":
        return True
    return bool(whole.shape) and all(
        one is not None and one.shape[-1:] == whole.shape[-1:] and one.stride[-1:] == (1,)
        for one in known
    )


def find_product_sums(call: Call) -> Iterator[Change]:
    """Find `einsum("b n d, b n d -> b d", x, y)`: einsum makes it a product of matrices of one
    row and one column each."""
    graph, source = call.graph, call.source
    for operation in graph.operations:
        spelled = letters(operation) if operation.name == "einsum" else None
        place, nodes = source.place(operation), source.operands(operation)
        file = None if place is None else source.file(place.file)
        if spelled is None or place is None or file is None or len(nodes) != 3:
            continue
        left, right, out = spelled
        summed = [n for n, one in enumerate(left) if one not in out]
        is_kept = [one for one in left if one in out] == out
        if left != right or not is_kept or not summed or len(left) - 1 in summed:
            continue
        codes = [bracketed(file.code(one).strip()) for one in nodes[1:] if one is not None]
        known = [graph.of(operation.value(n)) for n in (1, 2)]
        is_alike = len({one.dtype for one in known if one is not None}) == 1
        if len(codes) != 2 or None in known or not is_alike:
            continue
        dims = [n - len(left) for n in summed]
        dim = str(dims[0]) if len(dims) == 1 else f"({', '.join(map(str, dims))})"
        code = f"({codes[0]} * {codes[1]}).sum(dim={dim})"
        yield Change(place.file, {place.node: code}, shown(operation, source))


RULES = (
    RecordedRule(
        name="multiply_add",
        family="operation fusion",
        why="add with alpha and addcmul multiply and add in one pass, without a tensor in between",
        precondition="the factor is a number in every call, or all three are tensors of one dtype; "
        f"they take {LEAST_SHARE:.0%} of the call's time; results may differ in the last bit",
        find=find_sums,
    ),
    RecordedRule(
        name="product_sum",
        family="algebra",
        why="einsum of two tensors with the same dimensions is a batch of products of one row and "
        "one column, which is slower than a product and a sum",
        precondition="both tensors have the same dimensions in the same order",
        find=find_product_sums,
    ),
)
