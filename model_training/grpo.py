"""One step of GRPO, to be read: groups of completions and their rewards in, better weights out.

    metrics = step(policy, optimizer, groups, config)

It is the engine `reference` of stage 3, and what TRL's trainer is compared with. A policy is
anything that gives the log probabilities of the tokens of a completion.

A batch goes through the model in pieces of some completions, each padded for itself, and the
gradients of the pieces add up to that of the batch: what a loss divides by is counted over all of
it (`Totals`).

Shapes: B completions of a piece, P prompt tokens, T completion tokens, V words.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from cudal1_ci.records import Record
from cudal1_ci.records.validation import at_least, positive
from model_training.batches import Batch, Group, batch_of, rows_of
from model_training.gradients import Watch
from model_training.objective.advantage import AdvantageName, is_silent
from model_training.objective.loss import Objective, ObjectiveConfig, Totals, objective


@dataclass(frozen=True, kw_only=True)
class Scores:
    """What a policy says of the tokens of completions; nothing where the mask is 0."""

    logp_BT: Tensor
    """Of each token, after all before it."""
    entropy_BT: Tensor
    """Of what it chose from, in nats; without a gradient."""


class Policy(Protocol):
    """A language model with weights that are trained."""

    def scores(self, batch: Batch) -> Scores: ...

    def parameters(self) -> Sequence[torch.nn.Parameter]:
        """Those that are trained."""
        ...


class GrpoConfig(Record, frozen=True, kw_only=True):
    """Of a step."""

    advantage: AdvantageName = "group_normalized"
    objective: ObjectiveConfig = ObjectiveConfig()
    num_updates: int = 1
    """Of the weights with the same completions; the ratio is 1 in the first."""
    max_grad_norm: float = 0.2
    drops_silent: bool = True
    """Whether groups that say nothing leave the batch; else they count in its mean, as nothing."""
    piece_size: int = 8
    """Completions that go through the model at once: less memory, and the same gradient."""

    def __post_init__(self) -> None:
        at_least(self, "grpo", 1, "num_updates", "piece_size")
        positive(self, "grpo", "max_grad_norm")


@dataclass(frozen=True, kw_only=True)
class StepMetrics:
    """What is watched; means over the tokens that were learned from but where something else is
    said. Of what was learned nothing is known where all groups are silent."""

    reward: float
    """Mean over completions of all groups."""
    reward_spread: float
    silent_share: float
    """Of the groups."""
    num_tokens: int
    loss: float | None
    clipped_share: float | None
    divergence: float | None
    """To the policy that training began with; 0 where that is not at hand."""
    ratio: float | None
    entropy: float | None
    grad_norm: float | None
    """Before it was clipped; the last of the updates, as are the five numbers above it. Along one
    that is no number no step is made."""


def step(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    groups: Sequence[Group],
    config: GrpoConfig,
    *,
    reference: Policy | None = None,
    gradients: Watch | None = None,
    pad: int = 0,
    device: torch.device | None = None,
) -> StepMetrics:
    """Improve the policy on these groups. Where all of them are silent, nothing changes.

    Args:
        reference: The policy that training began with; needed for a divergence with a weight.
        gradients: What is known of those of earlier steps.

    Raises:
        UnsupportedError: Gradients of several updates in a row are no numbers.
    """
    gradients = gradients or Watch()
    kept = [one for one in groups if not (config.drops_silent and is_silent(one.rewards))]
    rows, totals = rows_of(kept, config.advantage)
    watched: Sequence[float | None] = (None,) * 5
    norm = None
    if rows:
        # Completions of about the same length in a piece: less of it is padding.
        rows.sort(key=lambda row: len(row.prompt) + len(row.completion))
        batches = [
            batch_of(rows[start : start + config.piece_size], pad, device)
            for start in range(0, len(rows), config.piece_size)
        ]
        # With one update the policy that has sampled is the policy, and its ratio is 1.
        sampled = known(policy if config.num_updates > 1 else None, batches)
        first = known(reference, batches)
        for _ in range(config.num_updates):
            optimizer.zero_grad()
            parts = [
                backward(policy, batch, config.objective, totals, sampled[number], first[number])
                for number, batch in enumerate(batches)
            ]
            norm = float(torch.nn.utils.clip_grad_norm_(policy.parameters(), config.max_grad_norm))
            if gradients.is_sound(norm):
                optimizer.step()
            watched = together(parts)
        optimizer.zero_grad()
    rewards = [reward for one in groups for reward in one.rewards]
    loss, clipped, pulled, ratio, entropy = watched
    return StepMetrics(
        reward=statistics.fmean(rewards),
        reward_spread=statistics.pstdev(rewards),
        silent_share=sum(is_silent(one.rewards) for one in groups) / len(groups),
        num_tokens=totals.num_tokens,
        loss=loss,
        clipped_share=clipped,
        divergence=pulled,
        ratio=ratio,
        entropy=entropy,
        grad_norm=norm,
    )


@torch.no_grad()
def known(policy: Policy | None, batches: Sequence[Batch]) -> list[Tensor | None]:
    """Log probabilities under a policy that stands still; None where there is none."""
    return [None if policy is None else policy.scores(batch).logp_BT for batch in batches]


def backward(
    policy: Policy,
    batch: Batch,
    config: ObjectiveConfig,
    totals: Totals,
    sampled_BT: Tensor | None,
    first_BT: Tensor | None,
) -> tuple[int, Objective, float]:
    """Add the gradient of a part of a batch; its tokens, its objective, its mean entropy."""
    found = policy.scores(batch)
    mask_BT = batch.completion_mask_BT
    part = objective(
        found.logp_BT,
        found.logp_BT.detach() if sampled_BT is None else sampled_BT,
        batch.advantages_B,
        mask_BT,
        config,
        first_BT,
        totals,
    )
    part.loss.backward()  # type: ignore[no-untyped-call]
    num_tokens = int(mask_BT.sum())
    return num_tokens, part, float((found.entropy_BT * mask_BT).sum()) / num_tokens


def together(parts: Sequence[tuple[int, Objective, float]]) -> list[float]:
    """Loss, clipped share, divergence, ratio and entropy of a batch from those of its parts."""
    total = sum(num_tokens for num_tokens, _, _ in parts)
    means = [
        sum(num_tokens * value for num_tokens, value in each) / total
        for each in (
            [(n, part.clipped_share) for n, part, _ in parts],
            [(n, part.divergence) for n, part, _ in parts],
            [(n, part.ratio) for n, part, _ in parts],
            [(n, entropy) for n, _, entropy in parts],
        )
    ]
    return [sum(part.loss.item() for _, part, _ in parts), *means]


def scores_of(logits_BLV: Tensor, batch: Batch) -> Scores:
    """From logits at every place of a batch, for a policy so small that they fit at once."""
    # The logits at a place are of the token after it.
    logp_BTV = logits_BLV[:, batch.place - 1 : -1].log_softmax(-1)
    chosen_BT1 = batch.tokens_BL[:, batch.place :].unsqueeze(-1)
    still_BTV = logp_BTV.detach()
    return Scores(
        logp_BT=logp_BTV.gather(-1, chosen_BT1).squeeze(-1),
        entropy_BT=-(still_BTV.exp() * still_BTV).sum(-1),
    )
