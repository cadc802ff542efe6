"""Sample answers of a policy to prompts.

completions = rollouts.sample([messages], n=8, settings=Sampling(), seed=0)
completions[0][7].text

transformers_rollouts.py  the model that is trained, by `generate`, in large batches
vllm_rollouts.py          vLLM in this process, with the adapter as it is
server_rollouts.py        any server that speaks the OpenAI protocol
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cudal1_ci.errors import ConfigError
from cudal1_ci.propose.llm.servers import Message
from cudal1_ci.records import Record
from cudal1_ci.records.validation import at_least


class Sampling(Record, frozen=True, kw_only=True):
    """Configure how an answer is drawn."""

    temperature: float = 1.0
    """0 is the likeliest token, always."""
    top_p: float = 1.0
    max_tokens: int = 512
    """Of an answer; one that has not ended by then is cut."""

    def __post_init__(self) -> None:
        at_least(self, "sampling", 1, "max_tokens")
        if self.temperature < 0 or not 0 < self.top_p <= 1:
            raise ConfigError(
                "sampling: expected a temperature of 0 or more and a top-p above 0 and up to 1, "
                f"got {self.temperature} and {self.top_p}"
            )


class Completion(Record, frozen=True, kw_only=True):
    """Hold one answer."""

    text: str
    """Without what ends it."""
    token_ids: tuple[int, ...] = ()
    """With the token that ends it; empty from a server, which does not say."""
    is_cut: bool = False
    """Whether it had as many tokens as it may, and no end."""


class Rollouts(Protocol):
    """Sample answers; the same seed and weights give the same ones on one machine."""

    def sample(
        self, prompts: Sequence[Sequence[Message]], n: int, settings: Sampling, seed: int
    ) -> list[list[Completion]]:
        """Return `n` answers of each prompt, in the order of the prompts."""
        ...

    def renew(self) -> None:
        """Sample from the weights that the policy has now, from here on."""
        ...
