"""Find what the values of a tensor keep to, by names that a workload may state too.

    sorted, descending   no row falls, or rises
    unique               no row holds a number twice
    permutation          a row holds each of 0, 1, ... once
    prefix               true, and then false to the end of a row
    offsets              from 0, never falling
    pairs                of four numbers the first two are less than the others: corners of boxes
    shares               no number is negative, and a row of several sums to one
    definite             square matrices are symmetric and positive definite, and not diagonal

Only what values have hardly ever by chance is found. Two names are only stated. `range`: no other
values are tried than those from the lowest to the highest. `flags`: floats are 0 or 1, which is
also taken from the name of an argument (verifier/invariants.py).
"""

from __future__ import annotations

import torch

FEWEST = 4
"""Numbers in a row, or rows: three are in order by chance."""
MOST_ELEMENTS = 2**16
"""Elements of a tensor's first rows that are examined."""
MOST_ROWS = 1024
"""Rows of a matrix that is factorized here."""
FEWEST_REPEATS = 3.0
"""Numbers that rows without any would hold twice by chance, at the least."""
SUM_EPS = 16.0
"""Deviation of a sum from one, in units of the dtype's epsilon and of the root of its length."""


def invariants_of(tensor: torch.Tensor) -> list[str]:
    """Return the names of what a tensor's values keep to."""
    dtype = tensor.dtype
    if tensor.dim() == 0 or tensor.is_complex() or tensor.device.type == "meta":
        return []
    if not tensor.numel() or (dtype.is_floating_point and dtype.itemsize < 2):
        return []
    with torch.no_grad():
        rows = first_rows(tensor.detach())
        if dtype == torch.bool:
            return ["prefix"] if is_prefix(rows.to(torch.uint8)) else []
        found = of_floats(rows) if dtype.is_floating_point else of_whole_numbers(rows, tensor)
        found["definite"] = dtype.is_floating_point and is_definite(tensor.detach())
        return [name for name, holds in found.items() if holds]


def first_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Return the first rows, as a matrix."""
    rows = tensor.reshape(-1, tensor.shape[-1])
    return rows[: max(1, MOST_ELEMENTS // max(1, rows.shape[1]))]


def of_floats(rows: torch.Tensor) -> dict[str, bool]:
    """Return which names hold for rows of floats."""
    rises, falls = steps_in(rows)
    is_box = rows.shape[1] == 4 and len(rows) >= FEWEST
    is_long = rows.shape[1] >= FEWEST
    return {
        "sorted": is_long and rises and not falls,
        "descending": is_long and falls and not rises,
        "pairs": is_box and bool((rows[:, :2] < rows[:, 2:]).all()),
        "shares": rows.shape[1] > 1 and is_shares(rows),
    }


def is_definite(tensor: torch.Tensor) -> bool:
    """Return whether matrices are symmetric and positive definite, and have other elements than
    those of the diagonal."""
    size = tensor.shape[-1]
    if tensor.dim() < 2 or tensor.shape[-2] != size or not FEWEST <= size <= MOST_ROWS:
        return False
    matrices = tensor.reshape(-1, size, size)[: max(1, MOST_ELEMENTS // size**2)].double()
    near = SUM_EPS * torch.finfo(tensor.dtype).eps * matrices.abs().amax((1, 2), keepdim=True)
    if not bool(((matrices - matrices.mT).abs() <= near).all()):
        return False
    is_mixed = matrices.count_nonzero((1, 2)) > size
    return bool((is_mixed & (torch.linalg.cholesky_ex(matrices).info == 0)).all())


def is_shares(rows: torch.Tensor) -> bool:
    """Return whether rows are not negative and sum to one, of more than one number each."""
    if not bool((rows >= 0).all() & ((rows > 0).sum(1) > 1).all()):
        return False
    near = SUM_EPS * torch.finfo(rows.dtype).eps * rows.shape[1] ** 0.5
    return bool(((rows.double().sum(1) - 1).abs() <= near).all())


def of_whole_numbers(rows: torch.Tensor, tensor: torch.Tensor) -> dict[str, bool]:
    """Return which names hold for rows of whole numbers."""
    rows = rows.to(torch.int64)
    length = rows.shape[1]
    is_long = length >= FEWEST
    rises, falls = steps_in(rows)
    is_sorted = is_long and rises and not falls
    ordered = rows.sort(1).values
    is_permutation = is_long and bool((ordered == torch.arange(length, device=rows.device)).all())
    starts = tensor.dim() == 1 and int(rows[0, 0]) == 0
    return {
        "offsets": is_sorted and starts and not is_permutation,
        "sorted": is_sorted and not starts,
        "descending": is_long and falls and not rises,
        "unique": not is_permutation and is_unique(ordered),
        "permutation": is_permutation and not is_sorted,
        "prefix": is_prefix(rows),
    }


def steps_in(rows: torch.Tensor) -> tuple[bool, bool]:
    """Return whether a row rises anywhere, and whether one falls."""
    before, after = rows[:, :-1], rows[:, 1:]
    return bool((after > before).any()), bool((after < before).any())


def is_unique(ordered: torch.Tensor) -> bool:
    """Return whether rows, in order, hold no number twice, of so few numbers that random ones
    would."""
    count, length = ordered.shape
    low, high = (int(one) for one in torch.aminmax(ordered))
    expected = count * length * (length - 1) / 2 / (high - low + 1)
    return expected >= FEWEST_REPEATS and bool((ordered[:, 1:] != ordered[:, :-1]).all())


def is_prefix(rows: torch.Tensor) -> bool:
    """Return whether rows are ones and then zeros, and some have both."""
    if rows.shape[1] < FEWEST or not bool(((rows == 0) | (rows == 1)).all()):
        return False
    rises, falls = steps_in(rows)
    return falls and not rises
