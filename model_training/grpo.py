"""One step of GRPO, to be read: groups of completions and their rewards in, better weights out.

    metrics = step(policy, optimizer, groups, config)

Stage 3 trains with TRL's trainer where that is installed; this is the reference that it is compared
with, and the engine of tests on a CPU. A policy is anything that gives the log probabilities of the
tokens of a completion.

Shapes: B completions of all groups, P prompt tokens, T completion tokens, V words. Prompts are
padded on the left and completions on the right, so that they meet.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from model_training.objective.advantage import ADVANTAGES, AdvantageName, is_silent
from model_training.objective.loss import ObjectiveConfig, objective


class Policy(Protocol):
    """A language model with weights that are trained."""

    def logits(self, tokens_BL: Tensor, mask_BL: Tensor) -> Tensor:
        """Of the next token at each place: B, L, V. Masked places are not attended to."""
        ...

    def parameters(self) -> Sequence[torch.nn.Parameter]:
        """Those that are trained."""
        ...


@dataclass(frozen=True, kw_only=True)
class Group:
    """Completions of one prompt, as they were sampled, and what each of them is worth."""

    prompt: tuple[int, ...]
    completions: tuple[tuple[int, ...], ...]
    """Token ids, the end's among them; none is empty."""
    rewards: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.completions) != len(self.rewards) or not all(self.completions):
            raise ValueError("expected completions of one token or more, each with its reward")


@dataclass(frozen=True, kw_only=True)
class GrpoConfig:
    """Of a step."""

    advantage: AdvantageName = "group_normalized"
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    num_updates: int = 1
    """Of the weights with the same completions; the ratio is 1 in the first."""
    max_grad_norm: float = 0.2
    drops_silent: bool = True
    """Whether groups that say nothing leave the batch; else they count in its mean, as nothing."""


@dataclass(frozen=True, kw_only=True)
class StepMetrics:
    """What is watched; means over all completions but where something else is said."""

    reward: float
    reward_spread: float
    silent_share: float
    """Of the groups."""
    num_tokens: int
    loss: float
    clipped_share: float
    divergence: float
    grad_norm: float
    """Before it was clipped; the last of the updates."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Groups as tensors; `place` is where completions begin."""

    tokens_BL: Tensor
    mask_BL: Tensor
    completion_mask_BT: Tensor
    advantages_B: Tensor
    place: int


def step(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    groups: Sequence[Group],
    config: GrpoConfig,
    *,
    reference: Policy | None = None,
    pad: int = 0,
) -> StepMetrics:
    """Improve the policy on these groups. Where all of them are silent, nothing changes.

    `reference` is the policy that training began with; needed for a divergence with a weight.
    """
    kept = [one for one in groups if not (config.drops_silent and is_silent(one.rewards))]
    loss = clipped = pulled = norm = 0.0
    num_tokens = 0
    if kept:
        batch = batch_of(kept, config.advantage, pad)
        num_tokens = int(batch.completion_mask_BT.sum())
        with torch.no_grad():
            sampled_BT = log_probabilities(policy, batch)
            first_BT = None if reference is None else log_probabilities(reference, batch)
        for _ in range(config.num_updates):
            found = objective(
                log_probabilities(policy, batch),
                sampled_BT,
                batch.advantages_B,
                batch.completion_mask_BT,
                config.objective,
                first_BT,
            )
            optimizer.zero_grad()
            found.loss.backward()  # type: ignore[no-untyped-call]
            norm = float(torch.nn.utils.clip_grad_norm_(policy.parameters(), config.max_grad_norm))
            optimizer.step()
            loss, clipped, pulled = found.loss.item(), found.clipped_share, found.divergence
    rewards = [reward for one in groups for reward in one.rewards]
    return StepMetrics(
        reward=statistics.fmean(rewards),
        reward_spread=statistics.pstdev(rewards),
        silent_share=sum(is_silent(one.rewards) for one in groups) / len(groups),
        num_tokens=num_tokens,
        loss=loss,
        clipped_share=clipped,
        divergence=pulled,
        grad_norm=norm,
    )


def batch_of(groups: Sequence[Group], advantage: AdvantageName, pad: int) -> Batch:
    """All completions of all groups beside one another."""
    place = max(len(one.prompt) for one in groups)
    longest = max(len(text) for one in groups for text in one.completions)
    tokens, mask = [], []
    for one in groups:
        before = place - len(one.prompt)
        for text in one.completions:
            after = longest - len(text)
            tokens.append([*[pad] * before, *one.prompt, *text, *[pad] * after])
            mask.append([*[0] * before, *[1] * (len(one.prompt) + len(text)), *[0] * after])
    mask_BL = torch.tensor(mask)
    advantages = [value for one in groups for value in ADVANTAGES[advantage](one.rewards)]
    return Batch(
        tokens_BL=torch.tensor(tokens),
        mask_BL=mask_BL,
        completion_mask_BT=mask_BL[:, place:],
        advantages_B=torch.tensor(advantages),
        place=place,
    )


def log_probabilities(policy: Policy, batch: Batch) -> Tensor:
    """Of the tokens of completions, each after all before it: B, T."""
    logits_BLV = policy.logits(batch.tokens_BL, batch.mask_BL)
    # The logits at a place are of the token after it.
    logits_BTV = logits_BLV[:, batch.place - 1 : -1]
    chosen_BT1 = batch.tokens_BL[:, batch.place :].unsqueeze(-1)
    return logits_BTV.log_softmax(-1).gather(-1, chosen_BT1).squeeze(-1)
