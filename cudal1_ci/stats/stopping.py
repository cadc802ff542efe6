"""Decide when to stop measuring. Pure; the estimate itself is score.py's.

Repetitions are checked after 5, 8 and 12 of them. Measuring stops at the first check at which the
interval is tight enough for its claim. Where a gain is wanted, it also stops once there is plainly
none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from cudal1_ci.records import Repetition
from cudal1_ci.stats.speedups import LOOKS, RELATIVE_FLOOR, Kind, interval

HOPELESS_LAUNCHES = 3
"""Repetitions after which a candidate that is slower in all of them is measured no further."""
HOPELESS_SPEEDUP = 0.9
FUTILE_HALF_WIDTH = 0.05
"""An estimate below the floor of a gain rarely rises above it: at this width it is not pursued."""
EFFECT_SHARE = 0.125
"""An interval whose half width is an eighth of the log speedup says enough: 8x +- 30 %."""


Settles = Literal["gain", "difference"]


def is_settled(
    repetitions: Sequence[Repetition], half_width: float, kind: Kind, settles: Settles = "gain"
) -> bool:
    """Return whether more repetitions would not change the claim about a gain or a difference."""
    found = interval(repetitions, kind)
    if found is None:
        return False
    half = math.log(found.high / found.low) / 2
    effect = abs(math.log(found.estimate))
    is_tight = half <= max(half_width, effect * EFFECT_SHARE)
    if settles == "difference":
        return (len(repetitions) in LOOKS and is_tight) or len(repetitions) >= LOOKS[-1]
    is_slower = found.estimate < HOPELESS_SPEEDUP and found.high < 1
    if len(repetitions) >= HOPELESS_LAUNCHES and is_slower:
        return True
    if len(repetitions) not in LOOKS:
        return len(repetitions) >= LOOKS[-1]
    return (
        is_tight
        or found.high < 1 + RELATIVE_FLOOR
        or (found.estimate < 1 + RELATIVE_FLOOR and half <= FUTILE_HALF_WIDTH)
        or len(repetitions) >= LOOKS[-1]
    )
