"""Check, in a runner, whether a call's outputs are memory of their own.

A module's caller may write to its outputs. If an output is a parameter, a buffer or another call's
output, the next answer changes. Views of one result that only this call returned are usual, and are
a matter of the contract. subject.py checks what is shared with inputs.
Not covered: storages that were made again for the same addresses (through DLPack, in the middle of
another one). Also not covered: earlier calls whose outputs are gone already, where tensors are
large.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

import torch

from ..memory.segment import span
from . import module_state

STATE = "state"
EARLIER = "earlier"
WRITTEN = "a write to output"
"""Begins the fact which other outputs of a call a write changes (contract/recipes.py)."""


def shares(
    outputs: Sequence[torch.Tensor],
    module: torch.nn.Module | None,
    earlier: Iterable[list[torch.Tensor]],
) -> list[list[str]]:
    """Return what each output shares its memory with: the module's `STATE`, outputs of `EARLIER`
    calls."""
    lasting: dict[str, set[int | None]] = {
        STATE: set(state_storages(module)),
        EARLIER: {storage_of(one) for some in earlier for one in some},
    }
    places = [storage_of(one) for one in outputs]
    return [
        [kind for kind, known in lasting.items() if place is not None and place in known]
        for place in places
    ]


def joined_gradients(state: Mapping[str, torch.Tensor]) -> list[str]:
    """Return pairs of parameters whose gradients lie in the same memory. A further backward pass
    adds to each gradient in place, and so to both. torch.compile makes such gradients where one is
    a part of the other, as for `pos` and `cls` in `torch.cat((cls, x), 1) + pos`."""
    keys = {id(one): key for key, one in state.items() if type(one) is torch.nn.Parameter}
    spans = []
    with torch._C.DisableTorchFunctionSubclass():
        for one in (state[key] for key in keys.values()):
            if one.grad is not None and storage_of(one.grad) is not None:
                start, width = one.grad.data_ptr(), one.grad.element_size()
                end = start + width * span(one.grad.shape, one.grad.stride())
                spans.append((start, end, keys[id(one)]))
    pairs = itertools.pairwise(sorted(spans))
    return [f"`{key}` and `{other}`" for (_, end, key), (start, _, other) in pairs if start < end]


def state_storages(module: torch.nn.Module | None) -> set[int]:
    """Return the addresses of the storages of all parameters and buffers."""
    state = () if module is None else module_state.tensors_of(module)
    return {found for one in state if (found := storage_of(one)) is not None}


def storage_of(tensor: torch.Tensor) -> int | None:
    """Return the address of a tensor's storage, where it has one and elements in it."""
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    if not plain or tensor.layout != torch.strided or tensor.numel() == 0:
        return None
    return tensor.untyped_storage().data_ptr() or None
