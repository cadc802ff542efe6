"""Compile a forward for inference, and train with the forward as it is.

    class Block(torch.nn.Module):
        @compiled_in_inference
        def forward(self, x): ...

For models whose compiled program is right in inference alone, or whose training must not change.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch


def compiled_in_inference(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a forward for calls under `torch.no_grad` or `torch.inference_mode`."""
    compiled = torch.compile(forward)

    @functools.wraps(forward)
    def called(*args: Any, **kwargs: Any) -> Any:
        return (forward if torch.is_grad_enabled() else compiled)(*args, **kwargs)

    return called
