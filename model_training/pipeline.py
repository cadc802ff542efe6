"""All stages of a run, one after another, with an evaluation after each.

    pipeline(place)           # what is finished is skipped, what was begun goes on

    evaluate base -> collect -> supervised -> evaluate -> self_supervised -> evaluate
        -> contrastive -> evaluate

Each of them is a function of this module too, for the commands of the stages alone. A stage begins
with the weights of the last stage before it that is finished in this run.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cudal1_ci.errors import ConfigError
from model_training import collect as collecting
from model_training.config import STAGES, StageName
from model_training.contrastive import contrastive as train_contrastive
from model_training.evaluate import Evaluated, path_of
from model_training.evaluate import evaluate as evaluate_policy
from model_training.examples import read_examples
from model_training.run import Stopped
from model_training.self_supervised import self_supervised as train_self_supervised
from model_training.supervised import supervised as train_supervised
from model_training.workplace import BASE, Workplace


def pipeline(place: Workplace, tell: Callable[[str], None] = lambda _: None) -> None:
    """Raises: Stopped where the run must stop before its end."""
    config = place.config.run
    if BASE in config.evaluates:
        evaluate(place, BASE)
    for stage in config.stages:
        if stage in place.run.finished():
            tell(f"{stage}: finished before")
        else:
            place.run.go_on()
            tell(f"{stage}: begins")
            COMMANDS[stage](place)
        if stage in config.evaluates:
            for one in evaluate(place, stage):
                tell(f"{stage}: {said(one)}")


def collect(place: Workplace) -> None:
    """The data set of stage 1."""
    config = place.config
    release = Path(config.tasks.cuda_l1).expanduser() if config.tasks.cuda_l1 else None
    collecting.collect(place.split.training, place.scorer, config.collection, place.run, release)


def supervised(place: Workplace) -> None:
    """Stage 1, on what was collected."""
    examples = read_examples(place.run.folder / collecting.EXAMPLES)
    place.begin_at(BASE)
    config, seed = place.config.supervised, place.config.run.seed
    found = train_supervised(place.policy, examples, config, place.run, seed)
    if found.stopped is not None:
        raise Stopped(found.stopped)


def self_supervised(place: Workplace) -> None:
    """Stage 2."""
    place.begin_at(place.weights_before("self_supervised"))
    train_self_supervised(
        place.policy,
        place.own_rollouts(),
        place.scorer,
        place.split.training,
        place.config.self_supervised,
        place.run,
        place.config.run.seed,
    )


def contrastive(place: Workplace) -> None:
    """Stage 3."""
    place.begin_at(place.weights_before("contrastive"))
    train_contrastive(
        place.policy,
        place.own_rollouts(),
        place.scorer,
        place.contrastive_tasks(),
        place.config.contrastive,
        place.run,
        place.config.run.seed,
    )


def evaluate(place: Workplace, name: str) -> list[Evaluated]:
    """What the weights of a stage can do, or those of `base`; read where it was done before. With
    rollouts from a server it is that server's model, under whatever name.

    Raises:
        ConfigError: The stage is not finished.
    """
    config, run = place.config.evaluate, place.run
    weights = weights_of(place, name)
    if any(not path_of(run.folder, name, seed, config).exists() for seed in config.seeds):
        run.go_on()
        if place.config.rollouts.kind != "server":
            place.begin_at(weights)
    found = evaluate_policy(
        name,
        place.split.evaluation,
        place.rollouts,
        place.evaluation_scorer,
        config,
        run,
        weights,
    )
    run.finish(f"evaluate-{name}", path_of(run.folder, name, config.seeds[0], config).name)
    return found


def weights_of(place: Workplace, name: str) -> str:
    """The name of a stage's weights."""
    if place.config.rollouts.kind == "server":
        return place.config.rollouts.server.model or ""
    finished = place.run.finished()
    if name != BASE and name not in finished:
        raise ConfigError(
            f"--name: {name!r} is not finished in {place.run.folder}; expected "
            f"{', '.join([BASE, *(one for one in STAGES[1:] if one in finished)])}"
        )
    return BASE if name == BASE else finished[name]


def said(one: Evaluated) -> str:
    """An evaluation in a line."""
    row = one.table
    return (
        f"correct {row.correct.value:.1%}, best of {row.k}: correct {row.pass_at_k.value:.1%}, "
        f"faster {row.faster_at_k.value:.1%}, geometric mean {row.geometric_mean.value:.3f}x "
        f"({row.num_tasks} tasks, seed {one.seed})"
    )


COMMANDS: dict[StageName, Callable[[Workplace], None]] = {
    "collect": collect,
    "supervised": supervised,
    "self_supervised": self_supervised,
    "contrastive": contrastive,
}
