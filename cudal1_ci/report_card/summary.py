"""Summarize the speedups of many tasks. Pure: numbers in, numbers out.

An interval is a percentile bootstrap over tasks: the spread over other sets of such tasks. The
noise of single measurements is in their own intervals. Every column is drawn with the same tasks,
so that columns of one size compare.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from cudal1_ci.report_card.shape import IntervalDocument

ABOVE = 1.01
"""From which on CUDA-L1 counts a speedup. Source: arXiv 2507.14111."""
FAST_P = (1.0, 1.01, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0)
NUM_RESAMPLES = 2000
LEVEL = 0.95

Floats = npt.NDArray[np.float64]


def interval(speedups: Sequence[float], statistic: Callable[[Floats], Floats]) -> IntervalDocument:
    """Return a statistic of the last axis, with its interval. Expects at least one speedup."""
    values = np.asarray(speedups, dtype=np.float64)
    places = np.random.default_rng(0).integers(len(values), size=(NUM_RESAMPLES, len(values)))
    found = statistic(values[places])
    low, high = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return IntervalDocument(
        estimate=float(statistic(values[None])[0]), low=float(low), high=float(high)
    )


def mean(values: Floats) -> Floats:
    return np.asarray(values.mean(axis=-1))


def geometric_mean(values: Floats) -> Floats:
    return np.asarray(np.exp(np.log(values).mean(axis=-1)))


def median(values: Floats) -> Floats:
    return np.asarray(np.median(values, axis=-1))


def quantile(speedups: Sequence[float], share: float) -> float:
    return float(np.quantile(np.asarray(speedups), share))


def fast_p(speedups: Sequence[float | None]) -> dict[str, float]:
    """Return the share of tasks that are right and more than p times as fast; None is not right.

    Source: KernelBench, arXiv 2502.10517.
    """
    return {f"{p:g}": share_above(speedups, p) for p in FAST_P}


def share_above(speedups: Sequence[float | None], p: float) -> float:
    return sum(one is not None and one > p for one in speedups) / len(speedups)
