"""What a completion is worth beside the others of its prompt.

    group_normalized    (r - mean) / std of the group: GRPO, CUDA-L1's equation 4
    centered            r - mean: without the spread, as Dr. GRPO (arXiv 2503.20783)
    left_out            r - mean of the others: REINFORCE leave-one-out (arXiv 2402.14740)

A group whose rewards are all alike says nothing: its advantages are 0, and `is_silent` names it, so
that it can be dropped instead of counting in the denominator of a batch.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Literal

AdvantageName = Literal["group_normalized", "centered", "left_out"]
EPSILON = 1e-4
"""Added to the spread, as in GRPO's published code: a group of nearly equal rewards is no reason
for a step of any size."""


def group_normalized(rewards: Sequence[float]) -> list[float]:
    """Of one group."""
    center, spread = statistics.fmean(rewards), sample_spread(rewards)
    return [(one - center) / (spread + EPSILON) for one in rewards]


def centered(rewards: Sequence[float]) -> list[float]:
    """Of one group."""
    center = statistics.fmean(rewards)
    return [one - center for one in rewards]


def left_out(rewards: Sequence[float]) -> list[float]:
    """Of one group of two or more; a completion alone has nothing to be compared with."""
    if len(rewards) < 2:
        return [0.0] * len(rewards)
    total = sum(rewards)
    return [one - (total - one) / (len(rewards) - 1) for one in rewards]


ADVANTAGES: dict[AdvantageName, Callable[[Sequence[float]], list[float]]] = {
    "group_normalized": group_normalized,
    "centered": centered,
    "left_out": left_out,
}


def sample_spread(rewards: Sequence[float]) -> float:
    """With n - 1 in the denominator, as torch's `std`."""
    return statistics.stdev(rewards) if len(rewards) > 1 else 0.0


def is_silent(rewards: Sequence[float]) -> bool:
    """Whether a group teaches nothing."""
    return len(set(rewards)) < 2
