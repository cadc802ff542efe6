"""Multiply small tensors rather than large ones, and use the functions that add or subtract one
by themselves."""

from __future__ import annotations

import math
from collections.abc import Iterator

import libcst as cst

from cudal1_ci.propose.recorded.algebra import in_one_block
from cudal1_ci.propose.recorded.graph import Graph, Operation
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule, shown
from cudal1_ci.propose.recorded.scalars import is_number
from cudal1_ci.propose.recorded.source import File, Place, Source, bracketed

LEAST = 4096
"""Elements of a product below which a pass over it costs less than calling an operation."""
SMALLER = 4
"""How many times a product has the elements of the factors."""
SIGNS = {("*", "*"): "*", ("*", "/"): "/", ("/", "/"): "*"}
"""Between two factors, for the signs before them."""


def find_factors(call: Call) -> Iterator[Change]:
    """Find `(x * g) * s` where g and s are small: `x * (g * s)` passes over x once."""
    graph, source = call.graph, call.source
    for outer in graph.operations:
        inner = graph.made_by(outer.value(0), "mul", "div")
        if outer.name not in ("mul", "div") or inner is None:
            continue
        if graph.sole_reader(inner.output) is not outer or not is_large(graph, inner.output):
            continue
        here, there = source.place(outer), source.place(inner)
        if here is None or there is None or inner.recorded.frame != outer.recorded.frame:
            continue
        last, first = here.node, there.node
        if not isinstance(last, cst.BinaryOperation) or not isinstance(first, cst.BinaryOperation):
            continue
        if last.left is not first or not (is_plain(first.right) and is_plain(last.right)):
            continue
        signs, factors = (sign(first), sign(last)), [first.right, last.right]
        is_small = all(
            is_factor(source, one, node, inner)
            for one, node in ((inner, first.right), (outer, last.right))
        )
        if signs == ("/", "*") and inner.value(1) is None and outer.value(1) is not None:
            signs, factors = ("*", "/"), [last.right, first.right]
        are_numbers = signs != ("*", "*") and inner.value(1) is None and outer.value(1) is None
        file = source.file(here.file)
        if signs not in SIGNS or not is_small or are_numbers or file is None:
            continue
        small = f"({file.code(factors[0])} {SIGNS[signs]} {file.code(factors[1])})"
        x = file.code(first.left)
        yield Change(here.file, {last: f"{x} {signs[0]} {small}"}, shown(outer, source))


def is_large(graph: Graph, value: int | None) -> bool:
    known = graph.of(value)
    return known is not None and "float" in known.dtype and math.prod(known.shape) >= LEAST


def is_plain(node: cst.BaseExpression) -> bool:
    """Return whether an operand is made of names, attributes and numbers."""
    if isinstance(node, cst.BinaryOperation):
        return is_plain(node.left) and is_plain(node.right)
    if isinstance(node, cst.Attribute):
        return is_plain(node.value)
    return isinstance(node, cst.Name | cst.Integer | cst.Float)


def sign(node: cst.BinaryOperation) -> str:
    """Return `*`, `/`, or "" for another operator."""
    return {cst.Multiply: "*", cst.Divide: "/"}.get(type(node.operator), "")


def is_factor(source: Source, one: Operation, node: cst.BaseExpression, inner: Operation) -> bool:
    """Return whether a right operand is a number or a small tensor of the product's dtype."""
    nodes, graph = source.operands(one), source.graph
    if len(nodes) != 2 or nodes[1] is not node:
        return False
    known, product = graph.of(one.value(1)), graph.of(inner.output)
    if known is None:
        return isinstance(one.literal(1), int | float)
    if product is None or known.dtype != product.dtype or not known.shape:
        return False
    return math.prod(known.shape) * SMALLER <= math.prod(product.shape)


def find_ones(call: Call) -> Iterator[Change]:
    """Find `log(1 + x)` and `exp(x) - 1`."""
    graph, source = call.graph, call.source
    for operation in graph.operations:
        inner = graph.made_by(operation.value(0))
        place = source.place(operation)
        if inner is None or place is None or inner.recorded.frame != operation.recorded.frame:
            continue
        if graph.sole_reader(inner.output) is not operation or not is_large(graph, inner.output):
            continue
        if (operation.name, inner.name) == ("log", "add"):
            x, name = other_than_one(source, inner), "log1p"
        elif (operation.name, inner.name) == ("sub", "exp"):
            is_one = other_than_one(source, operation) is not None
            x, name = (source.operands(inner) or [None])[0] if is_one else None, "expm1"
        else:
            continue
        file = source.file(place.file)
        if x is not None and file is not None and file.is_within(x, place.node):
            code = f"{bracketed(file.code(x))}.{name}()"
            yield Change(place.file, {place.node: code}, shown(operation, source))


def other_than_one(source: Source, operation: Operation) -> cst.BaseExpression | None:
    """Return the first operand of a sum or difference whose other one is written as 1."""
    nodes = source.operands(operation)
    if operation.recorded.kwargs or operation.literal(1) != 1 or len(nodes) != 2:
        return None
    return nodes[0] if isinstance(nodes[1], cst.Integer | cst.Float) else None


def find_scales(call: Call) -> Iterator[Change]:
    """Find `(q * s) @ k` where k is small: `q @ (k * s)` leaves q as it is."""
    graph, source = call.graph, call.source
    for scaling in graph.operations:
        product = graph.sole_reader(scaling.output)
        if scaling.name != "mul" or product is None or not is_large(graph, scaling.output):
            continue
        if product.name not in ("matmul", "einsum") or scaling.value(1) is not None:
            continue
        here, there = source.place(product), source.place(scaling)
        nodes, factors = source.operands(product), source.operands(scaling)
        if here is None or there is None or len(factors) != 2 or None in factors:
            continue
        file = source.file(here.file)
        first = 1 if product.name == "einsum" else 0
        given = [argument.value for argument in product.recorded.args]
        if file is None or len(nodes) != first + 2 or scaling.output not in given[first:]:
            continue
        other = first + 1 if given[first] == scaling.output else first
        if not is_smaller(graph, given[other], scaling.output):
            continue
        x, number = factors
        small, scale = nodes[other], source.argument_code(scaling, 1, at=product)
        if small is None or x is None or number is None or scale is None:
            continue
        if not is_number(file, there, number) or not in_one_block(call, [scaling, product]):
            continue
        new = unscaled(file, there, here, x)
        if new is not None:
            code = f"{bracketed(file.code(small).strip())} * {bracketed(scale.strip())}"
            code = code if isinstance(here.node, cst.Call) else f"({code})"
            yield Change(here.file, {**new, small: code}, shown(product, source))


def is_smaller(graph: Graph, one: int | None, other: int | None) -> bool:
    """Return whether a tensor has a quarter of another one's elements, or less."""
    small, large = graph.of(one), graph.of(other)
    if small is None or large is None or small.dtype != large.dtype:
        return False
    return math.prod(small.shape) * SMALLER <= math.prod(large.shape)


def unscaled(
    file: File, there: Place, here: Place, x: cst.BaseExpression
) -> dict[cst.CSTNode, str] | None:
    """Return the edit that leaves out a scaling, if nothing but the product reads its result."""
    code = file.code(x).strip()
    if here.node in file.above(there.node):
        return {there.node: code}
    line = there.statement
    small = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
    if not isinstance(small, cst.Assign) or small.value is not there.node or len(small.targets) > 1:
        return None
    target = small.targets[0].target
    if not isinstance(target, cst.Name) or here.function is None:
        return None
    end = file.ranges[line].end.line
    uses = [
        one
        for one in file.ranges
        if isinstance(one, cst.Name)
        and one.value == target.value
        and file.ranges[one].start.line > end
        and here.function in file.above(one)
    ]
    if len(uses) != 1 or here.node not in file.above(uses[0]):
        return None
    is_same = isinstance(x, cst.Name) and x.value == target.value
    return {line: ""} if is_same else {there.node: code}


def find_moduli(call: Call) -> Iterator[Change]:
    """Find `sqrt(z.real ** 2 + z.imag ** 2)`. On a CPU the function for it computes each element
    by itself, and gains where a call costs more than its elements."""
    graph, source = call.graph, call.source
    for root in graph.operations:
        total = graph.made_by(root.value(0), "add")
        known, place = graph.of(root.output), source.place(root)
        if root.name != "sqrt" or total is None or known is None or place is None:
            continue
        squares = [squared(graph, one) for one in graph.parts(total)]
        parts = [graph.made_by(one[1], "real", "imag") for one in squares if one is not None]
        found = [one for one in parts if one is not None]
        if sorted(one.name for one in found) != ["imag", "real"] or total.recorded.kwargs:
            continue
        z = found[0].value(0)
        used = [*(one[0] for one in squares if one is not None), total]
        is_alone = all(graph.sole_reader(one.output) is not None for one in used)
        if z is None or z != found[1].value(0) or not is_alone:
            continue
        if known.device != "cuda" and math.prod(known.shape) >= LEAST:
            continue
        code = source.expression(z, at=root)
        if code is None or not in_one_block(call, [*found, *used, root]):
            continue
        if all(is_removed(source, place, one) for one in found):
            new: dict[cst.CSTNode, str] = {place.node: f"{bracketed(code)}.abs()"}
            yield Change(place.file, new, shown(root, source))


def is_removed(source: Source, place: Place, operation: Operation) -> bool:
    """Return whether an operation's line goes when nothing reads its name."""
    there = source.place(operation)
    if there is None or there.statement is place.statement:
        return there is not None
    line = there.statement
    small = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
    return isinstance(small, cst.Assign) and isinstance(small.targets[0].target, cst.Name)


def squared(graph: Graph, value: int | None) -> tuple[Operation, int | None] | None:
    """Return what is squared, and the operation."""
    one = graph.made_by(value, "pow", "square", "mul")
    if one is None or (one.name == "mul" and one.value(0) != one.value(1)):
        return None
    is_square = one.name != "pow" or one.literal(1, "exponent") == 2
    return (one, one.value(0)) if is_square else None


RULES = (
    RecordedRule(
        name="small_factors_first",
        family="algebra",
        why="factors that are small are multiplied first, and the large tensor is passed over once",
        precondition="results may differ in the last bit",
        find=find_factors,
    ),
    RecordedRule(
        name="scale_the_smaller",
        family="algebra",
        why="a number scales the smaller tensor of a product, and the large one is not copied",
        precondition="the factor is a number in every call; results may differ in the last bit",
        find=find_scales,
    ),
    RecordedRule(
        name="one_plus",
        family="algebra",
        why="log1p and expm1 take one pass, and are exact for small numbers",
        precondition="results near 0 become more accurate",
        find=find_ones,
    ),
    RecordedRule(
        name="modulus",
        family="operation fusion",
        why="abs of a complex tensor is one pass where its formula is five",
        precondition="both parts are of the same tensor; its gradient at 0 is 0 where it was NaN",
        find=find_moduli,
    ),
)
