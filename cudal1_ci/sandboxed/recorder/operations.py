"""Know which operations of torch round their results, by the operations' names and schemas.

An operation that selects, moves, compares or writes values returns them as they were. Whatever is
not named here rounds, so that an operation of a later torch counts as one that does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

SELECT = """abs amax amin as_strided_scatter cat ceil clamp clamp_max clamp_min clip clone
    constant_pad_nd copysign cummax cummin diag_embed diagonal_scatter embedding fill flip floor
    frac gather hardtanh index index_copy index_fill index_put index_select kthvalue masked_fill
    masked_scatter masked_select max max_pool2d_with_indices max_pool3d_with_indices maximum median
    min minimum mode nan_to_num nanmedian neg permute_copy pixel_shuffle pixel_unshuffle
    put reflection_pad1d reflection_pad2d reflection_pad3d relu repeat replication_pad1d
    replication_pad2d replication_pad3d resolve_conj resolve_neg roll rot90 round scatter
    select_scatter sgn sign slice_scatter sort split_with_sizes_copy stack take threshold topk tril
    triu trunc unfold_copy unique_consecutive unique_dim upsample_nearest1d upsample_nearest2d
    upsample_nearest3d where zero zeros_like"""
WRITE = """arange bernoulli complex cauchy empty empty_like empty_strided exponential eye full
    full_like geometric log_normal multinomial new_empty new_empty_strided new_full new_ones
    new_zeros normal one_hot ones ones_like poisson rand rand_like randint randint_like randn
    randn_like random randperm resize scalar_tensor set uniform zeros"""
EXACT = frozenset(f"{SELECT} {WRITE}".split())
"""Operations whose results hold values that were there before, or that somebody chose."""
ORDERS = frozenset(("sort", "topk", "kthvalue"))
"""Operations that promise no order of equal numbers, unless they are asked to be stable."""
CASTS = frozenset(("_to_copy", "copy"))
"""Operations that round only where the new dtype is shorter."""

STATISTICS = frozenset(("batch_norm", "native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm"))
"""Operations that write running statistics, unmarked in their schemas."""


def name_of(operation: torch._ops.OpOverload) -> str:
    """Return the name that forms of an operation share: `mul` of `aten::mul_.Tensor`."""
    name = operation._schema.name.rpartition("::")[2]
    return name if name.startswith("__") else name.rstrip("_")


def is_view(operation: torch._ops.OpOverload) -> bool:
    """Return whether an operation returns memory of its arguments that it does not write."""
    marks = [one.alias_info for one in operation._schema.returns]
    return any(mark is not None and not mark.is_write for mark in marks)


def writes(operation: torch._ops.OpOverload) -> bool:
    """Return whether an operation may write its arguments."""
    return bool(operation._schema.is_mutable) or name_of(operation) in STATISTICS


def written_by(
    operation: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]
) -> list[Any]:
    """Return the arguments that an operation may write."""
    arguments = operation._schema.arguments
    given = list(zip(arguments, args, strict=False))
    given += [(one, kwargs[one.name]) for one in arguments[len(args) :] if one.name in kwargs]
    marked = [value for one, value in given if one.alias_info and one.alias_info.is_write]
    if name_of(operation) in STATISTICS:
        marked += [value for one, value in given if one.name in ("running_mean", "running_var")]
    return marked


def rounds(operation: torch._ops.OpOverload) -> bool:
    """Return whether an operation may round its results."""
    return name_of(operation) not in EXACT and not is_view(operation)


def sums(operation: torch._ops.OpOverload) -> bool:
    """Return whether an operation may round in between: sums, products of matrices, norms."""
    return torch.Tag.pointwise not in operation.tags and name_of(operation) not in CASTS
