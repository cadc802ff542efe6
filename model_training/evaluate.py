"""Evaluate what a policy can do on tasks that it has never learned from.

    evaluation = evaluate("supervised", tasks, rollouts, scorer, EvaluateConfig(), run, policy_name)

Samples and scores k answers to each task, for each seed of sampling, and writes all samples and a
row of the table (table.py) to RUN/evaluations/NAME.json (NAME-SEED.json for further seeds). A
killed evaluation samples the same answers and finds their verdicts, in an archive of its own, so
that no prompt of training shows one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from cudal1_ci.errors import ConfigError
from cudal1_ci.records import Record
from cudal1_ci.records.validation import at_least
from model_training.asking import ask, first_prompt, sample_lines
from model_training.checkpoints import write_text
from model_training.repeats import repeated
from model_training.rollouts import Rollouts, Sampling
from model_training.run import Run
from model_training.run_files import EVALUATION, pretty
from model_training.scoring import Scorer
from model_training.table import Sample, Share, Table, table
from model_training.tasks.record import Task

if TYPE_CHECKING:
    from model_training.run_setup import RunSetup

EVALUATIONS = "evaluations"
ARCHIVE = "evaluation.sqlite"


class EvaluateConfig(Record, frozen=True, kw_only=True):
    """Configure how a policy is evaluated; the tasks are those of the split."""

    k: int = 8
    """Answers to a task, for each seed."""
    seeds: tuple[int, ...] = (0,)
    """Of sampling."""
    num_measured: int = 1
    """How often each right program is measured; its speedup is the geometric mean (repeats.py)."""
    sampling: Sampling = Sampling(temperature=0.8, max_tokens=512)

    def __post_init__(self) -> None:
        at_least(self, "evaluate", 1, "k", "num_measured")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ConfigError(f"evaluate.seeds: expected different seeds, got {list(self.seeds)}")


class Evaluated(Record, frozen=True, kw_only=True):
    """Hold an evaluation of one seed; the file."""

    name: str
    """Of the stage that has just ended, or `base`."""
    policy: str
    """Of the weights: a checkpoint's name, or `base`."""
    k: int
    temperature: float
    seed: int
    samples: tuple[Sample, ...]
    table: Table
    num_refused: int = 0
    """Tasks that were left out, as the verifier does not accept their reference."""


def main(setup: RunSetup, name: str) -> list[Evaluated]:
    """Evaluate the weights of a stage, or those of `base`; read where it was done before. With
    rollouts from a server it is that server's model, under any name.

    Raises:
        ConfigError: The stage is not finished.
    """
    config, run = setup.config.evaluate, setup.run
    weights = setup.weights_of(name)
    if any(not path_of(run.folder, name, seed, config).exists() for seed in config.seeds):
        run.go_on()
        if setup.config.rollouts.kind != "server":
            setup.begin_at(weights)
    scorer, tasks = setup.evaluation_scorer, setup.split.evaluation
    found = evaluate(name, tasks, setup.rollouts, scorer, config, run, weights)
    run.finish(f"evaluate-{name}", path_of(run.folder, name, config.seeds[0], config).name)
    return found


def evaluate(
    name: str,
    tasks: Sequence[Task],
    rollouts: Rollouts,
    scorer: Scorer,
    config: EvaluateConfig,
    run: Run,
    policy: str,
) -> list[Evaluated]:
    """Evaluate with all seeds; read what is there already.

    Raises:
        ConfigError: The verifier accepts none of the tasks.
        Stopped: The run must stop.
    """
    found = []
    for seed in config.seeds:
        path = path_of(run.folder, name, seed, config)
        if path.exists():
            found.append(msgspec.json.decode(path.read_bytes(), type=Evaluated))
            continue
        run.go_on()
        one = evaluated(name, tasks, rollouts, scorer, config, run, policy, seed)
        path.parent.mkdir(exist_ok=True)
        write_text(path, pretty(msgspec.to_builtins(one)))
        found.append(one)
    return found


def path_of(folder: Path, name: str, seed: int, config: EvaluateConfig) -> Path:
    file = f"{name}.json" if seed == config.seeds[0] else f"{name}-{seed}.json"
    return folder / EVALUATIONS / file


def evaluated(
    name: str,
    tasks: Sequence[Task],
    rollouts: Rollouts,
    scorer: Scorer,
    config: EvaluateConfig,
    run: Run,
    policy: str,
    seed: int,
) -> Evaluated:
    """Evaluate with one seed."""
    stage, number = f"{EVALUATION}{name}", config.seeds.index(seed)
    run.rewind(stage, number - 1)  # a stage of its own: what is rewound is not that of training
    started_s = time.monotonic()
    usable = scorer.usable(tasks)
    checked_s = time.monotonic() - started_s
    if not usable:
        raise ConfigError(
            f"evaluate: the judge accepts the reference of none of {len(tasks)} tasks for "
            "evaluation; `cudal1-ci verify` says why of one"
        )
    device = scorer.device()
    prompts = [first_prompt(task, scorer.archive, device) for task in usable]
    asked = ask(prompts, rollouts, scorer, config.k, config.sampling, seed)
    repeats_s = time.monotonic()
    groups = repeated(asked.groups, scorer, config.num_measured)
    repeats_s = time.monotonic() - repeats_s
    samples = tuple(one.sample for group in groups for one in group.outcomes)
    row = table(samples, config.k)
    numbers = {**asked.numbers, "score_s": checked_s + asked.score_s + repeats_s}
    shares = {
        name: value.value
        for name in row.__struct_fields__
        if isinstance(value := getattr(row, name), Share)
    }
    run.log(stage, number, success=row.success, hacks=row.hacks, **shares, **numbers)
    run.log_samples(stage, sample_lines(stage, number, groups, seed))
    return Evaluated(
        name=name,
        policy=policy,
        k=config.k,
        temperature=config.sampling.temperature,
        seed=seed,
        samples=samples,
        table=row,
        num_refused=len(tasks) - len(usable),
    )


def summary(one: Evaluated) -> str:
    """Return an evaluation in a line."""
    row = one.table
    return (
        f"correct {row.correct.value:.1%}, best of {row.k}: correct {row.pass_at_k.value:.1%}, "
        f"faster {row.faster_at_k.value:.1%}, geometric mean {row.geometric_mean.value:.3f}x "
        f"({row.num_tasks} tasks, seed {one.seed})"
    )
