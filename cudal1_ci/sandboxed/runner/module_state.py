"""Read what a module holds where torch keeps it, not by the module's own methods.

A program may override `parameters`, `state_dict` or `zero_grad`, which are called outside any
clock. It could do work in them that its timed calls postpone. So they are called only where the
state is more than parameters and buffers, such as packed weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ..memory.layouts import is_ordinary, parts_of
from .exact_types import EMPTY, attributes_of, is_script, items_of

LOADING = ("load_state_dict", "_load_from_state_dict")
LOADING_HOOKS = ("_load_state_dict_pre_hooks", "_load_state_dict_post_hooks")


def passing_of(module: torch.nn.Module) -> set[str]:
    """Return the names of buffers that are not part of the state_dict."""
    if is_script(module):
        return set(module._non_persistent_buffers_set)
    found: set[str] = attributes_of(module)["_non_persistent_buffers_set"]
    return found if type(found) is set else set()


def members(module: torch.nn.Module, prefix: str = "") -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield the module and all below it, with the prefixes of their keys, in torch's order. A
    shared module appears under each of its names."""
    yield prefix, module
    for name, one in items_of(module, "_modules"):
        if one is not None:
            yield from members(one, f"{prefix}{name}.")


def tensors_of(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    """Yield all parameters and buffers, also those that are not part of the state_dict."""
    for _, one in members(module):
        for table in ("_parameters", "_buffers"):
            yield from (tensor for _, tensor in items_of(one, table) if tensor is not None)


def parameters_of(module: torch.nn.Module | None) -> list[torch.nn.Parameter]:
    """Return each parameter once, in torch's order."""
    if module is None:
        return []
    every = [one for _, each in members(module) for _, one in items_of(each, "_parameters")]
    return list({id(one): one for one in every if one is not None}.values())


def is_empty(module: torch.nn.Module) -> bool:
    """Return whether some of the state is not there before a first call."""
    return any(type(one) in EMPTY for one in tensors_of(module))


def forget_gradients(module: torch.nn.Module | None) -> None:
    """Drop gradients, as `zero_grad` does."""
    with torch._C.DisableTorchFunctionSubclass():
        for parameter in parameters_of(module):
            parameter.grad = None


def plain_state(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters and persistent buffers by their keys; shared ones appear under each key.
    This equals `state_dict` of a module that does not override it."""
    found: dict[str, torch.Tensor] = {}
    for prefix, one in members(module):
        passing = passing_of(one)
        lasting = [item for item in items_of(one, "_buffers") if item[0] not in passing]
        for name, tensor in [*items_of(one, "_parameters"), *lasting]:
            if tensor is not None:
                found[prefix + name] = tensor
    return found


def state_dict_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the tensors of `state_dict`. Other extra state is left out."""
    state = module.state_dict(keep_vars=True)
    return {key: t for key, t in state.items() if isinstance(t, torch.Tensor)}


def is_plain(module: torch.nn.Module) -> bool:
    """Return whether its `state_dict` is only parameters and buffers."""
    state, plain = state_dict_of(module), plain_state(module)
    return list(state) == list(plain) and all(state[key] is plain[key] for key in state)


def in_parts(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return a state with views of the parts of sparse and quantized tensors in their place."""
    found = {}
    for key, tensor in state.items():
        if is_ordinary(tensor):
            found[key] = tensor
        else:
            found |= {f"{key}.{name}": part for name, part in parts_of(tensor).items()}
    return found


def has_own_loading(module: torch.nn.Module) -> bool:
    """Return whether code of its own runs when a checkpoint is loaded: hooks, or methods in place
    of torch's."""
    if is_script(module):
        return False
    return any(
        any(attributes_of(one)[hooks] for hooks in LOADING_HOOKS)
        or any(name in attributes_of(one) or is_own(getattr(type(one), name)) for name in LOADING)
        for _, one in members(module)
    )


def is_own(method: Any) -> bool:
    """Return whether a method is not torch's."""
    return not str(getattr(method, "__module__", "")).startswith("torch.")


def load_checkpoint(module: torch.nn.Module, tensors: dict[str, torch.Tensor]) -> None:
    """Load these tensors, and what else its `state_dict` holds, as a user does. The module may
    keep what it gets."""
    held = module.state_dict()
    held |= {key: tensor.clone() for key, tensor in tensors.items() if key in held}
    module.load_state_dict(held)
