"""Repeat the timing of a correct candidate until its speed is known well enough.

This module requests one repetition after another from the verifier, on a device that is held
(device_hold.py). It reads the GPU's conditions before and after each. It decides which repetitions
count; the package `stats` evaluates their times.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import msgspec

from cudal1_ci.records import Device, Finding, Measurement, Repetition, Verdict, Workload
from cudal1_ci.sandboxed.wire.verifier import (
    Clock,
    Convicted,
    Interrupted,
    LeftOut,
    Repeat,
    Repeated,
    Times,
)
from cudal1_ci.stats import speedups
from cudal1_ci.stats.stopping import FEWEST, MOST, StopRule, is_settled
from cudal1_ci.verification.conditions import Conditions, disturbance, has_another_clock
from cudal1_ci.verification.config import TrialConfig
from cudal1_ci.verification.crossing import verdict_of
from cudal1_ci.verification.device_hold import MOST_AHEAD, Hold, Seat

RepetitionReply = Repeated | Convicted | Interrupted | LeftOut

MOST_DISTURBED = 6
"""Most repetitions made again because of other work on the GPU."""
MOST_INTERRUPTED = 3
"""Most repetitions in which the reference fails. Beyond them its failure is no accident."""
CONFIRMED = 3
"""Repetitions in which a candidate's clock contradicts the verifier's before it is accused. On a
busy machine one may. Their times count, so a candidate gains nothing by it."""
BATCH_US = {"cpu": 1000.0, "cuda": 10_000.0}
"""On a CPU it is less than Linux gives a process before others have the core: 1.4 ms on two cores,
2.8 ms on eight. A longer batch holds an interruption whenever the machine is busy."""
MAX_CALLS = {"cpu": 500, "cuda": 400}
NUM_ROUNDS = {"cpu": 30, "cuda": 6}
FEWEST_ROUNDS = 3
"""Rounds of a repetition, where earlier repetitions differ from the reference by a fourth or
more. The interval is made of the repetitions' spread, which more rounds would not narrow. The
same holds for a single repetition, whose spread is taken as known."""
PLAIN_EFFECT = math.log(1.25)
MOST_ERROR = 0.03
"""Most error of the log ratio of a single repetition, estimated from its rounds. Above it there
are more rounds. A smaller error would not matter next to the known spread of repetitions."""
DISTURBED = "timing.disturbed"
NOISY = 0.5
"""A control that deviates from 1 by more shows that the machine is too busy to measure now.
Below it a gain must still exceed the control's spread (stats)."""


def measure(
    seat: Seat, config: TrialConfig, workload: Workload, *, goes_on: bool = False
) -> Measurement | Verdict | None:
    """Repeat until the interval is settled or the time is spent.

    Return the measurement, the verdict that timing led to, or None for a workload that the verifier
    left out. Afterwards other processes have the device's memory. The candidate then has no
    processes on a GPU unless `goes_on` keeps them.
    """
    with Hold(seat, config, goes_on=goes_on) as hold:
        return measured(seat, config, workload, hold)


def measured(
    seat: Seat, config: TrialConfig, workload: Workload, hold: Hold
) -> Measurement | Verdict | None:
    """Measure as `measure` does, on a device that is held for each repetition."""
    timeout_s = 3 * (config.load_s + config.call_s) + config.launch_s * 10
    launches: list[Repetition] = []
    control: list[Repetition] = []
    after: list[Conditions] = []
    disturbances: list[Verdict] = []
    suspicions: list[Verdict] = []
    spent_s, prior_spread = 0.0, None
    kind = seat.device.kind
    while not is_over(launches, control, len(suspicions), spent_s, config, kind, prior_spread):
        clock = clock_of(seat, config, launches)
        request = Repeat(workload=workload.name, clock=clock)
        spent_s += hold.get_ready(request, timeout_s)
        started_s = time.monotonic()
        reply, conditions, disturbed = repetition(seat, request, timeout_s, after)
        spent_s += time.monotonic() - started_s
        if isinstance(reply, LeftOut):
            return None
        if isinstance(reply, Convicted):
            return verdict_of(reply.verdict)
        if disturbed is not None or isinstance(reply, Interrupted):
            assert disturbed is not None
            disturbances.append(disturbed)
            if is_hopeless(disturbances, seat.device):
                return disturbed
            continue
        if reply.suspicion is not None:
            suspicions.append(verdict_of(reply.suspicion))
            if len(suspicions) >= CONFIRMED:
                return suspicions[-1]
        if conditions is not None:
            after.append(conditions)
        times = reply.times
        launches.append(repetition_of(times, times.reference_us, times.candidate_us))
        # Where memory is short, the control has a reference of its own.
        its_reference_us = times.control_reference_us or times.reference_us
        control.append(repetition_of(times, its_reference_us, times.control_us))
        if prior_spread is None and config.num_launches is None:
            call_us = speedups.typical_us(times.reference_us)
            prior_spread = seat.spreads.spread(kind, seat.device.key, call_us)
    if prior_spread is not None:
        ratios = [speedups.log_ratio(one, kind) for one in control]
        seat.spreads.note(seat.device.key, speedups.typical_us(launches[0].reference_us), ratios)
    measurement = Measurement(
        workload=workload.name,
        repetitions=tuple(launches),
        control=tuple(control),
        prior_spread=prior_spread,
        device=under(seat.device, after),
    )
    return noise(measurement) or measurement


def is_over(
    launches: Sequence[Repetition],
    control: Sequence[Repetition],
    num_suspicions: int,
    spent_s: float,
    config: TrialConfig,
    kind: speedups.Kind,
    prior_spread: float | None,
) -> bool:
    """Return whether no further repetition is made: enough is known, or the time is spent. A
    candidate that half of the repetitions or more suspect is first cleared or accused."""
    if 2 * num_suspicions >= len(launches):
        return False
    if len(launches) >= FEWEST and spent_s > config.measure_s:
        return True
    if config.num_launches is not None:
        return len(launches) >= config.num_launches
    return prior_spread is not None and is_enough(launches, control, config, kind, prior_spread)


def is_enough(
    launches: Sequence[Repetition],
    control: Sequence[Repetition],
    config: TrialConfig,
    kind: speedups.Kind,
    prior_spread: float,
) -> bool:
    """Return whether there are enough repetitions. A disturbed one makes the control deviate,
    and further ones show whether the machine is too busy."""
    end = StopRule(config.half_width, config.settles, config.same_within)
    if not is_settled(launches, control, kind, prior_spread, end):
        return False
    return len(launches) >= MOST or (stray(control, kind, prior_spread) or 0.0) <= NOISY


def num_ahead(config: TrialConfig, kind: str, num_launches: int) -> int:
    """Return how many repetitions are started together. The first two are certain to come, and all
    of a fixed number are."""
    left = max(1, (config.num_launches or MOST) - num_launches)
    is_fixed = config.num_launches is not None and kind != "cpu"
    return left if is_fixed else min(left, MOST_AHEAD[kind])


def num_rounds(config: TrialConfig, launches: Sequence[Repetition], kind: speedups.Kind) -> int:
    """Return the rounds of the next repetition. Only earlier repetitions decide, never its own
    result."""
    usual = config.num_rounds or NUM_ROUNDS[kind]
    if kind == "cpu" or not launches:
        return usual
    effects = [abs(speedups.log_ratio(launch, kind)) for launch in launches]
    return min(usual, FEWEST_ROUNDS) if min(effects) > PLAIN_EFFECT else usual


def clock_of(seat: Seat, config: TrialConfig, launches: Sequence[Repetition] = ()) -> Clock:
    """Return how the next repetition is timed, as the verifier takes it."""
    kind = seat.device.kind
    return Clock(
        batch_us=config.batch_us or BATCH_US[kind],
        max_calls=config.max_calls or MAX_CALLS[kind],
        num_rounds=num_rounds(config, launches, kind),
        fewest_rounds=FEWEST_ROUNDS if kind == "cuda" and config.num_launches == 1 else None,
        plain_effect=PLAIN_EFFECT,
        most_error=MOST_ERROR if kind == "cuda" and config.num_launches == 1 else None,
        repetition_s=config.launch_s,
        num_ahead=num_ahead(config, kind, len(launches)),
        gpu_index=None if seat.gpu is None else seat.gpu.index,
    )


def repetition(
    seat: Seat, request: Repeat, timeout_s: float, earlier: Sequence[Conditions]
) -> tuple[RepetitionReply, Conditions | None, Verdict | None]:
    """Run a repetition. Return the verifier's reply, the GPU's conditions afterwards, and a
    verdict if it does not count. That verdict holds if the repetition is not made again."""
    if seat.gpu is None or seat.pid is None:
        reply = seat.ask(request, timeout_s)
        return reply, None, interruption(reply)
    before = seat.gpu.read(seat.pid)
    reply = seat.ask(request, timeout_s)
    now = seat.gpu.read(seat.pid)
    found = disturbance(before, now)
    clocks_mhz = [one.clock_mhz for one in earlier if one.clock_mhz is not None]
    if found is None and has_another_clock(now.clock_mhz, clocks_mhz):
        found = f"the clock was {now.clock_mhz:.0f} MHz, before {clocks_mhz[-1]:.0f} MHz"
    disturbed = interruption(reply)
    if disturbed is None and found is not None:
        disturbed = inconclusive(DISTURBED, found)
    return reply, now, disturbed


def inconclusive(rule: str, message: str) -> Verdict:
    return Verdict(status="inconclusive", findings=(Finding(rule=rule, message=message),))


def interruption(reply: RepetitionReply) -> Verdict | None:
    """Return the verdict of a repetition in which the reference failed."""
    return verdict_of(reply.verdict) if isinstance(reply, Interrupted) else None


def is_hopeless(disturbances: Sequence[Verdict], device: Device) -> bool:
    """Return whether the last of these disturbed repetitions is not made again. Where a runner
    can see others, a failing one may be the candidate's victim. A candidate that can stop a
    repetition could choose which ones count, so none is made again."""
    is_interrupted = [one.findings[0].rule != DISTURBED for one in disturbances]
    if not is_interrupted[-1]:
        return is_interrupted.count(False) >= MOST_DISTURBED
    most = 1 if "pid_namespace" in device.sandbox_missing else MOST_INTERRUPTED
    return is_interrupted.count(True) >= most


def noise(measurement: Measurement) -> Verdict | None:
    """Return the verdict on a measurement that is too noisy, or None. It is also too noisy where
    the control deviates by more than the difference that the candidate seems to make."""
    found = stray(measurement.control, measurement.device.kind, measurement.prior_spread)
    if found is None:
        return None
    claim = claim_of(measurement)
    if claim is not None and found > claim:
        return inconclusive(
            "timing.noisy",
            f"the reference differs from itself by {100 * found:.1f} % on "
            f"`{measurement.workload}`, more than the {100 * claim:.1f} % by which the "
            "candidate differs from it",
        )
    if found <= NOISY:
        return None
    return inconclusive(
        "timing.noisy",
        f"the reference differs from itself by {100 * found:.0f} % on `{measurement.workload}`: "
        "this machine is too busy to measure on",
    )


def claim_of(measurement: Measurement) -> float | None:
    """Return by how much the candidate differs: 0.1 is a tenth faster or slower. None where the
    interval holds 1, or the difference is below what is ever claimed."""
    found = speedups.speedup(measurement)
    if found is None or found.low <= 1 <= found.high:
        return None
    claim = max(found.estimate, 1 / found.estimate) - 1
    return claim if claim > speedups.RELATIVE_FLOOR else None


def stray(
    control: Sequence[Repetition], kind: speedups.Kind, prior_spread: float | None
) -> float | None:
    """Return how far the reference against itself is from 1; None where there is no control. The
    interval of so few that their number was fixed is too wide to say so: the worst one counts."""
    if prior_spread is None and len(control) < speedups.LOOKS[0]:
        return max(
            (math.expm1(abs(speedups.log_ratio(one, kind))) for one in control), default=None
        )
    return speedups.distance_from_one(speedups.interval(control, kind, prior_spread))


def under(device: Device, conditions: Sequence[Conditions]) -> Device:
    """Return the device with the conditions of the last repetition."""
    if not conditions:
        return device
    last = conditions[-1]
    return msgspec.structs.replace(
        device,
        clock_mhz=last.clock_mhz,
        power_w=last.power_w,
        temperature_c=last.temperature_c,
        other_processes=last.other_processes,
    )


def repetition_of(
    times: Times, reference_us: tuple[float, ...], other_us: tuple[float, ...]
) -> Repetition:
    """Return one repetition, of the reference against the candidate or against itself."""
    return Repetition(reference_us=reference_us, candidate_us=other_us, num_calls=times.num_calls)
