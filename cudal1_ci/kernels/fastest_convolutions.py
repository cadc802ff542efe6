"""Let cuDNN choose its fastest convolution algorithms.

    class Block(torch.nn.Module):
        @fastest_convolutions
        def forward(self, x): ...

The first call with each shape times the algorithms. The process's own setting is restored after
each call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch


def fastest_convolutions(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Call a forward with `torch.backends.cudnn.benchmark` switched on."""

    @functools.wraps(forward)
    def tuned(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = torch.backends.cudnn.benchmark
        torch.backends.cudnn.benchmark = True
        try:
            return forward(self, *args, **kwargs)
        finally:
            torch.backends.cudnn.benchmark = before

    return tuned
