"""Sample with vLLM in this process, with the adapter of the policy as it is.

After each change of the weights (`renew`) the adapter is saved under a new number: vLLM caches
adapters by number, and would keep using the old one. Training of all weights cannot hand them over
in this way and is refused. vLLM shares the GPU with training: it takes `gpu_memory_share` of its
memory and leaves the rest.
"""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cudal1_ci.errors import ConfigError
from cudal1_ci.propose.llm.servers import Message
from cudal1_ci.propose.llm.servers.commands import MAX_RANKS
from model_training.policy import Policy
from model_training.rollouts import Completion, Sampling


@dataclass
class VllmRollouts:
    """Sample a policy's answers with an engine of its own."""

    policy: Policy
    folder: Path
    """Where adapters are handed over; the newest one is kept."""
    max_model_tokens: int = 4096
    """Of a question and its answer."""
    gpu_memory_share: float = 0.4
    version: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.policy.config.tuning != "lora":
            raise ConfigError(
                "rollouts.kind: `vllm` samples with an adapter; set model.tuning to `lora`, or "
                "rollouts.kind to `transformers`"
            )
        try:
            self._vllm = importlib.import_module("vllm")
            self._lora = importlib.import_module("vllm.lora.request")
        except ImportError as error:
            raise ConfigError(
                "rollouts.kind: `vllm` needs its package (`pip install 'cudal1-ci[vllm]'`); "
                "`transformers` needs no more than training does"
            ) from error
        config = self.policy.config
        if config.lora_rank > MAX_RANKS[-1]:
            raise ConfigError(
                f"model.lora-rank: vLLM serves at most {MAX_RANKS[-1]}, got {config.lora_rank}; "
                "set rollouts.kind to `transformers`"
            )
        self._engine: Any = self._vllm.LLM(
            model=config.path,
            enable_lora=True,
            max_lora_rank=min(one for one in MAX_RANKS if one >= config.lora_rank),
            max_model_len=self.max_model_tokens,
            gpu_memory_utilization=self.gpu_memory_share,
        )
        self.renew()

    def renew(self) -> None:
        before, self.version = self.folder / f"version-{self.version}", self.version + 1
        written = self.folder / f"version-{self.version}"
        written.mkdir(parents=True, exist_ok=True)
        self.policy.save(written)
        shutil.rmtree(before, ignore_errors=True)
        self._request = self._lora.LoRARequest(written.name, self.version, str(written))

    def sample(
        self, prompts: Sequence[Sequence[Message]], n: int, settings: Sampling, seed: int
    ) -> list[list[Completion]]:
        asked = [{"prompt_token_ids": self.policy.prompt_ids(one)} for one in prompts]
        drawn = [
            self._vllm.SamplingParams(
                n=n,
                temperature=settings.temperature,
                top_p=settings.top_p,
                top_k=0,
                repetition_penalty=1.0,
                max_tokens=settings.max_tokens,
                seed=seed * 1_000_003 + place,
                stop_token_ids=list(self.policy.ends),
                skip_special_tokens=True,
            )
            for place in range(len(prompts))
        ]
        replies = self._engine.generate(asked, drawn, lora_request=self._request, use_tqdm=False)
        return [
            [
                Completion(
                    text=one.text,
                    token_ids=tuple(one.token_ids),
                    is_cut=one.finish_reason == "length",
                )
                for one in reply.outputs
            ]
            for reply in replies
        ]
