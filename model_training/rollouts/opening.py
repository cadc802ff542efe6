"""Which rollouts a run samples with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from cudal1_ci.propose.llm.servers.config import ModelConfig
from cudal1_ci.records import Record
from cudal1_ci.records.validation import at_least, positive
from model_training.policy import Policy
from model_training.rollouts import Rollouts
from model_training.rollouts.server_rollouts import ServerRollouts
from model_training.rollouts.transformers_rollouts import TransformersRollouts
from model_training.rollouts.vllm_rollouts import VllmRollouts


class RolloutsConfig(Record, frozen=True, kw_only=True):
    """Who samples."""

    kind: Literal["transformers", "vllm", "server"] = "transformers"
    """`server` is for the command `evaluate` alone: its weights are not trained."""
    batch_size: int = 128
    """Answers at a time, of `transformers`."""
    merges: bool = False
    """Of `transformers`: the adapter is added into the weights while it samples."""
    gpu_memory_share: float = 0.4
    """Of `vllm`."""
    max_model_tokens: int = 4096
    """Of `vllm`: a question and its answer."""
    server: ModelConfig = ModelConfig()

    def __post_init__(self) -> None:
        at_least(self, "rollouts", 1, "batch_size", "max_model_tokens")
        positive(self, "rollouts", "gpu_memory_share")


@contextmanager
def opened_rollouts(
    config: RolloutsConfig, policy: Callable[[], Policy], folder: Path
) -> Iterator[Rollouts]:
    """Rollouts of a policy, which is not loaded for a server. A server that they have started ends
    with the block, vLLM's engine with this process.

    Raises:
        ConfigError: Their package is not there, or they cannot sample from such a policy.
    """
    if config.kind == "transformers":
        yield TransformersRollouts(policy(), config.batch_size, config.merges)
    elif config.kind == "vllm":
        yield VllmRollouts(policy(), folder, config.max_model_tokens, config.gpu_memory_share)
    else:
        with ServerRollouts(config.server) as rollouts:
            yield rollouts
