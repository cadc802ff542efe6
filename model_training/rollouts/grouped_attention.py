"""Attention of one new token over what is kept, without copies of the keys and values.

    with grouped_attention(model):
        model(...)

Query heads that share a key and value head are multiplied with it in one product, where
transformers' `sdpa` first writes it out once for each of them (seven times for a Qwen2.5 with 0.5B
parameters). More than one new token goes to `sdpa` as before. A model whose attention is `eager`
keeps it: that may know what `sdpa` does not, such as a cap of the scores.

Shapes: B rows, H query heads, G of them to each of K key and value heads, Q new tokens, L kept
ones, D of a head.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

NAME = "grouped-decoding"


def attend(
    module: torch.nn.Module,
    query_BHQD: torch.Tensor,
    key_BKLD: torch.Tensor,
    value_BKLD: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """[B, Q, H, D] as transformers' attention functions give it, and no weights.

    Args:
        attention_mask: [B, 1, Q, L], to be added to the scores; None where all are looked at.
    """
    num_rows, num_heads, num_new, size = query_BHQD.shape
    if num_new > 1 or others.get("position_bias") is not None:
        found: tuple[torch.Tensor, None] = AttentionInterface()["sdpa"](  # type: ignore[no-untyped-call]
            module,
            query_BHQD,
            key_BKLD,
            value_BKLD,
            attention_mask,
            scaling=scaling,
            **others,
        )
        return found
    factor = size**-0.5 if scaling is None else scaling
    query_BKGD = (query_BHQD * factor).view(num_rows, key_BKLD.shape[1], -1, size)
    scores_BKGL = query_BKGD @ key_BKLD.transpose(2, 3)
    if attention_mask is not None:
        scores_BKGL = scores_BKGL + attention_mask
    weights_BKGL = scores_BKGL.softmax(-1, dtype=torch.float32).to(value_BKLD.dtype)
    mixed_BKGD = weights_BKGL @ value_BKLD
    return mixed_BKGD.reshape(num_rows, 1, num_heads, -1), None


@contextmanager
def grouped_attention(model: Any) -> Iterator[None]:
    """For the time of the block, where the model lets its attention be chosen."""
    before = model.config._attn_implementation
    if before == "eager":
        yield
        return
    AttentionInterface.register(NAME, attend)
    # Masks that a model makes of what it is told of padding are to be added, as `attend` does.
    AttentionMaskInterface.register(NAME, ALL_MASK_ATTENTION_FUNCTIONS["eager"])
    try:
        model.set_attn_implementation(NAME)
        yield
    finally:
        model.set_attn_implementation(before)
