"""Gather all settings of a run from one TOML file; each stage defines its own.

    config = load_config(Path("model_training/configs/tiny.toml"))
    config.supervised.learning_rate

[run]              folder, seed, stages, time
[model]            weights, and which of them are trained
[rollouts]         who samples
[tasks]            what is asked
`[judge]`          what verifies, and where
[collection]       stage 1's data
[supervised]       stage 1
[self-supervised]  stage 2
[contrastive]      stage 3
[evaluate]         evaluations
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from cudal1_ci.errors import ConfigError
from cudal1_ci.records import Record
from cudal1_ci.records.validation import positive
from model_training.collect import CollectConfig
from model_training.contrastive import ContrastiveConfig
from model_training.evaluate import EvaluateConfig
from model_training.judges import JudgeConfig
from model_training.policy import PolicyConfig
from model_training.rollouts.config import RolloutsConfig
from model_training.self_supervised import SelfSupervisedConfig
from model_training.settings_file import read_settings
from model_training.sft import SupervisedConfig
from model_training.tasks.prepared import TaskSourceConfig

StageName = Literal["collect", "supervised", "self_supervised", "contrastive"]
STAGES: tuple[StageName, ...] = ("collect", "supervised", "self_supervised", "contrastive")
MAY_DIFFER = (
    *("run.folder", "run.max_minutes", "run.stages", "run.evaluates", "model.path"),
    *("model.device", "judge.devices", "judge.num_per_device", "rollouts"),
    *("judge.num_prefilters", "evaluate.seeds"),
    *("contrastive.num_steps", "contrastive.checkpoint_every"),
    "supervised.checkpoint_steps",
)
"""What may be another when a run is taken up again: where it runs, how long, and how much of it."""


class RunConfig(Record, frozen=True, kw_only=True):
    """Configure the run as a whole."""

    folder: str = "runs/training"
    seed: int = 0
    """Of the adapter's first weights, of sampling and of the order of data."""
    max_minutes: float | None = None
    """After which it writes a checkpoint and ends; None is no limit."""
    stages: tuple[StageName, ...] = STAGES
    """Those that the command `pipeline` goes through; leaving one out is an ablation."""
    evaluates: tuple[str, ...] = ("base", "supervised", "self_supervised", "contrastive")
    """After which stages the policy is evaluated; `base` is before the first."""

    def __post_init__(self) -> None:
        positive(self, "run", "max_minutes")
        if sorted(self.stages, key=STAGES.index) != list(self.stages):
            raise ConfigError(
                f"run.stages: expected some of {', '.join(STAGES)} in this order, got "
                f"{', '.join(self.stages)}"
            )
        for name in self.evaluates:
            if name not in ("base", *STAGES[1:]):
                raise ConfigError(
                    f"run.evaluates: expected some of base, {', '.join(STAGES[1:])}, got {name!r}"
                )


class TrainingConfig(Record, frozen=True, kw_only=True):
    """Hold the whole file."""

    model: PolicyConfig
    run: RunConfig = RunConfig()
    rollouts: RolloutsConfig = RolloutsConfig()
    tasks: TaskSourceConfig = TaskSourceConfig()
    judge: JudgeConfig = JudgeConfig()
    collection: CollectConfig = CollectConfig()
    supervised: SupervisedConfig = SupervisedConfig()
    self_supervised: SelfSupervisedConfig = SelfSupervisedConfig()
    contrastive: ContrastiveConfig = ContrastiveConfig()
    evaluate: EvaluateConfig = EvaluateConfig()

    def __post_init__(self) -> None:
        if (self.tasks.kind == "toy") != (self.judge.kind == "toy"):
            raise ConfigError(
                "tasks.kind and judge.kind: the toy's judge knows the toy's tasks and no others; "
                "expected `toy` for both or for neither"
            )


def load_config(
    path: Path,
    *,
    changes: Sequence[str] = (),
    max_minutes: float | None = None,
    folder: str | None = None,
) -> TrainingConfig:
    """Return the settings of a file, with what the command line says otherwise; `changes` are of
    any key, each `KEY=VALUE`.

    Raises:
        ConfigError: See `read_settings`; or the file names no model.
    """
    config = read_settings(path, TrainingConfig, changes)
    given = {"max_minutes": max_minutes, "folder": folder}
    changed = {name: value for name, value in given.items() if value is not None}
    run = msgspec.structs.replace(config.run, **changed)
    return msgspec.structs.replace(config, run=run)
