"""Stage 1 learns what its examples answer, and a run that was stopped has the curve of one that
was not."""

from __future__ import annotations

import json
import math
import os
import signal

import msgspec
import pytest
import torch

from cudal1_ci.errors import UnsupportedError
from cudal1_ci.propose.llm.servers import Message
from cudal1_ci.records import Record
from model_training.examples import Example
from model_training.policy import PolicyConfig, load_policy
from model_training.rollouts import Sampling
from model_training.rollouts.transformers_rollouts import TransformersRollouts
from model_training.run import METRICS, Run
from model_training.sft import SupervisedConfig, rows_of, supervised
from tests.training.tiny_weights import tiny_weights

ANSWERS = {"sort": "yes one two", "these numbers": "no three", "fast": "four four four"}
CONFIG = SupervisedConfig(
    learning_rate=1e-2, epochs=4, batch_size=6, micro_batch_size=3, checkpoint_steps=100
)


def example(asked: str, answer: str) -> Example:
    messages = (Message(role="user", content=asked), Message(role="assistant", content=answer))
    return Example(
        task=asked, messages=messages, speedup=1.5, techniques=(), proposer="p", form=answer
    )


EXAMPLES = [example(*pair) for pair in ANSWERS.items()] * 6


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return tiny_weights(tmp_path_factory.mktemp("tiny"))


def policy_of(weights, tuning="lora", adapter=None):
    config = PolicyConfig(path=str(weights), lora_rank=8, tuning=tuning)
    return load_policy(config, adapter)


class Nothing(Record, frozen=True, kw_only=True):
    pass


def opened(folder, weights, **options):
    return Run.open(folder, Nothing(), seed=0, weights=weights, **options)


def curve(folder):
    lines = (folder / METRICS).read_text().splitlines()
    return [(one["step"], one["loss"], one["token_accuracy"]) for one in map(json.loads, lines)]


def test_the_loss_is_of_answers_alone_and_long_examples_are_left_out(weights):
    policy = policy_of(weights)
    long = example("sort", "one " * 50)
    (row,) = rows_of(policy, [example("sort", "yes one"), long], 30)
    counted = [token for token in row["labels"] if token != -100]
    assert policy.tokenizer.decode(counted).split() == ["yes", "one", "<|end|>"]
    assert row["input_ids"][-len(counted) :] == counted
    assert policy.tokenizer.decode(row["input_ids"]).startswith("<|user|>")


@pytest.mark.parametrize("tuning", ["lora", "full"])
def test_what_is_learned_is_what_the_model_answers(weights, tmp_path, tuning):
    policy = policy_of(weights, tuning)
    config = msgspec.structs.replace(CONFIG, epochs=20, learning_rate=1e-2)
    with opened(tmp_path, weights) as run:
        found = supervised(policy, EXAMPLES, config, run, seed=0)
    losses, accuracies = [loss for _, loss, _ in curve(tmp_path)], [a for *_, a in curve(tmp_path)]
    assert found.stopped is None
    assert found.step == len(losses) == 60
    assert losses[-1] < losses[0]
    assert accuracies[0] < 0.5
    assert accuracies[-1] == 1.0
    prompts = [(Message(role="user", content=asked),) for asked in ANSWERS]
    settings = Sampling(temperature=0.0, max_tokens=8)
    answers = TransformersRollouts(policy).sample(prompts, 1, settings, seed=0)
    assert [some[0].text.split() for some in answers] == [one.split() for one in ANSWERS.values()]
    assert not any(some[0].is_cut for some in answers)
    assert run.finished() == {"supervised": "supervised-60"}
    assert "forward" not in policy.base.__dict__
    again = policy_of(weights, tuning, run.newest("supervised").folder)
    assert TransformersRollouts(again).sample(prompts, 1, settings, seed=0) == answers


class Stopping(Run):
    """Is sent a signal at a step."""

    def log(self, stage, step, **numbers):
        super().log(stage, step, **numbers)
        if step == 5:
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("tuning", ["lora", "full"])
def test_a_run_that_was_stopped_has_the_same_curve_and_weights(weights, tmp_path, tuning):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    with opened(whole, weights) as run:
        policy = policy_of(weights, tuning)
        supervised(policy, EXAMPLES, CONFIG, run, seed=1)
    with Stopping.open(parts, Nothing(), seed=0, weights=weights) as run:
        found = supervised(policy_of(weights, tuning), EXAMPLES, CONFIG, run, seed=1)
    assert found.stopped == "SIGTERM"
    assert run.finished() == {}
    stopped_at = run.newest("supervised").step
    assert stopped_at in (5, 6)
    with opened(parts, weights, is_resumed=True) as run:
        again = policy_of(weights, tuning)
        assert supervised(again, EXAMPLES, CONFIG, run, seed=1).stopped is None
    assert curve(parts) == curve(whole)
    for one, other in zip(policy.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_kill_costs_the_steps_since_the_checkpoint_and_no_more(weights, tmp_path):
    config = msgspec.structs.replace(CONFIG, checkpoint_steps=4)
    with opened(tmp_path / "whole", weights) as run:
        supervised(policy_of(weights), EXAMPLES, config, run, seed=1)

    class Killed(Run):
        def log(self, stage, step, **numbers):
            super().log(stage, step, **numbers)
            if step == 7:
                raise KeyboardInterrupt

    with (
        pytest.raises(KeyboardInterrupt),
        Killed.open(tmp_path / "parts", Nothing(), seed=0, weights=weights) as run,
    ):
        supervised(policy_of(weights), EXAMPLES, config, run, seed=1)
    assert [step for step, *_ in curve(tmp_path / "parts")] == [1, 2, 3, 4, 5, 6, 7]
    with opened(tmp_path / "parts", weights, is_resumed=True) as run:
        assert run.newest("supervised").step == 4
        supervised(policy_of(weights), EXAMPLES, config, run, seed=1)
    assert curve(tmp_path / "parts") == curve(tmp_path / "whole")


def test_when_the_time_is_over_there_is_a_checkpoint(weights, tmp_path):
    with opened(tmp_path, weights, max_minutes=0) as run:
        found = supervised(policy_of(weights), EXAMPLES, CONFIG, run, seed=0)
    assert (found.stopped, found.step) == ("max-minutes", 1)
    assert run.newest("supervised").state()["is_finished"] is False


def broken(policy, passes):
    """The gradient of one weight is no number in these backward passes."""
    seen = iter(range(1000))

    def hook(gradient):
        return gradient * math.nan if next(seen) in passes else gradient

    policy.parameters()[0].register_hook(hook)


def test_a_gradient_that_is_no_number_costs_its_step_alone(weights, tmp_path):
    policy = policy_of(weights)
    broken(policy, {5})  # of the third step: two passes a step
    with opened(tmp_path, weights) as run:
        supervised(policy, EXAMPLES, CONFIG, run, seed=0)
    rows = [json.loads(line) for line in (tmp_path / METRICS).read_text().splitlines()]
    assert [row["skipped"] for row in rows[:5]] == [0, 0, 1, 1, 1]
    assert rows[2]["grad_norm"] is None
    assert all(math.isfinite(row["loss"]) for row in rows)
    assert rows[-1]["loss"] < rows[0]["loss"]
    assert all(bool(one.isfinite().all()) for one in policy.parameters())


def test_gradients_that_are_never_numbers_are_an_error(weights, tmp_path):
    policy = policy_of(weights)
    broken(policy, range(1000))
    before = [one.detach().clone() for one in policy.parameters()]
    with opened(tmp_path, weights) as run, pytest.raises(UnsupportedError, match="no number"):
        supervised(policy, EXAMPLES, CONFIG, run, seed=0)
    for one, other in zip(before, policy.parameters(), strict=True):
        assert torch.equal(one, other)
