"""Stage 2: learning from its own answers that are right.

    self_supervised(policy, rollouts, scorer, tasks, config, run, seed)

A round samples answers to tasks, has them judged, keeps those that are executable and correct, and
trains on them as stage 1 does; the next round samples from what came of it. That is REINFORCE with
a reward of 1 for success and 0 for all else and no baseline; how fast an answer is does not count.

- An answer that is the reference again is right and teaches nothing: such copies are counted and
  kept out, else a policy that copies is all that comes of it.
- Of near-duplicates one is kept, and of a task at most so many: tasks that are easy already would
  be most of what is learned.
- Rounds end when the success rate (of all answers, copies no success) has not risen by
  `min_gain` above the best so far for `patience` rounds; the weights at the end are then those
  whose answers were the best. They end too when there are as many as there may be, with the last.

A round's answers are kept in RUN/self_supervised/round-N.json before it trains, so that a run that
was stopped samples no round twice.

Source: CUDA-L1 (arXiv 2507.14111), section 2.3 and table 1, which give neither the size of a round
nor the rule of when to stop. Departures: copies, duplicates and the cap of a task.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from cudal1_ci.errors import ConfigError
from cudal1_ci.records import Record
from model_training.asking import first_prompt, judged, sample_lines
from model_training.checkpoints import Checkpoint, write_text
from model_training.collection import Example
from model_training.policy import Policy
from model_training.rollouts import Rollouts
from model_training.rounds import (
    SelfSupervisedConfig,
    best_of,
    chosen,
    has_stopped,
    kept,
    measures,
    success,
)
from model_training.run import Run, Stopped
from model_training.run_files import pretty
from model_training.scoring import Scorer
from model_training.supervised import fit
from model_training.tasks.record import Task

STAGE = "self_supervised"
BEST = "self_supervised_best"
"""Checkpoints of the weights whose answers were the best so far."""


class Progress(Record, frozen=True, kw_only=True):
    """What a checkpoint notes of the rounds."""

    round: int = 0
    """The one that was sampled last; they count from 0."""
    first_step: int = 0
    """The step that was its sampling; those of its training follow."""
    rates: tuple[float, ...] = ()
    """Success of each round's answers, which are those of the weights before its training."""


class Round(Record, frozen=True, kw_only=True):
    """What came of sampling and judging; a file."""

    rate: float
    examples: tuple[Example, ...]


def self_supervised(
    policy: Policy,
    rollouts: Rollouts,
    scorer: Scorer,
    tasks: Sequence[Task],
    config: SelfSupervisedConfig,
    run: Run,
    seed: int,
) -> str:
    """Stage 2, from its last checkpoint where it has one; the name of the weights that came of it.

    Raises:
        Stopped: The run must stop; there is a checkpoint of what was done.
    """
    checkpoint = run.newest(STAGE)
    run.rewind(STAGE, checkpoint.step if checkpoint else 0)
    progress = resumed_at(policy, rollouts, checkpoint)
    while not has_stopped(progress.rates, config):
        if checkpoint is not None and not is_finished(checkpoint):
            train(policy, rollouts, config, run, seed, progress, checkpoint)
        if len(progress.rates) == config.num_rounds:
            return finished(run, run.newest(STAGE))
        run.go_on()
        progress = sampled(policy, rollouts, scorer, tasks, config, run, seed, progress)
        checkpoint = run.newest(STAGE)
    best = run.newest(BEST)
    assert best is not None
    policy.load(best.folder)
    rollouts.renew()
    return finished(run, best)


def resumed_at(policy: Policy, rollouts: Rollouts, checkpoint: Checkpoint | None) -> Progress:
    """Where the stage was; the policy has the weights of then."""
    if checkpoint is None:
        return Progress(round=-1)
    policy.load(checkpoint.folder)
    rollouts.renew()
    return msgspec.convert(checkpoint.state()["progress"], Progress)


def is_finished(checkpoint: Checkpoint) -> bool:
    """Whether its round was trained to the end."""
    return bool(checkpoint.state()["is_finished"])


def finished(run: Run, checkpoint: Checkpoint | None) -> str:
    assert checkpoint is not None
    run.finish(STAGE, checkpoint.folder.name)
    return checkpoint.folder.name


def sampled(
    policy: Policy,
    rollouts: Rollouts,
    scorer: Scorer,
    tasks: Sequence[Task],
    config: SelfSupervisedConfig,
    run: Run,
    seed: int,
    before: Progress,
) -> Progress:
    """Sample and judge the next round; a step of its own, with a checkpoint."""
    number = before.round + 1
    last = run.newest(STAGE)
    step = (last.step if last else 0) + 1
    started_s = time.monotonic()
    usable = scorer.usable(chosen(tasks, config, seed, number))
    checked_s = time.monotonic() - started_s
    if not usable:
        raise ConfigError(f"{STAGE}: the judge accepts the reference of no task of round {number}")
    device = scorer.device()
    prompts = [first_prompt(task, scorer.archive, device) for task in usable]
    asked = judged(
        prompts, rollouts, scorer, config.num_samples, config.sampling, seed * 1000 + number
    )
    groups = asked.groups
    examples = kept(groups, config.max_per_task, random.Random(f"{seed} {number}"))
    found = Round(rate=success(groups), examples=tuple(examples))
    path = round_path(run, number)
    path.parent.mkdir(exist_ok=True)
    write_text(path, pretty(msgspec.to_builtins(found)))
    progress = Progress(round=number, first_step=step, rates=(*before.rates, found.rate))
    if best_of(progress.rates, config) == number:
        run.save(BEST, step, policy.save, {"round": number, "rate": found.rate})
    numbers = {**measures(groups), "kept": len(examples), "round": number, **asked.numbers}
    run.log(STAGE, step, **{**numbers, "score_s": checked_s + asked.score_s})
    run.log_samples(STAGE, sample_lines(STAGE, step, groups, seed * 1000 + number))
    state = {"progress": msgspec.to_builtins(progress), "is_sampled": True}
    # Without an answer to learn from, a round is over when it was sampled.
    run.save(STAGE, step, policy.save, {**state, "is_finished": not examples})
    return progress


def train(
    policy: Policy,
    rollouts: Rollouts,
    config: SelfSupervisedConfig,
    run: Run,
    seed: int,
    progress: Progress,
    checkpoint: Checkpoint,
) -> None:
    """Train on the answers of the round that was sampled, from a checkpoint of that sampling or in
    the midst of the training. Raises: Stopped where the run must stop."""
    examples = read_round(round_path(run, progress.round)).examples
    found = fit(
        policy,
        examples,
        config.training,
        run,
        seed=seed * 1000 + progress.round,
        stage=STAGE,
        first_step=progress.first_step,
        state={"progress": msgspec.to_builtins(progress)},
        resumed=None if checkpoint.state().get("is_sampled") else checkpoint,
    )
    if found.stopped is not None:
        raise Stopped(found.stopped)
    rollouts.renew()


def round_path(run: Run, number: int) -> Path:
    return run.folder / STAGE / f"round-{number}.json"


def read_round(path: Path) -> Round:
    """Raises: ConfigError where the file is not there or no round."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Round)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(
            f"{path}: expected the answers of a round ({error}); remove the checkpoints of "
            f"{STAGE}, and the stage begins anew"
        ) from error
