"""New tokens of many rows at once: the loop of a model that is asked for one token after another.

    answers = decoded(model, prompts, Sampling(max_tokens=512), ends={2}, pad=0)

In place of transformers' `generate`: the same tokens, but on a GPU a step is one CUDA graph, keys
and values are not copied for each query head, and rows that have ended are left behind once they
are half of the batch. Looking which have ended makes the processor wait, so it is done every
`STEPS_PER_LOOK` tokens; what a row has beyond its end is dropped.

Shapes: B rows, V of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from model_training.rollouts import Sampling
from model_training.rollouts.graphed_step import Stepping
from model_training.rollouts.grouped_attention import grouped_attention
from model_training.rollouts.kept import Kept, autocast_dtype, prefilled

STEPS_PER_LOOK = 16
FEWEST_ROWS = 32
"""Of a batch on a GPU that is made smaller: by estimate a step of half as many saves little."""
FEWEST_STEPS = 64
"""That must be left for it on a GPU, by estimate: the smaller batch is captured anew."""


@torch.no_grad()
def decoded(
    model: Any,
    rows: Sequence[Sequence[int]],
    settings: Sampling,
    ends: Collection[int],
    pad: int,
) -> list[list[int]]:
    """New tokens of each row, with the one of `ends` that ends it, or `max_tokens` of them.

    The same `torch.manual_seed` before gives the same tokens on one machine.

    Args:
        model: A causal language model of transformers, or of peft around one, in evaluation mode
            and with attention to all tokens before.
        pad: A token to fill up with; no other token sees it.

    Raises:
        ConfigError: A layer of the model does not look at all tokens before.
    """
    device: torch.device = model.device
    dtype = autocast_dtype(device.type)
    # Weights that autocast keeps a copy of would lie in a graph's memory and outlive it.
    uncached = torch.autocast(
        device.type, dtype=dtype, enabled=dtype is not None, cache_enabled=False
    )
    current = torch.cuda.device(device if device.type == "cuda" else -1)
    with current, grouped_attention(model), uncached:
        kept = prefilled(model, rows, settings.max_tokens, pad)
        step = Stepping(model, kept, captures=device.type == "cuda")
        return written(step, settings, frozenset(ends), seeded(device))


def written(
    step: Stepping,
    settings: Sampling,
    ends: frozenset[int],
    generator: torch.Generator,
) -> list[list[int]]:
    """Tokens after prompts that have been read."""
    kept = step.kept
    answers: list[list[int]] = [[] for _ in kept.token_B1]
    going = list(range(len(answers)))  # which answer each row of the batch is of
    noise = Noise(len(answers), generator)
    recent: list[torch.Tensor] = []
    for num_left in reversed(range(settings.max_tokens)):
        token_B = drawn(step(), settings, noise)
        recent.append(token_B)
        kept.token_B1.copy_(token_B[:, None])
        if num_left and len(recent) < STEPS_PER_LOOK:
            continue
        for number, tokens in zip(going, torch.stack(recent, 1).tolist(), strict=True):
            extend(answers[number], tokens, ends)
        recent.clear()
        places = [b for b, number in enumerate(going) if answers[number][-1] not in ends]
        if not places:
            break
        if num_left and pays(kept, len(places), num_left):
            kept.select(places)
            step.renew()
            going = [going[b] for b in places]
            noise.rows = torch.tensor(going, device=kept.column.device)
    return answers


def extend(answer: list[int], tokens: Sequence[int], ends: frozenset[int]) -> None:
    """With tokens up to the one that ends it, unless it has ended."""
    for token in tokens:
        if answer and answer[-1] in ends:
            return
        answer.append(token)


def pays(kept: Kept, num_going: int, num_left: int) -> bool:
    """Whether to leave the rows that have ended behind."""
    num_rows = kept.token_B1.shape[0]
    if 2 * num_going > num_rows:
        return False
    return kept.column.device.type == "cpu" or (num_rows > FEWEST_ROWS and num_left >= FEWEST_STEPS)


@dataclass
class Noise:
    """Exponential numbers, made for all rows that a batch began with: what is drawn for a row does
    not depend on which others are left."""

    num_rows: int
    generator: torch.Generator
    rows: torch.Tensor | None = None
    """Those that are left."""

    def like(self, shares_BV: torch.Tensor) -> torch.Tensor:
        made = shares_BV.new_empty(self.num_rows, shares_BV.shape[1])
        made.exponential_(generator=self.generator)
        return made if self.rows is None else made[self.rows]


def drawn(logits_BV: torch.Tensor, settings: Sampling, noise: Noise) -> torch.Tensor:
    """A token of each row, [B]. The largest of probabilities divided by exponential numbers is one
    drawn by them; `torch.multinomial` does the same, but first waits to see that they are none
    below zero."""
    if settings.temperature == 0:
        return logits_BV.argmax(-1)
    logits_BV = logits_BV.float() / settings.temperature
    if settings.top_p < 1:
        logits_BV = likeliest(logits_BV, settings.top_p)
    shares_BV = logits_BV.softmax(-1)
    return (shares_BV / noise.like(shares_BV)).argmax(-1)


def likeliest(logits_BV: torch.Tensor, share: float) -> torch.Tensor:
    """Without the unlikeliest tokens, as many as have at most 1 - `share` of the probability
    together; the likeliest stays."""
    sorted_BV, order_BV = logits_BV.sort(-1)
    is_out_BV = sorted_BV.softmax(-1).cumsum(-1) <= 1 - share
    is_out_BV[:, -1] = False
    is_out_BV = torch.empty_like(is_out_BV).scatter_(-1, order_BV, is_out_BV)
    return logits_BV.masked_fill(is_out_BV, -torch.inf)


def seeded(device: torch.device) -> torch.Generator:
    """Random numbers by the seed that is set. A GPU's are none that others use: its own may be in
    disorder after a capture that failed."""
    if device.type == "cpu":
        return torch.default_generator
    return torch.Generator(device).manual_seed(int(torch.randint(2**62, ())))
