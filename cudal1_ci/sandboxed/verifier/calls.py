"""Define how a program is called under a workload, and ask a fresh process of the reference.

Calls come from specs or from the user's own functions.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

import torch

from ..forkserver.client import Template
from ..memory.accelerators import Accelerator, Cpu, place_for
from ..memory.segment import dtype_of, place, slot_of, view_of
from ..runner.arguments import tensor_specs
from ..wire.arguments import Call, Made, Pickled
from ..wire.programs import Program, Workload
from ..wire.runner import Collect, MakeCalls, Wider
from .cases import Answer, Case, Limits
from .failures import twice
from .inputs import (
    InputSet,
    Laid,
    Pool,
    Source,
    draw,
    dtypes_of,
    invariants_in,
    is_of_floats,
    mixable,
    movable,
)
from .invariants import are_movable

NUM_MADE_SETS = 4
"""Calls of the user's `get_inputs` for the correctness trials."""
LARGE_BYTES = 256 * 2**20
"""Size of one such set; two larger ones are made."""
MOST_IN_POOL, POOL_BYTES, POOL_S = 256, 2**26, 0.5
"""Further calls, for timed rounds: as many as memory and time allow."""


@dataclass
class MadeSets:
    """Arguments that the user's functions made."""

    init: InputSet | None = None
    sets: list[InputSet] = field(default_factory=list)
    pool: Pool | None = None


def call_of(
    template: Template,
    accelerator: Accelerator,
    program: Program,
    workload: Workload,
    limits: Limits,
    seed: int,
    generator: torch.Generator,
) -> Case:
    """Return arguments of the constructor and of the calls, from specs or from the user's
    functions."""
    call, init = workload.call, workload.init
    made = {what: one for what, one in (("call", call), ("init", init)) if isinstance(one, Made)}
    found = MadeSets()
    if made:
        found = twice(lambda _: make_arguments(template, accelerator, program, made, limits, seed))
    # A tensor that is not always there would take another one's place.
    found.sets = [one for one in found.sets if dtypes_of(one) == dtypes_of(found.sets[0])]
    source = Source(call=Pickled(), made=found.sets, pool=found.pool)
    if isinstance(call, Call):
        rest, specs = tensor_specs(call)
        source = Source(call=rest, specs=specs)
        source.grads = [spec.requires_grad for spec in specs]
        source.invariants = [spec.invariants for spec in specs]
        source.moves = [not is_of_floats(one) and are_movable(one.invariants) for one in specs]
    else:
        source.grads = [t.is_floating_point() for t in source.made[0].tensors]
        source.moves, source.mixes = movable(source.made), mixable(source.made)
        for number in source.made[0].structure:
            source.moves[number] = source.mixes[number] = False
        source.invariants = invariants_in(source.made)
        for number, names in enumerate(source.invariants):
            source.moves[number] &= are_movable(names)
            source.mixes[number] &= not names
    source.cast = None if workload.autocast is None else dtype_of(workload.autocast)
    case = Case(
        name=workload.name,
        accelerator=accelerator,
        program=program,
        train=workload.mode == "train",
        call=source.call,
        init=None,
        init_slots=[],
        init_tensors=[],
        source=source,
        given=given_tolerance(workload),
        seed=seed,
        floats=workload.dtype,
        default_dtype=workload.default_dtype,
        autocast=workload.autocast,
    )
    if found.init is not None:
        case.init, tensors = Pickled(data=found.init.data), found.init.tensors
    elif isinstance(init, Call):
        case.init, specs = tensor_specs(init)
        tensors = [draw(spec, generator) for spec in specs]
    else:
        tensors = []
    case.init_slots, _ = place([slot_of(t) for t in tensors])
    case.init_tensors = tensors
    return case


def given_tolerance(workload: Workload) -> tuple[float, float] | None:
    """Return the user's own tolerances, which replace the oracle's budget."""
    atol, rtol = workload.atol, workload.rtol
    return None if atol is None and rtol is None else (atol or 0.0, rtol or 0.0)


def make_arguments(
    template: Template,
    accelerator: Accelerator,
    program: Program,
    made: dict[str, Made],
    limits: Limits,
    seed: int,
) -> MadeSets:
    """Run `get_inputs` and `get_init_inputs` in a separate runner, so that no user code is ever
    in the verifier."""
    found = MadeSets()
    with template.runner(program) as runner:

        def ask(what: str, seeds: list[int]) -> tuple[torch.Tensor, list[Laid]]:
            asked = MakeCalls(program=program, function=made[what], seeds=tuple(seeds))
            reply = runner.ask(asked, limits.load_s)
            template.warm(reply.imported)
            laid, end = [], 0
            for one in reply.calls:
                slots, end = place(one.slots, end)
                laid.append(Laid(slots, one.data, one.structure, one.masks))
            # Made on the CPU, for any device: this runner needs no GPU.
            segment = runner.share("made", Cpu(), end, limits.call_s)
            places = tuple(tuple(one.slots) for one in laid)
            runner.ask(Collect(slots=places, segment="made"), limits.call_s)
            return segment.flat()[:end], laid

        def sets_of(what: str, number: int) -> list[InputSet]:
            sets = []
            for one_seed in range(seed, seed + number):
                flat, (one,) = ask(what, [one_seed])
                views = [view_of(flat, slot) for slot in one.slots]
                tensors = [view.to(place_for(accelerator, view), copy=True) for view in views]
                sets.append(InputSet(tensors, one.data, one.structure, one.masks))
                if flat.numel() > LARGE_BYTES and len(sets) > 1:
                    break
            return sets

        if "init" in made:
            (found.init,) = sets_of("init", 1)
        if "call" in made:
            started_s = time.monotonic()
            found.sets = sets_of("call", NUM_MADE_SETS)
            each_s = (time.monotonic() - started_s) / len(found.sets)
            count = min(
                MOST_IN_POOL,
                POOL_BYTES // max(1, found.sets[0].num_bytes),
                int(POOL_S / each_s),
            )
            if count > 1:
                # A program that knows a seed knows the inputs, and may have computed with them
                # before.
                rng = random.SystemRandom()
                flat, laid = ask("call", [rng.randrange(2**31) for _ in range(count)])
                found.pool = Pool(flat.clone().to(accelerator.device), laid)
    return found


def answer_of(case: Case, template: Template, limits: Limits, dtype: Wider | None = None) -> Answer:
    """Return the answer of a fresh process of the reference."""

    def attempt(_: bool) -> Answer:
        with case.runner(template, case.program, limits, dtype) as runner:
            return case.answer(runner, limits, dtype)

    return twice(attempt)
