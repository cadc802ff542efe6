"""Configure the model that gives a second opinion.

    OpinionConfig(model="https://other.example.com/v1", name="large").client(settings.model)

The default is None, and never the model that writes the candidates: a model that reviews its own
work gives no second opinion. The keys of `model` say how a server for weights starts; the keys here
say only what differs.
"""

from __future__ import annotations

import re

import msgspec

from cudal1_ci.errors import ConfigError
from cudal1_ci.propose.llm.servers.config import NONE, ModelConfig
from cudal1_ci.records import Record
from cudal1_ci.records.validation import at_least

KEY = re.compile(r"\bmodel\.(?=(model|name|request|max-tokens|api-key-env)\b)")
"""A key of the proposing model, in a message about the key of the same name here."""


class OpinionConfig(Record, frozen=True, kw_only=True):
    """Configure a model that is asked about jumps."""

    model: str | None = None
    """A folder of weights, an id of the hub, or the URL of a server; None is no review."""
    name: str | None = None
    """The name of one of a URL's models; None is the first listed."""
    api_key_env: str = "OPINION_API_KEY"
    """Environment variable with the key of a URL. It differs from the proposing model's: a key
    is for one server."""
    max_tokens: int = 1024
    """The most tokens of an answer, thinking included."""
    prompt_tokens: int = 8000
    """The most tokens of a question. A candidate that does not fit is not shown in part, and
    gets no review."""
    request_s: float = 120.0
    """Wall clock of one request; the verifier waits for it."""
    cases: str | None = None
    """A TOML file with cases that people confirmed, in the form of `cases.toml`."""

    def __post_init__(self) -> None:
        at_least(self, "opinion", 1, "prompt_tokens")
        try:
            self.client(ModelConfig())
        except ConfigError as error:
            raise ConfigError(KEY.sub("opinion.", str(error))) from error

    def client(self, other: ModelConfig) -> ModelConfig:
        """Return the model's configuration for a client. Missing values come from the model that
        writes: the interpreter, the GPU, the time for a server's start.
        """
        return msgspec.structs.replace(
            other,
            model=self.model,
            name=self.name,
            adapter=NONE,  # it was trained to write, not to review
            api_key_env=self.api_key_env,
            temperature=0.0,  # the same question has the same answer
            top_p=1.0,
            max_tokens=self.max_tokens,
            num_concurrent=1,
            request_s=self.request_s,
            token_budget=None,
        )
