"""What tests of the stages share: the toy language, its judge, a policy that speaks it a bit."""

from __future__ import annotations

from pathlib import Path

from cudal1_ci.records import Record
from cudal1_ci.records.archive import Archive
from model_training.environment import EnvironmentConfig
from model_training.examples import CollectionConfig, Example, examples_of, judged
from model_training.policy import Policy, PolicyConfig, load_policy
from model_training.rollouts.transformers_rollouts import TransformersRollouts
from model_training.run import Run
from model_training.scoring import Scorer
from model_training.sft import SupervisedConfig, fit
from model_training.toy import DEVICE, PROGRAMS, ToyJudge, ToyProposer, make_model_folder, tasks

TASKS = tasks()
BRIEF = SupervisedConfig(
    learning_rate=1e-2, epochs=10, batch_size=8, micro_batch_size=8, checkpoint_steps=1000
)


class Nothing(Record, frozen=True, kw_only=True):
    pass


def opened(folder: Path, weights: Path, kind: type[Run] = Run, **options) -> Run:
    return kind.open(folder, Nothing(), seed=0, weights=weights, **options)


def toy_weights(folder: Path) -> Path:
    return make_model_folder(folder, seed=0)


def toy_policy(weights: Path, adapter: Path | None = None) -> Policy:
    return load_policy(PolicyConfig(path=str(weights), tuning="full"), adapter)


def all_answers(archive: Archive) -> list[Example]:
    """Of each task the programs that passed, however slow."""
    config = CollectionConfig(min_speedup=0.1, max_per_task=len(PROGRAMS), contrasts=False)
    return [
        example
        for task in TASKS
        for example in examples_of(
            task, judged(task, [ToyProposer()], ToyJudge(), archive, "x"), DEVICE, (), config
        )
    ]


def begun(weights: Path, folder: Path) -> Path:
    """Weights that were trained a little: some answers are right."""
    policy = toy_policy(weights)
    with (
        Archive.open(folder / "begun.sqlite") as archive,
        opened(folder / "begun", weights) as run,
    ):
        found = fit(policy, all_answers(archive), BRIEF, run, seed=0)
        assert found.stopped is None
        return run.newest("supervised").folder


def scorer(archive: Archive, judge: ToyJudge | None = None, run: Run | None = None) -> Scorer:
    go_on = run.go_on if run is not None else lambda: None
    return Scorer([judge or ToyJudge()], archive, "toy", EnvironmentConfig(), go_on)


def rollouts(policy: Policy) -> TransformersRollouts:
    return TransformersRollouts(policy)
