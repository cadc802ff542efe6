"""Plan how the tensors of a trial fit into the memory of its device.

For each of its runners a timed batch holds the inputs at all of their places, the outputs that the
program returns, those in shared memory and their snapshot. For the verifier it holds the sets and
the values of the next round. A call that does little but read and write takes as long as its bytes.
A batch of such calls of any size therefore lasts as long as the memory is large, and on a GPU
shorter than is wanted. Where more calls fit, and are wanted, each input set has one place instead
of two. Where memory is too small even for one call, the control is measured in processes of its
own, after the candidate.
What a runner may read is never shared between runners to save memory: answers would be in it. What
programs need during calls is not known beforehand. A repetition that ran out of memory is made
again with as little as possible.

The correctness trials give a runner as many sets at a time as fit with their outputs, at least one.
The verifier keeps large tensors in the host's memory (`Accelerator.holds`).
"""

from __future__ import annotations

from dataclasses import dataclass

CPU_SHARE = 3
"""A third of the memory is for tensors of many calls; the rest is for what programs need."""
GPU_SHARE = 2
"""Half of a GPU's memory, where a trial run shows whether that is too much."""
TOGETHER_SHARE = 8
"""An eighth is for the inputs and outputs of the trials that a runner gets at a time."""


@dataclass(frozen=True)
class Plan:
    """The number of calls, places and runners that memory holds at a time."""

    most_calls: int
    """Most calls of a batch."""
    num_places: int
    """Places of each input set."""
    num_lanes: int
    """Runners of a repetition at a time: 3, or 2 where the control has its own."""


WAYS = ((2, 3), (1, 3), (1, 2))
"""Places of an input set and runners at a time, the best first."""


def plan(
    set_bytes: int,
    outputs_bytes: int,
    state_bytes: int,
    memory_bytes: int,
    max_calls: int,
    *,
    wanted_calls: int | None = None,
    share: int = GPU_SHARE,
    is_least: bool = False,
) -> Plan | None:
    """Return the best way that fits; None where none does. The control runs with the others
    where it can. Of those ways the first with room for the `wanted_calls` (None is one) is the
    best, or else the one with room for most. If it `is_least`, return one call in the last way."""
    found = []
    for way in WAYS[-1:] if is_least else WAYS:
        needed_bytes = call_bytes(set_bytes, outputs_bytes, *way)
        fits = needed_bytes + way[1] * state_bytes <= memory_bytes
        most_calls = max(memory_bytes // share // needed_bytes, int(fits))
        if most_calls:
            found.append(Plan(min(most_calls, 1 if is_least else max_calls), *way))
    if not found:
        return None
    beside = [one for one in found if one.num_lanes == found[0].num_lanes]
    enough = [one for one in beside if one.most_calls >= min(wanted_calls or 1, max_calls)]
    return enough[0] if enough else max(beside, key=lambda one: one.most_calls)


def call_bytes(set_bytes: int, outputs_bytes: int, num_places: int, num_lanes: int) -> int:
    """Return the bytes for one call of a batch, runners and verifier together."""
    runner_bytes = num_places * set_bytes + 3 * outputs_bytes
    verifier_bytes = num_places * set_bytes + set_bytes
    return num_lanes * runner_bytes + verifier_bytes + 1


def least_bytes(set_bytes: int, outputs_bytes: int, state_bytes: int) -> int:
    """Return the bytes below which there is no plan."""
    return call_bytes(set_bytes, outputs_bytes, *WAYS[-1]) + WAYS[-1][1] * state_bytes


def num_together(set_bytes: int, outputs_bytes: int, memory_bytes: int) -> int:
    """Return how many trial sets a runner gets at a time. It keeps what all of them return until
    that is copied to shared memory."""
    return max(1, memory_bytes // TOGETHER_SHARE // (set_bytes + 2 * outputs_bytes + 1))
