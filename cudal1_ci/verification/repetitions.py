"""Launches of a candidate that is right, until enough is known of how fast it is.

Asks the judge for one launch after the other, under the lock of the device and each between two
looks at the GPU's conditions, and decides which of them count. What a launch's times say is
score.py's, when there are enough of them statistics.py's.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from cudal1_ci.processes.lock import exclusive
from cudal1_ci.records import Device, Finding, Measurement, Repetition, Verdict, Workload
from cudal1_ci.stats import speedups
from cudal1_ci.stats.stopping import is_settled
from cudal1_ci.verification.conditions import Conditions, Gpu, disturbance, has_another_clock
from cudal1_ci.verification.config import TrialConfig

FEWEST_LAUNCHES = 3
MOST_DISTURBED = 6
"""Launches that may be made again because of what else happened on the GPU."""
MOST_INTERRUPTED = 3
"""Launches in which the reference fails: beyond them its failure is no accident."""
CONFIRMED = 3
"""Launches in which a candidate's clock contradicts the judge's, before it is accused: on a machine
that is busy enough one may. Their times count, so nothing is gained by it."""
BATCH_US = {"cpu": 2500.0, "cuda": 10_000.0}
MAX_CALLS = {"cpu": 200, "cuda": 400}
NUM_ROUNDS = {"cpu": 12, "cuda": 6}
FEWEST_ROUNDS = 3
"""Of a launch, where the launches before it differ by a fourth or more: their own spread is what
such an interval is made of, and more rounds would not narrow it. So it is with the rounds of a
launch that is the only one, whose spread is taken for known."""
PLAIN_EFFECT = math.log(1.25)
MOST_ERROR = 0.03
"""Of the log ratio of a launch that is the only one, as far as its rounds tell it: until then there
are more of them. Less would be lost beside what launches are known to spread by."""
MOST_AHEAD = {"cpu": 1, "cuda": speedups.LOOKS[-1]}
"""Launches whose processes are started together. On a CPU they would wait for the same cores."""
DISMISS_S = 60.0
DISTURBED = "timing.disturbed"
NOISY = 0.5
"""A control that strays further than this from 1 says that nothing can be measured here now. Below
it a gain still has to exceed the control's spread (score.py)."""


@dataclass(frozen=True)
class Seat:
    """Where launches are made: the judge and its device."""

    ask: Callable[[dict[str, Any], float], dict[str, Any]]
    """A request and the seconds that it may take."""
    device: Device
    lock: str
    """Name of the device among all processes of the machine."""
    gpu: Gpu | None = None
    pid: int | None = None
    """Of the judge, whose descendants are no foreign processes on the GPU."""


def measure(
    seat: Seat, config: TrialConfig, workload: Workload, *, goes_on: bool = False
) -> Measurement | Verdict | None:
    """Launches until the interval is settled or the time is spent; the verdict that they led to;
    None for a workload that the judge left out. The device is held for all of them: to wait anew
    for each would take several judges of one device much longer. Afterwards others have its memory,
    and the candidate has no processes on a GPU unless it `goes_on` with them."""
    with exclusive(seat.lock):
        found = measured(seat, config, workload)
        if MOST_AHEAD[seat.device.kind] > 1:
            seat.ask({"op": "dismiss", "goes_on": goes_on}, DISMISS_S)
        return found


def measured(seat: Seat, config: TrialConfig, workload: Workload) -> Measurement | Verdict | None:
    """See `measure`; on a device that nobody else works on."""
    timeout_s = 3 * (config.load_s + config.call_s) + config.launch_s * 10
    launches: list[Repetition] = []
    control: list[Repetition] = []
    after: list[Conditions] = []
    disturbances: list[Verdict] = []
    suspicions: list[Verdict] = []
    spent_s = 0.0
    while not is_over(launches, control, len(suspicions), spent_s, config, seat.device.kind):
        started_s = time.monotonic()
        clock = clock_of(seat, config, launches)
        request = {"op": "launch", "workload": workload.name, "clock": clock}
        reply, conditions, disturbed = launch(seat, request, timeout_s, after)
        spent_s += time.monotonic() - started_s
        if "left_out" in reply:
            return None
        if "verdict" in reply:
            return verdict_of(reply["verdict"])
        if disturbed is not None:
            disturbances.append(disturbed)
            if is_hopeless(disturbances, seat.device):
                return disturbed
            continue
        if "suspicion" in reply:
            suspicions.append(verdict_of(reply["suspicion"]))
            if len(suspicions) >= CONFIRMED:
                return suspicions[-1]
        if conditions is not None:
            after.append(conditions)
        times = reply["launch"]
        launches.append(a_launch(times, "candidate_us"))
        control.append(a_launch(times, "control_us"))
    measurement = Measurement(
        workload=workload.name,
        repetitions=tuple(launches),
        control=tuple(control),
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
) -> bool:
    """Whether no further launch is made: enough is known, or the time is spent. A candidate that
    half of the launches or more suspect is cleared or accused first."""
    if 2 * num_suspicions >= len(launches):
        return False
    # Two launches have a spread, but one that says nothing: their t quantile is 38.
    is_late = len(launches) >= FEWEST_LAUNCHES and spent_s > config.measure_s
    return is_late or is_enough(launches, control, config, kind)


def is_enough(
    launches: Sequence[Repetition],
    control: Sequence[Repetition],
    config: TrialConfig,
    kind: speedups.Kind,
) -> bool:
    """Whether launches say enough. One that was disturbed makes a control stray, and more of
    them tell whether the machine is too busy: only the control decides that, so that nobody
    chooses when to stop by what is claimed."""
    if config.num_launches is not None:
        return len(launches) >= config.num_launches
    if not is_settled(launches, config.half_width, kind, config.settles):
        return False
    return len(launches) >= speedups.LOOKS[-1] or (stray(control, kind) or 0.0) <= NOISY


def num_ahead(config: TrialConfig, kind: str, num_launches: int) -> int:
    """Launches that are sure to come before it is decided whether more do."""
    ends = speedups.LOOKS if config.num_launches is None else (config.num_launches,)
    later = [end for end in ends if end > num_launches]
    return min(MOST_AHEAD[kind], later[0] - num_launches) if later else 1


def num_rounds(config: TrialConfig, launches: Sequence[Repetition], kind: speedups.Kind) -> int:
    """Of the launch after these, which alone decide: not what it will say itself."""
    usual = config.num_rounds or NUM_ROUNDS[kind]
    if kind == "cpu" or not launches:
        return usual
    effects = [abs(speedups.log_ratio(launch, kind)) for launch in launches]
    return min(usual, FEWEST_ROUNDS) if min(effects) > PLAIN_EFFECT else usual


def clock_of(
    seat: Seat, config: TrialConfig, launches: Sequence[Repetition] = ()
) -> dict[str, Any]:
    """How the launch after these is timed, as the judge takes it."""
    kind = seat.device.kind
    return {
        "batch_us": config.batch_us or BATCH_US[kind],
        "max_calls": config.max_calls or MAX_CALLS[kind],
        "num_rounds": num_rounds(config, launches, kind),
        "fewest_rounds": FEWEST_ROUNDS if kind == "cuda" and config.num_launches == 1 else None,
        "plain_effect": PLAIN_EFFECT,
        "most_error": MOST_ERROR if kind == "cuda" and config.num_launches == 1 else None,
        "launch_s": config.launch_s,
        "num_ahead": num_ahead(config, kind, len(launches)),
        "gpu_index": None if seat.gpu is None else seat.gpu.index,
    }


def launch(
    seat: Seat, request: dict[str, Any], timeout_s: float, earlier: Sequence[Conditions]
) -> tuple[dict[str, Any], Conditions | None, Verdict | None]:
    """The judge's reply, the GPU's conditions afterwards, and the verdict that there is when a
    launch which says nothing is not made again."""
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


def verdict_of(reply: dict[str, Any]) -> Verdict:
    """The judge's words as a record."""
    return msgspec.convert(reply, Verdict)


def inconclusive(rule: str, message: str) -> Verdict:
    return Verdict(status="inconclusive", findings=(Finding(rule=rule, message=message),))


def interruption(reply: dict[str, Any]) -> Verdict | None:
    """Of a launch in which the reference failed."""
    return verdict_of(reply["interrupted"]) if "interrupted" in reply else None


def is_hopeless(disturbances: Sequence[Verdict], device: Device) -> bool:
    """Whether a launch is not made again after the last of these. Where a runner can see others,
    one that fails may be the candidate's victim, and who may stop a launch chooses those that
    count: none is made again."""
    is_interrupted = [one.findings[0].rule != DISTURBED for one in disturbances]
    if not is_interrupted[-1]:
        return is_interrupted.count(False) >= MOST_DISTURBED
    most = 1 if "pid_namespace" in device.sandbox_missing else MOST_INTERRUPTED
    return is_interrupted.count(True) >= most


def noise(measurement: Measurement) -> Verdict | None:
    """The verdict of a measurement that says nothing."""
    found = stray(measurement.control, measurement.device.kind)
    if found is None or found <= NOISY:
        return None
    return inconclusive(
        "timing.noisy",
        f"the reference against itself strays by {found:.0%} on `{measurement.workload}`: this "
        "machine is too busy to measure on",
    )


def stray(control: Sequence[Repetition], kind: speedups.Kind) -> float | None:
    """How far the reference against itself is from 1; None where there is no control. An interval
    over three launches is wide whatever they say: of so few, as of a candidate that is plainly
    slower, the worst one counts."""
    if len(control) < speedups.LOOKS[0]:
        return max(
            (math.expm1(abs(speedups.log_ratio(one, kind))) for one in control), default=None
        )
    return speedups.distance_from_one(speedups.interval(control, kind))


def under(device: Device, conditions: Sequence[Conditions]) -> Device:
    """The device with the conditions of the last launch."""
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


def a_launch(times: dict[str, Any], other: str) -> Repetition:
    """Times of one launch, of the reference against the candidate or against itself."""
    # Where memory is short, the control has a reference of its own.
    own = times.get("control_reference_us") if other == "control_us" else None
    return Repetition(
        reference_us=tuple(own or times["reference_us"]),
        candidate_us=tuple(times[other]),
        num_calls=times["num_calls"],
    )
