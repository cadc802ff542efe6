"""Find where a series of times changed its level: piecewise-constant fit on log times.

    level_starts([2.0, 2.01, 1.99, 2.3, 2.31, 2.29])     (0, 3)

The fit minimizes, over all levels and all places, the sum of a bounded loss of the residuals, in
units of the noise, plus a penalty for each change. The loss is the biweight, min(z^2, 9): a point
that is far off counts as one that is three noises off, and cannot found a level alone. The optimum
is found exactly over levels that are values of the series, by dynamic programming (a Potts
functional: linear in commits times levels).

Source: Fearnhead & Rigaill, Changepoint Detection in the Presence of Outliers, JASA 2019 (loss and
penalty); Friedrich, Kempe, Liebscher & Winkler, Complexity Penalized M-Estimation, JCGS 2008 (the
program). asv detects steps by the same functional with an absolute loss; a bounded one lets two
commits at the end of a series show a step, and one of them never.

scipy has no change point detection; `ruptures` has, without a bounded loss, and would be a
dependency for forty lines.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

LOSS_CAP = 9.0
"""Of one point: three noises, squared."""
PENALTY = 1.5 * LOSS_CAP
"""Of a change, so that two points found a last level and four one in between. 13.5 is the 2 log n
of the source for 850 commits. Of a hundred series of noise alone one to five show a step, the short
ones more often as their noise is known less well, and fewer than one where a step must be five
percent (tests/unit/trend/test_steps.py)."""
SMALLEST_NOISE = 0.002
"""Two thousandths: a clock's steps and rounding look quieter than any machine is."""
GAUSSIAN = 1.4826
"""From a median absolute deviation to a standard deviation of normal noise."""
MAX_POINTS = 1000
"""Of a series; earlier ones are not fitted. The program needs memory for points times levels."""


def level_starts(times_us: Sequence[float], smallest: float = 0.0) -> tuple[int, ...]:
    """Return indices at which a level begins; the first is 0. Changes by a smaller fraction than
    `smallest` (0.05 is five percent) are ignored.
    """
    if not times_us:
        return ()
    first = max(0, len(times_us) - MAX_POINTS)
    logs = [math.log(time_us) for time_us in times_us[first:]]
    found = _fitted(logs, noise(logs))
    starts = (0, *(first + start for start in found[1:]))
    return _without_small(times_us, starts, math.log1p(smallest))


def noise(logs: Sequence[float]) -> float:
    """Return the standard deviation of neighbors' differences, robustly: steps and outliers are few
    among them.
    """
    differences = sorted(abs(b - a) for a, b in itertools.pairwise(logs))
    if not differences:
        return SMALLEST_NOISE
    middle = differences[len(differences) // 2]
    return max(GAUSSIAN * middle / math.sqrt(2), SMALLEST_NOISE)


def level_of(times_us: Sequence[float]) -> float:
    """Return the time of a level: the median over its commits."""
    ordered = sorted(times_us)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else math.sqrt(ordered[half - 1] * ordered[half])


def _fitted(logs: Sequence[float], noise_of_one: float) -> list[int]:
    """Return the first indices of the levels of the best fit."""
    import numpy  # here, as it takes a tenth of a second to import and other verbs need none

    values = numpy.asarray(logs)
    levels = numpy.unique(values)
    changed = numpy.zeros((len(values), len(levels)), dtype=bool)
    came_from = numpy.zeros(len(values), dtype=int)
    cost = numpy.zeros(len(levels))
    for i, value in enumerate(values):
        if i:
            came_from[i] = cost.argmin()
            jump = cost[came_from[i]] + PENALTY
            changed[i] = jump < cost
            cost = numpy.minimum(cost, jump)
        cost = cost + numpy.minimum(((value - levels) / noise_of_one) ** 2, LOSS_CAP)
    return _traced_back(changed, came_from, int(cost.argmin()))


def _traced_back(changed: Any, came_from: Any, level: int) -> list[int]:
    starts = []
    for i in range(len(came_from) - 1, 0, -1):
        if changed[i, level]:
            starts.append(i)
            level = int(came_from[i])
    return [0, *reversed(starts)]


def _without_small(
    times_us: Sequence[float], starts: tuple[int, ...], smallest: float
) -> tuple[int, ...]:
    """Merge neighboring levels that differ too little, the closest first."""
    kept = list(starts)
    while len(kept) > 1:
        ends = [*kept[1:], len(times_us)]
        levels = [math.log(level_of(times_us[a:b])) for a, b in zip(kept, ends, strict=True)]
        sizes = [abs(b - a) for a, b in itertools.pairwise(levels)]
        least = min(range(len(sizes)), key=sizes.__getitem__)
        if sizes[least] >= smallest:
            break
        del kept[least + 1]
    return tuple(kept)
