"""Recognize activations by what they compute."""

from __future__ import annotations

from collections.abc import Iterator

from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule, shown


def find_silu(call: Call) -> Iterator[Change]:
    """Find `x * sigmoid(x)`."""
    graph, source = call.graph, call.source
    for operation in graph.operations:
        if operation.name != "mul":
            continue
        for value, other in ((0, 1), (1, 0)):
            x, gate = operation.value(value), operation.value(other)
            maker = graph.made_by(gate, "sigmoid")
            place = source.place(operation)
            if x is None or maker is None or maker.value(0) != x or place is None:
                continue
            code = source.expression(x, at=operation)
            if code is not None:
                yield Change(
                    file=place.file,
                    new={place.node: f"torch.nn.functional.silu({code})"},
                    found=shown(operation, source),
                    modules=frozenset(("torch",)),
                )
            break


RULES = (
    RecordedRule(
        name="silu",
        family="fused_operator",
        why="silu is one pass over the data where x * sigmoid(x) is two",
        precondition="both factors are the same tensor",
        find=find_silu,
    ),
)
