"""Recognize normalizations by what they compute: over rows, channels, groups, or with kept
statistics."""

from __future__ import annotations

from collections.abc import Iterator

from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.near import not_guaranteed, not_the_norm
from cudal1_ci.propose.recorded.norms_code import change_of
from cudal1_ci.propose.recorded.norms_match import MOST_TRIES, OUTER, Norm, norms_of
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule

FUNCTIONS = {
    "layer": "layer_norm",
    "channel_layer": "layer_norm over channels",
    "rms": "rms_norm",
    "channel_rms": "rms_norm over channels",
    "group": "group_norm",
    "instance": "instance_norm",
    "batch": "batch_norm",
    "unit": "normalize",
}
"""What people call the functions of torch."""


def find_norms(call: Call) -> Iterator[Change]:
    """Find normalizations by hand."""
    graph, source = call.graph, call.source
    taken: set[int] = set()
    tries: dict[object, int] = {}
    missed: list[tuple[Operation, Norm | None]] = []
    for operation in reversed(graph.operations):
        span = operation.recorded.span
        if operation.name not in OUTER or operation.index in taken or span is None:
            continue
        key = (span, place.file if (place := source.place(operation)) else None)
        tries[key] = tries.get(key, 0) + 1
        if tries[key] > MOST_TRIES:
            continue
        closest: Norm | None = None
        for norm in norms_of(graph, operation):
            change = change_of(source, norm, operation)
            if change is not None:
                taken |= {one.index for one in norm.formula.operations}
                yield change
                break
            closest = closest or norm
        else:
            missed.append((operation, closest))
    remember(call, missed, taken)


def remember(call: Call, missed: list[tuple[Operation, Norm | None]], taken: set[int]) -> None:
    """Remember the outermost formulas that are nearly a normalization, or could not be written."""
    for operation, norm in missed:
        if operation.index in taken:
            continue
        if norm is None:
            fact = not_the_norm(call.graph, operation)
        else:
            own = {one.index for one in norm.formula.operations}
            if own & taken:
                continue
            taken |= own
            known = [one for one in (norm.epsilon.operation, norm.reduction) if one is not None]
            name = FUNCTIONS.get(norm.kind, norm.kind)
            fact = not_guaranteed(call.source, norm.formula, operation, name, known)
        call.miss(operation, fact)


WHY = "one routine keeps the row in cache and writes the result once, where the formula writes "
WHY += "every intermediate to memory"

RULES = (
    RecordedRule(
        name="norm",
        family="operation fusion",
        why=WHY,
        precondition="the formula gives the numbers of the normalization, epsilon included; "
        "with weights, x has their dtype or the old lines stay for other ones",
        find=find_norms,
    ),
)
