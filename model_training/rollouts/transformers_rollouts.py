"""Sample from the model that is trained, with `generate` of transformers.

All answers to all prompts are sorted by the length of their prompt and made in large batches. For
a CPU and small runs; on a GPU vLLM is several times as fast (vllm_rollouts.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from transformers import GenerationConfig

from cudal1_ci.propose.llm.servers import Message
from model_training.policy import Policy
from model_training.rollouts import Completion, Sampling


@dataclass
class TransformersRollouts:
    """Sample a policy's answers in this process."""

    policy: Policy
    batch_size: int = 128
    """Answers at a time."""

    def renew(self) -> None:
        """Do nothing: the weights are those of the policy."""

    def sample(
        self, prompts: Sequence[Sequence[Message]], n: int, settings: Sampling, seed: int
    ) -> list[list[Completion]]:
        asked = [self.policy.prompt_ids(one) for one in prompts]
        rows = [place for place in range(len(asked)) for _ in range(n)]
        rows.sort(key=lambda place: (-len(asked[place]), place))
        found: list[list[Completion]] = [[] for _ in prompts]
        with evaluating(self.policy):
            for first in range(0, len(rows), self.batch_size):
                batch = rows[first : first + self.batch_size]
                torch.manual_seed(seed * 1_000_003 + first)
                answers = self._answers([asked[place] for place in batch], settings)
                for place, answer in zip(batch, answers, strict=True):
                    found[place].append(answer)
        if self.policy.device.type == "cuda":
            # What comes next is verified by other processes, which may need the memory.
            torch.cuda.empty_cache()
        return found

    def _answers(self, asked: Sequence[Sequence[int]], settings: Sampling) -> list[Completion]:
        """Sample an answer to each prompt of a batch."""
        policy, longest = self.policy, max(map(len, asked))
        pad = int(policy.tokenizer.pad_token_id)
        ids = [[pad] * (longest - len(one)) + list(one) for one in asked]
        mask = [[0] * (longest - len(one)) + [1] * len(one) for one in asked]
        drawn = {"temperature": settings.temperature, "top_p": settings.top_p, "top_k": 0}
        made = policy.model.generate(
            input_ids=torch.tensor(ids, device=policy.device),
            attention_mask=torch.tensor(mask, device=policy.device),
            generation_config=GenerationConfig(  # type: ignore[no-untyped-call]
                do_sample=settings.temperature > 0,
                max_new_tokens=settings.max_tokens,
                repetition_penalty=1.0,  # what the weights' own file says does not count
                eos_token_id=list(policy.ends),
                pad_token_id=pad,
                **(drawn if settings.temperature > 0 else {}),
            ),
        )
        ends, rows = set(policy.ends), made[:, longest:].tolist()
        return [completion(policy, row, ends, settings.max_tokens) for row in rows]


def completion(policy: Policy, row: Sequence[int], ends: set[int], limit: int) -> Completion:
    """Return the answer of a row, up to the first token that ends one."""
    place = next((number for number, token in enumerate(row) if token in ends), None)
    ids = tuple(row if place is None else row[: place + 1])
    text = policy.tokenizer.decode(ids if place is None else ids[:-1], skip_special_tokens=True)
    return Completion(text=text, token_ids=ids, is_cut=place is None and len(ids) >= limit)


@contextmanager
def evaluating(policy: Policy) -> Iterator[None]:
    """Turn off gradients and dropout, use bfloat16 on a GPU, and keep training's random state."""
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
