"""Groups of completions as tensors.

    rows, totals = rows_of(groups, "group_normalized")
    batch = batch_of(rows, pad=0)

Shapes: B completions, P prompt tokens, T completion tokens, L of both. Prompts are padded on the
left and completions on the right, so that they meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from model_training.objective.advantage import ADVANTAGES, AdvantageName
from model_training.objective.loss import Totals


@dataclass(frozen=True, kw_only=True)
class Group:
    """Completions of one prompt, as they were sampled, and what each of them is worth."""

    prompt: tuple[int, ...]
    completions: tuple[tuple[int, ...], ...]
    """Token ids, the end's among them; none is empty."""
    rewards: tuple[float, ...]
    is_masked: tuple[bool, ...] = ()
    """Completions whose reward counts for the others and which are not learned from; empty: none
    is so."""

    def __post_init__(self) -> None:
        if len(self.completions) != len(self.rewards) or not all(self.completions):
            raise ValueError("expected completions of one token or more, each with its reward")
        if self.is_masked and len(self.is_masked) != len(self.completions):
            raise ValueError("expected of every completion whether it is masked, or of none")


@dataclass(frozen=True, kw_only=True)
class Row:
    """A completion that is learned from."""

    prompt: tuple[int, ...]
    completion: tuple[int, ...]
    advantage: float


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Rows as tensors; `place` is where completions begin."""

    tokens_BL: Tensor
    mask_BL: Tensor
    completion_mask_BT: Tensor
    advantages_B: Tensor
    place: int


def rows_of(groups: Sequence[Group], advantage: AdvantageName) -> tuple[list[Row], Totals]:
    """Completions that are learned from, and what the losses of them are divided by: a masked one
    has no tokens there, and is a completion."""
    rows = [
        Row(prompt=one.prompt, completion=text, advantage=value)
        for one in groups
        for text, value, is_masked in zip(
            one.completions,
            ADVANTAGES[advantage](one.rewards),
            one.is_masked or (False,) * len(one.completions),
            strict=True,
        )
        if not is_masked
    ]
    return rows, Totals(
        num_tokens=sum(len(row.completion) for row in rows),
        num_completions=sum(len(one.completions) for one in groups),
    )


def batch_of(rows: Sequence[Row], pad: int, device: torch.device | None = None) -> Batch:
    """Rows beside one another."""
    place = max(len(row.prompt) for row in rows)
    longest = max(len(row.completion) for row in rows)
    tokens, mask = [], []
    for row in rows:
        before, after = place - len(row.prompt), longest - len(row.completion)
        written = len(row.prompt) + len(row.completion)
        tokens.append([*[pad] * before, *row.prompt, *row.completion, *[pad] * after])
        mask.append([*[0] * before, *[1] * written, *[0] * after])
    mask_BL = torch.tensor(mask, device=device)
    return Batch(
        tokens_BL=torch.tensor(tokens, device=device),
        mask_BL=mask_BL,
        completion_mask_BT=mask_BL[:, place:],
        advantages_B=torch.tensor([row.advantage for row in rows], device=device),
        place=place,
    )
