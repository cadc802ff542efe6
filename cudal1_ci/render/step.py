"""Compute a target's worth in a training step: its share, and the GPU hours that a proposal saves.

    step_of(entry, steps_per_month=1_000_000)

A trace of optimizer steps shows how often a step makes the measured calls and how long a step took.
The verifier measures how long a call takes. There is no share where the two times are not from a
GPU of the same name. Hours need no time of a step: only calls, times of calls, and the number of
steps that a person stated.

A step is assumed to wait for the calls, one after the other. Under the tracer a step takes longer
than without, which makes the share smaller. Where anything is missing there is no number.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from cudal1_ci.records import Entry, Measurement, TracedSteps, TrainingStep
from cudal1_ci.stats import speedups, student_t
from cudal1_ci.stats.speedups import Interval

US_PER_HOUR = 3.6e9


def step_of(entry: Entry, steps_per_month: int | None) -> TrainingStep | None:
    """Return the step of the proposal, or of the first measured evaluation where there is none.
    None where neither a share nor hours are known.
    """
    calls = {w.name: w.calls_per_step for w in entry.workloads if w.calls_per_step}
    steps = next((w.steps for w in entry.workloads if w.steps is not None), None)
    measured = [m for m in measurements(entry) if m.workload in calls and m.baseline == "eager"]
    if steps is None or not measured or len({m.device.name for m in measured}) > 1:
        return None
    device = measured[0].device
    if device.kind != "cuda":
        return None
    weighted = [(calls[m.workload] or 0.0, m) for m in measured]
    share = share_of(weighted, steps) if steps.device == device.name else None
    has_hours = steps_per_month is not None and entry.best is not None
    hours = hours_saved(weighted, steps_per_month or 0) if has_hours else None
    if share is None and hours is None:
        return None
    return TrainingStep(
        device=device.name,
        num_steps=len(steps.durations_us),
        calls_per_step=sum(number for number, _ in weighted),
        share=share.estimate if share else None,
        share_low=share.low if share else None,
        share_high=share.high if share else None,
        steps_per_month=steps_per_month if hours else None,
        gpu_hours_saved=hours.estimate if hours else None,
        gpu_hours_saved_low=hours.low if hours else None,
        gpu_hours_saved_high=hours.high if hours else None,
    )


def measurements(entry: Entry) -> Sequence[Measurement]:
    if entry.best is not None:
        return entry.evaluations[entry.best].measurements
    return next((one.measurements for one in entry.evaluations if one.measurements), ())


def share_of(weighted: Sequence[tuple[float, Measurement]], steps: TracedSteps) -> Interval | None:
    """Return the time of the calls over that of the step, at the worst that both intervals allow.
    None where either has no interval, or where the calls would take longer than the step.
    """
    level = speedups.LEVEL / (len(weighted) + 1)
    step = mean_interval(steps.durations_us, level)
    times = [(number, reference_interval(m, level)) for number, m in weighted]
    if step is None or step.low <= 0:
        return None

    if any(one is None for _, one in times):
        return None
    known = [(number, one) for number, one in times if one is not None]
    estimate = sum(number * one.estimate for number, one in known)
    if estimate > step.estimate:
        return None
    return Interval(
        estimate=estimate / step.estimate,
        low=sum(number * one.low for number, one in known) / step.high,
        high=min(1.0, sum(number * one.high for number, one in known) / step.low),
    )


def hours_saved(
    weighted: Sequence[tuple[float, Measurement]], steps_per_month: int
) -> Interval | None:
    """Return the hours that the calls save in a month; below zero where they may take longer."""
    level = speedups.LEVEL / len(weighted)
    estimate = low = high = 0.0
    for number, measured in weighted:
        time, speedup = reference_interval(measured, level), speedups.speedup(measured)
        if time is None or speedup is None:
            return None
        gains = [1 - 1 / one for one in (speedup.low, speedup.high)]
        corners = [time_us * gain for time_us in (time.low, time.high) for gain in gains]
        estimate += number * time.estimate * (1 - 1 / speedup.estimate)
        low += number * min(corners)
        high += number * max(corners)
    hours = steps_per_month / US_PER_HOUR
    return Interval(estimate=estimate * hours, low=low * hours, high=high * hours)


def reference_interval(measured: Measurement, level: float) -> Interval | None:
    """Return microseconds of a call of the reference over repetitions, as `score.reference_us`
    does.
    """
    logs = [math.log(speedups.typical_us(one.reference_us)) for one in measured.repetitions]
    found = mean_interval(logs, level)
    return found and Interval(
        estimate=math.exp(found.estimate), low=math.exp(found.low), high=math.exp(found.high)
    )


def mean_interval(values: Sequence[float], level: float) -> Interval | None:
    """Return the mean with its t interval; None for fewer than two values."""
    if len(values) < 2:
        return None
    mean = statistics.fmean(values)
    error = statistics.stdev(values) / math.sqrt(len(values))
    width = student_t.quantile(len(values) - 1, 1 - level / 2) * error
    return Interval(estimate=mean, low=mean - width, high=mean + width)
