"""Runs one program: the reference or a candidate, it is not told which.

It is given tensors and never a seed of them, keeps what it returns until it is asked to copy it
out, and holds no expected answer. Everything it says may be forged by the program that it runs;
what the judge believes of it is written in judge.py.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ..memory.segment import slot_of
from ..wire.channel import Channel, ChannelClosed
from .arguments import flatten
from .batches import Batches
from .gradients import reached
from .profiling import profiled
from .settings import settings
from .sharing import shares
from .subject import Subject, describe, plain, seed_all


def main(channel: Channel, scratch: Path) -> None:
    """Answer until the judge hangs up."""
    subject = Subject(scratch)
    trials, batches = Trials(subject), Batches(subject)
    answers: dict[str, Callable[..., dict[str, Any]]] = {
        "wake": subject.wake,
        "settle_in": subject.settle_in,
        "load": subject.load,
        "build": subject.build,
        "make": subject.make,
        "map": subject.map,
        "prepare": subject.prepare,
        "imported": subject.imported,
        "state_out": subject.state_out,
        "state_in": subject.state_in,
        "call": trials.call,
        "collect": trials.collect,
        "lay_out": batches.lay_out,
        "cached": subject.cached,
        "let_go": batches.let_go,
        "arrange": batches.arrange,
        "stand_by": batches.stand_by,
        "rehearse": batches.rehearse,
        "batch": batches.batch,
        "exchange": batches.exchange,
        "deliver": batches.deliver,
        "aftermath": batches.aftermath,
        "left": batches.left,
        "settle": batches.settle,
        "profile": trials.profile,
        "demand": trials.demand,
        "reached": trials.reached,
    }
    while True:
        try:
            message, fds = channel.receive(spin_s=batches.spin_s)
        except ChannelClosed:
            return
        op = message.pop("op")
        try:
            if op == "map" and fds:
                message["fd"] = fds[0]
            reply = answers[op](**message)
        except BaseException as error:  # noqa: BLE001 - SystemExit of user code is its failure too
            reply = {"error": describe(error, scratch, subject.root)}
        try:
            channel.send(reply)
        except ChannelClosed:
            return


class Trials:
    """What the judge asks of a program that is to be right."""

    def __init__(self, subject: Subject):
        self.subject = subject

    def call(self, sets: list[int], seeds: list[int], is_between: bool = False) -> dict[str, Any]:
        """Calls whose outputs are all kept; says what they look like. A call between other work of
        the caller's stream has its inputs written and its outputs copied by that stream, without
        the host waiting for either."""
        sizes = [(t.shape, t.dtype) for tensors in self.subject.kept for t in tensors]
        self.subject.kept = []
        answers = []
        gc.disable()  # as in a timed batch: nothing tells the two apart
        for number, seed in zip(sets, seeds, strict=True):
            seed_all(seed)
            before, seed_before = self.subject.rng_state(), self.subject.seeds()
            self.subject.clear_gradients(number)
            if is_between:
                self.subject.write_inputs_late(number, sizes)
            with torch.set_grad_enabled(self.subject.train):
                output = self.subject.run(number, seed)
            leaves, structure = flatten(output)
            answers.append(
                {
                    "structure": structure,
                    "types": [type(t).__name__ for t in leaves],
                    "aliases": [self.subject.aliases(t, number) for t in leaves],
                    "shares": shares(leaves, self.subject.module, self.subject.kept),
                    "used_rng": not torch.equal(before, self.subject.rng_state()),
                    "seeded": seed_before != self.subject.seeds(),
                }
            )
            # The very tensors, so that one that changes after it was returned is seen.
            returned = [plain(t).clone() if is_between else plain(t) for t in leaves]
            self.subject.kept.append([*returned, *self.subject.gradients(number)])
            answers[-1]["slots"] = [
                {**slot_of(t), "device": t.device.type, "own_stride": list(t.stride())}
                for t in self.subject.kept[-1]
            ]
            answers[-1]["num_leaves"] = len(leaves)
        gc.enable()
        return {"calls": answers, "flags": settings(self.subject.attributes)}

    def collect(self, slots: list[list[dict[str, Any]]], segment: str) -> dict[str, Any]:
        """Copy what the last calls returned."""
        for tensors, places in zip(self.subject.kept, slots, strict=True):
            for tensor, slot in zip(tensors, places, strict=True):
                self.subject.segments[segment].tensor(slot).copy_(tensor.detach())
        self.subject.synchronize()
        return {}

    def profile(self, sets: list[int]) -> dict[str, Any]:
        """Kernels or operators of calls on the input sets, after calls that are not looked at."""

        def calls() -> None:
            for number in sets:
                self.subject.run(number)

        with torch.set_grad_enabled(self.subject.train):
            for number in sets:
                self.subject.give_cotangents(number)
            self.subject.synchronize()
            return {"rows": profiled(calls, self.subject.device)}

    def reached(self, number: int) -> dict[str, Any]:
        """Whom gradients reach from a call on an input set."""
        return reached(self.subject, number)

    def demand(self, number: int) -> dict[str, Any]:
        """What a call on an input set asks of the device, asked of references alone."""
        from .flops import demand_of  # few runners count

        subject = self.subject
        module = subject.module
        state = [] if module is None else [*module.parameters(), *module.buffers()]
        with torch.set_grad_enabled(subject.train):
            return demand_of(lambda: subject.run(number), [*subject.inputs[number], *state])
