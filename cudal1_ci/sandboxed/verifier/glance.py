"""Look at all outputs of a trial at once.

The gradients of a model are hundreds of tensors. On a GPU each operation on one of them is a
launch, and each number that is read waits for the device. What is asked of every output, its
magnitude and the reference's largest error, takes a few launches here and one wait.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from .magnitude import FILL_LEAST, most_elements, widen

GROUP_SHARE = 8
"""A group has at most an eighth of a piece's elements (magnitude.py), as several copies of them
exist at a time."""


@dataclass(frozen=True)
class Glance:
    """An output whose elements are finite, and none of which may be a mask's (magnitude.py)."""

    root_mean_square: float
    """Of the oracle's elements,"""
    largest: float
    """and their largest size."""
    error: float
    """Largest absolute difference of the reference from its oracle."""


def glances(
    ours: Sequence[torch.Tensor], exact: Sequence[torch.Tensor], device: torch.device
) -> list[Glance | None]:
    """Return what is seen of each output; None for one that is to be looked at by itself: it is
    elsewhere or large, holds no floats, numbers that are not finite, or what may be a mask's."""
    found: list[Glance | None] = [None] * len(ours)
    for numbers in groups(ours, exact, device):
        truths = [widen(exact[number]) for number in numbers]
        gaps = torch._foreach_sub([widen(ours[number]) for number in numbers], truths)
        rows = (
            torch._foreach_norm(truths),
            torch._foreach_norm(truths, torch.inf),
            torch._foreach_norm(gaps, torch.inf),
        )
        seen = torch.stack([torch.stack(row) for row in rows]).tolist()
        for number, norm, largest, error in zip(numbers, *seen, strict=True):
            rms = norm / math.sqrt(exact[number].numel())
            is_plain = math.isfinite(norm) and math.isfinite(error)
            if is_plain and (rms < 1 or largest < FILL_LEAST):
                found[number] = Glance(rms, largest, error)
    return found


def groups(
    ours: Sequence[torch.Tensor], exact: Sequence[torch.Tensor], device: torch.device
) -> Iterator[list[int]]:
    """Yield numbers of outputs that may be looked at together."""
    numbers: list[int] = []
    count = 0
    for number, (one, other) in enumerate(zip(ours, exact, strict=True)):
        size = one.numel()
        most = most_elements(one, device) // GROUP_SHARE
        is_one = one.is_floating_point() and other.is_floating_point() and one.shape == other.shape
        if not is_one or not 0 < size <= most or not one.device == other.device == device:
            continue
        if numbers and count + size > most:
            yield numbers
            numbers, count = [], 0
        numbers.append(number)
        count += size
    if numbers:
        yield numbers
