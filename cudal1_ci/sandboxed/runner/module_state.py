"""What a module holds, read where torch keeps it and not by the module's own methods.

A program may override `parameters`, `state_dict` or `zero_grad`, and do in them the work that its
timed calls put off: they are asked for outside of any clock. So they are asked only where the state
is more than parameters and buffers, as packed weights are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch


def kept(module: torch.nn.Module, name: str) -> Any:
    """One of the tables of a module: not by a property that its class may have of that name.
    TorchScript has them in C++."""
    if isinstance(module, torch.jit.ScriptModule):
        return getattr(module, name)
    return vars(module)[name]


def members(module: torch.nn.Module, prefix: str = "") -> Iterator[tuple[str, torch.nn.Module]]:
    """The module and all below it with the prefixes of their keys, in torch's order; one that is
    shared under each of its names."""
    yield prefix, module
    for name, one in kept(module, "_modules").items():
        if one is not None:
            yield from members(one, f"{prefix}{name}.")


def tensors_of(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    """All parameters and buffers, those that are not part of the state_dict too."""
    for _, one in members(module):
        for table in ("_parameters", "_buffers"):
            yield from (tensor for tensor in kept(one, table).values() if tensor is not None)


def parameters_of(module: torch.nn.Module | None) -> list[torch.nn.Parameter]:
    """Each once, in torch's order."""
    if module is None:
        return []
    every = [one for _, each in members(module) for one in kept(each, "_parameters").values()]
    return list({id(one): one for one in every if one is not None}.values())


def forget_gradients(module: torch.nn.Module | None) -> None:
    """As `zero_grad` does."""
    for parameter in parameters_of(module):
        parameter.grad = None


def plain_state(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers that last by their keys, those that are shared under each of theirs:
    what `state_dict` says of a module that says nothing of its own."""
    found: dict[str, torch.Tensor] = {}
    for prefix, one in members(module):
        passing = kept(one, "_non_persistent_buffers_set")
        lasting = [item for item in kept(one, "_buffers").items() if item[0] not in passing]
        for name, tensor in [*kept(one, "_parameters").items(), *lasting]:
            if tensor is not None:
                found[prefix + name] = tensor
    return found


def told_state(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """What `state_dict` says; other extra state does not travel."""
    state = module.state_dict(keep_vars=True)
    return {key: t for key, t in state.items() if isinstance(t, torch.Tensor)}


def is_plain(module: torch.nn.Module) -> bool:
    """Whether its `state_dict` is parameters and buffers alone."""
    told, plain = told_state(module), plain_state(module)
    return list(told) == list(plain) and all(told[key] is plain[key] for key in told)
