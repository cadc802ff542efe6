"""Configure a language model: where it is and how it samples.

    ModelConfig(model="/models/qwen", adapter="/models/qwen-cuda", temperature=0.7)
    ModelConfig(model="https://api.example.com/v1", name="large")

Holds no secret: the key of a URL is in the environment, in the variable that `api_key_env` names.
"""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import urlsplit

from cudal1_ci.errors import ConfigError
from cudal1_ci.records import Record
from cudal1_ci.records.validation import at_least, key_of, positive

ROOM = "model"
ServerName = Literal["auto", "vllm", "transformers"]
AUTOMATIC, NONE = "auto", "none"
"""Values of an adapter without a folder."""

GPUS = re.compile(r"([\w-]+(,[\w-]+)*)?")


class ModelConfig(Record, frozen=True, kw_only=True):
    """A model, how its server starts where needed, and how answers are sampled."""

    model: str | None = None
    """A folder of weights, an id of the hub, or the URL of a server; None is no model."""
    adapter: str = AUTOMATIC
    """Folder of a LoRA adapter for the weights. `auto` is the bundled one if it fits the
    weights, `none` is no adapter."""
    name: str | None = None
    """The name of one of a URL's models; None is the first listed."""
    server: ServerName = "auto"
    """Server for weights; `auto` is vLLM if the interpreter has it."""
    python: str | None = None
    """Interpreter with the server's packages; None is the one that runs the tool."""
    temperature: float = 0.8
    top_p: float = 1.0
    max_tokens: int = 2048
    """The most tokens of one answer."""
    num_concurrent: int = 8
    """Answers requested at the same time."""
    request_s: float = 300.0
    """Wall clock of one request, from its first byte to the last of its answer."""
    start_s: float = 600.0
    """Seconds from the start of a server until it is ready, a download included."""
    max_retries: int = 5
    """Retries after 429, 5xx and broken connections."""
    token_budget: int | None = None
    """Completion tokens of a run; None is no limit."""
    api_key_env: str = "OPENAI_API_KEY"
    """Environment variable with the key of a URL."""
    gpu: str | None = None
    """The server's CUDA_VISIBLE_DEVICES (`1`, `0,1`; empty is no GPU); None is this process's."""
    gpu_memory_share: float = 0.5
    """Share of the GPU's memory for vLLM; the rest is left for measurements."""
    tensor_parallel: int = 1
    """GPUs over which vLLM spreads a model."""
    offline: bool = False
    """Download nothing: weights are a folder or in the hub's cache."""

    def __post_init__(self) -> None:
        at_least(self, ROOM, 1, "max_tokens", "num_concurrent", "tensor_parallel")
        at_least(self, ROOM, 0, "max_retries")
        positive(self, ROOM, "request_s", "start_s")
        if not 0 <= self.temperature <= 2:
            raise wrong("temperature", f"expected 0 to 2, got {self.temperature}")
        for name in ("top_p", "gpu_memory_share"):
            if not 0 < getattr(self, name) <= 1:
                raise wrong(name, f"expected more than 0 and at most 1, got {getattr(self, name)}")
        if self.token_budget is not None and self.token_budget < self.max_tokens:
            raise wrong(
                "token_budget",
                f"{self.token_budget} is less than one answer may have ({self.max_tokens}); "
                "raise it or lower model.max-tokens",
            )
        if self.gpu is not None and not GPUS.fullmatch(self.gpu):
            raise wrong("gpu", f"expected GPUs as in CUDA_VISIBLE_DEVICES (`1`), got {self.gpu!r}")
        if not self.adapter.strip():
            raise wrong("adapter", f"is empty; expected a folder, `{AUTOMATIC}` or `{NONE}`")
        if self.model is not None and not self.model.strip():
            raise wrong("model", "is empty; expected a folder, an id of the hub or a URL")
        if self.model is not None and self.is_url:
            self._check_url(self.model)
        elif self.name is not None:
            raise wrong("name", "chooses among the models of a URL; remove it for weights")

    def _check_url(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.username is not None or parts.password is not None or parts.query:
            # Not repeated: what is wrong with it may be a secret.
            raise wrong(
                "model",
                "the URL holds credentials or a query; put the key into the variable that "
                f"model.api-key-env names ({self.api_key_env}) and leave it out of the URL",
            )
        if not parts.hostname:
            raise wrong("model", f"expected a URL with a host, got {url!r}")
        if self.adapter not in (AUTOMATIC, NONE):
            raise wrong(
                "adapter", "is for weights; a URL's adapter is one of its models: use model.name"
            )

    @property
    def is_url(self) -> bool:
        """Return whether the model is already served."""
        return self.model is not None and self.model.startswith(("http://", "https://"))


def wrong(field: str, what: str) -> ConfigError:
    """Return the error of a value, with its key in a file."""
    return ConfigError(f"{key_of(ROOM, field)}: {what}")
