"""One program in a runner: how it is loaded, what it is called with, and its state.

Nothing here knows why it is called; runner.py and batches.py do the judge's bidding with it.
"""

from __future__ import annotations

import gc
import math
import os
import random
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..builds.compile_errors import compile_error
from ..confinement import OWN_FOLDERS, make_folders
from ..memory.cuda import DeviceSegment
from ..memory.segment import Segment, slot_of
from ..wire.arguments import Call, GivenCall, Made, Pickled
from ..wire.programs import Program, TextProgram
from ..wire.runner import (
    CachedBytes,
    Done,
    Imported,
    LaidSet,
    Load,
    Loaded,
    MadeCall,
    MadeCalls,
    Raised,
)
from ..wire.tensors import StateSlot
from . import module_state, programs
from .arguments import build_call, flatten, pickle_call
from .cotangents import drawn_like
from .patched_tree import copied, needs_copy
from .settings import attributes

MAX_TRACEBACK_CHARS = 6000
BUSY_CYCLES = 40_000_000
"""Some 20 ms of a GPU's clock: longer than a call takes to be issued."""


class Subject:
    """A program and the tensors it is called with."""

    def __init__(self, scratch: Path):
        self.scratch = scratch
        self.root: str | None = None
        """Of the checkout that the program is in."""
        self.device = torch.device("cpu")
        self.attributes = attributes()
        """Of torch and of others, as they are before the program is imported."""
        self.segments: dict[str, Segment | DeviceSegment] = {}
        self.outgrown: dict[str, list[Segment | DeviceSegment]] = {}
        """What had the same name before."""
        self.program: Any = None
        self.module: torch.nn.Module | None = None
        self.is_plain = False
        """Whether the module's state is parameters and buffers alone, as it was loaded."""
        self.train = False
        self.calls: dict[int, tuple[list[Any], dict[str, Any]]] = {}
        self.inputs: dict[int, list[torch.Tensor]] = {}
        self.modules: set[str] = set()
        self.kept: list[list[torch.Tensor]] = []
        """What is there to be collected."""
        self.cotangents: dict[int, list[torch.Tensor]] = {}
        """By input set, the gradients of all outputs of a call, where they are given."""

    # --- loading ---------------------------------------------------------------------------

    def wake(self, device: str) -> Done:
        """What a program needs of a device whatever it is: a context, and the kernels that fill
        tensors."""
        if device == "cuda":
            torch.cuda.set_device(0)
            torch.zeros(1, device="cuda")
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        return Done()

    def settle_in(self, cache: str) -> Done:
        """From now on what is built lies there. (The driver has heard of another place already; it
        is for kernels that it compiles itself.)"""
        make_folders(Path(cache), self.scratch)
        return Done()

    def load(self, request: Load) -> Loaded | Raised:
        """Import the program and construct it. The dtype float64 makes the oracle."""
        before = set(sys.modules)
        if request.device == "cuda":
            self.device = torch.device("cuda", 0)
            torch.cuda.set_device(self.device)
        try:
            found = programs.load(self.settled(request.program), self.scratch)
        except BaseException as error:  # noqa: BLE001 - whatever an import raises is its failure
            said = describe(error, self.scratch, self.root)
            return said if said.stage else replace(said, stage="import")
        self.train = request.train
        seed_all(request.seed)
        self.program = found
        if isinstance(found, type):
            slots = [self.segments["init"].tensor(slot).clone() for slot in request.init_slots]
            args, kwargs = build_call(request.init or Call(), slots)
            self.program = found(*args, **kwargs)
        if isinstance(self.program, torch.nn.Module):
            self.module = self.program.to(self.device).train(self.train)
        if request.dtype == "float64":
            torch.set_default_dtype(torch.float64)  # for what is made in the calls
            if self.module is not None:
                self.module.double()
        imported = self.imported_since(before)
        self.is_plain = self.module is not None and module_state.is_plain(self.module)
        # What is here now stays: the collections between batches need not look at it again.
        gc.freeze()
        return Loaded(state=self.state_slots(), imported=imported)

    def imported_since(self, before: set[str]) -> tuple[str, ...]:
        """Modules from outside of the checkout; from now on others count."""
        self.modules = set(sys.modules)
        return tuple(outside([name for name in sys.modules if name not in before], self.root))

    def imported(self) -> Imported:
        """Modules that were imported since the program was loaded: by the first calls (torch
        imports half a thousand for the first backward pass)."""
        return Imported(names=self.imported_since(self.modules))

    def build(self, program: Program) -> Done:
        """Import a program for what it compiles."""
        programs.load(self.settled(program), self.scratch)
        return Done()

    def settled(self, program: Program) -> Program:
        """A program where it runs: in its checkout, or in a copy with its changed files."""
        if isinstance(program, TextProgram):
            return program
        self.root = program.root
        if needs_copy(program):
            program = copied(program, Path(os.environ["XDG_CACHE_HOME"]))
            self.root = program.root
        return program

    def make(self, program: Program, function: Made, seeds: Sequence[int]) -> MadeCalls:
        """Call the user's function that makes arguments, once for each seed; the tensors stay here
        until `collect`."""
        calls = []
        self.kept = []
        made_by = programs.load_function(program, function, self.scratch)
        for seed in seeds:
            seed_all(seed)
            data, tensors = pickle_call(made_by())
            calls.append(MadeCall(data=data, slots=tuple(slot_of(t) for t in tensors)))
            self.kept.append(tensors)
        return MadeCalls(calls=tuple(calls))

    # --- tensors in shared memory --------------------------------------------------------------

    def map(
        self, segment: str, num_bytes: int, fd: int | None = None, handle: str | None = None
    ) -> Done:
        """Take a segment under a name."""
        if segment in self.segments:
            self.outgrown.setdefault(segment, []).append(self.segments[segment])
        if fd is not None:
            self.segments[segment] = Segment(fd, num_bytes)
        elif handle is not None:
            opened = DeviceSegment.open(bytes.fromhex(handle), num_bytes, 0)
            self.segments[segment] = opened
        return Done()

    def cached(self) -> CachedBytes:
        """Bytes of the device's memory that this process has taken for its own tensors."""
        is_gpu = self.device.type == "cuda"
        return CachedBytes(num_bytes=torch.cuda.memory_reserved() if is_gpu else 0)

    def let_go(self, segments: Sequence[str]) -> Done:
        """Of shared memory by its names, of the calls that it held, and of what is cached of the
        device's."""
        self.calls.clear()
        self.inputs.clear()
        self.cotangents.clear()
        self.kept = []
        self.synchronize()
        for name in segments:
            for one in (self.segments.pop(name), *self.outgrown.pop(name, ())):
                one.close()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        return Done()

    def state_tensors(self) -> dict[str, torch.Tensor]:
        """Tensors of the state_dict by key."""
        if self.module is None:
            return {}
        return (
            module_state.plain_state(self.module)
            if self.is_plain
            else module_state.told_state(self.module)
        )

    def state_slots(self) -> tuple[StateSlot, ...]:
        """Name, shape and kind of what the state holds."""
        parameters = {id(one) for one in module_state.parameters_of(self.module)}
        return tuple(
            StateSlot(**vars(slot_of(t.detach())), key=key, is_parameter=id(t) in parameters)
            for key, t in self.state_tensors().items()
        )

    def state_out(self, slots: Sequence[StateSlot]) -> Done:
        """Copy the state to the segment `state`."""
        state = self.state_tensors()
        for slot in slots:
            self.segments["state"].tensor(slot).copy_(state[slot.key].detach())
        self.synchronize()
        return Done()

    def state_in(self, slots: Sequence[StateSlot]) -> Done:
        """Take the state from the segment `state`."""
        state = self.state_tensors()
        with torch.no_grad():
            for slot in slots:
                state[slot.key].copy_(self.segments["state"].tensor(slot))
        return Done()

    def prepare(self, sets: Sequence[LaidSet], call: GivenCall) -> Done:
        """Views of the input sets, and the arguments around them. The objects are the same in
        every batch while the judge writes new values under them."""
        self.calls.clear()
        self.inputs.clear()
        self.cotangents.clear()
        for number, one in enumerate(sets):
            views = [self.segments["inputs"].tensor(slot) for slot in one.slots]
            if self.train:
                views = [v.requires_grad_(bool(g)) for v, g in zip(views, one.grads, strict=True)]
            self.inputs[number] = views
            if one.cotangents:
                given = [self.segments["inputs"].tensor(slot) for slot in one.cotangents]
                self.cotangents[number] = given
            its_call = replace(call, data=one.data) if isinstance(call, Pickled) else call
            self.calls[number] = build_call(its_call, views)
        return Done()

    # --- calling -------------------------------------------------------------------------------

    def run(self, number: int, seed: int = 0) -> Any:
        """One call on an input set; in train mode forward and backward, from the gradients of its
        outputs that are given, or those of the seed."""
        args, kwargs = self.calls[number]
        if not self.train:
            return self.program(*args, **kwargs)
        output = self.program(*args, **kwargs)
        leaves = flatten(output)[0]
        wanted = [place for place, leaf in enumerate(leaves) if leaf.requires_grad]
        if wanted:
            given = self.cotangents.get(number) or drawn_like(leaves, seed)
            torch.autograd.backward(
                [leaves[place] for place in wanted],
                [given[place].to(leaves[place].device) for place in wanted],
            )
        return output

    def give_cotangents(self, number: int) -> None:
        """Call it on an input set, and in train mode have the gradients that later calls on it
        start from: they are not drawn then, where somebody looks at what a call does."""
        output = self.run(number)
        if self.train:
            self.cotangents[number] = drawn_like(flatten(output)[0], 0)

    def rng_state(self) -> torch.Tensor:
        """State of the generators that operators of this device draw from."""
        state = torch.get_rng_state()
        if self.device.type == "cuda":
            state = torch.cat([state, torch.cuda.get_rng_state(self.device)])
        return state

    def seeds(self) -> list[int]:
        """Of those generators: to draw from one does not change its seed."""
        found = [torch.initial_seed()]
        if self.device.type == "cuda":
            found.append(torch.cuda.initial_seed())
        return found

    def synchronize(self) -> None:
        """Wait for the device, all streams of it."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def write_inputs_late(
        self, number: int, outputs: Sequence[tuple[torch.Size, torch.dtype]]
    ) -> None:
        """Have the caller's stream write an input set after it was busy for some time. What is read
        before is not a number, and neither is what lies where outputs of these sizes will."""
        views = [v for v in self.inputs[number] if 0 not in v.stride()]
        with torch.no_grad():
            values = [v.clone() for v in views]
            blocks = [
                torch.full(shape, math.nan, dtype=dtype, device=self.device)
                for shape, dtype in outputs
                if dtype.is_floating_point or dtype.is_complex
            ]
            del blocks
            for view in views:
                if view.is_floating_point() or view.is_complex():
                    view.fill_(math.nan)
            self.synchronize()
            if self.device.type == "cuda":
                torch.cuda._sleep(BUSY_CYCLES)  # type: ignore[no-untyped-call]
            for view, value in zip(views, values, strict=True):
                view.copy_(value)

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
            module_state.forget_gradients(self.module)

    def gradients(self, number: int) -> list[torch.Tensor]:
        """Gradients of the inputs, then of the parameters, then the state after the call."""
        if not self.train:
            return []
        grads = gradients_of([*self.inputs[number], *module_state.parameters_of(self.module)])
        state = [t.detach().clone() for t in self.state_tensors().values()]
        return [g.clone() for g in grads] + state


def describe(error: BaseException, scratch: Path, root: str | None) -> Raised:
    """An exception as the judge reports it; what a compiler said without what does not help."""
    folders = [str(scratch), *(os.environ.get(name, "") for name in OWN_FOLDERS)]
    failed = compile_error(error, folders, root)
    if failed is not None:
        return Raised(
            kind=type(error).__name__,
            message=failed.message,
            traceback=failed.output[-MAX_TRACEBACK_CHARS:],
            stage="compile",
        )
    text = "".join(traceback.format_exception(error))
    return Raised(
        kind=type(error).__name__,
        message=str(error)[:2000],
        traceback=text[-MAX_TRACEBACK_CHARS:],
    )


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
        if file is None or name.startswith((programs.MODULE_NAME, "cudal1_sandboxed", "__")):
            continue
        path = os.path.realpath(file)
        if "site-packages" in path or inside is None or not path.startswith(inside):
            found.append(name)
    return found
