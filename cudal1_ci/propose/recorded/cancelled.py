"""Leave out operations that undo each other: parts joined to the whole, dimensions turned back."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from cudal1_ci.propose.recorded.algebra import in_one_block, in_place_of
from cudal1_ci.propose.recorded.copies import has_no_views, is_left_alone
from cudal1_ci.propose.recorded.graph import Graph, Operation, literal
from cudal1_ci.propose.recorded.reads import READING, only_read
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule, shown
from cudal1_ci.propose.recorded.source import bracketed

SPLITS = {"chunk": "cat", "split": "cat", "tensor_split": "cat", "unbind": "stack"}
TURNS = frozenset(("transpose", "permute", "swapaxes"))


def find_joined(call: Call) -> Iterator[Change]:
    """Find `torch.cat(x.chunk(3, 1), 1)` and `torch.stack(x.unbind(1), 1)`."""
    graph = call.graph
    for operation in graph.operations:
        given = operation.argument(0, "tensors")
        if operation.name not in ("cat", "stack") or given is None or not given.items:
            continue
        parts = tuple(one.value for one in given.items)
        split = graph.made_by(parts[0])
        if split is None or SPLITS.get(split.name) != operation.name:
            continue
        at = dim_of(operation, 1)
        is_same = at is not None and at == dim_of(split, 1 if split.name == "unbind" else 2)
        if parts == split.recorded.outputs and is_same:
            yield from undone(call, split.value(0), [split], operation)


def dim_of(operation: Operation, position: int) -> int | None:
    """Return the dimension that an operation is over, as it is given."""
    given = operation.literal(position, "dim")
    if given is None and operation.argument(position, "dim") is None:
        return 0
    return given if isinstance(given, int) else None


def find_turned(call: Call) -> Iterator[Change]:
    """Find `x.transpose(1, 2).contiguous()` that is turned back later."""
    graph = call.graph
    for operation in graph.operations:
        order = order_of(graph, operation)
        if order is None:
            continue
        chain: list[Operation] = []
        value = operation.value(0)
        while (maker := graph.made_by(value, "contiguous", "clone", *TURNS)) is not None:
            chain.append(maker)
            value = maker.value(0)
            if maker.name in TURNS:
                break
        first = order_of(graph, chain[-1]) if chain else None
        if first is None or [first[one] for one in order] != list(range(len(order))):
            continue
        if len(chain) > 1:  # without a copy nothing is saved
            yield from undone(call, value, chain, operation)


def order_of(graph: Graph, operation: Operation) -> list[int] | None:
    """Return the dimensions of what was turned, in the order that they now have."""
    rank = graph.num_dims(operation.value(0))
    given = [literal(one) for one in operation.recorded.args[1:]]
    if operation.name not in TURNS or operation.recorded.kwargs:
        return None
    if len(given) == 1 and isinstance(given[0], tuple):
        given = [*given[0]]
    dims = [one for one in given if isinstance(one, int)]
    if len(dims) != len(given):
        return None
    if operation.name == "permute":
        return [one % rank for one in dims] if len(dims) == rank else None
    if len(dims) != 2 or rank < 2:
        return None
    order = list(range(rank))
    a, b = (one % rank for one in dims)
    order[a], order[b] = b, a
    return order


def undone(
    call: Call, value: int | None, chain: list[Operation], last: Operation
) -> Iterator[Change]:
    """Yield the value that an operation gives back, where it is only read."""
    place = call.source.place(last)
    code = call.source.expression(value, last)
    if place is None or code is None or not in_one_block(call, [*chain, last]):
        return
    if not all(states_dims(call, one) for one in (*chain, last)):
        return
    first = min(chain, key=lambda one: one.index)
    if not only_read(call, last, READING) or not has_no_views(call, last):
        return
    if is_left_alone(call, first):
        code = in_place_of(call, place, code) if " " in code else bracketed(code)
        yield Change(place.file, {place.node: code}, shown(last, call.source))


def states_dims(call: Call, operation: Operation) -> bool:
    """Return whether the code states dimensions as numbers, counted from the first."""
    if operation.name in ("contiguous", "clone"):
        return True
    place = call.source.place(operation)
    if place is None or not isinstance(place.node, cst.Call):
        return False
    given = [one.value for one in place.node.args]
    flat = [e.value for one in given if isinstance(one, cst.Tuple | cst.List) for e in one.elements]
    numbers = [one for one in (*given, *flat) if isinstance(one, cst.Integer)]
    if operation.name in TURNS:
        return len(numbers) == len(flat or given)
    return bool(numbers) or dim_of(operation, 1 if operation.name in ("cat", "stack") else 2) == 0


RULES = (
    RecordedRule(
        name="undone",
        family="memory layout",
        why="together the operations give back what they were given",
        precondition="dimensions are stated, and what is given back is only read",
        find=lambda call: [*find_joined(call), *find_turned(call)],
        is_small=True,
    ),
)
