"""Hold one program in a runner: its loading, its inputs and its state.

This module does not know why the program is called. runner.py and batches.py use it for the
verifier's requests.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import random
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..builds.compile_errors import compile_error
from ..confinement import OWN_FOLDERS, make_folders
from ..memory.committed import COMMITTED, CommittedSegment
from ..memory.cuda import DeviceSegment
from ..memory.segment import Segment, dtype_of, slot_of, span
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
from . import module_state, process_settings, programs
from .arguments import (
    Repeated,
    build_call,
    drained,
    flatten,
    masks_among,
    pickle_call,
    with_iterators,
)
from .autocast import Autocast
from .cotangents import drawn_like, like
from .exact_types import InexactType, inexact, inexact_tensor, need_exact
from .patched_tree import copied, needs_copy
from .settings import attributes

MAX_TRACEBACK_CHARS = 6000
OWN = 0x5EED
"""Difference of the seeds of the program's own generators from that of torch's."""
MOST_ITEMS = 256
BUSY_CYCLES = 40_000_000
"""Some 20 ms of a GPU's clock: longer than it takes to issue a call."""


class Subject:
    """A program and the tensors that it is called with."""

    def __init__(self, scratch: Path):
        self.scratch = scratch
        self.root: str | None = None
        """Folder of the program's checkout."""
        self.device = torch.device("cpu")
        self.attributes = attributes()
        """Attributes of torch and of other modules before the program is imported."""
        self.settings = process_settings.values(scratch)
        self.threshold: tuple[int, int, int] | None = None
        """When the collector runs, where a call has set that."""
        self.inexact: list[str] = []
        """What of the state had a type of the program's own when it was loaded."""
        self.own_state: dict[str, torch.Tensor] | None = None
        """The state as the program's own `state_dict` returned it inside of the clock."""
        self.segments: dict[str, Segment | CommittedSegment | DeviceSegment] = {}
        self.outgrown: dict[str, list[Segment | CommittedSegment | DeviceSegment]] = {}
        """Earlier segments of the same name."""
        self.program: Any = None
        self.module: torch.nn.Module | None = None
        self.makers: dict[Made, Any] = {}
        """Functions of the user's that make arguments."""
        self.found: Any = None
        """The class or function that the program names,"""
        self.loaded: Load | None = None
        """and the request that it was constructed by."""
        self.is_plain = False
        """Whether the module's state, as loaded, is only parameters and buffers."""
        self.train = False
        self.recipes: dict[int, tuple[GivenCall, list[torch.Tensor]]] = {}
        """What each call is built from,"""
        self.forms: dict[int, Any] = {}
        """and its form before it was made."""
        self.changes_arguments = False
        """Whether calls change objects that they are given, such as a cache."""
        self.generators: list[torch.Generator] = []
        self.has_iterators = False
        """Whether a call takes some, which it uses up."""
        self.turned: AbstractContextManager[Any] | None = None
        """Turns the vectors of decompositions in calls."""
        self.autocast = Autocast("cpu", None)
        """What every call is made under."""
        self.calls: dict[int, tuple[list[Any], dict[str, Any]]] = {}
        self.inputs: dict[int, list[torch.Tensor]] = {}
        self.modules: set[str] = set()
        self.environment: dict[str, str] = {}
        self.kept: list[list[torch.Tensor]] = []
        """Tensors that wait for `collect`."""
        self.cotangents: dict[int, list[torch.Tensor]] = {}
        """By input set: the gradients of all outputs of a call, where they are given."""

    # --- loading ---------------------------------------------------------------------------

    def wake(self, device: str) -> Done:
        """Prepare what every program needs of a device: a context, and the kernels that fill
        tensors."""
        if device == "cuda":
            torch.cuda.set_device(0)
            torch.zeros(1, device="cuda")
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        return Done()

    def settle_in(self, cache: str) -> Done:
        """Use this folder for builds from now on. (The driver has read another folder already,
        for kernels that it compiles itself.)"""
        make_folders(Path(cache), self.scratch)
        return Done()

    def load(self, request: Load) -> Loaded | Raised:
        """Import the program and construct it. The dtype float64 makes the oracle."""
        before, self.environment = set(sys.modules), variables()
        if request.device == "cuda":
            self.device = torch.device("cuda", 0)
            torch.cuda.set_device(self.device)
        if request.default_dtype is not None:
            torch.set_default_dtype(dtype_of(request.default_dtype))
        if request.autocast is not None and request.dtype is None:  # float64 is the truth of all
            self.autocast = Autocast(self.device.type, dtype_of(request.autocast))
            own = f"torch.autocast.{self.device.type}.dtype"  # as every caller sets it
            self.settings[own] = str(self.autocast.dtype)
        try:
            found = programs.load(self.settled(request.program), self.scratch)
        except BaseException as error:  # noqa: BLE001 - whatever an import raises is its failure
            said = describe(error, self.scratch, self.root)
            return said if said.stage else replace(said, stage="import")
        self.train = request.train
        seed_all(request.seed)
        self.program = self.found = found
        self.loaded = request
        if isinstance(found, type):
            slots = [self.segments["init"].tensor(slot).clone() for slot in request.init_slots]
            args, kwargs = build_call(request.init or Call(), slots)
            self.program = found(*args, **kwargs)
        if isinstance(self.program, torch.nn.Module):
            self.module = self.program.to(self.device).train(self.train)
            if request.floats is not None:  # a module may have a `to` of its own, for devices
                torch.nn.Module.to(self.module, dtype_of(request.floats))
        if request.dtype == "float64":
            torch.set_default_dtype(torch.float64)  # for what is made in the calls
            if self.module is not None:
                self.module._apply(widened)  # type: ignore[no-untyped-call]
        return self.described(before)

    def described(self, before: set[str]) -> Loaded:
        """Describe the program once its state is there."""
        imported = self.imported_since(before, self.root)
        self.find_generators()
        self.inexact = inexact(self.module)
        self.is_plain = self.module is not None and module_state.is_plain(self.module)
        is_lazy = self.module is not None and module_state.is_empty(self.module)
        # Objects that exist now are permanent: collections between batches need not visit them
        # again.
        gc.freeze()
        return Loaded(
            state=() if is_lazy else self.state_slots(),
            imported=imported,
            inexact=tuple(self.inexact[:20]),
            is_lazy=is_lazy,
            changes_environment=variables() != self.environment,
        )

    def fill(self, number: int) -> Loaded:
        """Call it once on an input set, for the state that a first call makes."""
        assert self.loaded is not None
        before = set(sys.modules)
        seed_all(self.loaded.seed)
        args, kwargs = self.calls[number]
        with torch.no_grad(), self.autocast:
            drained(self.program(*args, **kwargs))
        return self.described(before)

    def imported_since(self, before: set[str], root: str | None) -> tuple[str, ...]:
        """Return modules from outside the checkout. The next call counts from here."""
        self.modules = set(sys.modules)
        return tuple(outside([name for name in sys.modules if name not in before], root))

    def imported(self) -> Imported:
        """Return modules that were imported since the program was loaded, by the first calls.
        torch imports half a thousand for the first backward pass."""
        return Imported(names=self.imported_since(self.modules, self.root))

    def build(self, program: Program) -> Done:
        """Import a program for what it compiles."""
        programs.load(self.settled(program), self.scratch)
        return Done()

    def settled(self, program: Program) -> Program:
        """Return a program at the place where it runs: in its checkout, or in a copy with its
        changed files. Raises ImportError for a patch with work that an import leaves out."""
        if isinstance(program, TextProgram):
            return program
        programs.refuse_added_work(program)
        self.root = program.root
        if needs_copy(program):
            program = copied(program, Path(os.environ["XDG_CACHE_HOME"]))
            self.root = program.root
        return program

    def make(self, program: Program, function: Made, seeds: Sequence[int]) -> MadeCalls:
        """Call the user's function that makes arguments, once for each seed. The tensors stay
        here until `collect`."""
        before, calls = set(sys.modules), []
        self.kept = []
        if function not in self.makers:
            self.makers[function] = programs.load_function(program, function, self.scratch)
        made_by = self.makers[function]
        signature = programs.signature_beside(program, made_by)
        for seed in seeds:
            seed_all(seed)
            made = made_by()
            data, tensors, structure = pickle_call(made)
            masks = masks_among(tensors, made, signature)
            slots = tuple(map(slot_of, tensors))
            call = MadeCall(data=data, slots=slots, structure=tuple(structure), masks=masks)
            calls.append(call)
            self.kept.append(tensors)
        root = None if isinstance(program, TextProgram) else program.root
        return MadeCalls(calls=tuple(calls), imported=self.imported_since(before, root))

    # --- tensors in shared memory --------------------------------------------------------------

    def map(
        self, segment: str, num_bytes: int, fd: int | None = None, handle: str | None = None
    ) -> Done:
        """Map a segment under a name."""
        if segment in self.segments:
            self.outgrown.setdefault(segment, []).append(self.segments[segment])
        if fd is not None:
            kind = CommittedSegment if segment == COMMITTED else Segment
            self.segments[segment] = kind(fd, num_bytes)
        elif handle is not None:
            opened = DeviceSegment.open(bytes.fromhex(handle), num_bytes, 0)
            self.segments[segment] = opened
        return Done()

    def cached(self) -> CachedBytes:
        """Return the bytes of device memory that this process has taken for its own tensors."""
        is_gpu = self.device.type == "cuda"
        return CachedBytes(num_bytes=torch.cuda.memory_reserved() if is_gpu else 0)

    def let_go(self, segments: Sequence[str]) -> Done:
        """Release shared memory by its names, the calls that used it, and the device's cached
        memory."""
        self.calls.clear()
        self.recipes.clear()
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
        """Return tensors of the state_dict by key, or those that another program shares, in the
        order in which it was asked for them."""
        found = self.every_state_tensor()
        keys = self.loaded.keys if self.loaded is not None else None
        return found if keys is None else {key: found[key] for key in keys}

    def compared_parameters(self) -> list[torch.nn.Parameter]:
        """Return the parameters whose gradients are compared: all, or those that are shared."""
        if self.loaded is None or self.loaded.keys is None:
            return module_state.parameters_of(self.module)
        shared = self.state_tensors().values()
        return list({id(one): one for one in shared if type(one) is torch.nn.Parameter}.values())

    def every_state_tensor(self) -> dict[str, torch.Tensor]:
        """Return all tensors of the state_dict."""
        if self.module is None:
            return {}
        if new := sorted(set(inexact(self.module)) - set(self.inexact)):
            raise InexactType("; ".join(new))
        if self.is_plain:
            return module_state.in_parts(module_state.plain_state(self.module))
        if self.own_state is not None:
            return module_state.in_parts(self.own_state)
        return module_state.in_parts(module_state.state_dict_of(self.module))

    def read_own_state(self) -> None:
        """Read a state that only the program's own `state_dict` returns, inside of the clock."""
        self.own_state = None
        if self.module is not None and not self.is_plain:
            state = module_state.state_dict_of(self.module)
            for key, tensor in state.items():
                if (said := inexact_tensor(tensor)) and f"`{key}` is {said}" not in self.inexact:
                    raise InexactType(f"`{key}` of the state_dict is {said}")
            self.own_state = state

    @contextlib.contextmanager
    def without_collections(self) -> Iterator[None]:
        """Let the collector not run by itself during calls. It stays enabled, so that a program
        that disables it is seen."""
        usual = gc.get_threshold()
        gc.set_threshold(0)
        try:
            yield
        finally:
            now = gc.get_threshold()
            if now[0] != 0:
                self.threshold = now
            gc.set_threshold(*usual)

    def changed_settings(self) -> process_settings.Changes:
        """Return the settings of the process that changed since before the program came."""
        now = process_settings.values(self.scratch)
        if self.threshold is not None:
            now["gc.threshold"] = str(self.threshold)
        return (*process_settings.changes(self.settings, now), *self.autocast.changes())

    def state_slots(self) -> tuple[StateSlot, ...]:
        """Return name, shape and kind of what the state holds."""
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
        """Load the state from the segment `state`: in place, and where code of the program's own
        runs when a checkpoint is loaded, by `load_state_dict` too."""
        state = self.state_tensors()
        loaded = {slot.key: self.segments["state"].tensor(slot) for slot in slots}
        with torch.no_grad():
            for key, tensor in loaded.items():
                state[key].copy_(tensor)
        if self.module is not None and module_state.has_own_loading(self.module):
            module_state.load_checkpoint(self.module, loaded)
        return Done()

    def prepare(self, sets: Sequence[LaidSet], call: GivenCall) -> Done:
        """Make views of the input sets, and the arguments around them. The objects are the same
        in every batch while the verifier writes new values under them."""
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
            self.recipes[number] = its_call, views
            self.calls[number] = args, kwargs = build_call(its_call, views)
            self.forms[number] = form_of(self.calls[number])
            self.has_iterators = any(type(one) is Repeated for one in (*args, *kwargs.values()))
        self.find_generators()
        return Done()

    def renew(self, numbers: Sequence[int]) -> None:
        """Build arguments again that calls have changed: another call on the same set begins with
        what the first began with."""
        if not self.changes_arguments:
            self.changes_arguments = any(
                form_of(self.calls[number]) != self.forms[number] for number in numbers[:1]
            )
        if self.changes_arguments:
            for number in set(numbers):
                self.calls[number] = build_call(*self.recipes[number])

    # --- calling -------------------------------------------------------------------------------

    def run(self, number: int, seed: int = 0, program: Callable[..., Any] | None = None) -> Any:
        """Make one call on an input set; in train mode forward and backward. The backward pass is
        outside of autocast, as torch recommends, and starts from given gradients of the outputs, or
        from those of the seed. Another `program` is called in the same way."""
        args: Sequence[Any]
        args, kwargs = self.calls[number]
        program = program or self.program
        if self.has_iterators:
            args, kwargs = with_iterators(args, kwargs)
        if self.turned is not None:
            with self.turned, self.autocast:
                return drained(program(*args, **kwargs))
        with self.autocast:
            output = drained(program(*args, **kwargs))
        if not self.train:
            return output
        leaves = flatten(output)[0]
        wanted = [place for place, leaf in enumerate(leaves) if leaf.requires_grad]
        if wanted:
            given = self.cotangents.get(number) or drawn_like(leaves, seed)
            torch.autograd.backward(
                [leaves[place] for place in wanted],
                [like(given[place], leaves[place]) for place in wanted],
            )
        return output

    def turn_signs(self, seed: int | None) -> Done:
        """Turn the vectors of decompositions around in the calls from now on."""
        from .sign_flips import SignFlips  # few runners need it

        self.turned = None if seed is None else SignFlips(seed)
        return Done()

    def give_cotangents(self, number: int) -> None:
        """Call it on an input set, and in train mode set the gradients that later calls on it
        start from. They are then not drawn in calls that are examined."""
        output = self.run(number)
        if self.train:
            self.cotangents[number] = drawn_like(flatten(output)[0], 0)

    def find_generators(self) -> None:
        """Find the generators that the program keeps or that its calls get."""
        beside = vars(sys.modules.get(getattr(self.found, "__module__", ""), self))
        calls = [list(args) + list(kwargs.values()) for args, kwargs in self.calls.values()]
        held = [self.module, *list(beside.values()), *calls]
        self.generators = list({id(one): one for one in generators_among(held)}.values())

    def seed_all(self, seed: int) -> None:
        """Seed what a call draws from. A generator of the program's own gets another seed: who
        draws from one draws other numbers than who does not."""
        seed_all(seed)
        for one in self.generators:
            one.manual_seed(seed ^ OWN)

    def rng_state(self) -> torch.Tensor:
        """Return the state of the generators that operators of this device, or the program, draw
        from."""
        states = [torch.get_rng_state(), *(one.get_state() for one in self.generators)]
        if self.device.type == "cuda":
            states.append(torch.cuda.get_rng_state(self.device))
        return torch.cat(states)

    def seeds(self) -> list[int]:
        """Return the seeds of those generators. A draw does not change a seed."""
        found = [torch.initial_seed()]
        if self.device.type == "cuda":
            found.append(torch.cuda.initial_seed())
        return found

    def synchronize(self) -> None:
        """Wait for all streams of the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def write_inputs_late(
        self, number: int, outputs: Sequence[tuple[torch.Size, torch.dtype]]
    ) -> None:
        """Let the caller's stream write an input set after it was busy for some time. A read
        before the write gets NaN. Memory for outputs of these sizes holds NaN too."""
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
        """Return indices of the inputs whose memory an output shares."""
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
            forget(self.inputs[number])
            module_state.forget_gradients(self.module)

    def gradients(self, number: int, state: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        """Return gradients of the inputs, then of the parameters, then the state after the call."""
        if not self.train:
            return []
        grads = gradients_of([*self.inputs[number], *self.compared_parameters()])
        return [g.clone() for g in grads] + [t.detach().clone() for t in state.values()]


def describe(error: BaseException, scratch: Path, root: str | None) -> Raised:
    """Describe an exception for the verifier, with only the useful part of a compiler's output."""
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


def forget(inputs: Sequence[torch.Tensor]) -> None:
    """Drop gradients of inputs. Raises InexactType where the program changed the type of one."""
    for view in inputs:
        need_exact(view, "an input").grad = None


def gradients_of(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return gradients of the tensors that require one; zeros where none arrived."""
    found = []
    with torch._C.DisableTorchFunctionSubclass():
        for tensor in tensors:
            if tensor.requires_grad:
                gradient = tensor.grad
                if gradient is None:
                    gradient = torch.zeros_like(tensor)
                gradient = need_exact(gradient, "a gradient").detach()
                found.append(gradient.to_dense() if gradient.layout != torch.strided else gradient)
    return found


def variables() -> dict[str, str]:
    """Return the environment without what torch sets by itself when it first uses a GPU."""
    return {name: value for name, value in os.environ.items() if name != "CUDA_MODULE_LOADING"}


def overlaps(tensor: torch.Tensor) -> bool:
    """Return whether several elements of a tensor are one place in memory."""
    if tensor.layout != torch.strided:
        return False
    return span(tensor.shape, tensor.stride()) < tensor.numel()


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """Return floats in float64 and complex numbers in complex128."""
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return a strided tensor with the values of one that may be lazily conjugated or negated."""
    if tensor.is_conj() or tensor.is_neg():
        return tensor.detach().resolve_conj().resolve_neg()
    return tensor.detach()


def form_of(call: tuple[list[Any], dict[str, Any]]) -> tuple[str, list[int]]:
    """Return the structure of arguments, and which tensors they hold."""
    leaves, structure = flatten(call)
    return structure, [id(leaf) for leaf in leaves if leaf.numel() != 1]


def generators_among(
    values: Iterable[Any], depth: int = 3, seen: set[int] | None = None
) -> Iterator[torch.Generator]:
    """Yield the generators that plain containers of a few items, and modules, hold. A module is
    looked at once, not again as a part of each that is around it."""
    seen = set() if seen is None else seen
    for value in values:
        if isinstance(value, torch.Generator):
            yield value
        elif isinstance(value, torch.nn.Module):
            fresh = [one for one in torch.nn.Module.modules(value) if id(one) not in seen]
            seen.update(map(id, fresh))
            for one in fresh:
                yield from generators_among(list(vars(one).values()), 1, seen)
        elif depth and type(value) in (dict, list, tuple) and len(value) <= MOST_ITEMS:
            items = value.values() if type(value) is dict else value
            yield from generators_among(list(items), depth - 1, seen)


def seed_all(seed: int) -> None:
    """Seed what modules draw noise from. The inputs' seeds are elsewhere."""
    torch.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)


def outside(names: list[str], root: str | None) -> list[str]:
    """Return those of the imported modules that come from outside the checkout."""
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
