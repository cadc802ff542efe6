"""Configure the rollouts that a run samples with."""

from __future__ import annotations

from typing import Literal

from cudal1_ci.propose.llm.servers.config import ModelConfig
from cudal1_ci.records import Record
from cudal1_ci.records.validation import at_least, positive


class RolloutsConfig(Record, frozen=True, kw_only=True):
    """Configure who samples."""

    kind: Literal["transformers", "vllm", "server"] = "transformers"
    """`server` is for the command `evaluate` alone: its weights are not trained."""
    batch_size: int = 128
    """Answers at a time, of `transformers`."""
    gpu_memory_share: float = 0.4
    """Of `vllm`."""
    max_model_tokens: int = 4096
    """Of `vllm`: a question and its answer."""
    server: ModelConfig = ModelConfig()

    def __post_init__(self) -> None:
        at_least(self, "rollouts", 1, "batch_size", "max_model_tokens")
        positive(self, "rollouts", "gpu_memory_share")
