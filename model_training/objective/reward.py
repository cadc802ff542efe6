"""Turn the verifier's evaluation of a candidate into a reward.

A candidate that passed is worth its speedup; what did not pass, hacks too, is worth nothing. A
speedup is the lower bound of the measured one, where the paper takes the estimate: a policy that is
paid for noise learns to make noise. Over a batch, rewards are then smoothed (equation 6).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from cudal1_ci.records import Evaluation
from cudal1_ci.stats import speedups

SMOOTHING = 1.5
"""k of equation 6."""


def reward(evaluation: Evaluation) -> float:
    """Return the speedup, 0 for what did not pass."""
    return max(speedups.score(evaluation), 0.0)


def smoothed(rewards: Sequence[float], k: float = SMOOTHING) -> list[float]:
    """Standardize rewards and clip them to [-k, k], so that one outlier moves a policy no more than
    a good one does. Equation 6: clip((r - mean) / spread, -k, k). The paper does not say over what
    mean and spread are taken; here it is the batch. Rewards that are all equal become 0."""
    if not rewards:
        return []
    center, width = statistics.fmean(rewards), statistics.pstdev(rewards)
    if not math.isfinite(width) or width <= 0:
        return [0.0] * len(rewards)
    return [min(k, max(-k, (one - center) / width)) for one in rewards]
