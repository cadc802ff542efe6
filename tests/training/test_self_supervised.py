"""Stage 2: what is learned from, when it ends, and that success rises."""

from __future__ import annotations

import json
import os
import random
import signal

import msgspec
import pytest
import torch

from cudal1_ci.records.archive import Archive
from model_training.asking import RolloutGroup, first_prompt
from model_training.rollouts import Completion, Sampling
from model_training.run import METRICS, Run, Stopped
from model_training.self_supervised import (
    BEST,
    STAGE,
    SelfSupervisedConfig,
    best_of,
    chosen,
    has_stopped,
    kept,
    measures,
    self_supervised,
    success,
)
from model_training.sft import SupervisedConfig
from model_training.toy import DEVICE, PROGRAMS, ToyJudge, answer_to
from tests.training.toy_stages import (
    TASKS,
    begun,
    opened,
    rollouts,
    scorer,
    toy_policy,
    toy_weights,
)

BY_NAME = {one.name: one for one in PROGRAMS}
CONFIG = SelfSupervisedConfig(
    num_rounds=3,
    tasks_per_round=4,
    num_samples=24,
    max_per_task=4,
    sampling=Sampling(max_tokens=12),
    training=SupervisedConfig(
        learning_rate=5e-3, epochs=5, batch_size=8, micro_batch_size=8, checkpoint_steps=5
    ),
)


@pytest.fixture
def archive(tmp_path):
    with Archive.open(tmp_path / "archive.sqlite") as found:
        yield found


def group(archive, task, *names):
    prompt = first_prompt(task, archive, DEVICE)
    answers = [Completion(text=answer_to(BY_NAME[name])) for name in names]
    asked = [(prompt, one.text, one.is_cut) for one in answers]
    return RolloutGroup(
        prompt=prompt, completions=answers, outcomes=scorer(archive).outcomes(asked)
    )


def test_what_is_kept_is_right_no_copy_and_there_once(archive):
    names = ["indexed", "copy", "wrong", "indexed", "looped", "kept", "broken"]
    found = kept([group(archive, TASKS[0], *names)], 4, random.Random(0))
    said = {one.messages[-1].content for one in found}
    assert said == {answer_to(BY_NAME[name]) for name in ("indexed", "looped")}
    assert all(one.messages[-1].role == "assistant" for one in found)
    assert {one.task for one in found} == {"toy-0"}


def test_of_a_task_at_most_so_many_are_kept_and_not_the_fastest_alone(archive):
    one = group(archive, TASKS[0], "scaled", "indexed", "same", "looped")
    other = group(archive, TASKS[1], "scaled")
    seen = set()
    for seed in range(20):
        found = kept([one, other], 2, random.Random(seed))
        assert [example.task for example in found] == ["toy-0", "toy-0", "toy-1"]
        seen |= {example.speedup for example in found[:2]}
    assert len(seen) == 4


def test_a_cut_answer_is_not_learned_from(archive):
    found = group(archive, TASKS[0], "indexed")
    cut = [msgspec.structs.replace(found.completions[0], is_cut=True)]
    assert (
        kept(
            [RolloutGroup(prompt=found.prompt, completions=cut, outcomes=found.outcomes)], 4, random
        )
        == []
    )


def test_success_is_of_all_answers_and_copies_are_none(archive):
    found = [group(archive, TASKS[0], "indexed", "copy", "wrong", "kept")]
    assert success(found) == 0.25
    said = measures(found)
    assert (said["copies"], said["hacks"], said["format"]) == (0.25, 0.25, 1.0)


@pytest.mark.parametrize(
    ("rates", "patience", "best", "is_over"),
    [
        ([], 1, 0, False),
        ([0.2], 1, 0, False),
        ([0.2, 0.3], 1, 1, False),
        ([0.2, 0.205], 1, 0, True),
        ([0.2, 0.1], 2, 0, False),
        ([0.2, 0.1, 0.15], 2, 0, True),
        ([0.2, 0.1, 0.3], 2, 2, False),
    ],
)
def test_it_ends_when_success_rises_no_more(rates, patience, best, is_over):
    config = msgspec.structs.replace(CONFIG, patience=patience, min_gain=0.01)
    assert best_of(rates, config) == best
    assert has_stopped(rates, config) is is_over


def test_rounds_go_through_all_tasks():
    config = msgspec.structs.replace(CONFIG, tasks_per_round=2)
    first, second, third = (chosen(TASKS, config, 5, number) for number in range(3))
    assert {one.name for one in first + second} == {one.name for one in TASKS}
    assert third == first
    assert chosen(TASKS, msgspec.structs.replace(CONFIG, tasks_per_round=99), 5, 0) != []


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    folder = tmp_path_factory.mktemp("start")
    torch.set_num_threads(1)
    weights = toy_weights(folder / "weights")
    return weights, begun(weights, folder)


def curve(folder):
    lines = map(json.loads, (folder / METRICS).read_text().splitlines())
    return [
        {key: value for key, value in one.items() if key != "seconds" and not key.endswith("_s")}
        for one in lines
    ]


def stage2(folder, start, judge=None, config=CONFIG, kind=Run, **options):
    """The stage in a folder; the policy and the name of its weights."""
    weights, adapter = start
    policy = toy_policy(weights, adapter)
    with (
        Archive.open(folder / "archive.sqlite") as archive,
        opened(folder, weights, kind, **options) as run,
    ):
        judges = scorer(archive, judge, run)
        name = self_supervised(policy, rollouts(policy), judges, TASKS, config, run, seed=0)
    return policy, name, run


def test_success_rises_and_a_run_that_was_stopped_is_the_same(start, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    policy, name, run = stage2(whole, start)
    rates = [one["correct"] for one in curve(whole) if "correct" in one]
    assert len(rates) == 3
    assert rates[-1] > rates[0] + 0.2
    assert run.finished() == {STAGE: name}
    assert (run.checkpoints / name).is_dir()
    steps = [one["step"] for one in curve(whole)]
    assert steps == list(range(1, len(steps) + 1))

    class Stopping(Run):
        """Is told to stop in its second round's training, and again in its third's."""

        def log(self, stage, step, **numbers):
            super().log(stage, step, **numbers)
            if step in stops:
                os.kill(os.getpid(), signal.SIGTERM)

    rounds = [one["step"] for one in curve(whole) if "correct" in one]
    stops = {rounds[1] + 1, rounds[2]}
    with pytest.raises(Stopped):
        stage2(parts, start, kind=Stopping)
    stops.discard(rounds[1] + 1)
    with pytest.raises(Stopped):
        stage2(parts, start, kind=Stopping, is_resumed=True)
    judge = ToyJudge()
    again, name_again, _ = stage2(parts, start, judge, is_resumed=True)
    assert name_again == name
    assert curve(parts) == curve(whole)
    assert judge.asked == [], "all was sampled and judged before"
    for one, other in zip(policy.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)
    samples = (parts / "samples" / f"{STAGE}.jsonl").read_text().splitlines()
    assert len(samples) == 3 * 4 * CONFIG.num_samples


def test_without_a_rise_it_ends_with_the_weights_that_answered_best(start, tmp_path):
    config = msgspec.structs.replace(CONFIG, min_gain=1.0)
    policy, name, _ = stage2(tmp_path, start, config=config)
    assert name == f"{BEST}-1"
    begin = toy_policy(*start)
    for one, other in zip(policy.parameters(), begin.parameters(), strict=True):
        assert torch.equal(one, other)
    assert sum("correct" in one for one in curve(tmp_path)) == 2
    _, name_again, _ = stage2(tmp_path, start, config=config, is_resumed=True)
    assert name_again == name


class NothingPasses(ToyJudge):
    def evaluate(self, problem, candidate):
        found = super().evaluate(problem, candidate)
        verdict = msgspec.structs.replace(found.verdict, status="incorrect_values")
        return msgspec.structs.replace(found, verdict=verdict, measurements=())


def test_rounds_without_a_success_train_on_nothing_and_end(start, tmp_path):
    _, name, _ = stage2(tmp_path, start, NothingPasses())
    assert name == f"{BEST}-1"
    assert [one["correct"] for one in curve(tmp_path)] == [0.0, 0.0]
    assert [one["kept"] for one in curve(tmp_path)] == [0, 0]
