"""What a policy can do on tasks that it has never learned from.

    evaluation = evaluate("supervised", tasks, rollouts, scorer, EvaluateConfig(), run, policy_name)

Of each task k answers are sampled and judged, for each seed of sampling; the first seed has the
likeliest answer too. The result is RUN/evaluations/NAME.json (NAME-SEED.json for further seeds)
with all samples and a row of the table (table.py). Judged again is nothing: a killed evaluation
samples the same answers and finds their verdicts. Verdicts on tasks of evaluation are in an archive
of their own, so that no prompt of training shows one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from cudal1_ci.errors import ConfigError
from cudal1_ci.records import Record
from cudal1_ci.records.validation import at_least
from model_training.asking import Asked, Group, first_prompt, judged, sample_lines
from model_training.checkpoints import write_text
from model_training.repeats import repeated
from model_training.rollouts import Rollouts, Sampling
from model_training.run import Run
from model_training.run_files import EVALUATION, pretty
from model_training.scoring import Scorer
from model_training.table import Sample, Table, table
from model_training.tasks.record import Task

EVALUATIONS = "evaluations"
ARCHIVE = "evaluation.sqlite"


class EvaluateConfig(Record, frozen=True, kw_only=True):
    """How a policy is evaluated; the tasks are those of the split."""

    k: int = 8
    """Answers to a task, for each seed."""
    seeds: tuple[int, ...] = (0,)
    """Of sampling."""
    num_measured: int = 1
    """How often each right program is measured; its speedup is the geometric mean (repeats.py)."""
    has_greedy: bool = True
    """Whether the likeliest answer is judged too."""
    sampling: Sampling = Sampling(temperature=0.8, max_tokens=512)

    def __post_init__(self) -> None:
        at_least(self, "evaluate", 1, "k", "num_measured")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ConfigError(f"evaluate.seeds: expected different seeds, got {list(self.seeds)}")


class Row(Record, frozen=True, kw_only=True):
    """Samples, and what they come to."""

    samples: tuple[Sample, ...]
    table: Table


class Evaluated(Record, frozen=True, kw_only=True):
    """An evaluation of one seed; the file."""

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
    """Tasks that were left out, as the judge does not accept their reference."""
    greedy: Row | None = None


def evaluate(
    name: str,
    tasks: Sequence[Task],
    rollouts: Rollouts,
    scorer: Scorer,
    config: EvaluateConfig,
    run: Run,
    policy: str,
) -> list[Evaluated]:
    """The evaluations of all seeds; those that are there already are read.

    Raises:
        ConfigError: The judge accepts none of the tasks.
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
    """The evaluation of one seed."""
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
    asked = judged(prompts, rollouts, scorer, config.k, config.sampling, seed)
    likeliest: Asked | None = None
    if config.has_greedy and seed == config.seeds[0]:
        settings = msgspec.structs.replace(config.sampling, temperature=0.0)
        likeliest = judged(prompts, rollouts, scorer, 1, settings, seed)
    repeats_s = time.monotonic()
    num_first, some = len(asked.groups), [*asked.groups, *(likeliest.groups if likeliest else ())]
    groups = repeated(some, scorer, config.num_measured)
    repeats_s = time.monotonic() - repeats_s
    samples = samples_of(groups[:num_first])
    row = table(samples, config.k)
    more = likeliest.numbers if likeliest else {}
    run.log(
        stage,
        number,
        correct=row.correct.value,
        geometric_mean=row.geometric_mean.value,
        rehearsed=asked.numbers["rehearsed"],
        generate_s=asked.generate_s + more.get("generate_s", 0.0),
        score_s=checked_s + asked.score_s + more.get("score_s", 0.0) + repeats_s,
        rehearse_s=asked.rehearse_s + more.get("rehearse_s", 0.0),
    )
    run.log_samples(stage, sample_lines(stage, number, groups[:num_first], seed))
    return Evaluated(
        name=name,
        policy=policy,
        k=config.k,
        temperature=config.sampling.temperature,
        seed=seed,
        samples=samples,
        table=row,
        num_refused=len(tasks) - len(usable),
        greedy=greedy_row(groups[num_first:]),
    )


def samples_of(groups: Sequence[Group]) -> tuple[Sample, ...]:
    return tuple(one.sample for group in groups for one in group.outcomes)


def greedy_row(groups: Sequence[Group]) -> Row | None:
    """None where none was asked for."""
    samples = samples_of(groups)
    return Row(samples=samples, table=table(samples, 1)) if samples else None
