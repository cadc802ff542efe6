"""Compute what all pairs of rows have in common as a product of matrices."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from cudal1_ci.propose.recorded.algebra import (
    in_one_block,
    in_place_of,
    inserted,
    only_arguments,
    read_only_by,
    sums_over,
)
from cudal1_ci.propose.recorded.graph import Graph, Operation
from cudal1_ci.propose.recorded.near import read_again, scattered, where
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule, shown
from cudal1_ci.propose.recorded.source import Place, bracketed

FLOATS = ("float32", "float64", "bfloat16", "float16")
MIN_ROWS = 8
"""Fewer pairs in a row are as fast written out."""


@dataclass(frozen=True)
class Pairs:
    """All pairs of the rows of two tensors, broadcast: `x[:, None]` and `y[None]`."""

    rows: int
    """The tensor whose rows come first in the result."""
    columns: int
    wide: tuple[int | None, int | None]
    """Both as they are broadcast."""


def pairs_of(graph: Graph, left: int | None, right: int | None) -> Pairs | None:
    """Return two tensors of one rank that are broadcast against each other in the dimension
    before their last one."""
    a, b = inserted(graph, left), inserted(graph, right)
    if a is None or b is None:
        return None
    rank = graph.num_dims(left)
    one, two = graph.of(a[0]), graph.of(b[0])
    if one is None or two is None or one.dtype != two.dtype or one.dtype not in FLOATS:
        return None
    same = one.shape[:-2] == two.shape[:-2] and one.shape[-1:] == two.shape[-1:]
    if rank != graph.num_dims(right) or rank < 3 or not same or one.shape[-2] < MIN_ROWS:
        return None
    if (a[1], b[1]) == (rank - 2, rank - 3):
        return Pairs(a[0], b[0], (left, right))
    if (a[1], b[1]) == (rank - 3, rank - 2):
        return Pairs(b[0], a[0], (right, left))
    return None


def pair_distances(call: Call) -> Iterator[tuple[Operation, Pairs, bool]]:
    """Yield distances of all pairs, by the operation that gives them, and whether squared."""
    graph = call.graph
    for operation in graph.operations:
        chain = [operation]
        is_squared = True
        if operation.name in ("norm", "vector_norm"):
            is_default = operation.literal(1, "p" if operation.name == "norm" else "ord")
            is_squared = False
            if is_default not in (None, 2, 2.0, "fro") or not sums_last(graph, operation, 2):
                continue
            difference = graph.made_by(operation.value(0), "sub")
        else:
            found = sums_over(graph, operation)
            if found != (graph.num_dims(operation.value(0)) - 1,):
                continue
            square = graph.made_by(operation.value(0), "pow", "square", "mul")
            if square is None or not is_square(square):
                continue
            chain.append(square)
            difference = graph.made_by(square.value(0), "sub")
            root = graph.sole_reader(operation.output)
            if root is not None and is_root(root) and in_one_block(call, [operation, root]):
                chain.append(root)
                is_squared = False
        if difference is None or not only_arguments(difference):
            continue
        found_pairs = pairs_of(graph, *graph.parts(difference))
        middle = [one.output for one in (*chain, difference)]
        last = chain[-1] if not is_squared and len(chain) == 3 else chain[0]
        middle.remove(last.output)
        if found_pairs is None:
            continue
        if not in_one_block(call, [*chain, difference]):
            call.miss(operation, scattered("the distance of all pairs", [*chain, difference]))
        elif all(read_only_by(call, one, [*chain, difference]) for one in middle):
            yield last, found_pairs, is_squared
        else:
            known = [*chain, difference]
            call.miss(operation, read_again(call, "the difference of all pairs", middle, known))


def sums_last(graph: Graph, operation: Operation, position: int) -> bool:
    """Return whether a norm is over the last dimension alone, without keeping it."""
    return (
        graph.is_last_dim(operation, position)
        and operation.literal(position + 1, "keepdim") in (None, False)
        and only_arguments(operation, "p", "ord", "dim", "keepdim")
    )


def is_square(operation: Operation) -> bool:
    """Return whether an operation squares its argument."""
    if operation.name == "pow":
        return operation.literal(1, "exponent") == 2
    return operation.name == "square" or operation.value(0) == operation.value(1)


def is_root(operation: Operation) -> bool:
    """Return whether an operation is a square root."""
    exponent = operation.literal(1, "exponent")
    return operation.name == "sqrt" or (operation.name == "pow" and exponent == 0.5)


def find_distances(call: Call) -> Iterator[Change]:
    """Find `((x[:, None] - y[None]) ** 2).sum(-1)`."""
    for operation, pair, is_squared in pair_distances(call):
        place = call.source.place(operation)
        x, y = (
            rows_code(call, narrow, wide, operation)
            for narrow, wide in zip((pair.rows, pair.columns), pair.wide, strict=True)
        )
        if place is None or x is None or y is None:
            call.miss(operation, f"the rows have no code {where(operation)}")
            continue
        code = f"torch.cdist({x}, {y})"
        code = f"{code}.square()" if is_squared else code
        found = shown(operation, call.source)
        yield Change(place.file, {place.node: code}, found, frozenset(("torch",)))


def rows_code(call: Call, value: int, wide: int | None, at: Operation) -> str | None:
    """Return the code of rows: of the local that is broadcast, though others hold the same in this
    call, or of one that holds them or holds them repeated."""
    maker = None if wide is None else call.graph.maker.get(wide)
    name = None if maker is None else call.source.name_read(value, maker, at)
    code = name or call.source.expression(value, at)
    if code is not None:
        return code
    for name, local in call.source.scope(at).items():
        repeated = inserted(call.graph, local.value)
        if repeated is not None and repeated[0] == value and name.isidentifier():
            return f"{name}[{', '.join([*[':'] * repeated[1], '0'])}]"
    return None


def find_cosine(call: Call) -> Iterator[Change]:
    """Find `cosine_similarity(x.unsqueeze(1), y.unsqueeze(0), dim=-1)`."""
    graph, source = call.graph, call.source
    for operation in graph.operations:
        if operation.name != "cosine_similarity":
            continue
        pair = pairs_of(graph, operation.value(0, "x1"), operation.value(1, "x2"))
        dim, eps = operation.literal(2, "dim"), operation.literal(3, "eps")
        place = source.place(operation)
        if pair is None or place is None or not in_one_block(call, [operation]):
            continue
        rank = graph.num_dims(operation.value(0, "x1"))
        if dim not in (-1, rank - 1) or eps not in (None, 1e-8):
            continue
        x = rows_code(call, pair.rows, pair.wide[0], operation)
        y = rows_code(call, pair.columns, pair.wide[1], operation)
        if x is None or y is None:
            continue
        prefix, modules = call.source.functional(place.file)
        one, two = (f"{prefix}.normalize({code}, dim=-1, eps=1e-8)" for code in (x, y))
        code = in_place_of(call, place, f"{one} @ {two}.mT")
        yield Change(place.file, {place.node: code}, shown(operation, source), modules)


def find_products(call: Call) -> Iterator[Change]:
    """Find `(x[:, None] * y[None]).sum(-1)`, and weighted sums `(w[..., None] * x).sum(-2)`."""
    graph, source = call.graph, call.source
    for operation in graph.operations:
        found = sums_over(graph, operation)
        product = graph.made_by(operation.value(0), "mul")
        place = source.place(operation)
        if not found or len(found) != 1 or product is None or place is None:
            continue
        left, right = graph.parts(product)
        if not read_only_by(call, product.output, [operation]):
            if inserted(graph, left) is not None and inserted(graph, right) is not None:
                what, known_readers = "the broadcast product", [operation]
                call.miss(operation, read_again(call, what, [product.output], known_readers))
            continue
        known = graph.of(product.output)
        one, two = graph.of(left), graph.of(right)
        if known is None or one is None or two is None or known.dtype not in FLOATS:
            continue
        if one.dtype != two.dtype or not in_one_block(call, [product, operation]):
            continue
        code = matrix_product(call, operation, place, left, right, found[0], len(known.shape))
        if code is not None:
            yield Change(place.file, {place.node: code}, shown(operation, source))


def matrix_product(
    call: Call,
    at: Operation,
    place: Place,
    left: int | None,
    right: int | None,
    dim: int,
    rank: int,
) -> str | None:
    """Return the sum over a dimension of a broadcast product as a product of matrices."""
    graph, source = call.graph, call.source
    a, b = inserted(graph, left), inserted(graph, right)
    if a is not None and b is not None:
        if rank not in (3, 4) or graph.num_dims(left) != graph.num_dims(right):
            return None
        if {a[1], b[1], dim} != {rank - 3, rank - 2, rank - 1} or a[1] == b[1]:
            return None
        rows, columns = (a, b) if b[1] < a[1] else (b, a)
        x, y = source.expression(rows[0], at), source.expression(columns[0], at)
        sizes = graph.of(rows[0]), graph.of(columns[0])
        if x is None or y is None or any(s is None or min(s.shape) < 2 for s in sizes):
            return None
        # `x` has its own dimension and the summed one, `y` the summed one and its own.
        x_code = f"{bracketed(x)}.mT" if dim < columns[1] else bracketed(x)
        y_code = bracketed(y) if dim < rows[1] else f"{bracketed(y)}.mT"
        return in_place_of(call, place, f"{x_code} @ {y_code}")
    for vector, full in ((left, right), (right, left)):
        if dim == rank - 1 and is_vector(graph, vector) and graph.num_dims(full) == rank > 1:
            w, x = source.expression(vector, at), source.expression(full, at)
            if w is not None and x is not None:
                w = bracketed(w) if graph.num_dims(vector) == 1 else f"{bracketed(w)}.flatten()"
                return in_place_of(call, place, f"{bracketed(x)} @ {w}")
    for weights, full in ((a, right), (b, left)):
        whole = graph.of(full)
        if weights is None or whole is None or dim != rank - 2 or weights[1] != rank - 1:
            continue
        inner = graph.of(weights[0])
        if inner is None or inner.shape != whole.shape[:-1] or rank not in (2, 3):
            continue
        w, x = source.expression(weights[0], at), source.expression(full, at)
        if w is None or x is None:
            continue
        if rank == 2:
            return in_place_of(call, place, f"{bracketed(w)} @ {bracketed(x)}")
        return f"({bracketed(w)}.unsqueeze(1) @ {bracketed(x)}).squeeze(1)"
    return None


def is_vector(graph: Graph, value: int | None) -> bool:
    """Return whether a value has one dimension, or is a parameter that is one row."""
    known = graph.of(value)
    if known is None or not known.shape or known.shape[-1] < MIN_ROWS:
        return False
    return len(known.shape) == 1 or (known.path != "" and math.prod(known.shape[:-1]) == 1)


RULES = (
    RecordedRule(
        name="pair_distances",
        family="algebra",
        why="distances of all pairs need no tensor of all differences",
        precondition="floating-point rows; small distances of large rows lose digits",
        find=find_distances,
    ),
    RecordedRule(
        name="pair_cosines",
        family="algebra",
        why="cosines of all pairs are a product of normalized rows",
        precondition="both sides are broadcast against each other",
        find=find_cosine,
    ),
    RecordedRule(
        name="broadcast_product",
        family="algebra",
        why="a sum of broadcast products is a product of matrices",
        precondition="nothing else reads the product",
        find=find_products,
    ),
)
