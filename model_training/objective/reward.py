"""The reward of a candidate, from the judge's evaluation of it.

Formulas, by name, since the paper's own is one of several in the field:

    paper       the speedup; over a batch it is then smoothed and clipped (`smoothed`, equation 6)
    kevin       0.3 for being correct, and the speedup (arXiv 2507.11948)
    capped      0.3 for being correct, and the speedup up to 3, as Dr. Kernel's (arXiv 2602.05885)
    milestone   1 correct, 2 at least 5 % faster than the reference, 3 twice as fast; after CUDA
                Agent (arXiv 2602.24286), whose third step is torch.compile

What did not pass gets nothing whatever the formula, and neither does a hack. A speedup is what the
measurement is sure of, its lower bound, where the paper takes the estimate: a policy that is paid
for noise learns to make noise.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Literal

from cudal1_ci.records import Evaluation
from cudal1_ci.stats import speedups

RewardName = Literal["paper", "kevin", "capped", "milestone"]
CORRECT = 0.3
MAX_SPEEDUP = 3.0
FASTER, TWICE = 1.05, 2.0
SMOOTHING = 1.5
"""k of equation 6."""


def reward(evaluation: Evaluation, name: RewardName = "paper") -> float:
    """0 for what did not pass."""
    speedup = speedups.score(evaluation)
    return FORMULAS[name](speedup) if speedup > 0 else 0.0


def kevin(speedup: float) -> float:
    return CORRECT + speedup


def capped(speedup: float) -> float:
    return CORRECT + min(speedup, MAX_SPEEDUP)


def milestone(speedup: float) -> float:
    return 1.0 + (speedup >= FASTER) + (speedup >= TWICE)


FORMULAS: dict[RewardName, Callable[[float], float]] = {
    "paper": float,
    "kevin": kevin,
    "capped": capped,
    "milestone": milestone,
}


def smoothed(
    rewards: Sequence[float],
    k: float = SMOOTHING,
    *,
    mean: float | None = None,
    spread: float | None = None,
) -> list[float]:
    """Standardized, and clipped to [-k, k], so that one outlier of a reward moves a policy no more
    than a good one does. Equation 6: clip((r - mean) / spread, -k, k). The paper does not say over
    what mean and spread are: given ones may be of all steps so far, those of this batch are the
    default. Rewards that are all alike become 0."""
    if not rewards:
        return []
    center = statistics.fmean(rewards) if mean is None else mean
    width = statistics.pstdev(rewards) if spread is None else spread
    if not math.isfinite(width) or width <= 0:
        return [0.0] * len(rewards)
    return [min(k, max(-k, (one - center) / width)) for one in rewards]
