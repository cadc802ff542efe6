"""Leave out the copies of keys and values that several heads share."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from cudal1_ci.propose.recorded.algebra import in_one_block, inserted
from cudal1_ci.propose.recorded.graph import Graph, Operation
from cudal1_ci.propose.recorded.near import where
from cudal1_ci.propose.recorded.purity import definition_of, is_pure_frame
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule, shown

HEADS = 1


def find_grouped(call: Call) -> Iterator[Change]:
    """Find `scaled_dot_product_attention(q, k.repeat_interleave(n, 1), v.repeat_interleave(n, 1))`,
    and the same by `expand` and `reshape`, also in a helper."""
    graph, source = call.graph, call.source
    for operation in graph.operations:
        if operation.name != "scaled_dot_product_attention":
            continue
        values = operation.value(1, "key"), operation.value(2, "value")
        groups = {group_of(graph, one) for one in values}
        place = source.place(operation)
        if len(groups) != 1 or None in groups or place is None:
            continue
        file = source.file(place.file)
        if not isinstance(place.node, cst.Call) or file is None or file.code(place.node)[-1] != ")":
            continue
        if any(one.name == "enable_gqa" for one in operation.recorded.kwargs):
            continue
        found = [unrepeated(call, one, operation) for one in values]
        new = {node: code for one in found if one is not None for node, code in one.items()}
        if None in found or len(new) != 2:
            call.miss(
                operation, f"the repeated keys or values are read by others {where(operation)}"
            )
            continue
        if place.node in {above for node in new for above in file.above(node)}:
            arguments = [
                one.with_changes(value=cst.parse_expression(new[one.value]))
                if one.value in new
                else one
                for one in place.node.args
            ]
            if not all(node in {one.value for one in place.node.args} for node in new):
                continue
            new, call_node = {}, place.node.with_changes(args=arguments)
        else:
            call_node = place.node
        code = file.code(call_node)[:-1].rstrip().removesuffix(",")
        new[place.node] = f"{code}, enable_gqa=True)"
        modules = frozenset[str]()
        yield Change(place.file, new, shown(operation, source), modules)


def group_of(graph: Graph, value: int | None) -> int | None:
    """Return how often heads are repeated, each next to its copies; None if they are not."""
    known, inner = graph.of(value), before_repeat(graph, value)
    few = graph.of(inner)
    if known is None or few is None or len(known.shape) != 4 or len(few.shape) != 4:
        return None
    rest = [*known.shape]
    rest[HEADS] = few.shape[HEADS]
    number, left = divmod(known.shape[HEADS], few.shape[HEADS])
    return number if tuple(rest) == few.shape and not left and number > 1 else None


def before_repeat(graph: Graph, value: int | None) -> int | None:
    """Return the heads of which others are copies."""
    maker = graph.made_by(value, "repeat_interleave", "reshape", "flatten")
    if maker is None:
        return None
    if maker.name == "repeat_interleave":
        is_heads = graph.dims(maker.literal(2, "dim"), maker.value(0)) == (HEADS,)
        is_number = isinstance(maker.literal(1, "repeats"), int)
        return maker.value(0) if is_heads and is_number else None
    wide = graph.made_by(maker.value(0), "expand")
    inner = None if wide is None else inserted(graph, wide.output)
    return inner[0] if inner is not None and inner[1] == HEADS + 1 else None


def unrepeated(call: Call, value: int | None, at: Operation) -> dict[cst.CSTNode, str] | None:
    """Return the expression that repeats heads with the code of what it repeats, if attention is
    all that reads it."""
    graph, source = call.graph, call.source
    maker = graph.maker.get(value) if value is not None else None
    if maker is None or graph.sole_reader(value) is not at:
        return None
    inner = before_repeat(graph, value)
    if maker.recorded.frame == at.recorded.frame:
        place = source.place(maker)
        code = source.expression(inner, maker)
        is_together = in_one_block(call, [maker, at])
        return (
            {place.node: code} if place is not None and code is not None and is_together else None
        )
    number = maker.recorded.frame
    frame, here = source.frame(maker), source.place(at)
    file = None if here is None else source.file(here.file)
    if frame is None or frame.caller != at.recorded.frame or frame.call is None or file is None:
        return None
    node = file.node_at(frame.call)
    helper = source.file(frame.file)
    function = None if helper is None else definition_of(helper, frame)
    if not isinstance(node, cst.Call) or function is None or not function.params.params:
        return None
    first = function.params.params[0].name.value
    scopes = [source.scope(one) for one in graph.operations if one.recorded.frame == number]
    is_first = bool(scopes) and first in scopes[0] and scopes[0][first].value == inner
    given = node.args[0] if node.args else None
    if not is_first or given is None or given.keyword is not None or given.star:
        return None
    is_pure = number is not None and is_pure_frame(source, number)
    return {node: file.code(given.value)} if is_pure else None


RULES = (
    RecordedRule(
        name="grouped_heads",
        family="operation fusion",
        why="attention reads keys and values of shared heads where they are; repeated, they are "
        "copied once for each head",
        precondition="attention is all that reads the copies; PyTorch 2.5 or newer",
        find=find_grouped,
    ),
)
