"""Triton's language on tensors of torch, as far as our kernels go: what one computes can be seen
without a GPU. Not how fast, and not whether Triton compiles it."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

SLICE = 8
"""Products of TF32 that one instruction of a tensor core adds to each sum (wgmma, mma.sync)."""


class Values(torch.Tensor):
    """What a kernel computes with."""

    def to(self, dtype: torch.dtype, bitcast: bool = False) -> torch.Tensor:  # type: ignore[override]
        return self.view(dtype) if bitcast else super().to(dtype)


def values(given: Any) -> Values:
    return torch.as_tensor(given).as_subclass(Values)


@dataclass(frozen=True)
class Pointer:
    """Into the elements of a contiguous tensor."""

    flat: torch.Tensor
    places: Any = 0

    def __add__(self, places: Any) -> Pointer:
        return Pointer(self.flat, self.places + places)


def load(pointer: Pointer, mask: Any = None, other: Any = 0) -> torch.Tensor:
    places = torch.as_tensor(pointer.places)
    if mask is None:
        return values(pointer.flat[places])
    mask = torch.as_tensor(mask).expand(torch.broadcast_shapes(mask.shape, places.shape))
    places = places.expand(mask.shape)
    assert torch.all((places >= 0) & (places < pointer.flat.numel()) | ~mask), "out of bounds"
    found = pointer.flat[torch.where(mask, places, 0)]
    return values(torch.where(mask, found, torch.tensor(other, dtype=found.dtype)))


def store(pointer: Pointer, value: Any, mask: torch.Tensor | None = None) -> None:
    places = torch.as_tensor(pointer.places)
    mask = torch.as_tensor(True if mask is None else mask)
    shape = torch.broadcast_shapes(mask.shape, places.shape)
    mask, places = mask.expand(shape), places.expand(shape)
    assert torch.all((places >= 0) & (places < pointer.flat.numel()) | ~mask), "out of bounds"
    found = torch.as_tensor(value).expand(mask.shape)[mask]
    pointer.flat[places[mask]] = found.to(pointer.flat.dtype)


def atomic_add(pointer: Pointer, value: Any, mask: Any = None) -> None:
    places = torch.as_tensor(pointer.places)
    mask = torch.as_tensor(True if mask is None else mask)
    places, mask, value = torch.broadcast_tensors(places, mask, torch.as_tensor(value))
    added = value[mask].to(pointer.flat.dtype)
    pointer.flat.index_put_((places[mask],), added, accumulate=True)


def where(condition: Any, one: Any, other: Any) -> torch.Tensor:
    return torch.where(condition, torch.as_tensor(one), torch.as_tensor(other))


def tensors(function: Any) -> Any:
    return lambda *given: function(*(torch.as_tensor(one) for one in given))


class JITFunction:
    """A kernel. As in Triton, all launches end in `run`."""

    def __init__(self, fn: Any):
        self.fn, self.arg_names = fn, [*inspect.signature(fn).parameters]

    def __getitem__(self, grid: Any) -> Any:
        return lambda *given, **options: self.run(*given, grid=grid, warmup=False, **options)

    def __call__(self, *given: Any) -> Any:
        return self.fn(*given)

    def run(self, *given: Any, grid: Any, warmup: bool, **options: Any) -> None:
        named = {name: one for name, one in options.items() if name in self.arg_names}
        bound = inspect.signature(self.fn).bind(*given, **named).arguments
        flat = {
            name: Pointer(storage(one)) if isinstance(one, torch.Tensor) else one
            for name, one in bound.items()
        }
        sizes = grid(bound) if callable(grid) else grid
        language.num_programs = lambda axis: values(sizes[axis])
        for program in itertools.product(*map(range, sizes)):
            language.program_id = lambda axis, program=program: values(program[axis])
            self.fn(**flat)


@dataclass(frozen=True)
class Config:
    kwargs: dict[str, Any]
    num_warps: int = 4
    num_stages: int = 3


class Autotuner(JITFunction):
    """A kernel that is launched with its first configuration."""

    def __init__(self, fn: JITFunction, configs: list[Config]):
        self.fn, self.configs = fn, configs

    def run(self, *given: Any, **options: Any) -> None:
        first = self.configs[0]
        warps = {"num_warps": first.num_warps, "num_stages": first.num_stages}
        self.fn.run(*given, **options, **first.kwargs, **warps)


def storage(one: torch.Tensor) -> torch.Tensor:
    """A tensor's elements where they lie, from its first one."""
    last = sum((n - 1) * step for n, step in zip(one.shape, one.stride(), strict=True))
    return one.detach().as_strided((last + 1,), (1,))


def dot(
    a: torch.Tensor, b: torch.Tensor, acc: torch.Tensor | None = None, *, input_precision: str
) -> torch.Tensor:
    """In TF32 as tensor cores compute it: with operands cut off to what the precision keeps of
    them, and the sum cut off to float32 whenever the next products of a slice are added to it."""
    total = torch.zeros(a.shape[0], b.shape[1]) if acc is None else acc
    if input_precision != "tf32":
        return total + a @ b
    a, b = (
        (values(x).contiguous().view(torch.int32) & -8192).view(torch.float32).double()
        for x in (a, b)
    )
    for k in range(0, a.shape[1], SLICE):
        total = toward_zero(total.double() + a[:, k : k + SLICE] @ b[k : k + SLICE])
    return total


def toward_zero(exact: torch.Tensor) -> torch.Tensor:
    """Cut off to float32, where torch rounds to the nearest."""
    nearest = exact.float()
    inner = torch.nextafter(nearest, torch.zeros_like(nearest))
    return torch.where(nearest.double().abs() > exact.abs(), inner, nearest)


language = types.ModuleType("triton.language")
for name in ("exp", "log", "sqrt", "rsqrt", "abs", "sin", "cos", "erf", "sigmoid"):
    setattr(language, name, getattr(torch, name))
vars(language).update(
    load=load,
    atomic_add=atomic_add,
    store=store,
    where=where,
    arange=lambda start, end: values(torch.arange(start, end)),
    dot=dot,
    cdiv=lambda a, b: -(-a // b),
    int32=torch.int32,
    int64=torch.int64,
    constexpr=int,
    float32=torch.float32,
    maximum=tensors(torch.maximum),
    minimum=tensors(torch.minimum),
    sum=lambda value, axis=0, keep_dims=False: value.sum(axis, keepdim=keep_dims),
    max=lambda value, axis=0, keep_dims=False: value.amax(axis, keepdim=keep_dims),
    min=lambda value, axis=0, keep_dims=False: value.amin(axis, keepdim=keep_dims),
    zeros=torch.zeros,
    full=torch.full,
)
triton = types.ModuleType("triton")
vars(triton).update(
    jit=JITFunction,
    Config=Config,
    autotune=lambda configs, key: lambda fn: Autotuner(fn, configs),
    language=language,
    cdiv=lambda a, b: -(-a // b),
    next_power_of_2=lambda n: 1 << (n - 1).bit_length(),
)
extra = types.ModuleType("triton.language.extra")
libdevice = types.ModuleType("triton.language.extra.libdevice")
vars(libdevice).update(tanh=torch.tanh)
vars(extra).update(libdevice=libdevice)
runtime = types.ModuleType("triton.runtime")
runtime_jit = types.ModuleType("triton.runtime.jit")
vars(runtime_jit).update(JITFunction=JITFunction)
MODULES = {
    "triton": triton,
    "triton.language": language,
    "triton.runtime": runtime,
    "triton.runtime.jit": runtime_jit,
    "triton.language.extra": extra,
    "triton.language.extra.libdevice": libdevice,
}


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """With these modules as `triton`, whether there is one or not."""
    kept = {name: sys.modules.get(name) for name in MODULES}
    sys.modules.update(MODULES)
    try:
        yield
    finally:
        for name, module in kept.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
