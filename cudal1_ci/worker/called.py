"""How a program is called under a workload, from specs or by the user's own functions, and what a
fresh process of the reference answers."""

from __future__ import annotations

from typing import Any

import torch

from .accelerators import Accelerator, Cpu
from .arguments import tensor_specs
from .cases import Answer, Case, Limits
from .failures import twice
from .inputs import InputSet, Source, draw
from .processes import Template
from .segment import place, slot_of

NUM_MADE_SETS = 4
"""Calls of the user's `get_inputs`; more sets come from these by scaling."""
LARGE_BYTES = 256 * 2**20
"""Of one such set: beyond it two are made."""


def call_of(
    template: Template,
    accelerator: Accelerator,
    program: dict[str, Any],
    workload: dict[str, Any],
    limits: Limits,
    seed: int,
    generator: torch.Generator,
) -> Case:
    """Arguments of the constructor and of the calls, from specs or from the user's functions."""
    call, init = workload["call"], workload.get("init")
    made = {"call": call} if call["type"] == "made" else {}
    if init is not None and init["type"] == "made":
        made["init"] = init
    answers = {}
    if made:
        answers = twice(
            lambda _: make_arguments(template, accelerator, program, made, limits, seed)
        )
    source = Source(call={"type": "pickled"}, made=answers.get("call", []))
    if "call" not in made:
        rest, specs = tensor_specs(call)
        source = Source(call=rest, specs=specs)
        source.grads = [spec.get("requires_grad", False) for spec in specs]
    else:
        source.grads = [t.is_floating_point() for t in source.made[0].tensors]
    case = Case(
        name=workload["name"],
        accelerator=accelerator,
        program=program,
        train=workload.get("mode", "infer") == "train",
        call=source.call,
        init=None,
        init_slots=[],
        init_tensors=[],
        source=source,
        given=given_tolerance(workload),
        seed=seed,
    )
    if "init" in made:
        one = answers["init"][0]
        case.init, tensors = {"type": "pickled", "data": one.data}, one.tensors
    elif init is not None:
        case.init, specs = tensor_specs(init)
        tensors = [draw(spec, generator) for spec in specs]
    else:
        tensors = []
    case.init_slots, _ = place([slot_of(t) for t in tensors])
    case.init_tensors = tensors
    return case


def given_tolerance(workload: dict[str, Any]) -> tuple[float, float] | None:
    """The user's own tolerances, which replace the oracle's budget."""
    atol, rtol = workload.get("atol"), workload.get("rtol")
    return None if atol is None and rtol is None else (atol or 0.0, rtol or 0.0)


def make_arguments(
    template: Template,
    accelerator: Accelerator,
    program: dict[str, Any],
    made: dict[str, dict[str, Any]],
    limits: Limits,
    seed: int,
) -> dict[str, list[InputSet]]:
    """Run `get_inputs` and `get_init_inputs` in a runner of their own, so that no user code is
    ever in the judge."""
    answers: dict[str, list[InputSet]] = {}
    with template.runner(program) as runner:
        for what, function in made.items():
            sets: list[InputSet] = []
            for number in range(NUM_MADE_SETS if what == "call" else 1):
                reply = runner.ask(
                    "make",
                    limits.load_s,
                    program=program,
                    functions=[function],
                    seed=seed + number,
                )
                (one,) = reply["calls"]
                slots, size = place(one["slots"])
                # Made on the CPU, whatever they are for: this runner needs no GPU.
                segment = runner.share("made", Cpu(), size, limits.call_s)
                runner.ask("collect", limits.call_s, slots=[slots], segment="made")
                tensors = [
                    accelerator.keep(segment.tensor(slot).to(accelerator.device)) for slot in slots
                ]
                sets.append(InputSet(tensors, one["data"]))
                if size > LARGE_BYTES and number:
                    break
            answers[what] = sets
    return answers


def answer_of(case: Case, template: Template, limits: Limits, dtype: str | None = None) -> Answer:
    """What a fresh process of the reference answers."""

    def attempt(_: bool) -> Answer:
        with case.runner(template, case.program, limits, dtype) as runner:
            return case.answer(runner, limits, dtype)

    return twice(attempt)
