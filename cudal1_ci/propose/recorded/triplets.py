"""Build only the rows of a batch-all triplet loss that have a positive."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from cudal1_ci.propose.editing.terms import names_in
from cudal1_ci.propose.recorded.algebra import in_one_block, inserted, read_only_by, terms
from cudal1_ci.propose.recorded.graph import Graph, Operation
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule, shown
from cudal1_ci.propose.recorded.source import bracketed

NEW_NAMES = ("same", "anchor", "positive")
ANCHOR_POSITIVE, ANCHOR_NEGATIVE = 2, 1
"""The dimension that is missing in a matrix of pairs."""


def labels_of(graph: Graph, value: int | None) -> int | None:
    """Return the labels, if a value is `labels[None] == labels[:, None]`."""
    maker = graph.made_by(value, "eq", "__eq__")
    first, second = graph.parts(maker)
    one, two = inserted(graph, first), inserted(graph, second)
    if one is None or two is None or one[0] != two[0] or {one[1], two[1]} != {0, 1}:
        return None
    return one[0]


def is_eye(graph: Graph, value: int | None) -> bool:
    """Return whether a value is true on its diagonal alone."""
    while (cast := graph.made_by(value, "bool", "to")) is not None:
        value = cast.value(0)
    return graph.made_by(value, "eye") is not None


def factors(graph: Graph, value: int | None) -> Iterator[tuple[int | None, int, bool]]:
    """Yield the matrices that a mask of triplets is the conjunction of, the dimension that each
    lacks, and whether it is negated."""
    both = graph.made_by(value, "and", "__and__", "logical_and", "bitwise_and")
    if both is not None:
        yield from factors(graph, both.value(0))
        yield from factors(graph, both.value(1, "other"))
        return
    is_negated = False
    axis = -1
    while True:
        inner = inserted(graph, value)
        turned = graph.made_by(value, "invert", "__invert__", "logical_not", "bitwise_not")
        if inner is not None and axis < 0:
            value, axis = inner
        elif turned is not None:
            value, is_negated = turned.value(0), not is_negated
        else:
            break
    yield value, axis, is_negated


def masked_labels(graph: Graph, mask: int | None) -> int | None:
    """Return the labels, if a mask is that of all valid triplets: anchor and positive have the
    same label and are not the same, the negative has another one."""
    found: set[str] = set()
    labels: set[int | None] = set()
    for value, axis, is_negated in factors(graph, mask):
        if is_eye(graph, value) and is_negated:
            found.add(f"different {axis}")
            continue
        label = labels_of(graph, value)
        if label is None or (axis, is_negated) not in ((2, False), (1, True)):
            return None
        labels.add(label)
        found.add(f"label {axis}")
    needed = {"different 2", "label 2", "label 1"}
    return labels.pop() if needed <= found and len(labels) == 1 else None


def only_sums(graph: Graph, value: int | None, depth: int = 0) -> bool:
    """Return whether elements that are 0 change nothing in what is made of a value: all is summed
    in the end."""
    if value is None or value in graph.recording.outputs or depth > 9:
        return False
    for one in graph.readers.get(value, ()):
        if one.value(0) != value or one.output == value:
            return False
        if one.name == "sum" and len(one.recorded.args) == 1 and not one.recorded.kwargs:
            continue
        bound = one.literal(1, "min" if one.name == "clamp" else "other")
        is_kept = one.name in ("relu", "float")
        is_kept |= one.name in ("clamp", "clamp_min") and bound == 0
        is_kept &= one.name != "clamp" or one.literal(2, "max") is None
        is_above = one.name in ("gt", "__gt__") and isinstance(bound, float | int) and bound >= 0
        if not (is_kept or is_above) or not only_sums(graph, one.output, depth + 1):
            return False
    return True


def find_triplets(call: Call) -> Iterator[Change]:
    """Find `mask.float() * (d.unsqueeze(2) - d.unsqueeze(1) + margin)`."""
    graph = call.graph
    for operation in graph.operations:
        if operation.name != "mul" or graph.num_dims(operation.output) != 3:
            continue
        for mask, loss in (graph.parts(operation), graph.parts(operation)[::-1]):
            cast = graph.made_by(mask, "float")
            labels = masked_labels(graph, cast.value(0)) if cast is not None else None
            if labels is None or loss is None or not only_sums(graph, operation.output):
                continue
            change = by_pairs(call, operation, loss, labels)
            if change is not None:
                yield change
            break


def by_pairs(call: Call, product: Operation, loss: int, labels: int) -> Change | None:
    """Return the code that selects pairs of anchor and positive first."""
    graph, source = call.graph, call.source
    difference, chain = loss, [product]
    while (added := graph.made_by(difference, "add")) is not None and added.value(1) is None:
        chain.append(added)
        inner = added.value(0)
        if inner is None:
            return None
        difference = inner
    maker = graph.made_by(difference, "sub")
    if maker is None or len(terms(call, difference, maker)) != 2:
        return None
    chain.append(maker)
    first, second = (inserted(graph, one) for one in graph.parts(maker))
    if first is None or second is None or first[0] != second[0]:
        return None
    if (first[1], second[1]) != (ANCHOR_POSITIVE, ANCHOR_NEGATIVE):
        return None
    middle = [one.output for one in chain if one is not product]
    if not in_one_block(call, chain) or not all(read_only_by(call, m, chain) for m in middle):
        return None
    place, here = source.place(maker), source.place(product)
    d, given = source.expression(first[0], maker), source.expression(labels, maker)
    if place is None or here is None or d is None or given is None or place.function is None:
        return None
    line = place.statement
    code = source.expression(loss, product)
    if code is None or here.statement is line or not isinstance(line, cst.SimpleStatementLine):
        return None
    if names_in(place.function) & {*NEW_NAMES} or not code.isidentifier():
        return None
    d, given = bracketed(d), bracketed(given)
    pairs = f"{d}[anchor, positive].unsqueeze(1) - {d}[anchor]"
    old = line.with_changes(leading_lines=[])
    new = cst.ensure_type(
        old.deep_replace(place.node, cst.parse_expression(pairs)), cst.SimpleStatementLine
    )
    eye = f"torch.eye({given}.shape[0], dtype=torch.bool, device={given}.device)"
    text = (
        f"same = {given}.unsqueeze(0) == {given}.unsqueeze(1)\n"
        f"anchor, positive = (same & ~{eye}).nonzero(as_tuple=True)\n"
        f"{cst.Module([new]).code}"
    )
    masked = f"(~same[anchor]).float() * {code}"
    return Change(
        place.file, {line: text, here.node: masked}, shown(product, source), frozenset(("torch",))
    )


RULES = (
    RecordedRule(
        name="triplet_pairs",
        family="algebra",
        why="most triplets of a batch have no positive; only pairs that have one need a row",
        precondition="the masked losses are only summed",
        find=find_triplets,
    ),
)
