"""Time paired batches in fresh processes, from outside, and check their outputs.

A repetition forks three runners: the reference, the candidate, and the reference again (the A/A
control). None of them knows its role. In every round each of them, in random order, makes
`num_calls` calls on the same new inputs and copies all outputs out. The verifier's own clock runs
from `go` until the runner cannot change the outputs any more. The cost of the exchange is
subtracted. It is measured on the trusted reference by copying the same outputs once more. So work
that a candidate postpones until its outputs are requested counts as its own time. The runner's own
claim of its time is only compared.

timed_rounds.py defines a round, and why nothing can be done ahead of it. All inputs of a batch are
in a runner's memory, so some batches are chained (chained.py): there each input comes after the
answer before it.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch

from ..forkserver.handles import RunnerFailure, RunnerHandle
from ..memory.segment import size_bytes
from ..verifier.cases import Case, Limits, Rejected, size_of
from ..verifier.failures import is_out_of_memory, rejection_of_candidate
from ..verifier.memory_plan import CPU_SHARE, GPU_SHARE, Plan, least_bytes, plan
from ..wire.programs import Program
from ..wire.tensors import OutputSlot
from ..wire.verifier import Times
from .batch_length import ClockConfig, choose_num_calls, reference_slots_of, room_of
from .reuse_runners import Kept
from .rounds import Timed, timed
from .runner_groups import Crews, most_crews

LANES = ("reference", "candidate", "control")
"""What a repetition times side by side."""


def launch(
    case: Case,
    crews: Crews | Kept,
    program: Program,
    answer_slots: Sequence[OutputSlot],
    limits: Limits,
    config: ClockConfig,
    rng: random.Random,
    num_calls: int | None = None,
) -> tuple[Times, Rejected | None]:
    """Return paired times from three fresh processes, and the control's. Where memory is short, two
    processes are timed, then two more for the control.

    The result includes the verdict on a candidate whose times contradict each other. `num_calls`
    is the size of a batch in an earlier repetition: a fast candidate's batch holds more than its
    reference needs.

    Raises:
        Rejected: A timed output is wrong, or the candidate failed.
        RunnerFailure: The reference failed, which gives no information on the candidate.
    """
    case.counts = False
    if num_calls is None:  # another candidate
        case.chained, case.has_endured, case.secret_trials = [], False, []
    generator = torch.Generator(case.accelerator.device).manual_seed(rng.randrange(2**62))
    if case.num_calls is None:
        case.plan = plan_of(case, config)
        case.num_calls = alone(case, crews, limits, config, rng, generator)
    if case.plan is None or num_calls is None or config.is_least:
        # What others leave of the device's memory is not the same for each candidate.
        case.plan = plan_of(case, config)
    plan = case.plan

    def together(number: int, *names: str) -> Timed:
        programs = {name: program if name == "candidate" else case.program for name in names}
        return open_and_time(
            case,
            crews,
            programs,
            number,
            answer_slots,
            limits,
            config,
            rng,
            generator,
            min(plan.most_calls, max(case.num_calls or 1, num_calls or 1)),
        )

    if plan.num_lanes == len(LANES):
        number = min(config.num_ahead, most_crews(case, plan.num_lanes, config.memory_bytes))
        found = together(number, *LANES)
        return all_times(found, found.times_us["control"]), found.contradiction
    found = together(1, "reference", "candidate")
    control = together(1, "reference", "control").times_us
    return all_times(found, control["control"], control["reference"]), found.contradiction


def start_ahead(
    case: Case,
    crews: Crews,
    program: Program,
    limits: Limits,
    config: ClockConfig,
    rng: random.Random,
) -> int:
    """Start the runners of the next repetitions; `launch` takes those that wait. Return of how
    many: none where memory is too short for three at a time.

    Raises:
        Rejected, RunnerFailure: As `launch` does, which would say which of the two is to blame.
    """
    plan = case.plan or plan_of(case, config)
    if plan.num_lanes != len(LANES):
        return 0
    number = min(config.num_ahead, most_crews(case, plan.num_lanes, config.memory_bytes))
    programs = {name: program if name == "candidate" else case.program for name in LANES}
    return crews.start(case, programs, limits, number, rng)


def all_times(
    found: Timed, control_us: tuple[float, ...], its_reference_us: tuple[float, ...] | None = None
) -> Times:
    """Return the times of reference and candidate with the control's."""
    return Times(
        reference_us=found.times_us["reference"],
        candidate_us=found.times_us["candidate"],
        control_us=control_us,
        control_reference_us=its_reference_us,
        num_calls=found.num_calls,
        phases_s=found.phases_s,
    )


def plan_of(case: Case, config: ClockConfig) -> Plan:
    """Plan the memory of a batch's tensors. Raises Rejected when they do not fit."""
    set_bytes = room_of(case, [case.trials[0][1]]).num_bytes
    outputs_bytes = sum(size_bytes(slot) for slot in reference_slots_of(case))
    sizes = (set_bytes, outputs_bytes, size_of(case.state_slots))
    found = plan(
        *sizes,
        config.memory_bytes,
        config.max_calls,
        wanted_calls=case.num_calls,
        share=CPU_SHARE if case.accelerator.kind == "cpu" else GPU_SHARE,
        is_least=config.is_least,
    )
    if found is None:
        message = (
            f"timing `{case.name}` needs {least_bytes(*sizes) / 2**30:.1f} GiB of the device's "
            f"memory, of which {config.memory_bytes / 2**30:.1f} GiB are free"
        )
        raise Rejected("inconclusive", "memory.device", message)
    return found


def open_and_time(
    case: Case,
    crews: Crews | Kept,
    programs: dict[str, Program],
    number: int,
    answer_slots: Sequence[OutputSlot],
    limits: Limits,
    config: ClockConfig,
    rng: random.Random,
    generator: torch.Generator,
    num_calls: int,
) -> Timed:
    """Time fresh processes that alternate. Where none waits, `number` groups of them are
    started. Raises as `launch` does."""
    names = list(programs)
    try:
        crew = crews.take(case, programs, limits, number, rng)
        try:
            # The order in which equal processes are warmed up affects their times.
            runners = {name: crew.runners[name] for name in rng.sample(names, len(names))}
            with beside(case, runners["reference"]):
                found = timed(
                    case, runners, answer_slots, limits, config, rng, generator, num_calls
                )
        finally:
            crew.end()
        return replace(found, phases_s={"open": crews.open_s, **found.phases_s})
    except RunnerFailure as failure:
        if failure.is_trusted:
            if failure.kind == "raised" and not is_out_of_memory(failure):
                case.source.is_rigid = True  # when the repetition is made again
            raise
        raise rejection_of_candidate(failure, programs["candidate"]) from failure


@contextmanager
def beside(case: Case, runner: RunnerHandle) -> Iterator[None]:
    """Write inputs on a core of the runners where programs run on the CPU. They then lie in its
    cache, as what the operation before has written in a program's loop. The verifier sleeps while
    a runner works."""
    before = os.sched_getaffinity(0)
    cores = runner.cores() if case.accelerator.kind == "cpu" else set()
    if not cores or cores == before:
        yield
        return
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def alone(
    case: Case,
    crews: Crews | Kept,
    limits: Limits,
    config: ClockConfig,
    rng: random.Random,
    generator: torch.Generator,
) -> int:
    """Choose the calls in a batch, by a reference that runs without others. Where it rejects
    inputs that are changed element by element (a matrix that must stay symmetric), they are
    scaled."""
    try:
        with crews.reference(case, limits) as runner:
            return choose_num_calls(case, runner, limits, config, rng, generator)
    except RunnerFailure as failure:
        if failure.kind != "raised" or case.source.is_rigid:
            raise
    case.source.is_rigid = True
    return alone(case, crews, limits, config, rng, generator)
