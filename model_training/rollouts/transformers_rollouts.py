"""Answers of the model that is trained, by its own decode loop.

All answers to all prompts are sorted by the length of their prompt and made in large batches, as a
step takes about as long for 256 of them as for one. A batch ends when all of its answers have
(decoding.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch

from cudal1_ci.propose.llm.servers import Message
from model_training.policy import Policy
from model_training.rollouts import Completion, Sampling
from model_training.rollouts.decoding import decoded


@dataclass
class TransformersRollouts:
    """A policy's answers, in this process."""

    policy: Policy
    batch_size: int = 128
    """Answers at a time."""
    merges: bool = False
    """Whether the adapter is added into the weights while it samples (`Policy.merged`)."""

    def renew(self) -> None:
        """Nothing: the weights are those of the policy."""

    def sample(
        self, prompts: Sequence[Sequence[Message]], n: int, settings: Sampling, seed: int
    ) -> list[list[Completion]]:
        asked = [self.policy.prompt_ids(one) for one in prompts]
        rows = [place for place in range(len(asked)) for _ in range(n)]
        rows.sort(key=lambda place: (-len(asked[place]), place))
        found: list[list[Completion]] = [[] for _ in prompts]
        with ExitStack() as stack:
            if self.merges:
                stack.enter_context(self.policy.merged())
            stack.enter_context(evaluating(self.policy))
            for first in range(0, len(rows), self.batch_size):
                batch = rows[first : first + self.batch_size]
                torch.manual_seed(seed * 1_000_003 + first)
                answers = self._answers([asked[place] for place in batch], settings)
                for place, answer in zip(batch, answers, strict=True):
                    found[place].append(answer)
        if self.policy.device.type == "cuda":
            # What comes next is judged by other processes, which may need the memory.
            torch.cuda.empty_cache()
        return found

    def _answers(self, asked: Sequence[Sequence[int]], settings: Sampling) -> list[Completion]:
        """Of one batch."""
        policy = self.policy
        ends = set(policy.ends)
        pad = int(policy.tokenizer.pad_token_id)
        made = decoded(policy.base, asked, settings, ends, pad)
        return [completion(policy, row, ends, settings.max_tokens) for row in made]


def completion(policy: Policy, row: Sequence[int], ends: set[int], limit: int) -> Completion:
    """The answer of a row: up to the first token that ends one."""
    place = next((number for number, token in enumerate(row) if token in ends), None)
    ids = tuple(row if place is None else row[: place + 1])
    text = policy.tokenizer.decode(ids if place is None else ids[:-1], skip_special_tokens=True)
    return Completion(text=text, token_ids=ids, is_cut=place is None and len(ids) >= limit)


@contextmanager
def evaluating(policy: Policy) -> Iterator[None]:
    """Without gradients or dropout, on a GPU in bfloat16; training's random numbers go on where
    they were."""
    was_training = policy.model.training
    policy.model.eval()
    kind = policy.device.type
    quick = torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda")
    devices = [policy.device] if kind == "cuda" else []
    try:
        with torch.no_grad(), quick, torch.random.fork_rng(devices):
            yield
    finally:
        policy.model.train(was_training)
