"""Measure how large a tensor's elements are, which tolerances follow.

A mask writes one large number into places of its own (-1e9, or the least number of the dtype). It
has no relation to the other elements, so the magnitude of such a tensor is that of the rest.
Otherwise scores of attention could be anything. A mask has properties that no computed values have.
Several of its elements are equal. They are a thousand or more, and a thousand times the magnitude
of all smaller ones. A few such numbers may be in one tensor (a mask for padding and another for the
future, and their sum).
Not covered: computed values of very different sizes in one tensor. Small ones may be differences of
large ones there, and an honest order of sums is as far off as the large ones are rounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

PIECE_ELEMENTS = {"cpu": 2**17, "cuda": 2**26}
"""In float64 a megabyte, which stays in a processor's cache, and half a gigabyte."""
FILL_LEAST = 1e3
"""Least size of a mask's number, and of its ratio to the rest: functions that saturate stop at
one."""
FILL_SPREAD = 1e-2
"""Relative spread of a mask's elements. What is masked may have been added to the number, in a
short float."""
MOST_FILLS = 3
"""Most numbers of masks in one tensor."""


@dataclass(frozen=True)
class Magnitude:
    """The magnitude of a tensor's elements, without a mask's."""

    root_mean_square: float
    below: float = math.inf
    """Elements of this size or larger are a mask's."""


def magnitude(tensor: torch.Tensor, device: torch.device | None = None) -> float:
    """Return the root mean square of the finite elements that are not a mask's."""
    return measure(tensor, device).root_mean_square


def measure(tensor: torch.Tensor, device: torch.device | None = None) -> Magnitude:
    """Return the magnitude, and the size from which on elements are a mask's. The computation is
    on `device`, where the tensor need not be."""
    whole = Magnitude(root_mean_square(tensor, device))
    # Every mask's number is larger than the magnitude, and no element is larger than the norm.
    norm = whole.root_mean_square * math.sqrt(tensor.numel())
    if whole.root_mean_square < 1 or norm < FILL_LEAST:
        return whole
    edge = math.inf
    for _ in range(MOST_FILLS):
        top = look(tensor, edge, device).largest
        if top < FILL_LEAST:
            break
        upper, edge = edge, top * (1 - FILL_SPREAD)
        rest = look(tensor, edge, device)
        if rest.count == 0 or look(tensor, upper, device).count - rest.count < 2:
            break
        if edge >= FILL_LEAST * rest.root_mean_square:
            return Magnitude(rest.root_mean_square, edge)
    return whole


@dataclass(frozen=True)
class Look:
    """Statistics of the elements that are smaller than some number."""

    root_mean_square: float
    count: int
    largest: float


def look(tensor: torch.Tensor, below: float, device: torch.device | None) -> Look:
    """Measure the finite elements below a number."""
    total, count, largest = 0.0, 0, 0.0
    for piece in pieces(tensor, device):
        sizes = widen(piece).abs()
        sizes = sizes[sizes < below]
        if sizes.numel():
            total += square_sum(sizes)
            count += sizes.numel()
            largest = max(largest, float(sizes.max()))
    return Look(math.sqrt(total / count) if count else 0.0, count, largest)


def root_mean_square(tensor: torch.Tensor, device: torch.device | None = None) -> float:
    """Return the root mean square of the finite elements, with those of a mask."""
    total, count = 0.0, 0
    for piece in pieces(tensor, device):
        squares, number = square_sum(piece), piece.numel()
        if not math.isfinite(squares):
            values = piece[torch.isfinite(piece)]
            squares, number = square_sum(values), values.numel()
        total += squares
        count += number
    return math.sqrt(total / count) if count else 0.0


def square_sum(values: torch.Tensor) -> float:
    """Return the sum of squares in float64, without a copy of the floats in it; infinite where
    float64 overflows."""
    dtype = torch.complex128 if values.is_complex() else torch.float64
    floats = values if values.is_floating_point() and values.itemsize > 1 else widen(values)
    norm = float(torch.linalg.vector_norm(floats, dtype=dtype))
    return norm * norm


def pieces(tensor: torch.Tensor, device: torch.device | None = None) -> Iterator[torch.Tensor]:
    """Yield a tensor's elements in pieces, on the device of the comparison. The comparison takes
    several times the memory of its elements, in twice the precision, and a tensor of gigabytes
    leaves no room for it."""
    most = most_elements(tensor, device)
    split = [tensor]
    if tensor.numel() > most:
        split = list(torch.split(tensor.reshape(-1), most))
    return (one if device is None else one.to(device) for one in split)


def most_elements(tensor: torch.Tensor, device: torch.device | None) -> int:
    """Return the number of elements in a piece."""
    return PIECE_ELEMENTS["cpu" if (device or tensor.device).type == "cpu" else "cuda"]


def widen(tensor: torch.Tensor) -> torch.Tensor:
    """Convert to float64 (or complex128), where differences are exact enough."""
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)
