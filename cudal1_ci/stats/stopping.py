"""Decide when to stop measuring. Pure; the estimate itself is that of speedups.py.

Intervals are valid whenever one looks, so one looks after every repetition from the second on.
Measuring stops once the interval is tight enough for its claim. Where a gain is wanted, it also
stops once there is plainly none, or none can be claimed any more after all of them. Where a
difference is wanted, it also stops once all of the interval is too small for one. A large effect
ends after two repetitions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cudal1_ci.records import Repetition
from cudal1_ci.stats.sequential import out_of_reach
from cudal1_ci.stats.speedups import RELATIVE_FLOOR, Interval, Kind, interval, log_ratio

FEWEST = 2
MOST = 12
"""Repetitions after which measuring stops, whatever is known."""
HOPELESS_SPEEDUP = 0.9
FUTILE_HALF_WIDTH = 0.05
"""An estimate below the floor of a gain rarely rises above it: at this width it is not pursued."""
EFFECT_SHARE = 0.2
"""An interval whose half width is a fifth of the log speedup says enough: 2x +- 15 %."""


Settles = Literal["gain", "difference"]


@dataclass(frozen=True)
class StopRule:
    """When repetitions are enough."""

    half_width: float
    """Half of an interval that is tight enough, as a logarithm."""
    settles: Settles = "gain"
    same_within: float | None = None
    """Relative difference that is none, where a difference is wanted."""


def is_settled(
    repetitions: Sequence[Repetition],
    control: Sequence[Repetition],
    kind: Kind,
    prior_spread: float,
    rule: StopRule,
) -> bool:
    """Return whether more repetitions would not change the claim about a gain or a difference."""
    number = len(repetitions)
    if number < FEWEST or number >= MOST:
        return number >= MOST
    found = interval(repetitions, kind, prior_spread, control)
    assert found is not None
    half = math.log(found.high / found.low) / 2
    effect = abs(math.log(found.estimate))
    is_tight = half <= max(rule.half_width, effect * EFFECT_SHARE)
    if rule.settles == "difference":
        return is_tight or is_within(found, rule.same_within)
    ratios, others = ([log_ratio(one, kind) for one in some] for some in (repetitions, control))
    floor = math.log1p(RELATIVE_FLOOR)
    return (
        is_tight
        or (number > FEWEST and out_of_reach(ratios, others, prior_spread, floor, MOST))
        or found.high < 1 + RELATIVE_FLOOR
        or (found.estimate < HOPELESS_SPEEDUP and found.high < 1)
        or (found.estimate < 1 + RELATIVE_FLOOR and half <= FUTILE_HALF_WIDTH)
    )


def is_within(found: Interval, relative: float | None) -> bool:
    """Return whether all of an interval of ratios differs from 1 by less than `relative`."""
    if relative is None:
        return False
    return found.high < 1 + relative and found.low > 1 / (1 + relative)
