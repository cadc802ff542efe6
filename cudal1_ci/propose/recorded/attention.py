"""Find attention in a recorded call, however it is spelled, and call PyTorch's own.

From a softmax over the last dimension the rule walks back to the product of queries and keys, over
casts, scales, masks, views and subtracted maxima, and on to the product with the values. What the
text could do otherwise in another call (a branch that was not taken, weights that are read
elsewhere) is looked up in the functions that these operations are written in.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from cudal1_ci.propose.recorded.attention_match import matched
from cudal1_ci.propose.recorded.attention_writer import Refused, Writer
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule


def find_attention(call: Call) -> Iterator[Change]:
    """Find softmax(q @ k.T) @ v. Where one call of the same lines has a mask and another has none,
    the change that serves both is kept."""
    found: dict[cst.CSTNode, list[Writer]] = {}
    for operation in call.graph.operations:
        if operation.name != "softmax" or not call.graph.is_last_dim(operation):
            continue
        attention = matched(call, operation)
        if attention is not None:
            try:
                writer = Writer(call, attention)
                writer.written = writer.change()
            except Refused as refused:
                call.miss(operation, str(refused))
                continue
            found.setdefault(writer.place.node, []).append(writer)
    for writers in found.values():
        plain = [one for one in writers if not one.guards]
        for one in plain or writers:
            if one.written is not None:
                yield one.written


RULES = (
    RecordedRule(
        name="attention",
        covers=frozenset(("sdpa", "attention_weights")),
        family="operation fusion",
        why="scaled_dot_product_attention keeps the scores of a block of queries in fast memory; "
        "written by hand, all scores are stored and read several times",
        precondition="the attention weights are read by the product with the values only",
        find=find_attention,
    ),
)
