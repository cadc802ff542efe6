"""How the tensors of a trial fit into the memory of its device.

A timed batch holds, for each of its runners, the inputs at all of their places, the outputs that
the program returns, those in shared memory and their snapshot; and for the judge the sets and the
values of the next round. Where that is too much even for one call, each input set has one place
instead of two, and then the control is measured in processes of its own, after the candidate. What
a runner may read is never shared between runners to save memory: answers would be in it. What
programs need while they are called is not known beforehand: a launch that ran out of memory is made
again with as little as there can be.

The correctness trials put as many sets to a runner at a time as fit with their outputs, one at the
least, and the judge keeps what is large in the host's memory (`Accelerator.holds`).
"""

from __future__ import annotations

from dataclasses import dataclass

USUAL_SHARE = 3
"""A third of the memory is for tensors of many calls; the rest is for what programs need."""
TOGETHER_SHARE = 8
"""An eighth is for the inputs and outputs of the trials that a runner gets at a time."""


@dataclass(frozen=True)
class Plan:
    """What is held at a time."""

    most_calls: int
    """Of a batch."""
    num_places: int
    """Of each input set."""
    num_lanes: int
    """Runners of a launch at a time: 3, or 2 where the control has its own."""


WAYS = ((2, 3), (1, 3), (1, 2))
"""Places of an input set and runners at a time, the best first."""


def plan(
    set_bytes: int,
    outputs_bytes: int,
    state_bytes: int,
    memory_bytes: int,
    max_calls: int,
    *,
    is_least: bool = False,
) -> Plan | None:
    """The best way that fits, or if it `is_least` the last one; None where none does."""
    ways = WAYS[-1:] if is_least else WAYS
    usual_bytes = call_bytes(set_bytes, outputs_bytes, *WAYS[0])
    most_calls = memory_bytes // USUAL_SHARE // usual_bytes
    if most_calls >= 1 and not is_least:
        return Plan(min(most_calls, max_calls), *WAYS[0])
    for num_places, num_lanes in ways:
        needed_bytes = call_bytes(set_bytes, outputs_bytes, num_places, num_lanes)
        if needed_bytes + num_lanes * state_bytes <= memory_bytes:
            return Plan(1, num_places, num_lanes)
    return None


def call_bytes(set_bytes: int, outputs_bytes: int, num_places: int, num_lanes: int) -> int:
    """For one call of a batch, runners and judge together."""
    runner_bytes = num_places * set_bytes + 3 * outputs_bytes
    judge_bytes = num_places * set_bytes + set_bytes
    return num_lanes * runner_bytes + judge_bytes + 1


def least_bytes(set_bytes: int, outputs_bytes: int, state_bytes: int) -> int:
    """Below this there is no plan."""
    return call_bytes(set_bytes, outputs_bytes, *WAYS[-1]) + WAYS[-1][1] * state_bytes


def num_together(set_bytes: int, outputs_bytes: int, memory_bytes: int) -> int:
    """Trial sets that a runner gets at a time: it keeps what all of them return until it is copied
    to shared memory."""
    return max(1, memory_bytes // TOGETHER_SHARE // (set_bytes + 2 * outputs_bytes + 1))
