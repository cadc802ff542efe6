"""Compute quantiles of Student's t, for a confidence interval of few values.

    quantile(4, 0.975)    2.776: five launches, 95 % two-sided

Knows whole degrees of freedom alone. Its tests hold it against scipy.

Source: Abramowitz & Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4 (the finite
sums), 26.7.5 (the expansion).
"""

from __future__ import annotations

import math
from statistics import NormalDist

MAX_SUMMED = 1000
"""Degrees of freedom up to which the finite sum is taken. Beyond, the first term that the expansion
leaves out is less than 1e-10 for any probability up to 0.9995."""
CONVERGED = 1e-12
"""Relative step at which the sums' own rounding errors are reached."""


def quantile(degrees_of_freedom: int, probability: float) -> float:
    """Return the t below which that probability lies."""
    if degrees_of_freedom > MAX_SUMMED:
        return expanded(degrees_of_freedom, probability)
    # Newton's method from 0. It does not overshoot: the density falls with the distance from 0.
    t, step = 0.0, math.inf
    while abs(step) > CONVERGED * abs(t):
        missing = 2 * probability - 1 - central(degrees_of_freedom, t)
        step = missing / (2 * density(degrees_of_freedom, t))
        t += step
    return t


def central(degrees_of_freedom: int, t: float) -> float:
    """Return the probability between -t and t."""
    angle = math.atan(t / math.sqrt(degrees_of_freedom))
    is_odd = degrees_of_freedom % 2
    term = math.cos(angle) if is_odd else 1.0
    total = 0.0
    for power in range(1 + is_odd, degrees_of_freedom, 2):
        total += term
        term *= power / (power + 1) * math.cos(angle) ** 2
    total *= math.sin(angle)
    return (angle + total) * 2 / math.pi if is_odd else total


def density(degrees_of_freedom: int, t: float) -> float:
    half = degrees_of_freedom / 2
    log_peak = math.lgamma(half + 0.5) - math.lgamma(half) - math.log(2 * math.pi * half) / 2
    return math.exp(log_peak - (half + 0.5) * math.log1p(t * t / degrees_of_freedom))


def expanded(degrees_of_freedom: int, probability: float) -> float:
    """Return the quantile of many degrees of freedom, by powers of their inverse."""
    z = NormalDist().inv_cdf(probability)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    n = degrees_of_freedom
    return z + first / n + second / n**2 + third / n**3
