"""Count what a call of the reference demands of a device at least: bytes and operations.

One untimed call of the trusted reference is counted. Bytes are those of inputs, parameters, buffers
and outputs, each once: intermediate values can stay on the chip. Operations are those of matrix
products, attention and convolutions, as torch counts them (torch.utils.flop_counter, two for a
multiplication and an addition). Others are few in comparison, and recurrent networks of cuDNN are
not counted, so the demand is a lower bound.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.utils import flop_counter

from ..wire.verdicts import Demand
from .arguments import flatten


def demand_of(call: Callable[[], Any], held: Sequence[torch.Tensor]) -> Demand:
    """Return the demand of a `call`, which computes with the `held` tensors. It includes the
    dtype of the outputs, as hardware differs by it."""
    leave_the_compiler_alone()
    with flop_counter.FlopCounterMode(display=False) as counter:
        returned = call()
    outputs, _ = flatten(returned)
    flops = {"product": 0, "convolution": 0}
    for operator, count in counter.get_flop_counts().get("Global", {}).items():
        kind = "convolution" if "conv" in str(operator) else "product"
        flops[kind] += int(count)
    floating = [tensor.dtype for tensor in (*outputs, *held) if tensor.is_floating_point()]
    return Demand(
        num_bytes=num_bytes([*held, *outputs]),
        product_flops=flops["product"],
        convolution_flops=flops["convolution"],
        dtype=str(floating[0]).removeprefix("torch.") if floating else "none",
    )


def leave_the_compiler_alone() -> None:
    """Mark torch's counter so that torch does not import its compiler. torch excludes the
    counter from compilation, and imports the compiler to do so. That takes a second, and several
    with other verifiers on a GPU. A process that has not imported the compiler compiles nothing
    (torch/_compile.py)."""
    counts = getattr(flop_counter, "_FlopCounterMode", flop_counter.FlopCounterMode)
    function = getattr(getattr(counts, "__torch_dispatch__", None), "__wrapped__", None)
    if function is not None and "torch._dynamo" not in sys.modules:
        setattr(function, "__dynamo_disable", function)


def num_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Return the bytes of the elements that tensors hold; tensors at one address count once.
    Their storage is larger: inputs are parts of one piece of memory."""
    sizes: dict[tuple[torch.device, int], int] = {}
    for tensor in tensors:
        axes = zip(tensor.shape, tensor.stride(), strict=True)
        num_elements = math.prod(n for n, stride in axes if stride or not n)
        place = tensor.device, tensor.data_ptr()
        sizes[place] = max(sizes.get(place, 0), num_elements * tensor.element_size())
    return sum(sizes.values())
