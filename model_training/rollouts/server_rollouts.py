"""Sample from a server that speaks the OpenAI protocol, by the product's own client.

    with closing(ServerRollouts(ModelConfig(model="http://127.0.0.1:8000/v1"))) as rollouts:
        rollouts.sample(...)

For evaluating models that are not trained here. With a folder of weights the product starts the
server itself. A server does not say which tokens an answer has, so that nothing is trained on what
it says token by token. Seeds are those that the server keeps to, or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field

import msgspec

from cudal1_ci.errors import ConfigError, ModelError
from cudal1_ci.propose.llm.servers import Answer, LanguageModel, Message
from cudal1_ci.propose.llm.servers.config import ModelConfig
from cudal1_ci.propose.llm.servers.opening import opened
from model_training.rollouts import Completion, Sampling

ITS_OWN = ("empty", "too_long", "degenerate")
"""Failures that say something of the model; all others say something of its server."""


@dataclass
class ServerRollouts:
    """Sample from a server; what it has started ends with `close`."""

    config: ModelConfig
    _stack: ExitStack = field(default_factory=ExitStack, init=False)
    _open: tuple[Sampling, LanguageModel] | None = field(default=None, init=False)

    def close(self) -> None:
        """End the server that was started."""
        self._stack.close()
        self._open = None

    def renew(self) -> None:
        """Refuse to renew weights, because new weights do not reach the server.

        Raises: ConfigError.
        """
        raise ConfigError(
            "rollouts.kind: a server has the weights that it was started with; train with "
            "`transformers` or `vllm`"
        )

    def sample(
        self, prompts: Sequence[Sequence[Message]], n: int, settings: Sampling, seed: int
    ) -> list[list[Completion]]:
        """Sample completions from the server.

        Raises: ModelError where the server, and not the model, has failed.
        """
        model = self._model(settings)

        def answer(place: int) -> Answer:
            (found,) = model.ask(prompts[place // n], n=1, seed=seed * 1_000_003 + place)
            return found

        places = range(len(prompts) * n)
        with ThreadPoolExecutor(self.config.num_concurrent) as threads:
            answers = list(threads.map(answer, places))
        found = iter([completion(one) for one in answers])
        return [list(taken(found, n)) for _ in prompts]

    def _model(self, settings: Sampling) -> LanguageModel:
        """Open the model with these settings; a server that was started for others ends first."""
        if self._open is None or self._open[0] != settings:
            self._stack.close()
            config = msgspec.structs.replace(
                self.config,
                temperature=settings.temperature,
                top_p=settings.top_p,
                max_tokens=settings.max_tokens,
            )
            self._open = settings, self._stack.enter_context(opened(config))
        return self._open[1]


def completion(answer: Answer) -> Completion:
    """Convert an answer to a completion.

    Raises: ModelError for an answer that the server has not given.
    """
    if answer.failure is not None and answer.failure not in ITS_OWN:
        raise ModelError(f"expected an answer of the model, got {answer.failure}: {answer.message}")
    return Completion(text=answer.text, is_cut=answer.finish_reason == "length")


def taken(found: Iterator[Completion], n: int) -> Iterator[Completion]:
    for _ in range(n):
        yield next(found)
