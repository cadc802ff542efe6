"""Bound a mean log ratio after every repetition, so that one may stop whenever one likes.

    half_width([0.69, 0.71], control=[0.01, -0.02], spread=0.02)

The log ratios of repetitions are taken as normal, with a mean that is sought and an unknown spread.
The spread has a prior: it is what repetitions of such calls spread by on such a device, worth
`WEIGHT` repetitions. The control, whose mean is 0, shows the spread as well. For a tested mean, the
alternatives are a normal mixture around it, `MIXTURE` times as wide as the spread in variance. The
ratio of both marginal densities is a martingale under the tested mean. By Ville's inequality it
ever exceeds 1 / level with a probability of the level at most. The interval holds the means whose
ratio does not. It is valid at every number of repetitions and under every rule that stops.

The martingale is exact where spreads follow the prior. The candidate shares its reference with the
control, and spreads may be larger than the prior says: the rates of errors there were simulated
(experiments/sequential_errors.py, 10^5 runs). Intervals miss the truth at any of twelve looks in
0.6 % of runs, and in 4.1 % where repetitions spread three times as much as the prior says; without
a control in 0.5 and 8.4 %.

Source: Robbins, Ann. Math. Statist. 41 (1970), normal mixtures; Lai, Ann. Statist. 4 (1976) and
Wang & Ramdas, Sequential Analysis 44 (2025), unknown variance; Howard et al., Ann. Statist. 49
(2021), their use as time-uniform bounds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

LEVEL = 0.05
WEIGHT = 3.0
"""Repetitions that the prior of the spread is worth. More give shorter first intervals, and more
errors where the prior is wrong."""
MIXTURE = 4.0
"""Variance of the alternatives as a multiple of the spread's. The shortest intervals after two to
five repetitions."""
REACH = 2.5
"""Standard deviations of a predicted mean that a claim may be away."""


def out_of_reach(
    ratios: Sequence[float],
    control: Sequence[float],
    spread: float,
    floor: float,
    most: int,
) -> bool:
    """Return whether no claim will come of `most` repetitions, of which these are the first.

    Their mean is predicted as normal around the mean so far, with the spread that was seen. A claim
    needs a lower bound above `floor`, a log ratio, and above the upper bound of a control whose
    mean is 0. It is out of reach where even `REACH` standard deviations more than predicted do not
    suffice: stochastic curtailment by predictive power (Jennison & Turnbull, Group Sequential
    Methods, 2000, chapter 10). Giving up claims nothing, so no interval becomes wrong. Simulated
    as above, at most 0.2 % of runs lose a claim by it, and 0.5 % where repetitions spread three
    times as much as the prior says. There a candidate as fast as its reference ends after 3
    repetitions instead of 11.
    """
    count, left = len(ratios), most - len(ratios)
    seen = spread_seen(ratios, control, spread)
    own, both = WEIGHT + most, WEIGHT + 2 * most
    above = max(floor, half_width_of(most, own, own * seen**2))
    needed = above + half_width_of(most, both, both * seen**2)
    best = statistics.fmean(ratios) + REACH * seen * math.sqrt(left / (most * count))
    return best < needed


def half_width(ratios: Sequence[float], control: Sequence[float], spread: float) -> float:
    """Return half of the interval's width around the mean of some log ratios. It is infinite where
    so few exclude nothing. `spread` is the prior's."""
    degrees = WEIGHT + len(ratios) + len(control)
    seen = spread_seen(ratios, control, spread)
    return half_width_of(len(ratios), degrees, degrees * seen**2)


def spread_seen(ratios: Sequence[float], control: Sequence[float], spread: float) -> float:
    """Return the spread of log ratios by the prior's, their own and the control's."""
    mean = statistics.fmean(ratios)
    squares = WEIGHT * spread**2
    squares += sum((one - mean) ** 2 for one in ratios) + sum(one**2 for one in control)
    return math.sqrt(squares / (WEIGHT + len(ratios) + len(control)))


def half_width_of(count: int, degrees: float, squares: float) -> float:
    """Return the half width after `count` log ratios, by the sum of all squares."""
    growth = 1 + count * MIXTURE
    # The density ratio is growth^-1/2 ((squares + d) / (squares + d / growth))^(degrees / 2) of
    # d = count * distance^2, and reaches 1 / level where the fraction is `bound`.
    bound = (math.sqrt(growth) / LEVEL) ** (2 / degrees)
    if bound >= growth:
        return math.inf
    return math.sqrt(squares * (bound - 1) / (1 - bound / growth) / count)
