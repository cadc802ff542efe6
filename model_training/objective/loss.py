"""Compute the clipped objective of GRPO, CUDA-L1's equation 5, to be minimized.

    ratio    policy over the policy that sampled: of each token (GRPO), or of the whole completion
             (`sequence`), which is how the paper writes it
    clip     min(ratio A, clip(ratio, 1 - low, 1 + high) A); the paper has 0.2 on both sides, 0.28
             of DAPO (arXiv 2503.14476) is the upper default here
    KL       to the policy that training began with, by the estimator that is never negative
             (J. Schulman, "Approximating KL divergence", 2020): exp(d) - d - 1

Shapes: B completions, T tokens. A mask is 1 for tokens that are learned from. A completion
contributes the mean over its own tokens (`completion`, GRPO as published), all tokens of the batch
equally (`token`, DAPO), or its sum over a constant length (`constant`, Dr. GRPO).
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
    """Configure equation 5."""

    low: float = 0.2
    high: float = 0.28
    beta: float = 0.0
    """Weight of the divergence; the paper has one and does not give it."""
    ratio: Ratio = "token"
    weighting: Weighting = "completion"
    max_tokens: int = 512
    """The constant length, for `constant`."""

    def __post_init__(self) -> None:
        at_least(self, "objective", 1, "max_tokens")
        at_least(self, "objective", 0, "beta")
        positive(self, "objective", "low", "high")


@dataclass(frozen=True, kw_only=True)
class Objective:
    """Hold a loss and the means over tokens that are watched."""

    loss: Tensor
    clipped_share: float
    """Share of the tokens at which the clip was active."""
    divergence: float
    """0 where there is no reference."""
    ratio: float
    """1 where the policy is the one that sampled."""


def token_weights(mask_BT: Tensor, config: ObjectiveConfig, num_completions: int) -> Tensor:
    """Return the weight of each token in the loss of a whole batch.

    Args:
        num_completions: Completions of the batch; a masked one counts as well.
    """
    mask_BT = mask_BT.float()
    if config.weighting == "token":
        return mask_BT / mask_BT.sum().clamp(min=1)
    if config.weighting == "constant":
        return mask_BT / (config.max_tokens * max(num_completions, 1))
    return mask_BT / mask_BT.sum(1, keepdim=True).clamp(min=1) / max(num_completions, 1)


def objective(
    logp_BT: Tensor,
    sampled_logp_BT: Tensor,
    advantages_B: Tensor,
    mask_BT: Tensor,
    weights_BT: Tensor,
    config: ObjectiveConfig,
    start_logp_BT: Tensor | None = None,
) -> Objective:
    """Compute equation 5 for some completions of a batch; the losses of all parts add up.

    Args:
        logp_BT: Log probabilities of the sampled tokens under the policy now.
        sampled_logp_BT: The same when they were sampled.
        weights_BT: Their weights in the loss of the whole batch (`token_weights`).
        start_logp_BT: The same under the policy that training began with.
    """
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
    if start_logp_BT is not None:
        penalty_BT = divergence(logp_BT, start_logp_BT)
    is_clipped_BT = (ratio_BT * advantages_B1 > bounded_BT * advantages_B1).to(mask_BT.dtype)
    return Objective(
        loss=-((gain_BT - config.beta * penalty_BT) * weights_BT).sum(),
        clipped_share=mean_of(is_clipped_BT, mask_BT),
        divergence=mean_of(penalty_BT, mask_BT),
        ratio=mean_of(ratio_BT, mask_BT),
    )


def divergence(logp_BT: Tensor, start_logp_BT: Tensor) -> Tensor:
    """Estimate the divergence at each token without bias; never negative."""
    difference_BT = start_logp_BT.detach() - logp_BT
    return difference_BT.exp() - difference_BT - 1


def mean_of(values_BT: Tensor, mask_BT: Tensor) -> float:
    """Return the mean over the tokens of a mask, 0 where it is empty."""
    return ((values_BT * mask_BT).sum() / mask_BT.sum().clamp(min=1)).item()
