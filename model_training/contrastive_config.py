"""The settings of stage 3, and what follows from them."""

from __future__ import annotations

from typing import Literal

import msgspec

from cudal1_ci.records import Record, content_hash
from cudal1_ci.records.validation import at_least, positive
from model_training.environment import EnvironmentConfig
from model_training.grpo import GrpoConfig
from model_training.objective.reward import SMOOTHING
from model_training.rollouts import Sampling
from model_training.stream import StreamConfig

EngineName = Literal["reference", "trl", "frozen"]


class ContrastiveConfig(Record, frozen=True, kw_only=True):
    """Of a run of stage 3. The paper's baselines are settings: `stream.contrast.sampler` is `none`
    (GRPO without exemplars), `random` or `island`, and `engine` is `frozen` for weights that stay
    as they are while the exemplars get better (evolution)."""

    engine: EngineName = "reference"
    """`reference` is grpo.py, `trl` TRL's trainer, whose prompts show what was known a step
    earlier (trl_engine.py)."""
    num_steps: int = 24
    prompts_per_step: int = 16
    group_size: int = 8
    """Completions of a prompt."""
    learning_rate: float = 2e-5
    num_warmup_steps: int = 3
    """Over which the learning rate rises to that; it is constant then."""
    smoothing: float = SMOOTHING
    """k of equation 6, for the reward `paper`."""
    masks_cut: bool = True
    """Whether an answer that was cut at the longest length is not learned from; its reward, mostly
    0, counts for the others of its group all the same."""
    checkpoint_every: int = 5
    leaves_minutes: float = 0.0
    """Of the run's `max-minutes`, for what follows the stage, such as its evaluation: where a step
    would not end before these, the stage is over with the steps that it has, and all judges still
    know what they have learned. 0 is to stop in its midst instead, to be taken up again."""
    sampling: Sampling = Sampling()
    stream: StreamConfig = StreamConfig()
    environment: EnvironmentConfig = EnvironmentConfig()
    grpo: GrpoConfig = GrpoConfig()

    def __post_init__(self) -> None:
        at_least(self, "contrastive", 1, "num_steps", "prompts_per_step", "checkpoint_every")
        at_least(self, "contrastive", 2, "group_size")
        at_least(self, "contrastive", 0, "num_warmup_steps", "leaves_minutes")
        positive(self, "contrastive", "learning_rate", "smoothing")


def learning_rate(config: ContrastiveConfig, step: int) -> float:
    """Of a step, which counts from 1."""
    return config.learning_rate * min(1.0, step / (config.num_warmup_steps + 1))


def lag_of(engine: EngineName) -> int:
    """TRL's data loader has the prompts of the next step before this one is over."""
    return 1 if engine == "trl" else 0


def run_name(config: ContrastiveConfig) -> str:
    """Of all settings but those that a run may be given another time: how long it is, and how often
    it writes a checkpoint."""
    changed = msgspec.structs.replace(config, num_steps=1, checkpoint_every=1, leaves_minutes=0.0)
    return content_hash(changed)
