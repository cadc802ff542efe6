"""Gradients that a backward pass starts from: those of a loss that is another one at every call.

They are drawn ahead of a batch, out of its time, from a seed that the judge sends just then. The
same for every program; were they the same at every call, what follows from them and the weights
alone could be kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


class Cotangents:
    """For each call of a batch, by its position, a tensor like each of its outputs."""

    def __init__(self) -> None:
        self.seeds: list[int] = [0]
        self.drawn: list[list[torch.Tensor]] = [[]]

    def renew(self, seeds: Sequence[int]) -> None:
        """Other ones for as many calls, of the forms that outputs had before."""
        self.seeds = list(seeds)
        forms = self.drawn[0]
        del self.drawn[len(seeds) :]
        while len(self.drawn) < len(seeds):
            self.drawn.append([torch.empty_like(one) for one in forms])
        for seed, tensors in zip(self.seeds, self.drawn, strict=True):
            for leaf, tensor in enumerate(tensors):
                draw(tensor, seed + leaf)

    def of(self, leaves: Sequence[torch.Tensor], position: int) -> list[torch.Tensor]:
        """Those of a call whose outputs are known."""
        tensors = self.drawn[position]
        for leaf, like in enumerate(leaves):
            is_new = leaf >= len(tensors)
            if is_new or tensors[leaf].shape != like.shape or tensors[leaf].dtype != like.dtype:
                del tensors[leaf:]
                tensors.append(torch.empty(like.shape, dtype=like.dtype, device=like.device))
                draw(tensors[leaf], self.seeds[position] + leaf)
        return tensors[: len(leaves)]


def draw(tensor: torch.Tensor, seed: int) -> None:
    """Numbers between -1 and 1, the same in every precision but for its rounding."""
    generator = torch.Generator(tensor.device).manual_seed(seed)
    numbers = torch.empty(tensor.shape, dtype=torch.float32, device=tensor.device)
    tensor.copy_(numbers.uniform_(-1.0, 1.0, generator=generator))
