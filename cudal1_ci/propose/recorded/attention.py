"""Find attention in a recorded call, however it is spelled, and call PyTorch's own.

From a softmax over the last dimension the rule walks back to the product of queries and keys, over
casts, scales, masks, views and subtracted maxima, and on to the product with the values. What the
text could do otherwise in another call (a branch that was not taken, weights that are read
elsewhere) is looked up in the functions that these operations are written in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import libcst as cst

from cudal1_ci.propose.recorded.attention_match import matched
from cudal1_ci.propose.recorded.attention_occurrence import Refused
from cudal1_ci.propose.recorded.attention_writer import Written, written
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule


def find_attention(call: Call, *, causal: bool = False) -> Iterator[Change]:
    """Find softmax(q @ k.T) @ v. Where one call of the same lines has a mask and another has none,
    the change that serves both is kept."""
    found: dict[cst.CSTNode, list[Written]] = {}
    for operation in call.graph.operations:
        if operation.name != "softmax" or not call.graph.is_last_dim(operation):
            continue
        attention = matched(call, operation)
        if attention is not None:
            try:
                one = written(call, attention, causal=causal)
            except Refused as refused:
                call.miss(operation, str(refused))
                continue
            found.setdefault(one.node, []).append(one)
    for same in found.values():
        plain = [one for one in same if not one.is_guarded]
        yield from (one.change for one in plain or same)


def find_causal_attention(call: Call) -> Iterator[Change]:
    """Find attention with a causal mask that the code itself builds. What is missing of attention
    with any mask is said by the other rule."""
    yield from find_attention(replace(call, misses=[]), causal=True)


RULES = (
    RecordedRule(
        name="causal_attention",
        family="operation fusion",
        why="scaled_dot_product_attention with is_causal=True reads no mask and leaves out the "
        "half of the scores that the mask hides",
        precondition="the mask is the triangle that the code builds, also where it is a buffer "
        "that a checkpoint could replace",
        find=find_causal_attention,
    ),
    RecordedRule(
        name="attention",
        family="operation fusion",
        why="scaled_dot_product_attention keeps the scores of a block of queries in fast memory; "
        "written by hand, all scores are stored and read several times",
        precondition="the attention weights are read by the product with the values only",
        find=find_attention,
    ),
)
