"""Put outputs whose shape depends on values into places of a fixed size: the shape, then the
elements in a row (verifier/value_shapes.py)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

MOST_DIMENSIONS = 8
NUM_NUMBERS = 1 + MOST_DIMENSIONS
"""The number of dimensions, and the sizes."""


def in_rows(leaves: Sequence[torch.Tensor], bounded: Collection[int]) -> list[torch.Tensor]:
    """Return a call's outputs as their places hold them.

    Raises:
        ValueError: An output has too many dimensions.
    """
    found: list[torch.Tensor] = []
    for leaf, tensor in enumerate(leaves):
        if leaf not in bounded:
            found.append(tensor)
            continue
        if tensor.dim() > MOST_DIMENSIONS:
            raise ValueError(f"output {leaf} of a timed call has {tensor.dim()} dimensions")
        numbers = torch.zeros(NUM_NUMBERS, dtype=torch.int64)
        numbers[: 1 + tensor.dim()] = torch.tensor([tensor.dim(), *tensor.shape])
        found += [numbers, tensor.reshape(-1)]
    return found


def fitted(
    places: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return places and tensors of the same lengths: of a longer row only its beginning is
    copied, as its shape shows that it is longer."""
    pairs = [
        (place, tensor)
        if place.shape == tensor.shape
        else (place[: len(tensor)], tensor[: len(place)])
        for place, tensor in zip(places, tensors, strict=True)
    ]
    return [place for place, _ in pairs], [tensor for _, tensor in pairs]
