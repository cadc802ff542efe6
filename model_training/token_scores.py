"""What a transformer says of the tokens of completions, without all its logits at once.

    ScoredPolicy(policy.base, policy.parameters(), temperature=1.0).scores(batch).logp_BT

A completion of 512 tokens has 78 million logits where the vocabulary has 152,000 words. So the
last layer is applied to some tokens at a time, to those of completions alone, and is applied again
for the gradient instead of being kept (activation checkpointing).

Log probabilities are those of the distribution that was sampled from: logits are divided by the
temperature.

Shapes as in grpo.py; N tokens of completions of a batch, C of them at a time, H hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from cudal1_ci.errors import UnsupportedError
from model_training.batches import Batch
from model_training.grpo import Scores

TOKENS_AT_ONCE = 1024
"""0.6 GB of logits in float32 for a vocabulary of 152,000 words."""
TOLERANCE = 0.02
"""Of the largest logit: bfloat16 has three digits."""


@dataclass
class ScoredPolicy:
    """A causal language model of transformers, as a step of GRPO asks it."""

    model: Any
    """Without what peft has put around it."""
    trained: Sequence[torch.nn.Parameter]
    temperature: float = 1.0
    tokens_at_once: int = TOKENS_AT_ONCE

    def parameters(self) -> Sequence[torch.nn.Parameter]:
        return self.trained

    def scores(self, batch: Batch) -> Scores:
        hidden_BLH = self._hidden(batch.tokens_BL, batch.mask_BL)
        mask_BT = batch.completion_mask_BT.bool()
        # What is known at a place decides the token after it.
        hidden_NH = hidden_BLH[:, batch.place - 1 : -1][mask_BT]
        chosen_N = batch.tokens_BL[:, batch.place :][mask_BT]
        parts = [
            checkpoint(self._chosen, hidden_CH, chosen_C, use_reentrant=False)
            for hidden_CH, chosen_C in zip(
                torch.split(hidden_NH, self.tokens_at_once),
                torch.split(chosen_N, self.tokens_at_once),
                strict=True,
            )
        ]
        nothing_BT = torch.zeros(mask_BT.shape, device=mask_BT.device)
        return Scores(
            logp_BT=nothing_BT.masked_scatter(mask_BT, torch.cat([logp for logp, _ in parts])),
            entropy_BT=nothing_BT.masked_scatter(mask_BT, torch.cat([some for _, some in parts])),
        )

    def _hidden(self, tokens_BL: Tensor, mask_BL: Tensor) -> Tensor:
        """Each row from its first token on, with all padding after the last: what comes after a
        token it does not see. So there is no mask, with which some backends of attention compute
        wrong gradients (gradients.py), and no place that sees nothing."""
        decoder = getattr(self.model, self.model.base_model_prefix)
        length = tokens_BL.shape[1]
        places_1L = torch.arange(length, device=tokens_BL.device)[None]
        first_B1 = mask_BL.long().argmax(-1, keepdim=True)
        found_BLH: Tensor = decoder(
            input_ids=tokens_BL.gather(1, (places_1L + first_B1) % length), use_cache=False
        ).last_hidden_state
        back_BL = (places_1L - first_B1) % length
        return found_BLH.gather(1, back_BL.unsqueeze(-1).expand_as(found_BLH))

    def _chosen(self, hidden_CH: Tensor, chosen_C: Tensor) -> tuple[Tensor, Tensor]:
        logits_CV = self.model.get_output_embeddings()(hidden_CH).float() / self.temperature
        total_C = logits_CV.logsumexp(-1)
        logp_C = logits_CV.gather(-1, chosen_C.unsqueeze(-1)).squeeze(-1) - total_C
        with torch.no_grad():
            p_CV = (logits_CV - total_C.unsqueeze(-1)).exp()
            entropy_C = total_C - (p_CV * logits_CV).sum(-1)
        return logp_C, entropy_C

    @torch.no_grad()
    def check(self) -> None:
        """Raises: UnsupportedError where the model's logits are not its last layer's alone."""
        tokens_BL = torch.arange(2, 6, device=self.model.device)[None]
        mask_BL = torch.ones_like(tokens_BL)
        expected = self.model(input_ids=tokens_BL, attention_mask=mask_BL).logits.float()
        found = self.model.get_output_embeddings()(self._hidden(tokens_BL, mask_BL)).float()
        if (found - expected).abs().max() > TOLERANCE * expected.abs().max():
            raise UnsupportedError(
                f"{type(self.model).__name__} changes its logits behind the last layer, which the "
                'reference engine does not follow; set contrastive.engine = "trl"'
            )


@dataclass
class StartPolicy:
    """The same model with the weights that it has now, while those are trained."""

    policy: ScoredPolicy

    def __post_init__(self) -> None:
        self._start = [one.detach().clone() for one in self.policy.trained]

    def parameters(self) -> Sequence[torch.nn.Parameter]:
        return ()

    @torch.no_grad()
    def scores(self, batch: Batch) -> Scores:
        with self._there():
            return self.policy.scores(batch)

    @contextmanager
    def _there(self) -> Iterator[None]:
        """At the start, for as long as no gradient is under way."""
        now = [one.detach().clone() for one in self.policy.trained]
        copied(self._start, self.policy.trained)
        try:
            yield
        finally:
            copied(now, self.policy.trained)


@torch.no_grad()
def copied(values: Sequence[Tensor], into: Sequence[torch.nn.Parameter]) -> None:
    for value, weight in zip(values, into, strict=True):
        weight.copy_(value)
