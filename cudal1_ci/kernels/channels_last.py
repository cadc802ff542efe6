"""Run a module's convolutions in channels-last memory format.

    class Block(torch.nn.Module):
        def __init__(self):
            ...
            convolutions_to_channels_last(self)

        @with_channels_last_inputs
        def forward(self, x): ...

What the module returns is contiguous, as before.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map

MEMORY_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
CONVOLUTIONS = (
    torch.nn.Conv2d,
    torch.nn.Conv3d,
    torch.nn.ConvTranspose2d,
    torch.nn.ConvTranspose3d,
)


def convolutions_to_channels_last(module: torch.nn.Module) -> None:
    """Store the weights of a module's convolutions in channels-last order."""
    for part in module.modules():
        if isinstance(part, CONVOLUTIONS):
            part.to(memory_format=MEMORY_FORMATS[part.weight.dim()])  # type: ignore[call-overload]


def with_channels_last_inputs(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Call a forward with images and volumes in channels-last order."""

    @functools.wraps(forward)
    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        converted = [
            one.contiguous(memory_format=MEMORY_FORMATS[one.dim()])
            if isinstance(one, torch.Tensor) and one.dim() in MEMORY_FORMATS
            else one
            for one in args
        ]
        output = forward(self, *converted, **kwargs)
        if isinstance(output, torch.Tensor):
            return output.contiguous()
        return tree_map(
            lambda one: one.contiguous() if isinstance(one, torch.Tensor) else one, output
        )

    return called
