"""Compute the loss of stage 3 as the paper writes it, one completion after another.

It shares nothing with the trainer: plain loops over groups, completions and tokens, and the model
called on one unpadded row at a time. Equations 4 and 5 of CUDA-L1 (arXiv 2507.14111).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from model_training.objective.loss import ObjectiveConfig


@dataclass(frozen=True)
class Group:
    """Hold completions of one prompt and their rewards."""

    prompt: Sequence[int]
    completions: Sequence[Sequence[int]]
    rewards: Sequence[float]
    is_masked: Sequence[bool] = field(default=())
    """Completions whose rewards count for the others and which are not learned from."""


LogProbabilities = Callable[[Sequence[int], Sequence[int]], torch.Tensor]
"""Of the tokens of a completion after a prompt."""


def log_probabilities(model: torch.nn.Module, temperature: float) -> LogProbabilities:
    """Ask a model of transformers."""

    def of(prompt: Sequence[int], completion: Sequence[int]) -> torch.Tensor:
        logits = model(torch.tensor([[*prompt, *completion]])).logits[0] / temperature
        before = logits[len(prompt) - 1 : -1].log_softmax(-1)
        return before[range(len(completion)), list(completion)]

    return of


def advantage(rewards: Sequence[float], place: int) -> float:
    """Compare a reward with those of its group."""
    return (rewards[place] - statistics.fmean(rewards)) / (statistics.stdev(rewards) + 1e-4)


def readable_loss(
    groups: Sequence[Group],
    now: LogProbabilities,
    sampled: LogProbabilities | None,
    start: LogProbabilities | None,
    config: ObjectiveConfig,
) -> torch.Tensor:
    """Return equation 5, to be minimized; without `sampled` the policy itself has sampled."""
    learned = [
        (group, place, completion)
        for group in groups
        if len(set(group.rewards)) > 1
        for place, completion in enumerate(group.completions)
    ]
    kept = [one for one in learned if not (one[0].is_masked and one[0].is_masked[one[1]])]
    num_tokens = sum(len(completion) for _, _, completion in kept)
    total = torch.zeros(())
    for group, place, completion in kept:
        logp = now(group.prompt, completion)
        with torch.no_grad():
            before = sampled(group.prompt, completion) if sampled else logp.detach()
            first = start(group.prompt, completion) if start else None
        worth = advantage(group.rewards, place)
        log_ratio = logp - before
        if config.ratio == "sequence":
            log_ratio = log_ratio.sum().expand_as(log_ratio)
        for token in range(len(completion)):
            ratio = log_ratio[token].exp()
            bounded = ratio.clamp(1 - config.low, 1 + config.high)
            gain = torch.min(ratio * worth, bounded * worth)
            if first is not None:
                difference = first[token] - logp[token]
                gain = gain - config.beta * (difference.exp() - difference - 1)
            weight = {
                "completion": 1 / len(completion) / len(learned),
                "token": 1 / num_tokens,
                "constant": 1 / config.max_tokens / len(learned),
            }[config.weighting]
            total = total - gain * weight
    return total
