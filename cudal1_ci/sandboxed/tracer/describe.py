"""Describe arguments as specs that another process can build again. Contents of tensors are not
kept."""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib
import inspect
import itertools
import math
import sys
import types
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from .invariants import invariants_of

MAX_STRING_CHARS = 64
"""For mode names and the like. Longer strings are data, which is not recorded."""
MAX_ITEMS = 256
MAX_DEPTH = 8
NUM_SAMPLED = 4096
"""Elements of a float tensor whose range is measured."""
INIT = "_cudal1_init"
"""Key of a module's constructor arguments in its __dict__, so that copies have them."""
INIT_KEY = "_cudal1_init_key"


class UnrecordableError(Exception):
    """A value that cannot be built again from what may be written down."""


def describe_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the record Call.

    Raises:
        UnrecordableError: An argument is of a kind that cannot be built again. The message names
            it.
    """
    described = []
    for position, arg in enumerate(args):
        described.append(named(f"argument {position}", arg))
    return {
        "type": "call",
        "args": described,
        "kwargs": {key: named(f"argument `{key}`", value) for key, value in kwargs.items()},
    }


def named(name: str, value: Any) -> dict[str, Any]:
    try:
        return describe(value, 0)
    except UnrecordableError as error:
        raise UnrecordableError(f"{name} {error}") from None


def describe(value: Any, depth: int) -> dict[str, Any]:
    """Return one argument as a spec."""
    if depth > MAX_DEPTH:
        raise UnrecordableError("is nested too deeply")
    if isinstance(value, torch.Tensor):
        return describe_tensor(value)
    if value is None or isinstance(value, bool | int | str | float):
        return describe_plain(value)
    if isinstance(value, torch.dtype):
        return {"type": "symbol", "path": f"torch:{str(value).removeprefix('torch.')}"}
    if isinstance(value, torch.device):
        return instance("torch:device", [describe_plain(str(value))])
    if isinstance(value, list | tuple | set | frozenset | dict):
        return describe_container(value, depth)
    if isinstance(value, type) or callable(getattr(value, "__code__", None)) or is_function(value):
        return {"type": "symbol", "path": import_path(value)}
    return describe_object(value, depth)


def is_function(value: Any) -> bool:
    return hasattr(value, "__qualname__") and hasattr(value, "__module__") and callable(value)


def describe_tensor(tensor: torch.Tensor) -> dict[str, Any]:
    """Return shape, dtype, strides where not contiguous, and range and invariants of the
    values."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout != torch.strided:
        raise UnrecordableError(f"is a {type(tensor).__name__} ({tensor.layout})")
    spec: dict[str, Any] = {
        "type": "tensor",
        "shape": list(tensor.shape),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "device": str(tensor.device),
    }
    if not tensor.is_contiguous():
        spec["stride"] = list(tensor.stride())
    if tensor.requires_grad:
        spec["requires_grad"] = True
    bounds = value_range(tensor)
    if bounds is not None:
        spec["low"], spec["high"] = bounds
    if names := invariants_of(tensor):
        spec["invariants"] = names
    return spec


def describe_floats(owner: torch.nn.Module | None) -> dict[str, str]:
    """Return the dtype of a module's floats, if all have the same, and torch's default dtype; each
    where it is not float32. A caller converts a module after its constructor."""
    found = {"default_dtype": torch.get_default_dtype()}
    if owner is not None:
        floats = {one.dtype for one in state_of(owner) if one.is_floating_point()}
        if len(floats) == 1:
            found["dtype"] = floats.pop()
    named = {name: str(one).removeprefix("torch.") for name, one in found.items()}
    return {name: one for name, one in named.items() if one != "float32"}


def state_of(owner: torch.nn.Module) -> Iterator[torch.Tensor]:
    """Yield parameters and buffers. A class may have another `parameters()`, as for groups of an
    optimizer."""
    yield from (one for _, one in torch.nn.Module.named_parameters(owner))
    yield from (one for _, one in torch.nn.Module.named_buffers(owner))


def autocast_dtype(
    owner: torch.nn.Module | None, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> torch.dtype | None:
    """Return what autocast casts to on a device of this call; None where it is off there."""
    kinds = [kind for kind in ("cuda", "cpu") if torch.is_autocast_enabled(kind)]
    if not kinds:
        return None
    first = () if owner is None else itertools.islice(state_of(owner), 1)
    devices = {one.device.type for one in (*tensors_in([*args, *kwargs.values()]), *first)}
    active = (kind for kind in kinds if kind in devices or not devices)
    return next(map(torch.get_autocast_dtype, active), None)


def tensors_in(value: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    """Yield the tensors in plain containers."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple | dict) and depth < MAX_DEPTH:
        for one in value.values() if isinstance(value, dict) else value:
            yield from tensors_in(one, depth + 1)


def first_dtype(owner: torch.nn.Module) -> torch.dtype | None:
    """Return the dtype of a module's first parameter or buffer; None where it has none."""
    return next((one.dtype for one in state_of(owner)), None)


def value_range(tensor: torch.Tensor) -> tuple[float, float] | None:
    """Return the smallest and largest value: of all integers, of a sample of floats."""
    if tensor.numel() == 0 or tensor.is_complex() or tensor.device.type == "meta":
        return None
    with torch.no_grad():
        values = tensor.detach()
        if values.is_floating_point():
            values = values.flatten()[:NUM_SAMPLED].float()
            values = values[torch.isfinite(values)]
            if values.numel() == 0:
                return None
        elif values.dtype == torch.bool:
            values = values.to(torch.uint8)
        low, high = torch.aminmax(values)
        return float(low), float(high)


def describe_plain(value: Any) -> dict[str, Any]:
    if isinstance(value, enum.Enum):
        return {"type": "symbol", "path": f"{import_path(type(value))}.{value.name}"}
    if isinstance(value, str) and (len(value) > MAX_STRING_CHARS or "\n" in value):
        raise UnrecordableError("is a long string, which may be data")
    if isinstance(value, float) and not math.isfinite(value):
        return instance("builtins:float", [{"type": "constant", "value": str(value)}])
    return {"type": "constant", "value": value}


def describe_container(value: Any, depth: int) -> dict[str, Any]:
    if len(value) > MAX_ITEMS:
        raise UnrecordableError(f"has {len(value)} items")
    if isinstance(value, dict):
        pairs = [[describe(k, depth + 1), describe(v, depth + 1)] for k, v in value.items()]
        plain = type(value) in (dict, OrderedDict)
        container = "dict" if plain else import_path(type(value))
        return {"type": "mapping", "items": pairs, "container": container}
    items = [describe(item, depth + 1) for item in value]
    container = type(value).__name__
    if type(value) not in (list, tuple, set, frozenset):
        container = "tuple" if isinstance(value, torch.Size) else import_path(type(value))
    return {"type": "items", "items": items, "container": container}


def describe_object(value: Any, depth: int) -> dict[str, Any]:
    """Describe a partial, an enum, a module, a dataclass, or a config. A config can be converted
    to a dict, or is made of its attributes."""
    if isinstance(value, enum.Enum):
        return {"type": "symbol", "path": f"{import_path(type(value))}.{value.name}"}
    if isinstance(value, functools.partial):
        args = [describe(arg, depth + 1) for arg in (value.func, *value.args)]
        kwargs = {key: describe(item, depth + 1) for key, item in value.keywords.items()}
        return instance("functools:partial", args, kwargs)
    if isinstance(value, torch.nn.Module):
        made = value.__dict__.get(INIT)
        if not isinstance(made, dict):
            raise UnrecordableError(f"is a {type(value).__name__}: {made or 'made elsewhere'}")
        return instance(import_path(type(value)), made["args"], made["kwargs"])
    if dataclasses.is_dataclass(value):
        fields = {
            f.name: describe(getattr(value, f.name), depth + 1)
            for f in dataclasses.fields(value)
            if f.init
        }
        return instance(import_path(type(value)), [], fields)
    if hasattr(value, "to_dict") and hasattr(type(value), "from_dict"):
        return instance(
            f"{import_path(type(value))}.from_dict", [describe(value.to_dict(), depth + 1)]
        )
    made = describe_by_attributes(value, depth)
    if made is None:
        name = f"{type(value).__module__}.{type(value).__qualname__}"
        raise UnrecordableError(f"is an object of {name}")
    return made


def describe_by_attributes(value: Any, depth: int) -> dict[str, Any] | None:
    """Describe an object of a plain class as `Config(width=8)`. The constructor must take all
    attributes by name, and make an object with the same ones. Return None for any other object,
    and for one that holds a tensor: a constructor may write into it."""
    kind, held = type(value), getattr(value, "__dict__", None)
    is_namespace = kind is types.SimpleNamespace
    has_new = any("__new__" in vars(one) for one in kind.__mro__[:-1])
    if not held or (has_new and not is_namespace):
        return None
    try:
        if not is_namespace:
            inspect.signature(kind).bind(**held)
        spec = {key: describe(item, depth + 1) for key, item in held.items()}
        if holds_tensor(spec):
            return None
        again = vars(kind(**held))
        if {key: describe(item, depth + 1) for key, item in again.items()} != spec:
            return None
    except Exception:  # noqa: BLE001 (whatever a constructor says, the object is not made so)
        return None
    return instance(import_path(kind), [], spec)


def holds_tensor(spec: Any) -> bool:
    """Return whether there is a tensor anywhere in a description."""
    if isinstance(spec, dict):
        return spec.get("type") == "tensor" or any(map(holds_tensor, spec.values()))
    return isinstance(spec, list) and any(map(holds_tensor, spec))


def instance(factory: str, args: list[Any], kwargs: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "instance", "factory": factory, "args": args, "kwargs": kwargs or {}}


def import_path(value: Any) -> str:
    """Return `pkg.mod:Qual.Name` of a class or function that an import finds again."""
    module, qualname = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if module is None and isinstance(value, type(len)):
        module = "torch"  # methods of torch._C do not name their module
    if module in (None, "__main__") or "<" in qualname:
        raise UnrecordableError(f"is {qualname or type(value).__name__}, which cannot be imported")
    found: Any = sys.modules.get(module) or importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if found is not value and getattr(found, "__wrapped__", None) is not value:
        raise UnrecordableError(f"is {qualname}, which is not what {module} holds by that name")
    return f"{module}:{qualname}"
