"""Turn the spans of a repetition's rounds into times, and decide whether they suffice.

Each span is of one batch of one program, by the verifier's clock.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from ..verifier.cases import Case, Rejected
from .batch_length import ClockConfig
from .timed_rounds import Lane

RECONCILIATION = {"cpu": (0.10, 500.0), "cuda": (0.02, 200.0)}
"""A fraction of the claim, and microseconds."""
RECONCILIATION_COST = 1.5
"""How far the verifier's time may exceed a claim and the cost of the exchange before the two
contradict each other. They must do so in every round of a repetition, because on a busy CPU a
batch is sometimes preempted for milliseconds. This names cheats and does not bound them: the
verifier's time counts in any case. The factor leaves room for the cost of copying outputs of any
size, which the reference shows."""
OF_MEDIAN = 1.2533 * 1.4826
"""Standard error of the median of many normal values, as a multiple of their median distance
from it, over the root of their number."""


def is_plain(lanes: dict[str, Lane], cost_us: float, config: ClockConfig) -> bool:
    """Return whether more rounds would add nothing: the candidate is far from the reference in
    each, and the control is not."""
    if "candidate" not in lanes or len(lanes["reference"].spans_us) < (
        config.fewest_rounds or math.inf
    ):
        return False
    logs = logs_of(lanes, cost_us)
    ratios, most = logs["candidate"], config.plain_effect
    is_far = min(ratios) > most or max(ratios) < -most
    return is_far and ("control" not in lanes or max(map(abs, logs["control"])) < most)


def is_steady(lanes: dict[str, Lane], cost_us: float, config: ClockConfig) -> bool:
    """Return whether the rounds' spread is small enough to give the candidate's speed and the
    control's deviation. Only the spread decides, so that the result has no influence on the
    number of rounds."""
    if config.most_error is None:
        return True
    return all(error(logs) <= config.most_error for logs in logs_of(lanes, cost_us).values())


def error(logs: Sequence[float]) -> float:
    """Return the standard error of the median. (That of the package `stats` is corrected for few
    values; this package imports none of the others.)"""
    middle = statistics.median(logs)
    distance = statistics.median(abs(one - middle) for one in logs)
    return OF_MEDIAN * distance / math.sqrt(len(logs))


def logs_of(lanes: dict[str, Lane], cost_us: float) -> dict[str, list[float]]:
    """Return the logarithms of the rounds' ratios of each lane to the reference."""
    found = times(lanes, cost_us, 1)
    return {
        name: [
            math.log(ours / theirs)
            for ours, theirs in zip(found["reference"], found[name], strict=True)
        ]
        for name in lanes
        if name != "reference"
    }


def times(
    lanes: dict[str, Lane], cost_us: float, num_calls: int, least_us: float = 0.0
) -> dict[str, tuple[float, ...]]:
    """Return microseconds a call, by the verifier's clock less the exchange. A batch counts as
    `least_us` where it took less."""
    # A call cannot take less than nothing. Where the exchange is the whole span, the reference's
    # claim would be noise, and the floor keeps ratios finite.
    return {
        name: tuple(
            max(span - cost_us, least_us, span * 0.02) / num_calls for span in lane.spans_us
        )
        for name, lane in lanes.items()
    }


def reconcile(
    case: Case, trusted: Sequence[Lane], lane: Lane, cost_us: float, alone_us: float
) -> Rejected | None:
    """Compare the verifier's time with the runner's claim. Return the verdict where the two
    contradict each other.

    The trusted reference shows how far the two may differ in this repetition, as it copies outputs
    of the same size on the same busy machine. The other runner may take `alone_us` more if it
    copies each output separately.
    """
    apart_us = [
        span - claim
        for one in trusted
        for span, claim in zip(one.spans_us, one.claims_us, strict=True)
    ]
    relative, absolute_us = RECONCILIATION[case.accelerator.kind]
    allowed_us = RECONCILIATION_COST * max(cost_us, *apart_us) + alone_us
    over = [
        span - allowed_us - claim * (1 + relative)
        for span, claim in zip(lane.spans_us, lane.claims_us, strict=True)
    ]
    if min(over) <= absolute_us:
        return None
    span_us = statistics.median(lane.spans_us) - cost_us
    return Rejected(
        "reward_hack",
        "timing.reconciliation",
        f"it claims {statistics.median(lane.claims_us):.0f} us for a batch that took "
        f"{span_us:.0f} us until its outputs were there: work is put off until after its own clock "
        "stopped",
    )
