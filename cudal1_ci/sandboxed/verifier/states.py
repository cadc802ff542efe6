"""Make states that are loaded into a module: its own, with numbers in them that are not special.

A program could leave out zero biases and unit scales unseen. So the verifier draws numbers around
them before the first call. It draws others that are loaded after the first calls, as a checkpoint
is.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..wire.tensors import StateSlot

RUNNING_VAR = "running_var"
STATISTICS = ("running_mean", RUNNING_VAR)
"""Buffers of torch's normalizations, by the ends of their keys."""
NEUTRAL_OFF = (0.1, 0.5)
"""By how much a new value of a buffer of zeros or ones differs from it. The difference is plain,
and still fits a mean, a variance, a scale or a probability."""


def randomize(
    slot: StateSlot,
    tensor: torch.Tensor,
    generator: torch.Generator,
    cast: torch.dtype | None = None,
) -> None:
    """Perturb a state tensor in place by a tenth of its spread, or of one where it is constant.
    With autocast's dtype parameters get numbers that it holds (`held_by`).

    Integers, masks and buffers that hold infinities keep their values; a variance stays positive.
    Buffers that are not statistics keep theirs until another state is loaded (`replace_neutral`).
    """
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return
    name = slot.key.rsplit(".", 1)[-1]
    if name == RUNNING_VAR:
        noise = torch.empty(tensor.shape, device=generator.device)
        noise.uniform_(0.5, 1.5, generator=generator)
        tensor.mul_(noise.to(tensor.dtype))
        return
    if not (slot.is_parameter or name in STATISTICS):
        return
    values = tensor.float()
    if not bool(torch.isfinite(values).all()):
        # torch.empty leaves arbitrary values, and a parameter needs a definite one.
        values = torch.zeros_like(values)
    spread = float(values.std()) if values.numel() > 1 else 0.0
    noise = torch.randn(tensor.shape, generator=generator, device=generator.device)
    tensor.copy_(held_by(values + noise * (spread or 1.0) * 0.1, cast))


def held_by(tensor: torch.Tensor, cast: torch.dtype | None) -> torch.Tensor:
    """Return the nearest numbers that autocast's dtype holds, where it has near ones. Its cast
    then loses nothing, and the oracle has the very numbers that the reference computes with. Else a
    ReLU in float64 is open at elements where the reference's is closed."""
    if cast is None or tensor.dtype != torch.float32:
        return tensor
    found = tensor.to(cast).float()
    is_near = (found - tensor).abs() <= torch.finfo(cast).eps * tensor.abs()
    return torch.where(is_near, found, tensor)


def not_held_by(
    tensor: torch.Tensor, cast: torch.dtype | None, generator: torch.Generator
) -> torch.Tensor:
    """Return numbers that autocast casts to those of `held_by`, and that its dtype does not hold: a
    program must not know an examination by them."""
    if cast is None or tensor.dtype != torch.float32:
        return tensor
    noise = torch.empty(tensor.shape, device=generator.device).uniform_(-1, 1, generator=generator)
    return tensor * (1 + noise.to(tensor.device) * torch.finfo(cast).eps / 8)


def other_states(
    slots: Sequence[StateSlot], state: Sequence[torch.Tensor], generator: torch.Generator
) -> list[list[torch.Tensor]]:
    """Return the states that may be loaded after the first calls. In the first all that is
    randomized changes again, and constant buffers too. Where there are such buffers, the second
    leaves them unchanged."""
    other = [tensor.clone() for tensor in state]
    for slot, tensor in zip(slots, other, strict=True):
        randomize(slot, tensor, generator)
    loaded = [tensor.clone() for tensor in other]
    changes = [
        replace_neutral(slot, tensor, generator) for slot, tensor in zip(slots, loaded, strict=True)
    ]
    return [loaded, other] if any(changes) else [other]


def replace_neutral(slot: StateSlot, tensor: torch.Tensor, generator: torch.Generator) -> bool:
    """Put numbers between 0 and 1 into a buffer of zeros or of ones, in place; return whether it is
    one.

    Such a buffer has no effect until a checkpoint is loaded: it is the mean, the scale or the
    running average that training fills. It is part of the state_dict, so a program that leaves it
    out is wrong then. Other buffers (frequency tables, windows, causal masks, an epsilon) are
    constants of the algorithm. A program that has them in another form is right with every
    checkpoint.
    """
    if slot.is_parameter or not tensor.is_floating_point() or tensor.numel() == 0:
        return False
    if slot.key.rsplit(".", 1)[-1] in STATISTICS:
        return False
    first = float(tensor.reshape(-1)[0])
    if first not in (0.0, 1.0) or not bool((tensor.double() == first).all()):
        return False
    amount = torch.empty(tensor.shape, device=generator.device)
    amount.uniform_(*NEUTRAL_OFF, generator=generator)
    tensor.copy_((first - amount).abs())
    return True
