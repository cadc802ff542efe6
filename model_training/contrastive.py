"""Stage 3: contrastive reinforcement learning.

    name = contrastive(policy, rollouts, scorer, tasks, config, run, seed=0)

A step asks the product's own question about some tasks, with exemplars of what is known by then,
samples a group of answers to each, has all of them judged, and moves the weights by what an answer
is worth beside the others of its group (grpo.py). What passed is an exemplar from the next step on.

All that a step draws is a function of the seed and of its number, and what its prompts show of the
archive up to a noted moment: a run that was killed makes the same steps again. That is so as far
as the judge says the same again and the device computes the same again: verdicts that hold are
taken from the archive, and kernels of a GPU may add in another order.

Source: CUDA-L1 (arXiv 2507.14111), section 2.4. Departures are listed in README.md.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from cudal1_ci.records import Device
from cudal1_ci.records.archive import Archive
from model_training.contrastive_config import ContrastiveConfig
from model_training.course import STAGE, Course, RunFolder, Scoring, ends_before
from model_training.engines import ENGINES, Engine
from model_training.policy import Policy
from model_training.rollouts import Rollouts
from model_training.run import Run, Stopped
from model_training.scoring import Scorer
from model_training.tasks.record import Task


class Checkpoint(Protocol):
    """What a run goes on from: `checkpoints.Checkpoint`."""

    @property
    def folder(self) -> Path: ...

    @property
    def step(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class Stage:
    """All that the stage is made of."""

    config: ContrastiveConfig
    policy: Policy
    """With the weights that the stage begins with, when it goes on from a checkpoint too."""
    rollouts: Rollouts
    scoring: Scoring
    tasks: Sequence[Task]
    archive: Archive
    device: Device
    """Of the judge."""
    run: RunFolder

    def course(self, num_done: int) -> Course:
        return Course(
            config=self.config,
            tasks=self.tasks,
            archive=self.archive,
            device=self.device,
            scoring=self.scoring,
            run=self.run,
            prompt_ids=self.policy.prompt_ids,
            num_done=num_done,
        )


@dataclass(frozen=True, kw_only=True)
class Trained:
    """How far a training came."""

    num_done: int
    """Steps, those before a checkpoint among them."""
    stopped: str | None = None
    """Why not to the end."""


def contrastive(
    policy: Policy,
    rollouts: Rollouts,
    scorer: Scorer,
    tasks: Sequence[Task],
    config: ContrastiveConfig,
    run: Run,
    seed: int,
) -> str:
    """Stage 3, from its last checkpoint where it has one; the name of the weights that came of it.

    Args:
        policy: With the weights that the stage begins with, when it goes on from a checkpoint too:
            divergence is measured to them.

    Raises:
        Stopped: The run must stop; there is a checkpoint of what was done.
        UnsupportedError: The model is none that the engine can train.
        ValueError: The scorer pays otherwise than the configuration says.
    """
    if scorer.config != config.environment:
        raise ValueError(f"expected a scorer that pays by {config.environment}")
    stage = Stage(
        config=msgspec.structs.replace(
            config, stream=msgspec.structs.replace(config.stream, seed=seed)
        ),
        policy=policy,
        rollouts=rollouts,
        scoring=scorer,
        tasks=tasks,
        archive=scorer.archive,
        device=scorer.device(),
        run=run,
    )
    checkpoint = run.newest(STAGE)
    run.rewind(STAGE, checkpoint.step if checkpoint else 0)
    found = train(stage, checkpoint)
    if found.stopped is not None:
        raise Stopped(found.stopped)
    name = f"{STAGE}-{found.num_done}"
    run.finish(STAGE, name)
    return name


def train(stage: Stage, checkpoint: Checkpoint | None = None) -> Trained:
    """Train up to the last step, or as far as there is time; there is a checkpoint then."""
    if stage.config.engine == "trl":
        from model_training import trl_engine  # here, as TRL takes seconds to import

        return trl_engine.train(stage, checkpoint)
    engine = ENGINES[stage.config.engine](stage.policy, stage.config)
    if checkpoint is not None:
        engine.load(checkpoint.folder)
        stage.rollouts.renew()
    done = checkpoint.step if checkpoint else 0
    course, saved, longest_s = stage.course(done), done, 0.0
    while True:
        ends, stopped = ends_before(stage.run, stage.config, done, longest_s)
        if ends:
            break
        started_s = time.monotonic()
        try:
            make_step(stage, course, engine, done + 1)
        except Stopped as reason:  # while answers were judged: no weight has moved yet
            stopped = str(reason)
            break
        done += 1
        longest_s = max(longest_s, time.monotonic() - started_s)
        if done % stage.config.checkpoint_every == 0:
            stage.run.save(STAGE, saved := done, engine.save, course.state(done))
    if saved != done:
        stage.run.save(STAGE, done, engine.save, course.state(done))
    return Trained(num_done=done, stopped=stopped)


def make_step(stage: Stage, course: Course, engine: Engine, step: int) -> None:
    """Ask, sample, judge, learn, write down."""
    config, started_s = stage.config, time.monotonic()
    prompts = course.prompts(step)
    asked_s = time.monotonic()
    completions = stage.rollouts.sample(
        [one.messages for one in prompts], config.group_size, config.sampling, course.seed(step)
    )
    sampled_s = time.monotonic()
    judged = course.judged(prompts, completions)
    judged_s = time.monotonic()
    watched = engine.update(step, judged)
    stage.rollouts.renew()
    ended_s = time.monotonic()
    num_tokens = sum(len(one.token_ids) for group in judged for one in group.completions)
    seconds = {
        "ask_s": asked_s - started_s,
        "generate_s": sampled_s - asked_s,
        "score_s": judged_s - sampled_s,
        "train_s": ended_s - judged_s,
        "tokens_per_s": num_tokens / (sampled_s - asked_s),
    }
    course.finish(step, judged, {**watched, **seconds})
