"""Say how far the log ratios of repetitions spread, by device and length of call.

    learned("cuda", 120.0, past)

What controls showed before on a device (`past`) counts with the usual spread of its kind. A
median does not move with the few repetitions that something disturbed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Literal

BOUNDS_US = (30.0, 300.0, 3000.0)
"""Between the lengths of calls that are learned apart."""
USUAL = {"cpu": (0.05, 0.05, 0.05, 0.03), "cuda": (0.035, 0.006, 0.004, 0.004)}
"""Of a busy machine with two cores, and of an H200 (assets/results/sensitivity-h200.json)."""
USUAL_WEIGHT = 8
"""Repetitions that the usual spread is worth."""
MOST = 64
"""Newest log ratios that count, so that a machine that became quiet is soon known as such."""
LEAST = 0.002
"""Least spread that is believed. A shorter interval would be that of the clock's own error."""
OF_DEVIATION = 1.4826
"""Standard deviation of normal values, as a multiple of their median distance from the mean."""


def length_of(call_us: float) -> int:
    """Return the number of the class of a call's length."""
    return sum(call_us >= bound for bound in BOUNDS_US)


def learned(kind: Literal["cpu", "cuda"], call_us: float, past: Sequence[float]) -> float:
    """Return the spread of log ratios to expect. `past` are those of controls, whose mean is 0."""
    usual = USUAL[kind][length_of(call_us)]
    if not past:
        return usual
    newest = past[-MOST:]
    seen = OF_DEVIATION * statistics.median(map(abs, newest))
    number = len(newest)
    squares = USUAL_WEIGHT * usual**2 + number * seen**2
    return max(LEAST, math.sqrt(squares / (USUAL_WEIGHT + number)))
