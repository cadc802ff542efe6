"""What tests of stage 3 are made of: the toy language, and a run that remembers in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import torch

from cudal1_ci.propose.llm.config import ContrastConfig
from cudal1_ci.records.archive import Archive
from model_training.contrastive import ContrastiveConfig, GrpoConfig
from model_training.environment import EnvironmentConfig
from model_training.grpo_trainer import train
from model_training.objective.loss import ObjectiveConfig
from model_training.policy import Policy, PolicyConfig, load_policy
from model_training.prompt_stream import Stream, StreamConfig
from model_training.rollouts import Sampling
from model_training.rollouts.transformers_rollouts import TransformersRollouts
from model_training.scoring import Scorer
from model_training.step_loop import StepLoop
from model_training.toy import (
    DEVICE,
    POLICY,
    PROGRAMS,
    ToyJudge,
    answer_to,
    make_model_folder,
    tasks,
)

VARYING = ("known", "judged", "not_confirmed", "tokens_per_s")
"""Of the numbers of a step, those that are not alike when it is made again, beside seconds."""


class Killed(Exception):
    """As SIGKILL, where a test can go on."""


@dataclass(frozen=True)
class Saved:
    folder: Path
    step: int
    state: dict


@dataclass
class MemoryRun:
    """A run's folder without the files, but for checkpoints."""

    folder: Path
    numbers: dict[int, dict] = field(default_factory=dict)
    samples: list[dict] = field(default_factory=list)
    saved: list[Saved] = field(default_factory=list)
    stops_after: int | None = None
    dies_in: int | None = None
    """The step whose numbers are never written."""

    def log(self, stage, step, **numbers):
        if step == self.dies_in:
            raise Killed
        self.numbers[step] = numbers

    def log_samples(self, stage, samples):
        msgspec.json.encode(samples)
        self.samples += samples

    def save(self, stage, step, write, state):
        folder = self.folder / f"{stage}-{step}"
        folder.mkdir(parents=True)
        write(folder)
        self.saved.append(Saved(folder, step, state))

    def must_stop(self, reserve_s=0.0):
        return "signal" if self.stops_after in self.numbers else None

    def curve(self) -> dict[int, dict]:
        """All that must be alike when a step is made again."""
        return {
            step: {
                name: value
                for name, value in numbers.items()
                if not name.endswith("_s") and name not in VARYING
            }
            for step, numbers in sorted(self.numbers.items())
        }


GRPO = {"max_grad_norm": 1.0, "piece_size": 32, "objective": ObjectiveConfig(beta=1e-4)}


def config(**changes) -> ContrastiveConfig:
    """Small enough for a second."""
    sampler = changes.pop("sampler", "bucket")
    grpo = changes.pop("grpo", {})
    usual = {
        "num_steps": 30,
        "prompts_per_step": 4,
        "group_size": 8,
        "learning_rate": 0.003,
        "num_warmup_steps": 0,
        "masks_cut": False,
        "checkpoint_every": 1000,
        "sampling": Sampling(max_tokens=10),
        "stream": StreamConfig(contrast=ContrastConfig(sampler=sampler)),
        "environment": EnvironmentConfig(**changes.pop("environment", {})),
        "grpo": GrpoConfig(**{**GRPO, **grpo}),
    }
    return ContrastiveConfig(**{**usual, **changes})


def make_taught_folder(folder: Path) -> Path:
    """A toy model that has learned to answer, with any program of the table alike, as after stage
    1: what is left to learn is which."""
    make_model_folder(folder, seed=0)
    policy = load_policy(PolicyConfig(path=str(folder), tuning="full", device="cpu"))
    with Archive.open(folder / "archive.sqlite") as archive:
        stream = Stream(tasks(), archive, DEVICE, StreamConfig())
        some = [stream.at(place, 0.0) for place in range(len(tasks()))]
        prompts = [policy.prompt_ids(one.messages) for one in some]
    rows = []
    for number, program in enumerate(PROGRAMS):
        words = policy.tokenizer(answer_to(program)).input_ids
        rows.append([*prompts[number % len(prompts)], *words, policy.ends[0]])
    tokens = torch.tensor(rows)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=0.01)
    for _ in range(60):
        logits = policy.model(tokens).logits[:, -9:-1]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, -8:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    policy.model.save_pretrained(folder)
    return folder


@dataclass
class Rig:
    """A life of a run: its model, its judge, its archive."""

    settings: ContrastiveConfig
    scorer: Scorer
    policy: Policy
    judge: ToyJudge
    archive: Archive
    run: MemoryRun

    def train(self, checkpoint: Saved | None = None) -> int:
        """The number of steps that are done."""
        return self.trained(checkpoint)[0]

    def trained(self, checkpoint: Saved | None = None) -> tuple[int, str | None]:
        """And why it stopped before its end."""
        done = checkpoint.step if checkpoint else 0
        return train(self.loop(done), checkpoint.folder if checkpoint else None)

    def loop(self, num_done: int = 0) -> StepLoop:
        return StepLoop(
            config=self.settings,
            policy=self.policy,
            rollouts=TransformersRollouts(self.policy),
            scorer=self.scorer,
            tasks=tasks(),
            run=self.run,
            num_done=num_done,
        )


@contextmanager
def rig(folder: Path, model: Path, settings: ContrastiveConfig, run: MemoryRun) -> Iterator[Rig]:
    """On the archive of a folder."""
    judge = ToyJudge()
    policy = load_policy(PolicyConfig(path=str(model), tuning="full", device="cpu"))
    with Archive.open(folder / "archive.sqlite") as archive:
        scorer = Scorer([judge], archive, POLICY, settings.environment)
        yield Rig(settings, scorer, policy, judge, archive, run)
