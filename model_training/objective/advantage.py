"""Compare a completion with the others of its prompt: CUDA-L1's equation 4, as in GRPO.

    advantages([0.0, 1.0, 2.5])

A group whose rewards are all equal teaches nothing: its advantages are 0, and `is_silent` names it,
so that it can be dropped instead of counting in the denominator of a batch.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

EPSILON = 1e-4
"""Added to the spread, as in GRPO's published code: a group of nearly equal rewards is no reason
for a step of any size."""


def advantages(rewards: Sequence[float]) -> list[float]:
    """Return (r - mean) / std of a group, with n - 1 in the denominator as torch's `std`."""
    center, spread = statistics.fmean(rewards), statistics.stdev(rewards)
    return [(one - center) / (spread + EPSILON) for one in rewards]


def is_silent(rewards: Sequence[float]) -> bool:
    """Return whether a group teaches nothing."""
    return len(set(rewards)) < 2
