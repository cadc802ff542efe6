"""Decide whether code got slower, from paired times of two trees.

Pure. The base is the reference of a measurement and the head its candidate, so a slowdown is the
inverse of a speedup: 1.1 takes a tenth longer. A workload is a regression when four things hold of
every measurement of it. The interval is above 1 (statistics); the estimate exceeds the relative
threshold; it exceeds the absolute one; and the estimate against the control, the base's other
process, exceeds the relative one too. An alarm is measured again in new processes, more often the
more is compared. Chance raises one comparison of forty on one side, so twice in a row is one of
1,600. `num_looks` keeps the chance of any false alarm in a whole run below five in a hundred. Noise
of a shared processor follows no distribution and lasts for minutes, so one more look must agree
there: two looks without the control blame changes that change nothing.

The worst workload decides, never a mean: no gain elsewhere makes up for a loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from cudal1_ci.records import ComparedWorkload, ComparisonVerdict, Measurement, Record
from cudal1_ci.stats import speedups
from cudal1_ci.stats.stopping import is_within

FAMILY_LEVEL = 0.05
"""Chance of any false alarm among all that is compared in one run."""
FEWEST_LOOKS = {"cpu": 3, "cuda": 2}
"""An alarm is none before it was found again."""
SEVERITY: tuple[ComparisonVerdict, ...] = (
    "regression",
    "inconclusive",
    "improvement",
    "same",
    "new",
    "removed",
    "skipped",
)
"""The worst first."""
RELATIVE = {"cpu": 0.05, "cuda": 0.02}
"""What a shared processor and a GPU can tell apart (docs/results.md)."""

Alarm = Literal["regression", "improvement"]


class Thresholds(Record, frozen=True, kw_only=True):
    """Below either of them a difference is none."""

    relative: float | None = None
    """0.05 is five percent; None is 0.05 on a CPU and 0.02 on a GPU."""
    absolute_us: float = 0.5

    def relative_on(self, kind: str) -> float:
        return RELATIVE[kind] if self.relative is None else self.relative


def slowdown(measurement: Measurement) -> speedups.Interval | None:
    """Return how many times as long the head takes as the base; None where too little
    was measured.
    """
    speedup = speedups.speedup(measurement)
    if speedup is None:
        return None
    return speedups.Interval(
        estimate=1 / speedup.estimate, low=1 / speedup.high, high=1 / speedup.low
    )


def alarm(measurement: Measurement, thresholds: Thresholds) -> Alarm | None:
    """Return what a measurement by itself indicates."""
    found = differs(measurement, thresholds)
    beside = beside_control(measurement)
    other = slowdown(beside) if beside else None
    if found is None or other is None:
        return found
    relative = thresholds.relative_on(measurement.device.kind)
    ratio = other.estimate if found == "regression" else 1 / other.estimate
    return found if ratio >= 1 + relative else None


def beside_control(measurement: Measurement) -> Measurement | None:
    """Compare the head with the control, which is the base once more. Chance that made one of two
    equal processes fast did not affect the other. None where they were not timed together.
    """
    pairs = list(zip(measurement.repetitions, measurement.control, strict=False))
    if not pairs or any(one.reference_us != control.reference_us for one, control in pairs):
        return None
    repetitions = tuple(
        msgspec.structs.replace(one, reference_us=control.candidate_us) for one, control in pairs
    )
    return msgspec.structs.replace(measurement, repetitions=repetitions, control=())


def differs(measurement: Measurement, thresholds: Thresholds) -> Alarm | None:
    """Return the direction of a difference that the statistics and both thresholds confirm."""
    found = slowdown(measurement)
    if found is None:
        return None
    relative = thresholds.relative_on(measurement.device.kind)
    base_us = speedups.reference_us(measurement)
    if abs(found.estimate - 1) * base_us <= thresholds.absolute_us:
        return None
    if found.low > 1 and found.estimate >= 1 + relative:
        return "regression"
    if found.high < 1 and found.estimate <= 1 / (1 + relative):
        return "improvement"
    return None


def num_looks(num_comparisons: int, kind: speedups.Kind) -> int:
    """Return how many measurements must agree on an alarm, for so many comparisons in a run."""
    chance = speedups.LEVEL / 2
    needed = math.log(FAMILY_LEVEL / max(1, num_comparisons)) / math.log(chance)
    return max(FEWEST_LOOKS[kind], math.ceil(needed))


def verdict_of(
    measurements: Sequence[Measurement], thresholds: Thresholds, looks: int
) -> tuple[ComparisonVerdict, str | None]:
    """Return the verdict on a workload, and why it is inconclusive. The workload was measured at
    least once: until `looks`, or until a measurement did not repeat the alarm.
    """
    alarms = [alarm(one, thresholds) for one in measurements]
    first = alarms[0]
    if first is not None and len(alarms) >= looks and len(set(alarms)) == 1:
        return first, None
    last = measurements[-1]
    found = slowdown(last)
    if found is None:
        return "inconclusive", "too little was measured"
    relative = thresholds.relative_on(last.device.kind)
    spread_us = max(found.high - 1, 1 - found.low) * speedups.reference_us(last)
    if is_within(found, relative):
        return "same", None
    if spread_us <= thresholds.absolute_us:
        return "same", None
    seen = alarms.count(first) if first else len(alarms) - alarms.count(None)
    count = len(alarms)
    if seen == 1 and first is not None and count > 1:
        return "inconclusive", "a difference was seen once and not again in new processes"
    if seen and count > 1:
        return "inconclusive", f"a difference was seen in {seen} of {count} measurements"
    return (
        "inconclusive",
        f"a difference of {100 * relative:.3g} % can be neither seen nor excluded",
    )


def worst(verdicts: Iterable[ComparisonVerdict]) -> ComparisonVerdict:
    """Return the verdict that decides; `skipped` where there is none."""
    return min(verdicts, key=SEVERITY.index, default="skipped")


def decisive(row: ComparedWorkload) -> Measurement | None:
    """Return the measurement to show: the last one, because the first was chosen for its result."""
    return row.measurements[-1] if row.measurements else None
