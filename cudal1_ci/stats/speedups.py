"""Compute what a measurement is worth: speedup with its interval, order of candidates, reward.

Pure: raw paired times in, numbers out. Used three times: to order exemplars, to choose the best
candidate, to reward a policy. The estimator: interleaved batches in random order, a log ratio for
each repetition (fresh processes), and an interval over them that holds at every look. Samples of
one process share its memory layout, so an interval over samples would be too narrow; a bootstrap
over five repetitions also covers less than it says.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from cudal1_ci.records import Evaluation, Measurement, Problem, Repetition, Workload
from cudal1_ci.stats import sequential, student_t

LEVEL = 0.05
MANY = 10**6
"""Degrees of freedom of a spread that is known."""
LOOKS = (5, 8, 12)
"""Numbers of repetitions after which the interval may be looked at; each look spends a third of the
level (Bonferroni), so that three looks do not make a false alarm three times as likely."""

RELATIVE_FLOOR = 0.02
ABSOLUTE_FLOOR_US = 0.5
"""A gain must exceed both: two percent of the time and half a microsecond a call."""
REPETITION_SPREAD = {"cpu": 0.1, "cuda": 0.04}
"""Standard deviation of repetitions' log ratios that is taken for known where there is one alone.
On an H200 it was 0.003 to 0.04, the most for calls of 10 us
(assets/results/sensitivity-h200.json); on a CPU it is a generous guess."""
OF_MEDIAN = 1.2533
"""Standard error of a median of many normal values, as a multiple of that of their mean."""
OF_DEVIATION = 1.4826
"""Standard deviation of normal values, as a multiple of their median distance from the median."""
OF_FEW = (1.196, 1.495, 1.363, 1.206, 1.200, 1.140, 1.129, 1.107)
"""That distance is too short in the mean by these factors where it is of 2, 3, ... 9 values, and of
n / (n - 0.8) beyond. Source: Croux & Rousseeuw, COMPSTAT 1992."""
SLOWER = 0.98
"""A workload whose interval lies below this is slower, and no gain elsewhere makes up for it."""

SLOWER_AT_SIZE = "size.slower"
"""The rule of a candidate that is slower at half or double batch, and so is not proposed."""
AT_OTHER_SIZES = frozenset((SLOWER_AT_SIZE, "size.fails"))

MOST_LOG = 700.0
"""Of a bound, so that it is a number above 0 whatever times are read from a file."""
UNDISTURBED = 4
"""Rounds of a repetition in which nothing else ran, at least."""
NUM_BUCKETS = 7
MAX_VARIANCE = 0.005
"""Of CUDA-L1's rules: between the means of the buckets."""


Kind = Literal["cpu", "cuda"]
"""Of a device: what its noise is like."""


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """A ratio (above 1 is faster) with its lower and upper bound."""

    estimate: float
    low: float
    high: float


def typical_us(times_us: Sequence[float]) -> float:
    """Return the first quartile, or the fourth shortest time where that is less. Disturbances only
    add time, and nothing else ran in so many rounds. It treats both sides equally.
    """
    if len(times_us) == 1:
        return times_us[0]
    quartile = statistics.quantiles(times_us, n=4, method="inclusive")[0]
    return min(quartile, sorted(times_us)[:UNDISTURBED][-1])


def log_ratio(repetition: Repetition, kind: Kind) -> float:
    """Return the log of the candidate's speedup over the reference in one repetition.

    On a CPU an interruption affects one batch, so each side has its typical time. On a GPU host the
    core that launches changes its speed for longer than a round, and so changes both sides of a
    round. The ratio is then the median of the rounds' ratios.
    (assets/results/sensitivity-h200.json: calls that the processor holds up take 16.6 us in one
    round of a repetition, and 26.1 in another.)
    """
    if kind == "cpu":
        return math.log(typical_us(repetition.reference_us) / typical_us(repetition.candidate_us))
    pairs = zip(repetition.reference_us, repetition.candidate_us, strict=True)
    return statistics.median(math.log(ours / theirs) for ours, theirs in pairs)


@functools.lru_cache
def t_quantile(degrees_of_freedom: int) -> float:
    """Return the quantile of Student's t for one of `LOOKS` two-sided looks at `LEVEL` together."""
    return student_t.quantile(degrees_of_freedom, 1 - LEVEL / len(LOOKS) / 2)


def error_of_rounds(repetition: Repetition, kind: Kind) -> float:
    """Return the standard error of a repetition's log ratio, by its own rounds. It adds the error
    of calls that are held up, or of batches with few calls. 0 on a CPU, where rounds are not pairs.
    """
    if kind == "cpu":
        return 0.0
    pairs = zip(repetition.reference_us, repetition.candidate_us, strict=True)
    logs = [math.log(ours / theirs) for ours, theirs in pairs]
    middle = statistics.median(logs)
    distance = statistics.median(abs(one - middle) for one in logs)
    number = len(logs)
    of_few = OF_FEW[number - 2] if 2 <= number <= len(OF_FEW) + 1 else number / (number - 0.8)
    return OF_MEDIAN * OF_DEVIATION * of_few * distance / math.sqrt(number)


def interval(
    repetitions: Sequence[Repetition],
    kind: Kind,
    prior_spread: float | None = None,
    control: Sequence[Repetition] = (),
) -> Interval | None:
    """Return the mean over repetitions with its interval; None without a repetition.

    A single one shows no spread between repetitions: `REPETITION_SPREAD` replaces it, next to the
    spread of its rounds. With a `prior_spread` the interval of several is valid whenever one looks,
    and the control's spread counts (sequential.py). Without one it is a t interval, for `LOOKS`.
    """
    ratios = [log_ratio(repetition, kind) for repetition in repetitions]
    if not ratios:
        return None
    mean = statistics.fmean(ratios)
    if len(ratios) == 1:
        error = math.hypot(REPETITION_SPREAD[kind], error_of_rounds(repetitions[0], kind))
        half = t_quantile(MANY) * error
    elif prior_spread is not None:
        half = sequential.half_width(
            ratios, [log_ratio(one, kind) for one in control], prior_spread
        )
    else:
        error = statistics.stdev(ratios) / math.sqrt(len(ratios))
        half = t_quantile(len(ratios) - 1) * error
    return Interval(
        estimate=math.exp(mean),
        low=math.exp(max(mean - half, -MOST_LOG)),
        high=math.exp(min(mean + half, MOST_LOG)),
    )


def speedup(measurement: Measurement) -> Interval | None:
    """Return how many times faster the candidate is than the baseline. The interval includes how
    far the reference against itself is from 1 in the same session.
    """
    kind, prior = measurement.device.kind, measurement.prior_spread
    found = interval(measurement.repetitions, kind, prior, measurement.control)
    other = control(measurement)
    if found is None or other is None:
        return found
    middle, stray = math.log(found.estimate), math.log(other.estimate)
    below = math.hypot(middle - math.log(found.low), stray)
    above = math.hypot(math.log(found.high) - middle, stray)
    return Interval(
        estimate=found.estimate,
        low=math.exp(max(middle - below, -MOST_LOG)),
        high=math.exp(min(middle + above, MOST_LOG)),
    )


def control(measurement: Measurement) -> Interval | None:
    """Compare the reference with itself in the same session. The interval should hold 1; its width
    is the noise.
    """
    return interval(measurement.control, measurement.device.kind, measurement.prior_spread)


def control_spread(measurement: Measurement) -> float | None:
    """Return the control's larger distance from 1, as a fraction: 0.012 is 1.2 %."""
    return distance_from_one(control(measurement))


def distance_from_one(found: Interval | None) -> float | None:
    """Return the larger distance of a ratio's bounds from 1; None without an interval."""
    return None if found is None else max(abs(found.high - 1), abs(1 - found.low))


def reference_us(measurement: Measurement) -> float:
    """Return microseconds of one call of the baseline: the geometric mean over repetitions."""
    return geometric_mean(
        [typical_us(repetition.reference_us) for repetition in measurement.repetitions]
    )


def candidate_us(measurement: Measurement) -> float:
    """Return microseconds of one call of the candidate: the baseline's over the speedup, so that
    the two times agree with the speedup. (On a CPU that is their geometric mean.)
    """
    ratios = [
        log_ratio(repetition, measurement.device.kind) for repetition in measurement.repetitions
    ]
    return reference_us(measurement) / math.exp(statistics.fmean(ratios))


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def is_gain(measurement: Measurement) -> bool:
    """Return whether the lower bound clears the relative and the absolute floor, and the control
    shows no noise above the gain.
    """
    found = speedup(measurement)
    if found is None or not clears_floors(found.low, measurement):
        return False
    spread = control_spread(measurement)
    return spread is None or found.low > 1 + spread


def clears_floors(ratio: float, measurement: Measurement) -> bool:
    """Return whether a speedup is large enough to report."""
    gain_us = reference_us(measurement) * (1 - 1 / ratio)
    return ratio > 1 + RELATIVE_FLOOR and gain_us > ABSOLUTE_FLOOR_US


def is_hidden(measurement: Measurement) -> bool:
    """Return whether this session's noise may hide a gain. The estimate is a gain, and the noise
    exceeds that of a single repetition (`REPETITION_SPREAD`).
    """
    found = speedup(measurement)
    if found is None or not clears_floors(found.estimate, measurement) or is_gain(measurement):
        return False
    noise = max(found.estimate / found.low - 1, control_spread(measurement) or 0.0)
    return noise > REPETITION_SPREAD[measurement.device.kind]


def is_undecided(evaluation: Evaluation) -> bool:
    """Return whether a less busy machine may find a gain where this one found none. A screening
    is repeated by a confirmation only."""
    measured = evaluation.measurements
    if evaluation.phase == "screened" or any(is_slower(m) or is_gain(m) for m in measured):
        return False
    return any(map(is_hidden, measured))


def is_slower(measurement: Measurement) -> bool:
    """Return whether the candidate is slower beyond doubt."""
    found = speedup(measurement)
    return found is not None and found.high < SLOWER


def cuda_l1_speedup(measurement: Measurement) -> float | None:
    """Return the speedup as CUDA-L1 counts it: ratios of pairs in seven buckets, the median of
    their means, to two digits toward 1.00. None where there are too few pairs, or the means vary
    too much. It has no interval, and is for comparison only. Source: arXiv 2507.14111.
    """
    ratios = [
        reference / candidate
        for repetition in measurement.repetitions
        for reference, candidate in zip(
            repetition.reference_us, repetition.candidate_us, strict=True
        )
    ]
    if len(ratios) < NUM_BUCKETS:
        return None
    edges = [len(ratios) * number // NUM_BUCKETS for number in range(NUM_BUCKETS + 1)]
    means = [statistics.fmean(ratios[start:end]) for start, end in itertools.pairwise(edges)]
    if statistics.pvariance(means) > MAX_VARIANCE:
        return None
    return toward_one(statistics.median(means))


def toward_one(ratio: float) -> float:
    """Round to two digits, never further from 1 than what was measured: 1.118 is 1.11,
    0.992 is 1.
    """
    hundredths = round(ratio * 100, 6)  # 1.15 is 114.99999999999999 hundredths otherwise
    return (math.floor(hundredths) if ratio >= 1 else math.ceil(hundredths)) / 100


def score(evaluation: Evaluation) -> float:
    """Return one number for ordering and reward: the geometric mean of the lower bounds over
    workloads, or of the estimates where it was only screened. The lower bounds of a screening are
    all equally wide. 0 for what did not pass.
    """
    if evaluation.phase == "screened":
        return estimate(evaluation)
    lows = [one.low for one in speedups(evaluation)]
    return geometric_mean(lows) if lows else 0.0


def estimate(evaluation: Evaluation) -> float:
    """Return the geometric mean of the estimates, where `score` takes the lower bounds."""
    estimates = [one.estimate for one in speedups(evaluation)]
    return geometric_mean(estimates) if estimates else 0.0


def speedups(evaluation: Evaluation) -> list[Interval]:
    """Return the speedup of each workload; empty for what did not pass."""
    if evaluation.verdict.status != "passed":
        return []
    return [found for m in evaluation.measurements if (found := speedup(m)) is not None]


def highest(evaluations: Sequence[Evaluation]) -> float:
    """Return the highest score, or the original's 1 where none is higher."""
    return max([1.0, *map(score, evaluations)])


def is_negligible(problem: Problem, min_share: float) -> bool:
    """Return whether the target's share of the traced time is known to be below `min_share`. The
    share is the most that a faster version alone can save.
    """
    return problem.share is not None and problem.share < min_share


def best(evaluations: Sequence[Evaluation], workloads: Sequence[Workload]) -> int | None:
    """Return the index of the best proposal; None where there is none.

    A proposal passed, was not only screened, breaks neither its contract nor anything of its
    repository where these were examined, is slower on no workload, holds at other sizes where it
    was timed there, and is a gain on at least one workload. The best has the highest mean lower
    bound, weighted by the share of the traced time where it is known.
    """
    ranked = [
        (mean_log(evaluation, workloads, lambda found: found.low), -index)
        for index, evaluation in enumerate(evaluations)
        if evaluation.phase != "screened"
        and not evaluation.is_refused
        and not any(one.rule in AT_OTHER_SIZES for one in evaluation.findings)
        and is_slower_nowhere(evaluation)
        and any(map(is_gain, evaluation.measurements))
    ]
    return -max(ranked)[1] if ranked else None


def best_examined(evaluations: Sequence[Evaluation], workloads: Sequence[Workload]) -> int | None:
    """Return the index of the best proposal, as `best` does. Where the contract of any was
    examined, the others are no proposals: a runner-up was timed, and not examined."""
    known = [n for n, one in enumerate(evaluations) if one.contract is not None]
    if not known:
        return best(evaluations, workloads)
    place = best([evaluations[number] for number in known], workloads)
    return None if place is None else known[place]


def promising(evaluations: Sequence[Evaluation], workloads: Sequence[Workload]) -> list[int]:
    """Return the indices of screened candidates that a confirmation may show to be a gain, those
    with the highest estimates first."""
    ranked = [
        (mean_log(evaluation, workloads, lambda found: found.estimate), -index)
        for index, evaluation in enumerate(evaluations)
        if evaluation.phase == "screened"
        and not evaluation.is_refused
        and is_slower_nowhere(evaluation)
        and any(
            clears_floors(found.estimate, m)
            for m in evaluation.measurements
            if (found := speedup(m)) is not None
        )
    ]
    return [-index for _, index in sorted(ranked, reverse=True)]


def is_slower_nowhere(evaluation: Evaluation) -> bool:
    """Return whether a candidate passed, was measured, and is slower on no workload."""
    measured = evaluation.measurements
    is_measured = evaluation.verdict.status == "passed" and bool(measured)
    return is_measured and not any(map(is_slower, measured))


def mean_log(
    evaluation: Evaluation, workloads: Sequence[Workload], of: Callable[[Interval], float]
) -> float:
    """Return the mean log of a number of each speedup, weighted by the workloads' shares of the
    traced time where they are known."""
    weights = {w.name: w.share for w in workloads if w.share}
    logs = [
        (math.log(of(found)), weights.get(m.workload, 1.0 if not weights else 1e-3))
        for m in evaluation.measurements
        if (found := speedup(m)) is not None
    ]
    return sum(value * weight for value, weight in logs) / sum(weight for _, weight in logs)
