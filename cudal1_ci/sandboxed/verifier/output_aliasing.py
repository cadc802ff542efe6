"""Check that outputs are memory of their own, where the reference's are.

An output that is right and costs nothing may be a parameter's memory, a tensor returned at every
call, or one row expanded over many (torch refuses to write to it). Users who merge it get a module
whose next answer depends on what was done to the last one.
The check is in the trials only, by what a runner reports (sharing.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..memory.segment import span
from ..runner.sharing import STATE
from ..wire.runner import Called
from ..wire.tensors import OutputSlot
from .cases import Answer, Case, Rejected

JOINED = "gradients.joined"


def compare_memory(case: Case, answer: Answer) -> None:
    """Raise Rejected where an output of a candidate shares what none of the reference's does."""
    assert case.expected is not None
    ours, theirs = case.expected.calls, answer.calls
    lasting = shared(ours)
    for leaf, kinds in shared(theirs).items():
        if leaf in lasting:  # with one or the other, as the module keeps what it returns
            continue
        if STATE in kinds:
            message = f"output {leaf} shares memory with parameters or buffers of the module"
            rule = "output.aliases_state"
        else:
            message = f"output {leaf} is memory that an earlier call returned as well"
            rule = "output.returned_again"
        message += ": who writes to it changes the next answer. The reference's does not"
        raise Rejected("mutates_input", rule, message)
    for leaf in sorted(overlapping(theirs) - overlapping(ours)):
        message = (
            f"several elements of output {leaf} are one place in memory (`expand`), which cannot "
            "be written to; the reference's are not"
        )
        raise Rejected("incorrect_shape", "output.overlaps", message)
    known = {pair for call in ours for pair in call.joined}
    if joined := sorted({pair for call in theirs for pair in call.joined} - known):
        message = (
            f"the gradients of {joined[0]} lie in the same memory: a second backward pass would "
            "add to both, so gradients of several batches would be wrong. The reference's do not"
        )
        raise Rejected("incorrect_values", JOINED, message)


def shared(calls: Sequence[Called]) -> dict[int, set[str]]:
    """Return outputs that share memory with the module or earlier calls, in any of some calls."""
    found: dict[int, set[str]] = {}
    for call in calls:
        for leaf, kinds in enumerate(call.shares):
            # An output that is an input's memory is checked as such.
            if kinds and not call.aliases[leaf]:
                found.setdefault(leaf, set()).update(kinds)
    return found


def overlapping(calls: Sequence[Called]) -> set[int]:
    """Return outputs whose elements need more memory than they occupy."""
    return {
        leaf
        for call in calls
        for leaf, slot in enumerate(call.slots[: call.num_leaves])
        if is_overlapping(slot)
    }


def is_overlapping(slot: OutputSlot) -> bool:
    return span(slot.shape, slot.own_stride) < math.prod(slot.shape)


def left_to_the_reader(leaf: int, on: str) -> Rejected:
    """Return the rejection of an output that is computed when it is read."""
    message = (
        f"output {leaf} is negated, conjugated, summed or filled only when it is read {on}; the "
        "reference's is not"
    )
    return Rejected("reward_hack", "output.lazy", message)
