"""Read settings of a runner's process that a merged patch would change for its user.

They are read in the runner, so a hostile program can forge them. The verifier believes them only to
the program's disadvantage, and the static rules read the text.
"""

from __future__ import annotations

import builtins
import contextlib
import copy
import dataclasses
import functools
import gc
import math
import operator
import os
import random
import statistics
import sys
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from ..confinement import OWN_FOLDERS
from ..wire.runner import Settings
from .process_settings import Changes

TORCH_FOLDER = str(Path(torch.__file__).parent) + os.sep
BUILD_VARIABLES = ("TORCH", "TRITON", "CUDA", "MAX_JOBS", "CC", "CXX")
"""Variables that programs set to build their kernels."""


def is_layer(one: Any) -> bool:
    """Return whether it is a class of modules."""
    return isinstance(one, type) and issubclass(one, torch.nn.Module)


WATCHED: dict[str, Any] = {
    "torch": torch,
    "torch.Tensor": torch.Tensor,
    "torch.nn.functional": torch.nn.functional,
    "torch.nn.init": torch.nn.init,
    "torch.linalg": torch.linalg,
    "torch.fft": torch.fft,
    "torch.special": torch.special,
    "torch._C._nn": torch._C._nn,
    "torch.autograd": torch.autograd,
    "torch.cuda": torch.cuda,
    "torch.cuda.Event": torch.cuda.Event,
    "torch.cuda.Stream": torch.cuda.Stream,
    "torch.autograd.Function": torch.autograd.Function,
    "torch.optim.Optimizer": torch.optim.Optimizer,
    "torch.nn.Module": torch.nn.Module,
    **{f"torch.nn.{one.__name__}": one for one in vars(torch.nn).values() if is_layer(one)},
    "torch._C": torch._C,
    "builtins": builtins,
    "contextlib": contextlib,
    "copy": copy,
    "dataclasses": dataclasses,
    "functools": functools,
    "gc": gc,
    "math": math,
    "operator": operator,
    "os": os,
    "random": random,
    "statistics": statistics,
    "threading": threading,
    "time": time,
}


@dataclass(frozen=True)
class Held:
    """What a module or class held, and the tables where it lay: for a class also those of its
    bases."""

    values: dict[str, Any]
    tables: list[tuple[Any, dict[str, Any]]]


Attributes = dict[str, Held]


def watched() -> dict[str, Any]:
    """Return all that is compared: the objects above, and the modules and classes of this process
    that are not the program's. In these a program could replace what times it."""
    package = str(__package__).rpartition(".")[0]
    own = {
        name: module
        for name, module in list(sys.modules.items())
        if name.startswith(f"{package}.") and module is not None
    }
    classes = {
        f"{name}.{attribute}": value
        for name, module in own.items()
        for attribute, value in list(vars(module).items())
        if isinstance(value, type) and value.__module__ == name
    }
    return {**WATCHED, **own, **classes}


def attributes() -> Attributes:
    """Return what the watched modules and classes hold now."""
    copies: dict[int, dict[str, Any]] = {}
    return {
        name: Held(
            held_by(owner),
            [(one, copies.setdefault(id(one), dict(vars(one)))) for one in places_of(owner)],
        )
        for name, owner in watched().items()
    }


def places_of(owner: Any) -> Sequence[Any]:
    """Return a module, or a class with its bases."""
    return owner.__mro__ if isinstance(owner, type) else (owner,)


def is_as_before(held: Held, owner: Any, looked: dict[int, bool]) -> bool:
    """Return whether an owner holds the very objects that it held. A look at each attribute by
    name takes much longer, and this is asked after each round. Classes share bases: `looked` has
    what was found of each."""
    places = places_of(owner)
    if len(places) != len(held.tables):
        return False
    for place, (was, table) in zip(places, held.tables, strict=True):
        if id(place) not in looked:
            now = vars(place)
            looked[id(place)] = len(now) == len(table) and all(
                map(operator.is_, now.values(), table.values())
            )
        if place is not was or not looked[id(place)]:
            return False
    return True


def held_by(owner: Any) -> dict[str, Any]:
    """Return a module's attributes, or a class's with those that it inherits."""
    if not isinstance(owner, type):
        return dict(vars(owner))
    found: dict[str, Any] = {}
    for base in reversed(owner.__mro__):
        found.update(vars(base))
    return found


def patched(before: Attributes) -> list[str]:
    """Return names of functions that were replaced by functions outside torch."""
    found = []
    looked: dict[int, bool] = {}
    named = set()
    for name, owner in watched().items():
        held = before.get(name)
        if held is None or is_as_before(held, owner, looked):
            continue
        now = held_by(owner)
        for attribute, old in held.values.items():
            new = now.get(attribute)
            is_replaced = new is not old and callable(old) and not is_of_torch(new)
            if is_replaced and (attribute, id(new)) not in named:  # not of a base
                named.add((attribute, id(new)))
                found.append(f"{name}.{attribute}")
    return sorted(found)[:20]


def hidden(owners: Mapping[type, Any]) -> list[str]:
    """Return methods of these classes that their object's own attributes hide, and the objects of
    another class."""
    found = [
        f"{kind.__name__}.{name}"
        for kind, one in owners.items()
        for name in vars(one)
        if callable(getattr(kind, name, None))
    ]
    others = [f"{kind.__name__}.__class__" for kind, one in owners.items() if type(one) is not kind]
    return sorted([*found, *others])


def hooks() -> list[str]:
    """Return what of the program's own may run in any code of this process: functions that trace or
    profile, and modes of torch. Asked right after calls, before what it names could see it."""
    return [
        *(["sys.setprofile"] if sys.getprofile() is not None else []),
        *(["sys.settrace"] if sys.gettrace() is not None else []),
        *(["a function mode"] if _get_current_function_mode_stack() else []),  # type: ignore[no-untyped-call]
        *(["a dispatch mode"] if _get_current_dispatch_mode_stack() else []),
    ]


def is_of_torch(function: Any) -> bool:
    """Return whether a function's code is torch's. torch replaces some of its own functions at
    their first use (torch.compile does)."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code is not None and code.co_filename.startswith(TORCH_FOLDER)


def settings(before: Attributes, process: Changes) -> Settings:
    """Return all settings that are compared."""
    return Settings(
        default_dtype=str(torch.get_default_dtype()),
        grad_enabled=torch.is_grad_enabled(),
        num_threads=torch.get_num_threads(),
        float32_matmul_precision=torch.get_float32_matmul_precision(),
        deterministic=torch.are_deterministic_algorithms_enabled(),
        cudnn_benchmark=bool(torch.backends.cudnn.benchmark),
        cudnn_tf32=cudnn_allows_tf32(),
        default_device=str(torch.get_default_device()),
        function_modes=len(_get_current_function_mode_stack()),  # type: ignore[no-untyped-call]
        dispatch_modes=len(_get_current_dispatch_mode_stack()),
        mkldnn=bool(torch.backends.mkldnn.enabled),
        flush_denormal=is_flushing_denormals(),
        affinity=tuple(sorted(os.sched_getaffinity(0))),
        trace=(sys.gettrace() is not None, sys.getprofile() is not None),
        patched=tuple(patched(before)),
        threads=tuple(threads()),
        environment=tuple(environment()),
        silences_warnings=silences_warnings(),
        process=process,
    )


def threads() -> list[str]:
    """Return live Python threads, without this one and those of torch."""
    return sorted(
        thread.name
        for thread in threading.enumerate()
        if thread is not threading.main_thread()
        and not is_of_torch(getattr(thread, "_target", None))
    )[:20]


def environment() -> list[str]:
    """Return variables that programs read, as `name=value`."""
    return sorted(
        f"{name}={value}"[:200]
        for name, value in os.environ.items()
        if name not in OWN_FOLDERS and not name.startswith(BUILD_VARIABLES)
    )


def silences_warnings() -> bool:
    """Return whether a filter hides every warning of the process."""
    return any(
        action == "ignore" and message is None and category is Warning and module is None
        for action, message, category, module, _ in warnings.filters
    )


def cudnn_allows_tf32() -> bool | str:
    """Return cuDNN's TF32 setting. torch 2.9 and later refuse to read it where the newer one was
    written."""
    try:
        return bool(torch.backends.cudnn.allow_tf32)
    except RuntimeError as error:
        return str(error)[:80]


def is_flushing_denormals() -> bool:
    return bool(torch.tensor(math.ldexp(1.0, -130)).mul(1.0).item() == 0.0)
