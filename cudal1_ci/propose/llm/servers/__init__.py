"""Talk to language models over the OpenAI protocol: a client, and servers for weights.

    with opened(ModelConfig(model="/models/qwen"), offline=True) as model:
        for answer in model.ask(messages, n=4, seed=0):
            ...

client.py asks any such server; serving.py starts one for weights and ends it. A server's error
costs one answer, which then reports the error, and never the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, Protocol

from cudal1_ci.records import Identity, Record

Failure = Literal[
    "rate_limit",  # 429 until the retries were spent
    "server",  # 5xx, refused connections, a server that died
    "refused",  # 4xx: the request itself is not liked
    "timeout",
    "garbage",  # not the protocol: HTML, broken JSON, no choices
    "empty",
    "too_long",  # more than was asked for, by far
    "degenerate",  # the same few words again and again
    "cancelled",
    "budget",  # the tokens of this run are spent
]


class Message(Record, frozen=True, kw_only=True):
    """A turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


class Answer(Record, frozen=True, kw_only=True):
    """A completion, or the reason why there is none."""

    text: str = ""
    finish_reason: str | None = None
    """`stop`, or `length` for a cut answer."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    failure: Failure | None = None
    message: str = ""
    """The server's words on a failure, shortened, without secrets."""
    elapsed_s: float = 0.0


class LanguageModel(Protocol):
    """Answer conversations."""

    @property
    def identity(self) -> Identity: ...

    def ask(self, messages: Sequence[Message], *, n: int, seed: int) -> Iterator[Answer]:
        """Yield exactly `n` answers when they are ready, made in parallel if the server can. Answer
        `i` has the seed `seed + i`.
        """
        ...

    def apart(self) -> LanguageModel:
        """Return the same model for another thread; its `cancel` affects only its own requests."""
        ...

    def cancel(self) -> None:
        """Cancel what is in progress: missing answers are `cancelled`. Any thread may call it."""
        ...
