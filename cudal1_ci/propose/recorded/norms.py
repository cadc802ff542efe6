"""Recognize normalizations by what they compute: over rows, channels, groups, or with kept
statistics."""

from __future__ import annotations

from collections.abc import Iterator

from cudal1_ci.propose.recorded.norms_code import change_of
from cudal1_ci.propose.recorded.norms_match import MOST_TRIES, OUTER, norms_of
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule


def find_norms(call: Call) -> Iterator[Change]:
    """Find normalizations by hand."""
    graph, source = call.graph, call.source
    taken: set[int] = set()
    tries: dict[object, int] = {}
    for operation in reversed(graph.operations):
        span = operation.recorded.span
        if operation.name not in OUTER or operation.index in taken or span is None:
            continue
        key = (span, place.file if (place := source.place(operation)) else None)
        tries[key] = tries.get(key, 0) + 1
        if tries[key] > MOST_TRIES:
            continue
        for norm in norms_of(graph, operation):
            change = change_of(source, norm, operation)
            if change is not None:
                taken |= {one.index for one in norm.formula.operations}
                yield change
                break


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
