"""TRL's trainer as the engine of stage 3: the same gradients as ours, prompts one step behind, and
the same curve after a kill."""

from __future__ import annotations

import copy
import dataclasses
import random
import statistics

import msgspec
import pytest
import torch
from transformers import TrainerCallback

from cudal1_ci.errors import ConfigError
from model_training import trl_engine
from model_training.batches import Group, batch_of, rows_of
from model_training.contrastive_config import run_name
from model_training.engines import optimizer_of
from model_training.environment import Outcome
from model_training.grpo import GrpoConfig, backward
from model_training.objective.loss import ObjectiveConfig
from model_training.rollouts import Sampling
from model_training.stream import StepPrompts, Stream, StreamState
from model_training.table import Sample
from model_training.token_scores import ScoredPolicy
from model_training.toy import DEVICE, make_model_folder, tasks
from model_training.trl_engine import ContrastiveTrainer
from tests.training.contrastive_rig import Killed, MemoryRun, config, rig


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Tensors this small are slower on several."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def trl(**changes):
    grpo = {"piece_size": 16, **changes.pop("grpo", {})}
    return config(engine="trl", grpo=grpo, **changes)


def drawn(number: int, size: int = 6) -> Group:
    """Texts of all lengths; the last one is masked in every second group."""
    rng = random.Random(number)
    return Group(
        prompt=tuple(rng.choices(range(3, 28), k=2 + number)),
        completions=tuple(
            (*rng.choices(range(3, 28), k=rng.randint(1, 9)), 2) for _ in range(size)
        ),
        rewards=tuple(rng.choices([0.0, 1.0, 1.3, 2.5], k=size)),
        is_masked=(*[False] * (size - 1), number % 2 == 0),
    )


GROUPS = [drawn(number) for number in range(8)]


def moved(model, seed: int, size: float):
    """A copy whose weights are somewhere else."""
    other, generator = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for one in other.parameters():
            one += size * torch.randn(one.shape, generator=generator)
    return other


def gradient(weights) -> torch.Tensor:
    found = torch.cat([one.grad.flatten() for one in weights])
    for one in weights:
        one.grad = None
    return found


def difference(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).norm() / other.norm())


OURS = {"low": 0.2, "high": 0.28, "max_tokens": 10}


class Bench:
    """One batch, whose policy is neither the one that has sampled nor the one of the start."""

    def __init__(self, stage, course, scratch):
        self.stage, self.course, self.scratch = stage, course, scratch
        self.weights = stage.policy.parameters()
        self.sampler = moved(stage.policy.model, 1, 0.05)
        self.start = moved(stage.policy.model, 2, 0.05)

    def logp(self, model, batch):
        with torch.no_grad():
            return ScoredPolicy(model, [], self.stage.config.sampling.temperature).scores(batch)

    def batch(self, groups):
        rows, totals = rows_of(groups, "group_normalized")
        return batch_of(rows, pad=0), totals

    def ours(self, groups, **objective) -> torch.Tensor:
        settings = ObjectiveConfig(**{**OURS, **objective})
        batch, totals = self.batch(groups)
        policy = ScoredPolicy(
            self.stage.policy.model, self.weights, self.stage.config.sampling.temperature
        )
        _, part, _ = backward(
            policy,
            batch,
            settings,
            totals,
            self.logp(self.sampler, batch).logp_BT,
            self.logp(self.start, batch).logp_BT,
        )
        self.clipped_share = part.clipped_share
        return gradient(self.weights)

    def theirs(self, groups, **objective) -> torch.Tensor:
        settings = ObjectiveConfig(**{**OURS, **objective})
        stage = with_objective(self.stage, settings)
        trainer = ContrastiveTrainer(
            stage, self.course, 0, optimizer_of(stage.policy, stage.config), self.scratch
        )
        trainer.model.train()
        trainer.current_gradient_accumulation_steps = 1
        trainer.args.steps_per_generation = 1
        everything = [unmasked(one) for one in groups]
        batch, _ = self.batch(everything)
        is_masked = torch.tensor([flag for one in groups for flag in one.is_masked])
        mask = batch.completion_mask_BT * ~is_masked.unsqueeze(1)
        place = batch.place
        loss = trainer._compute_loss(
            trainer.model,
            {
                "prompt_ids": batch.tokens_BL[:, :place],
                "prompt_mask": batch.mask_BL[:, :place],
                "completion_ids": batch.tokens_BL[:, place:],
                "completion_mask": mask,
                "advantages": batch.advantages_B,
                "num_items_in_batch": mask.sum(),
                "old_per_token_logps": self.logp(self.sampler, batch).logp_BT,
                "ref_per_token_logps": self.logp(self.start, batch).logp_BT,
            },
        )
        loss.backward()
        return gradient(self.weights)


def with_objective(stage, objective):
    grpo = msgspec.structs.replace(stage.config.grpo, objective=objective)
    settings = msgspec.structs.replace(stage.config, grpo=grpo)
    return dataclasses.replace(stage, config=settings)


def unmasked(group):
    return dataclasses.replace(group, is_masked=())


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    settings = trl(sampling=Sampling(max_tokens=10, temperature=0.8))
    model = make_model_folder(folder / "model", seed=0)
    with rig(folder, model, settings, MemoryRun(folder)) as life:
        yield Bench(life.stage, life.stage.course(0), folder)


@pytest.mark.parametrize("weighting", ["token", "completion", "constant"])
@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_our_gradient_is_that_of_trl(bench, weighting, beta):
    ours = bench.ours(GROUPS, weighting=weighting, beta=beta)
    theirs = bench.theirs(GROUPS, weighting=weighting, beta=beta)
    assert float(theirs.norm()) > 1e-3
    assert 0.1 < bench.clipped_share < 0.9
    assert difference(ours, theirs) < 1e-5


@pytest.mark.parametrize(
    "other",
    [
        {"low": 0.25},
        {"high": 0.26},
        {"weighting": "completion"},
        {"weighting": "constant"},
        {"beta": 0.01},
        {"ratio": "sequence"},
    ],
    ids=str,
)
def test_another_objective_has_another_gradient(bench, other):
    """What the equality above would not survive."""
    usual = {"weighting": "token", "beta": 0.0}
    assert (
        difference(bench.ours(GROUPS, **{**usual, **other}), bench.theirs(GROUPS, **usual)) > 1e-3
    )


def test_another_mask_has_another_gradient(bench):
    others = [unmasked(one) for one in GROUPS]
    assert difference(bench.ours(others), bench.theirs(GROUPS)) > 1e-3


class Paid:
    """Scoring by the place of an answer; all answers of the first group are worth the same."""

    rehearse_s = 0.0

    def __init__(self, silent=lambda: False):
        self.is_silent = silent

    def outcomes(self, answered):
        first = answered[0][0].cursor
        silent = self.is_silent()
        return [
            Outcome(
                sample=Sample(task=prompt.task.name, status="no_code"),
                reward=0.5 if silent or prompt.cursor == first else (place * 7 % 5) / 4,
            )
            for place, (prompt, _, _) in enumerate(answered)
        ]


class Gradients(TrainerCallback):
    """Of each update, before it is made."""

    def __init__(self, weights):
        self.weights, self.found = weights, []

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        found = [one.grad for one in self.weights]
        self.found.append(torch.cat([one.detach().clone().flatten() for one in found]))


@pytest.mark.parametrize("weighting", ["token", "completion", "constant"])
@pytest.mark.parametrize("advantage", ["group_normalized", "centered", "left_out"])
def test_a_whole_step_of_trl_has_our_gradient(taught, tmp_path, weighting, advantage):
    """Sampled, paid, without the group that says nothing and without what was cut, in pieces."""
    settings = trl(
        num_steps=1,
        masks_cut=True,
        environment={"reward": "kevin"},
        sampling=Sampling(max_tokens=8, temperature=1.4),
        grpo={
            "advantage": advantage,
            "piece_size": 8,
            "max_grad_norm": 1e9,
            "objective": ObjectiveConfig(weighting=weighting, max_tokens=8),
        },
    )
    run = MemoryRun(tmp_path)
    with rig(tmp_path, taught, settings, run) as life:
        stage = life.stage
        course = stage.course(0)
        course.scoring = Paid()
        weights = stage.policy.parameters()
        before = [one.detach().clone() for one in weights]
        trainer = ContrastiveTrainer(
            stage, course, 0, optimizer_of(stage.policy, stage.config), tmp_path / "scratch"
        )
        seen = Gradients(weights)
        trainer.add_callback(seen)
        trainer.train()
        assert trainer.done == 1
        with torch.no_grad():
            for old, new in zip(before, weights, strict=True):
                new.copy_(old)
                new.grad = None
        groups = [one.group(masks_cut=True) for one in trainer.judged]
        cut = [flag for one in groups for flag in one.is_masked]
        assert 0 < sum(cut) < len(cut)
        assert run.numbers[1]["silent_share"] == 0.25
        rows, totals = rows_of(groups[1:], advantage)
        policy = ScoredPolicy(stage.policy.model, weights, 1.4)
        for start in range(0, len(rows), 5):
            part = batch_of(rows[start : start + 5], pad=0)
            backward(policy, part, settings.grpo.objective, totals, None, None)
        assert difference(gradient(weights), seen.found[0]) < 1e-5


def test_nothing_moves_where_all_groups_are_silent(taught, tmp_path):
    """An optimizer that has moved before would go on by itself."""
    states: list = []

    class Watched(MemoryRun):
        def log(self, stage, step, **numbers):
            states.append([one.detach().clone() for one in weights])
            super().log(stage, step, **numbers)

    run = Watched(tmp_path)
    with rig(tmp_path, taught, trl(num_steps=3), run) as life:
        weights = life.stage.policy.parameters()
        course = life.stage.course(0)
        course.scoring = Paid(lambda: len(run.numbers) > 0)
        stage = life.stage
        ContrastiveTrainer(
            stage, course, 0, optimizer_of(stage.policy, stage.config), tmp_path / "scratch"
        ).train()
    assert [run.numbers[step]["silent_share"] for step in (1, 2, 3)] == [0.25, 1.0, 1.0]
    assert all(torch.equal(a, b) for a, b in zip(states[0], states[2], strict=True))


@pytest.fixture(scope="module")
def learned(taught, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    run = MemoryRun(folder)
    settings = trl(num_steps=10, grpo={"num_updates": 2, "objective": ObjectiveConfig(beta=0.01)})
    with rig(folder, taught, settings, run) as life:
        assert life.train() == 10
        shown = StepPrompts(
            Stream(tasks(), life.archive, DEVICE, settings.stream, StreamState()),
            life.archive,
            run_name(settings),
            settings.prompts_per_step,
            lag=1,
        )
        run.expected = {step: shown.of(step) for step in range(1, 11)}
    return run


def test_what_is_faster_is_learned(learned):
    def mean(name, steps):
        return statistics.fmean(learned.numbers[step][name] for step in steps)

    assert mean("reward", [1, 2]) < 1.2
    assert mean("reward", [9, 10]) > 1.8
    assert mean("fast_1.2", [9, 10]) > mean("fast_1.2", [1, 2]) + 0.3
    assert learned.numbers[2]["divergence"] > 0
    assert sorted(learned.numbers) == list(range(1, 11)), "a step has two updates"


def test_prompts_show_what_was_known_one_step_earlier(learned):
    found: dict[int, list] = {}
    for one in learned.samples:
        if "messages" in one:
            found.setdefault(one["step"], []).append((one["messages"], one["exemplar_ids"]))
    for step, prompts in learned.expected.items():
        assert found[step] == [
            (list(map(msgspec.to_builtins, one.messages)), list(one.exemplar_ids))
            for one in prompts
        ]
    ages = [learned.numbers[step]["exemplar_age"] for step in (1, 2, 3)]
    assert ages[:2] == [None, None]
    assert ages[2] == 2.0, "of the first step, in the third"


@pytest.mark.parametrize("trap", ["shuffle", "no_lag"])
def test_who_reads_ahead_is_refused(taught, tmp_path, trap, monkeypatch):
    if trap == "shuffle":
        usual = trl_engine.arguments

        def shuffled(*args):
            found = usual(*args)
            found.shuffle_dataset = True
            return found

        monkeypatch.setattr(trl_engine, "arguments", shuffled)
    else:
        monkeypatch.setattr("model_training.course.lag_of", lambda engine: 0)
    with (
        rig(tmp_path, taught, trl(num_steps=4), MemoryRun(tmp_path)) as life,
        pytest.raises(ValueError, match="reads ahead further than it should"),
    ):
        life.train()


def test_a_run_that_was_killed_makes_the_same_curve(taught, tmp_path):
    settings = trl(num_steps=5, checkpoint_every=2)
    runs = [MemoryRun(tmp_path / name) for name in ("whole", "killed", "killed/again")]
    whole, first, second = runs
    with rig(whole.folder, taught, settings, whole) as life:
        life.train()
    first.dies_in = 4
    with rig(first.folder, taught, settings, first) as life, pytest.raises(Killed):
        life.train()
    with rig(first.folder, taught, settings, second) as life:
        assert life.train(first.saved[0]) == 5
    assert (first.saved[0].step, sorted(second.numbers)) == (2, [3, 4, 5])
    assert {**first.curve(), **second.curve()} == whole.curve()


@pytest.mark.parametrize(
    ("grpo", "message"),
    [
        ({"piece_size": 5}, "expected a divisor of the 32 completions"),
        ({"objective": ObjectiveConfig(ratio="sequence")}, 'has "token" alone'),
        ({"objective": ObjectiveConfig(weighting="constant", max_tokens=7)}, "make them alike"),
    ],
)
def test_what_trl_has_no_word_for_is_refused(taught, tmp_path, grpo, message):
    assert GrpoConfig(**grpo)
    with (
        rig(tmp_path, taught, trl(grpo=grpo), MemoryRun(tmp_path)) as life,
        pytest.raises(ConfigError, match=message),
    ):
        life.train()
