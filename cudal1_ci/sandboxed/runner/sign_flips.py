"""Turn around the vectors of decompositions that are made in calls, at random.

A singular vector or an eigenvector times -1 is one too (times any complex number of size 1, of
complex matrices), and so are the pairs of factors of a QR decomposition. An output that turns with
them has no sign that anything promises (verifier/signs.py). Only references are called so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

Parts = tuple[torch.Tensor, ...]


class SignFlips(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Turn the vectors of every decomposition in its scope."""

    def __init__(self, seed: int):
        super().__init__()  # type: ignore[no-untyped-call]
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        turn = TURNS.get(func._schema.name)
        return found if turn is None else turn(found, self.factors)

    def factors(self, like: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        """Return random numbers of size 1."""
        angles = torch.rand(shape, generator=self.generator)
        if like.is_complex():
            angles = angles * 2 * math.pi
            return torch.polar(torch.ones_like(angles), angles).to(like.device, like.dtype)
        return torch.where(angles < 0.5, -1.0, 1.0).to(like.device, like.dtype)


Factors = Callable[[torch.Tensor, tuple[int, ...]], torch.Tensor]


def turn_pairs(left: torch.Tensor, right: torch.Tensor, factors: Factors) -> Parts:
    """Turn columns of the left factor, and rows of the right one against them."""
    if not left.numel() or not right.numel():  # one was not asked for
        return left, right
    count = min(left.shape[-1], right.shape[-2])
    turned = factors(left, (*left.shape[:-2], count))
    left, right = left.clone(), right.clone()
    left[..., :count] *= turned.unsqueeze(-2)
    right[..., :count, :] *= turned.conj_physical().unsqueeze(-1)
    return left, right


def turn_svd(found: Parts, factors: Factors) -> Parts:
    u, s, vh = found
    u, vh = turn_pairs(u, vh, factors)
    return u, s, vh


def turn_qr(found: Parts, factors: Factors) -> Parts:
    q, r = found
    return turn_pairs(q, r, factors)


def turn_columns(found: Parts, factors: Factors) -> Parts:
    """Turn eigenvectors."""
    values, vectors = found
    if not vectors.numel():
        return found
    shape = (*vectors.shape[:-2], vectors.shape[-1])
    return values, vectors * factors(vectors, shape).unsqueeze(-2)


TURNS: dict[str, Callable[[Parts, Factors], Parts]] = {
    "aten::_linalg_svd": turn_svd,
    "aten::linalg_qr": turn_qr,
    "aten::_linalg_eigh": turn_columns,
    "aten::linalg_eig": turn_columns,
}
