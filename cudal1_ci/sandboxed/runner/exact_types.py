"""Read state, gradients and outputs from types whose reading runs no code of the program.

They are read outside of any clock. A table, a parameter or a gradient of the program's own type
could do work there that its timed calls postpone. So could a tensor whose negation or conjugation
is left to its reader. What has another type is named; the verifier accepts it where the reference
has the same.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.parameter import Parameter, UninitializedBuffer, UninitializedParameter

from ..memory.layouts import UNSUMMED

EMPTY = (UninitializedParameter, UninitializedBuffer)
TENSORS = (torch.Tensor, Parameter, *EMPTY)
TABLES = (dict, OrderedDict)
SCRIPTS = ("torch.jit._script", "torch.jit._trace")
"""Modules of the classes whose tables are in C++."""
OWN_TABLE = torch.nn.Module.__dict__["__dict__"]
"""The attributes of a module; a class of the program could define another `__dict__`."""
PARTS = ("_modules", "_parameters", "_buffers")


class InexactType(TypeError):
    """Something that the verifier reads has a type of the program's own."""


def is_script(module: torch.nn.Module) -> bool:
    """Return whether a module is one that TorchScript made, not of a class derived from it."""
    kind = type(module)
    return any(getattr(sys.modules.get(name), kind.__name__, None) is kind for name in SCRIPTS)


def attributes_of(module: torch.nn.Module) -> dict[str, Any]:
    """Return the attributes of a module as Python keeps them."""
    found: dict[str, Any] = OWN_TABLE.__get__(module)
    return found


def items_of(module: torch.nn.Module, name: str) -> list[tuple[str, Any]]:
    """Return the items of one of a module's tables. Raises InexactType for what is no dict."""
    if is_script(module):
        return list(getattr(module, name).items())
    table = dict.__getitem__(attributes_of(module), name)
    if type(table) is OrderedDict:
        return list(table.items())
    if not issubclass(type(table), dict):
        raise InexactType(f"`{name}` is a {type(table).__name__}")
    return list(dict.items(table))


def inexact(module: torch.nn.Module | None) -> list[str]:
    """Return what of a module's state has a type of the program's own, in words."""
    return [] if module is None else sorted(set(inexact_parts(module, "")))


def inexact_parts(module: torch.nn.Module, prefix: str) -> Iterator[str]:
    where = prefix.removesuffix(".") or "the module"
    if is_script(module):
        return
    attributes = attributes_of(module)
    if type(attributes) is not dict:
        yield f"the attributes of {where} are a {type(attributes).__name__}"
    for name in PARTS:
        table = dict.__getitem__(attributes, name)
        if type(table) not in TABLES:
            yield f"`{name}` of {where} is a {type(table).__name__}"
        for key, value in items_of(module, name):
            if type(key) is not str:
                yield f"a key of `{name}` of {where} is a {type(key).__name__}"
            elif value is not None and name == "_modules":
                yield from inexact_parts(value, f"{prefix}{key}.")
            elif value is not None:
                said = inexact_tensor(value)
                if said:
                    yield f"`{prefix}{key}` is {said}"


def inexact_tensor(tensor: torch.Tensor) -> str | None:
    """Return in words why reading a tensor may run code or leave work to the reader, or None."""
    if type(tensor) not in TENSORS:
        return f"a {type(tensor).__name__}"
    if type(tensor) in EMPTY:
        return None
    return "a tensor that is computed when it is read" if is_lazy(tensor) else None


def is_lazy(tensor: torch.Tensor) -> bool:
    """Return whether a plain tensor leaves negation, conjugation, a sum of equal coordinates or its
    values to the reader."""
    is_left = tensor.is_neg() or tensor.is_conj() or tensor._is_zerotensor()
    return is_left or hasattr(tensor, UNSUMMED)


def need_exact(tensor: torch.Tensor, what: str) -> torch.Tensor:
    """Return a tensor that can be read. Raises InexactType for another type."""
    if type(tensor) not in TENSORS:
        raise InexactType(f"{what} is a {type(tensor).__name__}")
    return tensor


def type_of(tensor: torch.Tensor) -> str:
    """Return the name of an output's type. A class of the program may have a name of torch's."""
    name = type(tensor).__name__
    is_own = name in ("Tensor", "Parameter") and type(tensor) not in TENSORS
    return f"{type(tensor).__module__}.{name}" if is_own else name
