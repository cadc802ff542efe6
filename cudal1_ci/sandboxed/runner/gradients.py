"""Find which inputs and parameters gradients reach, in the runner that makes the call
(verifier/gradient_flow.py)."""

from __future__ import annotations

import torch

from ..wire.runner import Reached
from .arguments import flatten
from .subject import Subject


def reached(subject: Subject, number: int) -> Reached:
    """Return names of the inputs and parameters that a gradient reaches from the outputs of a
    call on an input set. Inputs are numbered among all tensors of the call."""
    inputs = {
        f"input {place}": one
        for place, one in enumerate(subject.inputs[number])
        if one.is_floating_point()
    }
    sources = dict(inputs)
    if subject.module is not None:
        named = subject.module.named_parameters()
        sources |= {name: one for name, one in named if one.requires_grad}
    for one in inputs.values():
        one.requires_grad_(True)
    try:
        with torch.enable_grad():
            leaves = [one for one in flatten(subject.run(number))[0] if one.requires_grad]
        if not leaves or not sources:
            return Reached(names=())
        weights = [torch.ones_like(one) for one in leaves]
        found = torch.autograd.grad(leaves, list(sources.values()), weights, allow_unused=True)
    finally:
        for one in inputs.values():
            one.requires_grad_(False)
    pairs = zip(sources, found, strict=True)
    return Reached(names=tuple(name for name, gradient in pairs if gradient is not None))
