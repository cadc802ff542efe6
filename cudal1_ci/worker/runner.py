"""Runs one program: the reference or a candidate, it is not told which.

It is given tensors and never a seed of them, keeps what it returns until it is asked to copy it
out, and holds no expected answer. Everything it says may be forged by the program that it runs;
what the judge believes of it is written in judge.py.
"""

from __future__ import annotations

import gc
import math
import os
import random
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from . import programs
from .arguments import build_call, flatten, pickle_call
from .channel import Channel, ChannelClosed
from .compile_errors import compile_error
from .cuda_memory import DeviceSegment
from .profiling import profiled
from .sandbox import OWN_FOLDERS
from .segment import Segment, slot_of
from .settings import attributes, settings

MAX_TRACEBACK_CHARS = 6000


def main(channel: Channel, scratch: Path) -> None:
    """Answer until the judge hangs up."""
    runner = Runner(scratch)
    answers: dict[str, Callable[..., dict[str, Any]]] = {
        "load": runner.load,
        "build": runner.build,
        "make": runner.make,
        "map": runner.map,
        "prepare": runner.prepare,
        "state_out": runner.state_out,
        "state_in": runner.state_in,
        "call": runner.call,
        "collect": runner.collect,
        "lay_out": runner.lay_out,
        "arrange": runner.arrange,
        "batch": runner.batch,
        "exchange": runner.exchange,
        "deliver": runner.deliver,
        "aftermath": runner.aftermath,
        "settle": runner.settle,
        "profile": runner.profile,
    }
    while True:
        try:
            message, fds = channel.receive()
        except ChannelClosed:
            return
        op = message.pop("op")
        try:
            if op == "map" and fds:
                message["fd"] = fds[0]
            reply = answers[op](**message)
        except BaseException as error:  # noqa: BLE001 - SystemExit of user code is its failure too
            reply = {"error": describe(error, scratch, runner.root)}
        try:
            channel.send(reply)
        except ChannelClosed:
            return


def describe(error: BaseException, scratch: Path, root: str | None) -> dict[str, str]:
    """An exception as the judge reports it; what a compiler said without what does not help."""
    folders = [str(scratch), *(os.environ.get(name, "") for name in OWN_FOLDERS)]
    failed = compile_error(error, folders, root)
    if failed is not None:
        return {
            "type": type(error).__name__,
            "message": failed.message,
            "traceback": failed.output[-MAX_TRACEBACK_CHARS:],
            "stage": "compile",
        }
    text = "".join(traceback.format_exception(error))
    return {
        "type": type(error).__name__,
        "message": str(error)[:2000],
        "traceback": text[-MAX_TRACEBACK_CHARS:],
    }


class Runner:
    """One program and the tensors it is called with."""

    def __init__(self, scratch: Path):
        self.scratch = scratch
        self.root: str | None = None
        """Of the checkout that the program is in."""
        self.device = torch.device("cpu")
        self.attributes = attributes()
        self.segments: dict[str, Segment | DeviceSegment] = {}
        self.program: Any = None
        self.module: torch.nn.Module | None = None
        self.train = False
        self.calls: dict[int, tuple[list[Any], dict[str, Any]]] = {}
        self.inputs: dict[int, list[torch.Tensor]] = {}
        self.kept: list[list[torch.Tensor]] = []
        self.timed: list[Any] = []
        self.order: list[int] = []
        self.regions: list[list[list[torch.Tensor]]] = [[]]
        self.seeded = False
        self.cotangents: dict[tuple[torch.Size, torch.dtype], torch.Tensor] = {}

    # --- loading ---------------------------------------------------------------------------

    def load(
        self,
        program: dict[str, Any],
        init: dict[str, Any] | None,
        init_slots: list[dict[str, Any]],
        seed: int,
        train: bool,
        dtype: str | None,
        device: str,
    ) -> dict[str, Any]:
        """Import the program and construct it. `dtype` float64 makes the oracle."""
        self.root = program.get("root")
        before = set(sys.modules)
        if device == "cuda":
            self.device = torch.device("cuda", 0)
            torch.cuda.set_device(self.device)
        try:
            found = programs.load(program, self.scratch)
        except BaseException as error:  # noqa: BLE001 - whatever an import raises is its failure
            return {"error": {"stage": "import", **describe(error, self.scratch, self.root)}}
        self.train = train
        seed_all(seed)
        self.program = found
        if isinstance(found, type):
            slots = [self.segments["init"].tensor(slot).clone() for slot in init_slots]
            args, kwargs = build_call(init or {"type": "call"}, slots)
            self.program = found(*args, **kwargs)
        if isinstance(self.program, torch.nn.Module):
            self.module = self.program.to(self.device).train(train)
        if dtype == "float64":
            torch.set_default_dtype(torch.float64)  # for what is made in the calls
            if self.module is not None:
                self.module.double()
        imported = [name for name in sys.modules if name not in before]
        # What is here now stays: the collections between batches need not look at it again.
        gc.freeze()
        return {"state": self.state_slots(), "imported": outside(imported, program.get("root"))}

    def build(self, program: dict[str, Any]) -> dict[str, Any]:
        """Import a program for what it compiles."""
        self.root = program.get("root")
        programs.load(program, self.scratch)
        return {}

    def make(
        self, program: dict[str, Any], functions: list[dict[str, Any]], seed: int
    ) -> dict[str, Any]:
        """Call the user's functions that make arguments; the tensors stay here until `collect`."""
        calls = []
        self.kept = []
        for function in functions:
            seed_all(seed)
            made = programs.load_function(program, function, self.scratch)()
            data, tensors = pickle_call(made)
            calls.append({"data": data, "slots": [slot_of(t) for t in tensors]})
            self.kept.append(tensors)
        return {"calls": calls}

    # --- tensors in shared memory --------------------------------------------------------------

    def map(
        self, segment: str, num_bytes: int, fd: int | None = None, handle: str | None = None
    ) -> dict[str, Any]:
        """Take a segment under a name."""
        if fd is not None:
            self.segments[segment] = Segment(fd, num_bytes)
        elif handle is not None:
            opened = DeviceSegment.open(bytes.fromhex(handle), num_bytes, 0)
            self.segments[segment] = opened
        return {}

    def state_tensors(self) -> dict[str, torch.Tensor]:
        """Tensors of the state_dict by key; other extra state does not travel."""
        if self.module is None:
            return {}
        state = self.module.state_dict(keep_vars=True)
        return {key: t for key, t in state.items() if isinstance(t, torch.Tensor)}

    def state_slots(self) -> list[dict[str, Any]]:
        """Name, shape and kind of what the state holds."""
        parameters = set() if self.module is None else {id(p) for p in self.module.parameters()}
        return [
            {**slot_of(t.detach()), "key": key, "parameter": id(t) in parameters}
            for key, t in self.state_tensors().items()
        ]

    def state_out(self, slots: list[dict[str, Any]]) -> dict[str, Any]:
        """Copy the state to the segment `state`."""
        state = self.state_tensors()
        for slot in slots:
            self.segments["state"].tensor(slot).copy_(state[slot["key"]].detach())
        self.synchronize()
        return {}

    def state_in(self, slots: list[dict[str, Any]]) -> dict[str, Any]:
        """Take the state from the segment `state`."""
        state = self.state_tensors()
        with torch.no_grad():
            for slot in slots:
                state[slot["key"]].copy_(self.segments["state"].tensor(slot))
        return {}

    def prepare(self, sets: list[dict[str, Any]], call: dict[str, Any]) -> dict[str, Any]:
        """Views of the input sets, and the arguments around them. The objects are the same in
        every batch while the judge writes new values under them."""
        self.calls.clear()
        self.inputs.clear()
        for number, one in enumerate(sets):
            views = [self.segments["inputs"].tensor(slot) for slot in one["slots"]]
            if self.train:
                views = [
                    v.requires_grad_(bool(g)) for v, g in zip(views, one["grads"], strict=True)
                ]
            self.inputs[number] = views
            self.calls[number] = build_call({**call, "data": one.get("data")}, views)
        return {}

    # --- calling -------------------------------------------------------------------------------

    def run(self, number: int) -> Any:
        """One call on an input set; in train mode forward and backward."""
        args, kwargs = self.calls[number]
        if not self.train:
            return self.program(*args, **kwargs)
        output = self.program(*args, **kwargs)
        self.backward(output)
        return output

    def backward(self, output: Any) -> None:
        """Gradients of a fixed, not constant, combination of all outputs."""
        leaves = [t for t in flatten(output)[0] if t.requires_grad]
        if leaves:
            torch.autograd.backward(leaves, [self.cotangent(t) for t in leaves])

    def cotangent(self, tensor: torch.Tensor) -> torch.Tensor:
        key = (tensor.shape, tensor.dtype)
        if key not in self.cotangents:
            places = torch.arange(tensor.numel(), dtype=torch.float32, device=self.device)
            wave = places.mul_(0.7).cos_()
            self.cotangents[key] = wave.reshape(tensor.shape).to(tensor.dtype)
        return self.cotangents[key]

    def call(self, sets: list[int], seeds: list[int]) -> dict[str, Any]:
        """Calls whose outputs are all kept; says what they look like."""
        self.kept = []
        answers = []
        gc.disable()  # as in a timed batch: nothing tells the two apart
        for number, seed in zip(sets, seeds, strict=True):
            seed_all(seed)
            before = self.rng_state()
            self.clear_gradients(number)
            with torch.set_grad_enabled(self.train):
                output = self.run(number)
            leaves, structure = flatten(output)
            answers.append(
                {
                    "structure": structure,
                    "types": [type(t).__name__ for t in leaves],
                    "aliases": [self.aliases(t, number) for t in leaves],
                    "used_rng": not torch.equal(before, self.rng_state()),
                }
            )
            # The very tensors, so that one that changes after it was returned is seen.
            self.kept.append([*(plain(t) for t in leaves), *self.gradients(number)])
            answers[-1]["slots"] = [slot_of(t) for t in self.kept[-1]]
            answers[-1]["num_leaves"] = len(leaves)
        gc.enable()
        return {"calls": answers, "flags": settings(self.attributes)}

    def rng_state(self) -> torch.Tensor:
        """State of the generators that operators of this device draw from."""
        state = torch.get_rng_state()
        if self.device.type == "cuda":
            state = torch.cat([state, torch.cuda.get_rng_state(self.device)])
        return state

    def synchronize(self) -> None:
        """Wait for the device, all streams of it."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def aliases(self, tensor: torch.Tensor, number: int) -> list[int]:
        """Indices of the inputs whose memory an output shares."""
        if tensor.layout != torch.strided or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            return []
        where = tensor.untyped_storage().data_ptr()
        return [
            i
            for i, v in enumerate(self.inputs[number])
            if v.numel() and v.untyped_storage().data_ptr() == where
        ]

    def clear_gradients(self, number: int) -> None:
        if self.train:
            for view in self.inputs[number]:
                view.grad = None
            if self.module is not None:
                self.module.zero_grad(set_to_none=True)

    def gradients(self, number: int) -> list[torch.Tensor]:
        """Gradients of the inputs, then of the parameters, then the state after the call."""
        if not self.train:
            return []
        parameters = [] if self.module is None else list(self.module.parameters())
        grads = gradients_of([*self.inputs[number], *parameters])
        state = [t.detach().clone() for t in self.state_tensors().values()]
        return [g.clone() for g in grads] + state

    def collect(self, slots: list[list[dict[str, Any]]], segment: str) -> dict[str, Any]:
        """Copy what the last calls returned."""
        for tensors, places in zip(self.kept, slots, strict=True):
            for tensor, slot in zip(tensors, places, strict=True):
                self.segments[segment].tensor(slot).copy_(tensor.detach())
        self.synchronize()
        return {}

    def lay_out(
        self, slots: list[list[dict[str, Any]]], step_bytes: int, num_regions: int, seeded: bool
    ) -> dict[str, Any]:
        """Where the outputs of the calls of a batch may have to go."""
        segment = self.segments["outputs"]
        self.regions = [
            [
                [segment.tensor({**s, "offset": s["offset"] + r * step_bytes}) for s in places]
                for places in slots
            ]
            for r in range(num_regions)
        ]
        self.seeded = seeded
        return {}

    def arrange(self, sets: list[int]) -> dict[str, Any]:
        """What `batch` will call, so that its own message stays small."""
        self.order = sets
        return {}

    def batch(self, seed: int) -> dict[str, Any]:
        """Timed calls, one after the other. `claim_us` is what this process says of its own time,
        which nobody believes without the judge's clock."""
        outputs = []
        gc.disable()
        try:
            with torch.set_grad_enabled(self.train):
                start_s = time.perf_counter()
                for position, number in enumerate(self.order):
                    if self.seeded:
                        seed_all(seed + position)
                    outputs.append(self.run(number))
                self.synchronize()
                claim_us = (time.perf_counter() - start_s) * 1e6
            self.timed = outputs
        finally:
            gc.enable()
        return {"claim_us": claim_us, "num_threads": torch.get_num_threads()}

    def deliver(self, region: int) -> dict[str, Any]:
        """Copy the outputs of the last batch (and in train mode the inputs' gradients) to where
        they are wanted."""
        tensors: list[torch.Tensor] = []
        targets: list[torch.Tensor] = []
        wanted = self.regions[region]
        for output, number, places in zip(self.timed, self.order, wanted, strict=True):
            leaves = flatten(output)[0]
            if self.train:
                leaves += gradients_of(self.inputs[number])
            for tensor, place in zip(leaves, places, strict=True):
                if tensor.shape != place.shape:
                    raise ValueError(
                        f"a timed call returned the shape {list(tensor.shape)}, "
                        f"expected {list(place.shape)}"
                    )
                if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
                    raise TypeError(f"a timed call returned a {type(tensor).__name__}")
                tensors.append(tensor.detach())
                targets.append(place)
        # One launch for many small outputs, where a copy of each would cost as much as the call.
        torch._foreach_copy_(targets, tensors)
        self.synchronize()
        return {}

    def exchange(self, seed: int) -> dict[str, Any]:  # noqa: ARG002 - as long as batch's message
        """Call nothing: with a delivery after it, what a batch costs beyond its calls."""
        return {"claim_us": 0.0, "num_threads": torch.get_num_threads()}

    def aftermath(self) -> dict[str, Any]:
        """What the calls of the last batch left: gradients of parameters, and the state. The
        tensors stay here until `collect`."""
        parameters = [] if self.module is None else list(self.module.parameters())
        gradients = gradients_of(parameters) if self.train else []
        state = {
            key: t.detach()
            for key, t in self.state_tensors().items()
            if self.train or not isinstance(t, torch.nn.Parameter)
        }
        left = [*gradients, *state.values()]
        self.kept = [left]
        names = [f"the gradient of parameter {i}" for i in range(len(gradients))]
        names += [f"the state `{key}`" for key in state]
        return {"names": names, "slots": [slot_of(t) for t in left]}

    def settle(self) -> dict[str, Any]:
        """Between batches, outside of any clock: forget outputs and gradients, collect garbage."""
        self.timed = []
        for number in self.inputs:
            for view in self.inputs[number]:
                view.grad = None
        if self.module is not None:
            self.module.zero_grad(set_to_none=True)
        gc.collect()
        if self.device.type == "cuda":
            self.poison()
        return {}

    def profile(self, sets: list[int]) -> dict[str, Any]:
        """Kernels or operators of calls on the input sets, after calls that are not looked at."""

        def calls() -> None:
            with torch.set_grad_enabled(self.train):
                for number in sets:
                    self.run(number)

        calls()
        self.synchronize()
        return {"rows": profiled(calls, self.device)}

    def poison(self) -> None:
        """Leave NaN in the blocks that the allocator will hand out for the next outputs, so that
        memory which nobody wrote does not look like an answer."""
        blocks = [
            torch.full((max(1, place.nbytes // 4),), math.nan, device=self.device)
            for places in self.regions[0]
            for place in places
        ]
        del blocks
        self.synchronize()


def gradients_of(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Gradients of the tensors that require one; zeros where none arrived."""
    return [
        torch.zeros_like(t) if t.grad is None else t.grad.detach()
        for t in tensors
        if t.requires_grad
    ]


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """A strided tensor with the values of any kind of tensor."""
    if tensor.layout != torch.strided:
        return tensor.detach().to_dense()
    if tensor.is_conj() or tensor.is_neg():
        return tensor.detach().resolve_conj().resolve_neg()
    return tensor.detach()


def seed_all(seed: int) -> None:
    """Seed what modules draw noise from; the inputs' seeds are elsewhere."""
    torch.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)


def outside(names: list[str], root: str | None) -> list[str]:
    """Of imported modules those that come from outside of the checkout."""
    inside = None if root is None else os.path.realpath(root) + os.sep
    found = []
    for name in names:
        module = sys.modules.get(name)
        file = getattr(module, "__file__", None)
        if file is None or name.startswith((programs.MODULE_NAME, "cudal1_worker", "__")):
            continue
        path = os.path.realpath(file)
        if "site-packages" in path or inside is None or not path.startswith(inside):
            found.append(name)
    return found
