"""The clipped objective of GRPO, CUDA-L1's equation 5, to be minimized.

    ratio    policy over the policy that has sampled: of each token (GRPO), or of the whole
             completion (`sequence`), which is how the paper writes it
    clip     min(ratio A, clip(ratio, 1 - low, 1 + high) A); the paper's are alike, 0.2 and 0.28 of
             DAPO (arXiv 2503.14476) the default here
    KL       to the policy that training began with, by the estimator that is never negative
             (J. Schulman, "Approximating KL divergence", 2020): exp(d) - d - 1

Shapes: B completions, T tokens. A mask is 1 for tokens that the policy has written. What a
completion contributes is `per_completion`: the mean over its own tokens (GRPO as published), all
tokens of the batch alike (`token`, DAPO), or over a constant length (`constant`, Dr. GRPO).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from cudal1_ci.records import Record
from cudal1_ci.records.validation import at_least, positive

Weighting = Literal["completion", "token", "constant"]
Ratio = Literal["token", "sequence"]


class ObjectiveConfig(Record, frozen=True, kw_only=True):
    """Of a run of stage 3."""

    low: float = 0.2
    high: float = 0.28
    beta: float = 0.0
    """Weight of the divergence; the paper has it and does not give it."""
    ratio: Ratio = "token"
    weighting: Weighting = "completion"
    max_tokens: int = 512
    """The constant length, for `constant`."""

    def __post_init__(self) -> None:
        at_least(self, "objective", 1, "max_tokens")
        at_least(self, "objective", 0, "beta")
        positive(self, "objective", "low", "high")


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Of a whole batch, of which a loss may be given a part."""

    num_tokens: int
    """Those that count."""
    num_completions: int


@dataclass(frozen=True, kw_only=True)
class Objective:
    """A loss, and what is watched of it."""

    loss: Tensor
    clipped_share: float
    """Of the tokens, those at which the clip was active."""
    divergence: float
    """Mean over tokens; 0 where there is no reference."""
    ratio: float
    """Mean over tokens: 1 where the policy is the one that has sampled."""


def objective(
    logp_BT: Tensor,
    sampled_logp_BT: Tensor,
    advantages_B: Tensor,
    mask_BT: Tensor,
    config: ObjectiveConfig,
    reference_logp_BT: Tensor | None = None,
    totals: Totals | None = None,
) -> Objective:
    """Of a batch. Log probabilities of the tokens that were sampled: now, when they were sampled,
    and under the policy that training began with, for a divergence with a weight.

    Of a part of a batch, with the batch's totals, it is what that part contributes: the losses of
    all parts add up to that of the batch."""
    mask_BT = mask_BT.to(logp_BT.dtype)
    log_ratio_BT = (logp_BT - sampled_logp_BT.detach()) * mask_BT
    if config.ratio == "sequence":
        # One ratio for all tokens of a completion; each of them has its share of the gradient.
        log_ratio_BT = log_ratio_BT.sum(1, keepdim=True).expand_as(log_ratio_BT)
    ratio_BT = log_ratio_BT.exp()
    bounded_BT = ratio_BT.clamp(1 - config.low, 1 + config.high)
    advantages_B1 = advantages_B.to(logp_BT.dtype).unsqueeze(1)
    gain_BT = torch.minimum(ratio_BT * advantages_B1, bounded_BT * advantages_B1)
    penalty_BT = torch.zeros_like(gain_BT)
    if reference_logp_BT is not None:
        penalty_BT = divergence(logp_BT, reference_logp_BT)
    weights_BT = weights(mask_BT, config, totals)
    loss = -((gain_BT - config.beta * penalty_BT) * weights_BT).sum()
    num_tokens = mask_BT.sum().clamp(min=1)
    is_clipped_BT = (ratio_BT * advantages_B1 > bounded_BT * advantages_B1).to(mask_BT.dtype)
    return Objective(
        loss=loss,
        clipped_share=((is_clipped_BT * mask_BT).sum() / num_tokens).item(),
        divergence=((penalty_BT * mask_BT).sum() / num_tokens).item(),
        ratio=((ratio_BT * mask_BT).sum() / num_tokens).item(),
    )


def weights(mask_BT: Tensor, config: ObjectiveConfig, totals: Totals | None = None) -> Tensor:
    """Of each token in the loss; those of a batch of one kind sum to 1, but for `constant`."""
    totals = totals or Totals(num_tokens=int(mask_BT.sum()), num_completions=mask_BT.shape[0])
    num_completions = totals.num_completions
    if config.weighting == "token":
        return mask_BT / max(totals.num_tokens, 1)
    if config.weighting == "constant":
        return mask_BT / (config.max_tokens * num_completions)
    return mask_BT / mask_BT.sum(1, keepdim=True).clamp(min=1) / num_completions


def divergence(logp_BT: Tensor, reference_logp_BT: Tensor) -> Tensor:
    """An unbiased estimate for each token, never negative."""
    difference_BT = reference_logp_BT.detach() - logp_BT
    return difference_BT.exp() - difference_BT - 1
