"""Carry out the ways in which users use a program: one function for each.

A recipe gets a trial, a target (an argument, the number of a tensor, the key of a parameter) and a
value. It records facts and tensors; the verifier compares them with those of the reference. What it
raises means that the program refuses this use.
"""

from __future__ import annotations

import copy
import gc
import io
import itertools
import pickle
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from ...wire.runner import Plain
from ..arguments import flatten, with_iterators
from ..autocast import Autocast
from ..cotangents import drawn_like
from ..process_settings import malloc_figures
from ..sharing import WRITTEN
from ..subject import gradients_of
from .trial import OMITTED, Trial, float_dtype

MOST_DEPTH = 4
STATISTICS = ("running_mean", "running_var")
"""Buffers that checkpoints change. Others are constants of an algorithm."""
Recipe = Callable[[Trial, str, Plain], None]
WARM_CALLS, COUNTED_CALLS, FEWEST_CALLS, COUNTED_S = 16, 32, 4, 0.5
"""Calls before and while it is counted what calls keep; fewer of slow ones. A cache of a few shapes
or sets is full before."""
MOST_LOOKS, MOST_S, STEADY = (8, 32, 8, 8, 32), 10.0, 0.5
"""Looks at bytes, blocks of Python's own memory, items, files and bytes of C code, and seconds,
until they may end growing; and how much a call is no growth. Code that torch compiled takes a few
blocks a call for the first three hundred calls, and none later. Compiling again takes some bytes
once or twice."""


def call(trial: Trial, target: str = "", value: Plain = None) -> None:  # noqa: ARG001
    """Call it once; also record inputs that the call has changed."""
    before = [tensor.clone() for tensor in trial.sets[0]]
    trial.keep(trial.call())
    keep_changed_inputs(trial, before)


def checked(trial: Trial, target: str, value: Plain) -> None:  # noqa: ARG001
    """Call it on values that it may refuse, and record nothing else."""
    trial.call()


def keep_changed_inputs(trial: Trial, before: list[torch.Tensor]) -> None:
    """Record the inputs that calls wrote to."""
    for number, (was, now) in enumerate(zip(before, trial.sets[0], strict=True)):
        if not same_bits(was, now):
            trial.keep(now, f"input {number} after the call")


def subnormal(trial: Trial, target: str, value: Plain) -> None:  # noqa: ARG001
    """Call it with subnormal numbers, which it must tell from zeros."""
    wanted, zeros = (trial.keep(trial.call(number)) for number in (0, 1))
    if all(map(same_bits, wanted, zeros)):
        raise ValueError("subnormal numbers are zeros to it")


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors are equal, with NaN equal to NaN. What is not dense is not
    looked at."""
    if one.layout != torch.strided or one.is_quantized:
        return True
    if one.is_floating_point():
        one, other = one.nan_to_num(), other.nan_to_num()
    return torch.equal(one, other)


# --- arguments ---------------------------------------------------------------------------------


def argument(trial: Trial, target: str, value: Plain) -> None:
    """Call it, then call it with another value of an argument."""
    trial.call()
    trial.edits[target] = value
    call(trial)


def masked(trial: Trial, target: str, value: Plain) -> None:
    """Call it with a mask or a bias for an argument that the workload leaves at None."""
    trial.call()
    first = next(one for one in trial.sets[0] if one.dim() > 1)
    shape = {
        "rows": first.shape[:-1],
        "scores": (first.shape[-2], first.shape[-2]),
        "elements": first.shape,
    }[str(value).split()[0]]
    count = torch.Size(shape).numel()
    mask = (torch.arange(count, device=first.device) % 3 != 2).reshape(shape)
    trial.edits[target] = mask if str(value).endswith("bool") else mask.to(first.dtype)
    call(trial)


def omitted(trial: Trial, target: str, value: Plain) -> None:  # noqa: ARG001
    """Call it without an optional argument."""
    trial.edits[target] = OMITTED
    call(trial)


def constructor(trial: Trial, target: str, value: Plain) -> None:
    """Construct it with another value of an argument, and call that."""
    trial.program = trial.constructed({target: value})
    call(trial)


# --- layouts, dtypes and devices ---------------------------------------------------------------


def layout(trial: Trial, target: str, value: Plain) -> None:
    """Call it on an input of another layout with the same values."""
    number = int(target)
    trial.sets[0][number] = LAYOUTS[str(value)](trial.sets[0][number])
    call(trial)


def transposed(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor whose last two dimensions lie in memory in the other order."""
    return tensor.transpose(-1, -2).contiguous().transpose(-1, -2)


def turned(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor whose first two dimensions lie in memory in the other order."""
    return tensor.transpose(0, 1).contiguous().transpose(0, 1)


def channels_last(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor whose second dimension is the innermost in memory."""
    return tensor.movedim(1, -1).contiguous().movedim(-1, 1)


def sliced(tensor: torch.Tensor) -> torch.Tensor:
    """Return a slice of a tensor that is twice as wide, and holds other values next to it."""
    wide = torch.stack([tensor, torch.ones_like(tensor)], -1)
    return wide[..., 0]


def cut(tensor: torch.Tensor) -> torch.Tensor:
    """Return the left part of wider rows."""
    return torch.cat([tensor, torch.ones_like(tensor)], -1)[..., : tensor.shape[-1]]


def unaligned(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that begins one element into its storage."""
    flat = torch.cat([torch.ones_like(tensor.reshape(-1)[:1]), tensor.reshape(-1)])
    return flat[1:].view(tensor.shape)


def conjugated(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor whose memory holds the conjugates, which its reader is to conjugate."""
    return tensor.conj().resolve_conj().conj()


def expanded(tensor: torch.Tensor) -> torch.Tensor:
    """Return the first row in the place of all."""
    return tensor[:1].expand_as(tensor)


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed": transposed,
    "turned": turned,
    "channels last": channels_last,
    "sliced": sliced,
    "cut": cut,
    "unaligned": unaligned,
    "expanded": expanded,
    "conjugated": conjugated,
}


def dtype(trial: Trial, target: str, value: Plain) -> None:
    """Call it with another dtype: of the input of that number, or of all floats and weights."""
    wanted = float_dtype(str(value))
    if target:
        trial.sets[0][int(target)] = trial.sets[0][int(target)].to(wanted)
        call(trial)
        return
    parameters: list[torch.Tensor] = []
    if isinstance(trial.program, torch.nn.Module):
        parameters = list(trial.program.to(wanted).parameters())
    trial.sets[0] = [one.to(wanted) if one.is_floating_point() else one for one in trial.sets[0]]
    if wanted == torch.float64:
        for one in (*parameters, *trial.sets[0]):
            if one.is_floating_point():
                one.data.copy_(between(one.data))
    if trial.is_wide:
        if isinstance(trial.program, torch.nn.Module):
            trial.program.double()
        trial.sets[0] = [one.double() if one.is_floating_point() else one for one in trial.sets[0]]
    call(trial)


def autocast(trial: Trial, target: str, value: Plain) -> None:  # noqa: ARG001
    """Call it as its workload does, under autocast of another dtype or none, and as before: what it
    keeps of one call must not be used in the next."""
    own, wanted = trial.casts, None if value is None else float_dtype(str(value))
    trial.call()
    try:
        trial.casts = Autocast(own.kind, wanted)
        trial.keep(trial.call(), "output of the next call")
    finally:
        trial.casts = Autocast(own.kind, own.dtype)
    trial.keep(trial.call(), "output as before")


def between(tensor: torch.Tensor) -> torch.Tensor:
    """Return float64 numbers that lie between those of float32, each by another share."""
    places = torch.arange(tensor.numel(), device=tensor.device).reshape(tensor.shape).double() % 5
    return tensor * (1 + places * 2.0**-28)


def device(trial: Trial, target: str, value: Plain) -> None:  # noqa: ARG001
    """Call it on another device, and again where it was."""
    first = trial.subject.device
    for where in (target, first):
        if isinstance(trial.program, torch.nn.Module):
            trial.program.to(where)
        trial.sets[0] = [one.to(where) for one in trial.sets[0]]
        call(trial)


# --- gradients and modes -----------------------------------------------------------------------


def sources_of(trial: Trial) -> dict[str, torch.Tensor]:
    """Return the tensors that a gradient may reach, by name."""
    found = {
        f"input {number}": one.requires_grad_(True)
        for number, one in enumerate(trial.sets[0])
        if one.is_floating_point()
    }
    if isinstance(trial.program, torch.nn.Module):
        named = trial.program.named_parameters()
        found |= {name: one for name, one in named if one.requires_grad}
    return found


def gradients(trial: Trial, target: str, value: Plain) -> None:  # noqa: ARG001
    """Differentiate the outputs with respect to floats of the input and parameters. With "second"
    differentiate the first gradients too. With another word the gradients of the outputs, which
    begin the backward pass, lie otherwise in memory."""
    sources = sources_of(trial)
    leaves = trial.keep(trial.call(grad=True))
    trial.say("outputs with a gradient", [leaf.requires_grad for leaf in leaves])
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    if not wanted or not sources:
        raise ValueError("no output has a gradient")
    is_second = value == "second"
    given = drawn_like(wanted, trial.subject.loaded.seed if trial.subject.loaded else 0)
    found = torch.autograd.grad(
        wanted,
        list(sources.values()),
        list(map(COTANGENTS.get(str(value), torch.Tensor.contiguous), given)),
        create_graph=is_second,
        allow_unused=True,
    )
    first = {name: one for name, one in zip(sources, found, strict=True) if one is not None}
    if value == OF_A_SUM:  # often zero: a sum after a normalization is constant
        trial.say("gradients of a sum", sorted(first))
        return
    if not is_second:
        for name, source in sources.items():
            trial.keep(first.get(name, torch.zeros_like(source)), f"gradient of {name}")
        return
    curved = [one for one in first.values() if one.requires_grad]
    if not curved:
        raise ValueError("no gradient has a gradient")
    total = torch.stack([(one * one).sum().float() for one in curved]).sum()
    second = torch.autograd.grad(total, list(sources.values()), allow_unused=True)
    for (name, source), one in zip(sources.items(), second, strict=True):
        trial.keep(torch.zeros_like(source) if one is None else one, f"second gradient of {name}")


OF_A_SUM = "of a sum"
COTANGENTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    OF_A_SUM: lambda tensor: tensor.flatten()[:1].reshape([1] * tensor.dim()).expand_as(tensor),
    "transposed": lambda tensor: transposed(tensor) if tensor.dim() > 1 else sliced(tensor),
}
"""Gradients of outputs as autograd passes them: of a sum one number for all elements, of a
transposed output in another order."""


def accumulated(trial: Trial, target: str, value: Plain) -> None:  # noqa: ARG001
    """Call it on two sets before any backward pass, then go back through both calls, as losses on
    pairs do and gradients that are summed over batches: the second call must leave what the first
    one keeps for its backward pass, and the second pass add to the gradients of the first."""
    sets = trial.sets[:2] if len(trial.sets) > 1 else [trial.sets[0]] * 2
    inputs = [one.requires_grad_(True) for some in sets for one in some if one.is_floating_point()]
    named = dict(trial.program.named_parameters()) if hasattr(trial.program, "parameters") else {}
    calls = [trial.call(min(number, len(trial.sets) - 1), grad=True) for number in range(2)]
    seed = trial.seed
    for number, output in enumerate(calls):
        leaves = [leaf for leaf in flatten(output)[0] if leaf.requires_grad]
        if not leaves:
            raise ValueError("no output has a gradient")
        torch.autograd.backward(leaves, drawn_like(leaves, seed + number))
    for number, one in enumerate(gradients_of(inputs)):
        trial.keep(one, f"gradient of input {number} of two calls")
    for name, one in named.items():
        if one.requires_grad:
            trial.keep(gradients_of([one])[0], f"gradient of {name} after two calls")


def mode(trial: Trial, target: str, value: Plain) -> None:  # noqa: ARG001
    """Call it in its own mode, in the other one, with gradients in train mode, then in its own
    again; record the buffers after it. What training changes is no longer what was there at the
    first call, and batch normalization changes its statistics without a new version of them."""
    module = trial.module
    was_training = module.training
    trial.call()
    module.train(not was_training)
    sources = list(module.parameters())
    leaves = trial.keep(trial.call(grad=not was_training), "output in the other mode")
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    if wanted and sources:
        torch.autograd.backward(wanted, drawn_like(wanted, 0))
        for name, one in module.named_parameters():
            if one.requires_grad:
                trial.keep(gradients_of([one])[0], f"gradient of {name} in the other mode")
    for key, tensor in module.state_dict().items():
        if isinstance(tensor, torch.Tensor) and key not in dict(module.named_parameters()):
            trial.keep(tensor, f"buffer {key} after the other mode")
    module.train(was_training)
    trial.keep(trial.call(), "output in the first mode again")


def inference(trial: Trial, target: str, value: Plain) -> None:  # noqa: ARG001
    """Call it in inference mode, then with gradients: what it keeps of the first call must not be
    a tensor that autograd refuses."""
    args, kwargs = trial.arguments()
    with torch.inference_mode(), trial.autocast():
        trial.keep(trial.program(*args, **kwargs), "output in inference mode")
    trial.keep(trial.call(grad=True), "output of the next call")


def outputs(trial: Trial, target: str, value: Plain) -> None:  # noqa: ARG001
    """Use what a call returned: as numpy, in autograd, written to; then call it again."""
    leaves, _ = flatten(trial.call())
    for number, leaf in enumerate(leaves):
        trial.say(
            f"output {number} waits for its negation or conjugation",
            leaf.is_neg() or (leaf.is_conj() and leaf.is_complex()),
        )
        trial.say(f"output {number} is an inference tensor", leaf.is_inference())
        if leaf.is_floating_point() and not leaf.requires_grad:
            before = [one.clone() for one in leaves]
            with torch.no_grad():
                trial.say(f"output {number} can be written to", can_write(leaf))
            others = [n for n, one in enumerate(leaves) if n != number and is_other(one, before[n])]
            trial.say(f"{WRITTEN} {number} changes outputs", others)
    trial.keep(trial.call(), "output of the next call")


def is_other(one: torch.Tensor, before: torch.Tensor) -> bool:
    """Return whether floats have changed."""
    return one.is_floating_point() and not torch.equal(one.nan_to_num(), before.nan_to_num())


def can_write(tensor: torch.Tensor) -> bool:
    """Return whether it can be changed in place, and change it."""
    try:
        tensor.mul_(0).add_(7)
    except RuntimeError:
        return False
    return True


def views(trial: Trial, target: str, value: Plain) -> None:  # noqa: ARG001
    """Flatten the outputs by `view`, which needs their strides."""
    leaves, _ = flatten(trial.call())
    for number, leaf in enumerate(leaves):
        try:
            leaf.view(-1)
            trial.say(f"output {number}.view(-1)", "works")
        except RuntimeError:
            trial.say(f"output {number}.view(-1)", "is refused")


# --- weights -----------------------------------------------------------------------------------


def weight(trial: Trial, target: str, value: Plain) -> None:  # noqa: ARG001
    """Call it, then change one parameter or running statistic in each of the usual ways, with a
    call after each: most of its elements, then one alone."""
    trial.call()
    owner, name = owner_of(trial.module, target)
    for way, change in WAYS.items():
        parameter = getattr(owner, name)
        new = changed_for(way, parameter.detach(), trial.seed)
        with torch.no_grad():
            change(owner, name, parameter, new)
        trial.keep(trial.call(), f"output after a change {way}")


WAYS: dict[str, Callable[[torch.nn.Module, str, torch.Tensor, torch.Tensor], object]] = {
    "in place": lambda _, __, old, new: old.copy_(new),
    "through .data": lambda _, __, old, new: old.data.copy_(new),
    "of .data itself": lambda _, __, old, new: setattr(old, "data", new),
    "for another Parameter": lambda owner, name, old, new: setattr(
        owner,
        name,
        torch.nn.Parameter(new, old.requires_grad) if type(old) is torch.nn.Parameter else new,
    ),
    "of one element": lambda _, __, old, new: old.data.copy_(new),
}


def owner_of(module: torch.nn.Module, key: str) -> tuple[torch.nn.Module, str]:
    """Return the submodule that holds a parameter, and the parameter's own name."""
    path, _, name = key.rpartition(".")
    return module.get_submodule(path), name


def changed_for(way: str, tensor: torch.Tensor, seed: int) -> torch.Tensor:
    """Return a copy with the other values that a way of changing asks for."""
    return one_changed(tensor, seed) if way == "of one element" else partly_changed(tensor)


def one_changed(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    """Return a copy with another value in one place, as a sparse optimizer or pruning leaves it. A
    look at some of the elements hardly ever meets it."""
    new = tensor.clone(memory_format=torch.contiguous_format)
    if new.numel():
        generator = torch.Generator().manual_seed(seed)
        place = int(torch.randint(new.numel(), (), generator=generator))
        new.view(-1)[place] += 2 * new.abs().max() if new.dtype.is_floating_point else 1
    return new


def partly_changed(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy with other values in its middle. The first and the last element stay, and so
    does the sum: neither tells the two apart."""
    new = tensor.clone()
    flat = new.view(-1) if new.is_contiguous() else new.reshape(-1)
    count = flat.numel()
    if count < 4:
        flat.mul_(1.5) if new.is_floating_point() else flat.add_(1)
        return flat.view(tensor.shape)
    middle = flat[1 : count - 1]
    middle.copy_(middle.roll(1) if not bool((middle == middle[0]).all()) else middle * 1.5)
    return flat.view(tensor.shape)


def load(trial: Trial, target: str, value: Plain) -> None:  # noqa: ARG001
    """Call it, load other weights as a checkpoint is loaded, and call it again. With "assign"
    the loaded tensors take the place of the module's."""
    trial.call()
    changing = {name for name, _ in trial.module.named_parameters()}
    state = {
        key: partly_changed(one) if key in changing or key.endswith(STATISTICS) else one.clone()
        for key, one in trial.module.state_dict().items()
        if isinstance(one, torch.Tensor)
    }
    trial.module.load_state_dict(state, strict=False, assign=value == "assign")
    trial.keep(trial.call(), "output with the loaded weights")


def optimizer(trial: Trial, target: str, value: Plain) -> None:  # noqa: ARG001
    """Call it, change all parameters as a step of an optimizer does, and call it again."""
    trial.call()
    with torch.no_grad():  # as SGD does; torch.optim takes a second to import
        for one in trial.module.parameters():
            if one.requires_grad:
                one.add_(one.abs().mean() + 0.01, alpha=-0.5)
    trial.keep(trial.call(), "output after a step")


def cast(trial: Trial, target: str, value: Plain) -> None:  # noqa: ARG001
    """Call it, cast the module to float64 and back, and call it again."""
    trial.call()
    own = {name: one.dtype for name, one in trial.module.named_parameters()}
    trial.module.double().to(next(iter(own.values()), torch.float32))
    trial.keep(trial.call(), "output after the casts")


# --- side effects ------------------------------------------------------------------------------


def containers(trial: Trial, target: str, value: Plain) -> None:  # noqa: ARG001
    """Call it twice with the same arguments, and record what is in them after each call."""
    args, kwargs = trial.given_arguments()
    for when in ("the call", "the next call"):
        items, named = with_iterators(args, kwargs)
        with torch.set_grad_enabled(trial.subject.train), trial.autocast():
            trial.keep(trial.program(*items, **named), f"output of {when}")
        for name, one in [*enumerate(args), *kwargs.items()]:
            if not isinstance(one, torch.Tensor):
                trial.keep(one, f"argument {name} after {when}")


def attributes(trial: Trial, target: str, value: Plain) -> None:  # noqa: ARG001
    """Call it, and record attributes that the reference sets."""
    trial.call()
    for name in target.split(","):
        trial.keep(getattr(trial.program, name), f"attribute {name}")


def kept(trial: Trial, target: str, value: Plain) -> None:  # noqa: ARG001
    """Call it on one set, then on others, and record what the first call's result is then."""
    first = trial.call(0)
    for number in range(1, len(trial.sets)):
        trial.say(
            "the same object again",
            trial.call(number) is first
            and not isinstance(first, int | float | bool | str | type(None)),
        )
    trial.keep(first, "output of an earlier call")


def memory(trial: Trial, target: str, value: Plain) -> None:  # noqa: ARG001
    """Count what each of many calls keeps: bytes of tensors, objects, items of containers, and
    bytes of C code."""

    def make(count: int) -> None:
        for _ in range(count):
            trial.sets[0] = [one.clone() for one in trial.sets[0]]
            trial.call()

    make(1)
    started_s = time.monotonic()
    make(1)
    took_s = max(time.monotonic() - started_s, 1e-6)
    count = max(FEWEST_CALLS, min(COUNTED_CALLS, int(COUNTED_S / took_s)))
    make(min(WARM_CALLS, count))
    gc.collect()
    gc.freeze()  # only what is made from here on is looked at
    found = [in_use(trial)]
    while True:
        make(count)
        found.append(in_use(trial))
        # What is kept once is no growth, and a cache that fills up ends growing.
        sizes = zip(*found, strict=True)
        trial.growth = [
            least_growth(one[:most]) / count for one, most in zip(sizes, MOST_LOOKS, strict=True)
        ]
        is_over = time.monotonic() - started_s > MOST_S
        grows = any(
            one >= STEADY and len(found) < most
            for one, most in zip(trial.growth, MOST_LOOKS, strict=True)
        )
        if len(found) > 2 and (is_over or not grows):
            return


def least_growth(sizes: Sequence[int]) -> float:
    """Return the least growth from one size to the next."""
    return float(min((b - a for a, b in itertools.pairwise(sizes)), default=0))


def in_use(trial: Trial) -> list[int]:
    """Return bytes of tensors, memory blocks of Python, items that the program holds, open files,
    and bytes of C code."""
    gc.collect()
    storages = {}
    for one in gc.get_objects():
        if isinstance(one, torch.Tensor) and one.layout == torch.strided:
            storage = one.untyped_storage()
            storages[storage._cdata] = storage.nbytes()
    held = torch.cuda.memory_allocated() if torch.cuda.is_available() else 0
    items = count_items(roots_of(trial.program), set(), 0)
    num_bytes = sum(storages.values()) + held
    num_files = sum(1 for _ in Path("/proc/self/fd").iterdir())
    return [num_bytes, sys.getallocatedblocks(), items, num_files, allocated_bytes()]


def allocated_bytes() -> int:
    """Return the bytes that C code has from `malloc`; 0 where the C library does not say."""
    found = malloc_figures()
    return 0 if found is None else int(found.uordblks + found.hblkhd)


def roots_of(program: Any) -> list[Any]:
    """Return what a program may keep things in: its attributes, those of its classes, and the
    globals of their modules."""
    parts = list(program.modules()) if isinstance(program, torch.nn.Module) else [program]
    kinds = {type(one) for one in parts if not type(one).__module__.startswith("torch.")}
    modules = [sys.modules.get(getattr(one, "__module__", "")) for one in (*kinds, program)]
    held = [*parts, *kinds, *modules]
    return [dict(vars(one)) for one in held if hasattr(one, "__dict__")]


def count_items(values: Any, seen: set[int], depth: int) -> int:
    """Return the number of items in nested containers, each counted once."""
    total = 0
    for one in values.values() if isinstance(values, dict) else values:
        if isinstance(one, list | tuple | set | dict | deque) and id(one) not in seen:
            seen.add(id(one))
            total += len(one)
            if depth < MOST_DEPTH:
                total += count_items(one, seen, depth + 1)
    return total


def peak(trial: Trial, target: str, value: Plain) -> None:  # noqa: ARG001
    """Measure the most memory of one call."""
    trial.call()
    if trial.subject.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        trial.call()
        trial.growth = [float(torch.cuda.max_memory_allocated() - before)]
        return
    Path("/proc/self/clear_refs").write_text("5")
    before = peak_bytes()
    trial.call()
    trial.growth = [float(peak_bytes() - before)]


def peak_bytes() -> int:
    """Return the most memory that this process has had since it was cleared."""
    text = Path("/proc/self/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) * 1024


# --- what else users do with a module ----------------------------------------------------------


def pickled(trial: Trial, target: str, value: Plain) -> None:  # noqa: ARG001
    """Call it, pickle it and call the copy. `torch.save` of a module does the same."""
    trial.call()
    trial.program = pickle.load(io.BytesIO(pickle.dumps(trial.program)))
    trial.keep(trial.call(), "output of the unpickled module")


def deepcopy(trial: Trial, target: str, value: Plain) -> None:  # noqa: ARG001
    """Call it, copy it, change the copy's weights, and call both."""
    trial.call()
    copied = copy.deepcopy(trial.module)
    with torch.no_grad():
        for one in copied.parameters():
            one.copy_(partly_changed(one))
    own = trial.program
    trial.program = copied
    trial.keep(trial.call(), "output of the copy")
    trial.program = own
    trial.keep(trial.call(), "output of the copied module")


def state_dict(trial: Trial, target: str, value: Plain) -> None:  # noqa: ARG001
    """Call it, and record the keys and the tensors of its checkpoint."""
    trial.call()
    state = trial.module.state_dict()
    trial.say("keys of the state_dict", sorted(state))
    for key in sorted(state):
        if isinstance(state[key], torch.Tensor):
            trial.keep(state[key], f"state_dict()[{key!r}]")


def hooks(trial: Trial, target: str, value: Plain) -> None:  # noqa: ARG001
    """Call it with hooks on its submodules that change their outputs, and record for which they
    ran."""
    ran: list[str] = []

    def ran_for(name: str, output: Any) -> Any:
        ran.append(name)
        return halved(output)

    own = dict(trial.module.named_modules())
    handles = [
        own[name].register_forward_hook(lambda _, __, output, name=name: ran_for(name, output))
        for name in target.split(",")
        if name in own
    ]
    try:
        output = trial.call()
    finally:
        for one in handles:
            one.remove()
    trial.say("hooks ran for", sorted(set(ran)))
    trial.keep(output)


def halved(output: Any) -> Any:
    """Return what a submodule returned, with half of its floats."""
    if isinstance(output, torch.Tensor) and output.is_floating_point():
        return output / 2
    return tuple(map(halved, output)) if type(output) is tuple else output


def replaced(trial: Trial, target: str, value: Plain) -> None:  # noqa: ARG001
    """Call it with others in the place of its submodules, as a subclass or an adapter puts there:
    with the same weights, and half of the output."""
    own = dict(trial.module.named_modules())
    for name in target.split(","):
        if name in own:
            one = copy.copy(own[name])
            kind = type(one)
            body = {"forward": lambda self, *a, kind=kind, **k: halved(kind.forward(self, *a, **k))}
            one.__class__ = type(kind.__name__, (kind,), body)
            parent, _, last = name.rpartition(".")
            setattr(own[parent], last, one)
    trial.keep(trial.call(), "output with others in the place of submodules")


def own_hooks(trial: Trial, target: str, value: Plain) -> None:  # noqa: ARG001
    """Call it with hooks on the module itself that change its input and its output."""
    seen: list[int] = []
    handles = [
        trial.module.register_forward_pre_hook(lambda *_: seen.append(0)),
        trial.module.register_forward_hook(lambda *_: seen.append(1)),
    ]
    try:
        trial.keep(trial.call())
    finally:
        for one in handles:
            one.remove()
    trial.say("hooks of the module ran", seen)


def thread(trial: Trial, target: str, value: Plain) -> None:  # noqa: ARG001
    """Call it here and in another thread; rounding at random is a mode of this one alone."""
    if _get_current_dispatch_mode_stack():
        trial.keep(trial.call(), "output of a call in another thread")
        return
    trial.call()
    results: list[Any] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(trial.call())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            errors.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    if errors:
        raise errors[0]
    trial.keep(results[0], "output of a call in another thread")


def traced(trial: Trial, target: str, value: Plain) -> None:  # noqa: ARG001
    """Compile it by torch's tracer, without a compiler behind it, and call that."""
    compiled: Callable[..., Any] = torch.compile(trial.program, backend="eager")
    args, kwargs = trial.arguments()
    with torch.set_grad_enabled(trial.subject.train), trial.autocast():
        trial.keep(compiled(*args, **kwargs), "output of the compiled module")


RECIPES: dict[str, Recipe] = {
    "call": call,
    "checked": checked,
    "subnormal": subnormal,
    "argument": argument,
    "omitted": omitted,
    "masked": masked,
    "constructor": constructor,
    "layout": layout,
    "dtype": dtype,
    "autocast": autocast,
    "device": device,
    "gradients": gradients,
    "accumulated": accumulated,
    "mode": mode,
    "inference": inference,
    "outputs": outputs,
    "views": views,
    "weight": weight,
    "load": load,
    "optimizer": optimizer,
    "cast": cast,
    "containers": containers,
    "attributes": attributes,
    "kept": kept,
    "memory": memory,
    "peak": peak,
    "pickled": pickled,
    "deepcopy": deepcopy,
    "state_dict": state_dict,
    "hooks": hooks,
    "replaced": replaced,
    "own_hooks": own_hooks,
    "thread": thread,
    "traced": traced,
}
