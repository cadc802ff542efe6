"""Run stage 3: contrastive reinforcement learning.

    name = contrastive(policy, rollouts, scorer, tasks, config, run, seed=0)

A step asks the product's own question about some tasks, with exemplars of what is known by then,
samples a group of answers to each, has all of them verified (step_loop.py), and moves the weights
by what an answer is worth compared with the others of its group (grpo_trainer.py). What passed is
an exemplar from the next step on.

Source: CUDA-L1 (arXiv 2507.14111), section 2.4. README.md lists the departures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from cudal1_ci.records import Record
from cudal1_ci.records.validation import at_least, positive
from model_training.environment import EnvironmentConfig
from model_training.objective.loss import ObjectiveConfig
from model_training.objective.reward import SMOOTHING
from model_training.policy import Policy
from model_training.prompt_stream import StreamConfig
from model_training.rollouts import Rollouts, Sampling
from model_training.run import Run, Stopped
from model_training.scoring import Scorer
from model_training.step_loop import STAGE, StepLoop
from model_training.tasks.record import Task

if TYPE_CHECKING:
    from model_training.run_setup import RunSetup


class GrpoConfig(Record, frozen=True, kw_only=True):
    """Configure how a step moves the weights."""

    objective: ObjectiveConfig = ObjectiveConfig()
    num_updates: int = 1
    """Updates of the weights with the same completions; the ratio is 1 in the first."""
    max_grad_norm: float = 0.2
    piece_size: int = 8
    """Completions that go through the model at once: less memory, and the same gradient."""

    def __post_init__(self) -> None:
        at_least(self, "grpo", 1, "num_updates", "piece_size")
        positive(self, "grpo", "max_grad_norm")


class ContrastiveConfig(Record, frozen=True, kw_only=True):
    """Configure stage 3. The paper's baselines are settings: `stream.contrast.sampler` is `none`
    (GRPO without exemplars), `random` or `island`, and `learning_rate` is 0 for weights that stay
    while the exemplars get better (evolution)."""

    num_steps: int = 24
    prompts_per_step: int = 16
    group_size: int = 8
    """Completions of a prompt."""
    learning_rate: float = 2e-5
    num_warmup_steps: int = 3
    """Steps over which the learning rate rises to that; it is constant then."""
    smoothing: float = SMOOTHING
    """k of equation 6."""
    masks_cut: bool = True
    """Whether an answer that was cut at the longest length is not learned from; its reward, mostly
    0, counts for the others of its group all the same."""
    checkpoint_every: int = 5
    sampling: Sampling = Sampling()
    stream: StreamConfig = StreamConfig()
    environment: EnvironmentConfig = EnvironmentConfig()
    grpo: GrpoConfig = GrpoConfig()

    def __post_init__(self) -> None:
        at_least(self, "contrastive", 1, "num_steps", "prompts_per_step", "checkpoint_every")
        at_least(self, "contrastive", 2, "group_size")
        at_least(self, "contrastive", 0, "num_warmup_steps", "learning_rate")
        positive(self, "contrastive", "smoothing")
        num_completions = self.prompts_per_step * self.group_size
        if num_completions % self.grpo.piece_size:
            raise ValueError(
                f"grpo.piece-size: expected a divisor of the {num_completions} completions of a "
                f"step, got {self.grpo.piece_size}"
            )


def main(setup: RunSetup) -> None:
    """Run the stage from the weights of the last stage before it."""
    setup.begin_at(setup.weights_before("contrastive"))
    contrastive(
        setup.policy,
        setup.own_rollouts(),
        setup.scorer,
        setup.contrastive_tasks(),
        setup.config.contrastive,
        setup.run,
        setup.config.run.seed,
    )


def contrastive(
    policy: Policy,
    rollouts: Rollouts,
    scorer: Scorer,
    tasks: Sequence[Task],
    config: ContrastiveConfig,
    run: Run,
    seed: int,
) -> str:
    """Train from the stage's last checkpoint, if any; return the name of the resulting weights.

    Args:
        policy: With the weights that the stage begins with, when it resumes from a checkpoint too:
            divergence is measured to them.

    Raises:
        Stopped: The run must stop; there is a checkpoint of what was done.
        ValueError: The scorer pays otherwise than the configuration says.
    """
    from model_training.grpo_trainer import train  # here, as TRL takes seconds to import

    if scorer.config != config.environment:
        raise ValueError(f"expected a scorer that pays by {config.environment}")
    stream = msgspec.structs.replace(config.stream, seed=seed)
    checkpoint = run.newest(STAGE)
    done = checkpoint.step if checkpoint else 0
    run.rewind(STAGE, done)
    loop = StepLoop(
        config=msgspec.structs.replace(config, stream=stream),
        policy=policy,
        rollouts=rollouts,
        scorer=scorer,
        tasks=tasks,
        run=run,
        num_done=done,
    )
    num_done, stopped = train(loop, checkpoint.folder if checkpoint else None)
    if stopped is not None:
        raise Stopped(stopped)
    name = f"{STAGE}-{num_done}"
    run.finish(STAGE, name)
    return name
