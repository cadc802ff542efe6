"""What moves the weights in a step of stage 3, or leaves them (TRL's engine is trl_engine.py)."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from model_training import grpo
from model_training.contrastive_config import ContrastiveConfig, EngineName, learning_rate
from model_training.gradients import Watch, sound_attention
from model_training.measures import Judged
from model_training.policy import Policy
from model_training.token_scores import ScoredPolicy, StartPolicy

OPTIMIZER = "optimizer.pt"


class Engine(Protocol):
    """What moves the weights, and what a checkpoint keeps of it."""

    def update(self, step: int, judged: Sequence[Judged]) -> dict[str, float | None]:
        """Learn from a step; what is watched of that."""
        ...

    def save(self, folder: Path) -> None: ...

    def load(self, folder: Path) -> None: ...


class Reference:
    """The readable step, on the model itself."""

    def __init__(self, policy: Policy, config: ContrastiveConfig) -> None:
        self._policy, self._config = policy, config
        self._scored = ScoredPolicy(
            policy.base, policy.parameters(), config.sampling.temperature or 1.0
        )
        self._scored.check()
        self._start = StartPolicy(self._scored)
        self._optimizer = optimizer_of(policy, config)
        self._gradients = Watch()

    def update(self, step: int, judged: Sequence[Judged]) -> dict[str, float | None]:
        config, policy = self._config, self._policy
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate(config, step)
        with training(policy.model), sound_attention():
            found = grpo.step(
                self._scored,
                self._optimizer,
                [one.group(masks_cut=config.masks_cut) for one in judged],
                config.grpo,
                reference=self._start,
                gradients=self._gradients,
                pad=int(policy.tokenizer.pad_token_id),
                device=policy.device,
            )
        watched = dataclasses.asdict(found)
        for name in ("reward", "reward_spread", "silent_share"):  # those of `measures` are raw
            del watched[name]
        said = {
            "learning_rate": learning_rate(config, step),
            "skipped": self._gradients.num_skipped,
        }
        return {**watched, **said}

    def save(self, folder: Path) -> None:
        self._policy.save(folder)
        torch.save(self._optimizer.state_dict(), folder / OPTIMIZER)

    def load(self, folder: Path) -> None:
        self._policy.load(folder)
        device = self._policy.device
        state = torch.load(folder / OPTIMIZER, map_location=device, weights_only=True)
        self._optimizer.load_state_dict(state)


@dataclass
class Frozen:
    """Weights that stay as they are: what exemplars alone are good for."""

    policy: Policy
    config: ContrastiveConfig

    def update(self, step: int, judged: Sequence[Judged]) -> dict[str, float | None]:  # noqa: ARG002
        return {}

    def save(self, folder: Path) -> None:
        self.policy.save(folder)

    def load(self, folder: Path) -> None:
        """Nothing: the weights are those of the start."""


ENGINES: dict[EngineName, Callable[[Policy, ContrastiveConfig], Engine]] = {
    "reference": Reference,
    "frozen": Frozen,
}


def optimizer_of(policy: Policy, config: ContrastiveConfig) -> torch.optim.AdamW:
    """Without weight decay: an adapter decays to the base, not to where the stage began."""
    return torch.optim.AdamW(policy.parameters(), lr=config.learning_rate, weight_decay=0.0)


@contextlib.contextmanager
def training(model: Any) -> Iterator[None]:
    """In training mode, so that activation checkpointing is on where the model has it."""
    was_training = model.training
    model.train()
    try:
        yield
    finally:
        model.train(was_training)
