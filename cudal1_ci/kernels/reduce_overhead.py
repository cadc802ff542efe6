"""Compile a forward with CUDA graphs and return copies of its outputs.

    class Block(torch.nn.Module):
        @compiled_with_reduce_overhead
        def forward(self, x): ...

The mode `reduce-overhead` of torch.compile writes each output where the last one was. A copy keeps
what an earlier call returned.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map


def compiled_with_reduce_overhead(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a forward in the mode `reduce-overhead`."""
    compiled = torch.compile(forward, mode="reduce-overhead")

    @functools.wraps(forward)
    def called(*args: Any, **kwargs: Any) -> Any:
        output = compiled(*args, **kwargs)
        if isinstance(output, torch.Tensor):
            return output.clone()
        return tree_map(lambda one: one.clone() if isinstance(one, torch.Tensor) else one, output)

    return called
