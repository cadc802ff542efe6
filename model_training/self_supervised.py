"""Run stage 2: learn from own answers that are right.

    self_supervised(policy, rollouts, scorer, tasks, config, run, seed)

A round samples answers to tasks, keeps those that are executable and correct, and trains on them as
stage 1 does: REINFORCE with a reward of 1 for success, 0 for all else and no baseline.

- Copies of the reference are counted and kept out, else a policy that copies is all that comes.
- Of near-duplicates one is kept, and of a task at most so many, else easy tasks are most of it.
- Rounds end when the success rate (copies are no success) has not risen by `min_gain` above the
  best so far for `patience` rounds, with the weights that answered best; or after `num_rounds`.

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
from typing import TYPE_CHECKING

import msgspec

from cudal1_ci.errors import ConfigError
from cudal1_ci.propose.llm.fingerprint import fingerprint
from cudal1_ci.propose.llm.servers import Message
from cudal1_ci.records import Record
from cudal1_ci.records.validation import at_least
from model_training.answers import code_of
from model_training.asking import RolloutGroup, ask, first_prompt, sample_lines
from model_training.checkpoints import Checkpoint, write_text
from model_training.environment import COPY, NO_CODE
from model_training.examples import Example
from model_training.policy import Policy
from model_training.rollouts import Rollouts, Sampling
from model_training.run import Run, Stopped
from model_training.run_files import pretty
from model_training.scoring import Scorer
from model_training.sft import SupervisedConfig, fit
from model_training.table import HACKS, NOT_EXECUTED
from model_training.tasks.record import Task

if TYPE_CHECKING:
    from model_training.run_setup import RunSetup

STAGE = "self_supervised"
BEST = "self_supervised_best"
"""Checkpoints of the weights whose answers were the best so far."""


class SelfSupervisedConfig(Record, frozen=True, kw_only=True):
    """Configure stage 2."""

    num_rounds: int = 3
    """At the most."""
    tasks_per_round: int = 80
    num_samples: int = 8
    """Answers to a task."""
    max_per_task: int = 4
    """Of a task's answers, those that are learned from."""
    min_gain: float = 0.01
    """Of the success rate; less is no rise."""
    patience: int = 1
    """Rounds without a rise after which it ends."""
    sampling: Sampling = Sampling(temperature=1.0, max_tokens=512)
    training: SupervisedConfig = SupervisedConfig(learning_rate=1e-4, epochs=1.0)

    def __post_init__(self) -> None:
        names = ("num_rounds", "tasks_per_round", "num_samples", "max_per_task", "patience")
        at_least(self, "self-supervised", 1, *names)


class Progress(Record, frozen=True, kw_only=True):
    """Hold what a checkpoint notes of the rounds."""

    round: int = 0
    """The one that was sampled last; they count from 0."""
    first_step: int = 0
    """The step that was its sampling; those of its training follow."""
    rates: tuple[float, ...] = ()
    """Success of each round's answers, which are those of the weights before its training."""


class Round(Record, frozen=True, kw_only=True):
    """Hold what came of sampling and verification; a file."""

    rate: float
    examples: tuple[Example, ...]


def main(setup: RunSetup) -> None:
    """Run the stage from the weights of the last stage before it."""
    setup.begin_at(setup.weights_before("self_supervised"))
    self_supervised(
        setup.policy,
        setup.own_rollouts(),
        setup.scorer,
        setup.split.training,
        setup.config.self_supervised,
        setup.run,
        setup.config.run.seed,
    )


def self_supervised(
    policy: Policy,
    rollouts: Rollouts,
    scorer: Scorer,
    tasks: Sequence[Task],
    config: SelfSupervisedConfig,
    run: Run,
    seed: int,
) -> str:
    """Run from the stage's last checkpoint, if any; return the name of the resulting weights.

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
    """Return the progress; the policy gets the weights of then."""
    if checkpoint is None:
        return Progress(round=-1)
    policy.load(checkpoint.folder)
    rollouts.renew()
    return msgspec.convert(checkpoint.state()["progress"], Progress)


def is_finished(checkpoint: Checkpoint) -> bool:
    """Return whether its round was trained to the end."""
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
    """Sample and verify the next round; a step of its own, with a checkpoint."""
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
    asked = ask(
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
    """Read a round from its file.

    Raises: ConfigError where the file is missing or holds no round.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Round)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(
            f"{path}: expected the answers of a round ({error}); remove the checkpoints of "
            f"{STAGE}, and the stage begins anew"
        ) from error


# --- rounds: what is asked, what is learned from, when they end; pure ---------------------------


def chosen(
    tasks: Sequence[Task], config: SelfSupervisedConfig, seed: int, number: int
) -> list[Task]:
    """Return the tasks of a round: those that no round has had, until all have had their turn."""
    order = list(tasks)
    random.Random(seed).shuffle(order)
    count = min(config.tasks_per_round, len(order))
    return [order[(number * count + place) % len(order)] for place in range(count)]


def kept(groups: Sequence[RolloutGroup], max_per_task: int, rng: random.Random) -> list[Example]:
    """Return answers to learn from: right, whole, no copy, of each form one; how fast does not
    count."""
    found: list[Example] = []
    for group in groups:
        problem, forms = group.prompt.task.problem, dict[str, Example]()
        pairs = list(zip(group.completions, group.outcomes, strict=True))
        rng.shuffle(pairs)
        for answer, outcome in pairs:
            evaluation = outcome.evaluation
            if evaluation is None or outcome.sample.speedup is None or answer.is_cut:
                continue
            code = code_of(problem, evaluation)
            if code is None or len(forms) == max_per_task:
                continue
            form = fingerprint(code)
            said = Message(role="assistant", content=answer.text)
            example = Example(
                task=group.prompt.task.name,
                messages=(*group.prompt.messages, said),
                speedup=outcome.sample.speedup,
                techniques=evaluation.candidate.techniques,
                proposer=evaluation.candidate.proposer,
                form=form,
            )
            forms.setdefault(form, example)
        found += forms.values()
    return found


def success(groups: Sequence[RolloutGroup]) -> float:
    """Return the share of all answers that are executable, correct and no copy."""
    statuses = statuses_of(groups)
    return statuses.count("passed") / len(statuses)


def measures(groups: Sequence[RolloutGroup]) -> dict[str, float]:
    """Return shares of all answers."""
    statuses = statuses_of(groups)
    cut = [one.is_cut for group in groups for one in group.completions]
    count = len(statuses)
    return {
        "correct": success(groups),
        "copies": statuses.count(COPY) / count,
        "format": 1 - statuses.count(NO_CODE) / count,
        "executable": sum(one not in NOT_EXECUTED for one in statuses) / count,
        "hacks": sum(one in HACKS for one in statuses) / count,
        "cut": sum(cut) / count,
    }


def statuses_of(groups: Sequence[RolloutGroup]) -> list[str]:
    return [one.sample.status for group in groups for one in group.outcomes]


def best_of(rates: Sequence[float], config: SelfSupervisedConfig) -> int:
    """Return the last round whose answers were better than those of all before it."""
    best = 0
    for number, rate in enumerate(rates):
        if rate > rates[best] + config.min_gain:
            best = number
    return best


def has_stopped(rates: Sequence[float], config: SelfSupervisedConfig) -> bool:
    """Return whether success has not risen for as many rounds as there is patience."""
    return len(rates) - 1 - best_of(rates, config) >= config.patience
