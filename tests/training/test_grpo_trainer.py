"""TRL's trainer with the paper's loss: its gradient is that of the readable step."""

from __future__ import annotations

import copy
import random

import msgspec
import pytest
import torch
from transformers import TrainerCallback

from model_training.environment import Outcome
from model_training.grpo_trainer import ContrastiveTrainer
from model_training.objective.advantage import advantages
from model_training.objective.loss import ObjectiveConfig, token_weights
from model_training.rollouts import Sampling
from model_training.table import Sample
from model_training.toy import make_model_folder
from tests.training.contrastive_rig import MemoryRun, config, rig
from tests.training.readable_step import Group, log_probabilities, readable_loss

TEMPERATURE = 0.8


def drawn(number: int, size: int = 4) -> Group:
    """Texts of all lengths; the last one is masked in every second group, and one is silent."""
    rng = random.Random(number)
    rewards = [0.1 * number, *rng.choices([0.0, 1.0, 1.3, 2.5], k=size - 1)]
    return Group(
        prompt=rng.choices(range(3, 28), k=2 + number),
        completions=[(*rng.choices(range(3, 28), k=rng.randint(1, 9)), 2) for _ in range(size)],
        rewards=[1.0] * size if number == 3 else rewards,
        is_masked=[*[False] * (size - 1), number % 2 == 0],
    )


GROUPS = [drawn(number) for number in range(6)]


def moved(model, seed: int, size: float = 0.05):
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


class Bench:
    """One batch, whose policy is neither the one that has sampled nor the one of the start."""

    def __init__(self, life, scratch):
        self.life, self.scratch = life, scratch
        self.model = copy.deepcopy(life.policy.model)
        self.sampler, self.start = moved(self.model, 1), moved(self.model, 2)

    def readable(self, groups, settings) -> torch.Tensor:
        now, sampled, start = (
            log_probabilities(one, TEMPERATURE) for one in (self.model, self.sampler, self.start)
        )
        readable_loss(groups, now, sampled, start, settings).backward()
        return gradient(list(self.model.parameters()))

    def trained(self, groups, settings) -> torch.Tensor:
        """By the trainer's loss on padded tensors, in two parts."""
        grpo = msgspec.structs.replace(self.life.settings.grpo, objective=settings)
        self.life.settings = msgspec.structs.replace(self.life.settings, grpo=grpo)
        trainer = ContrastiveTrainer(self.life.loop(), self.scratch)
        trainer.model.train()
        rows, masks = [], []
        for group in groups:
            is_loud = len(set(group.rewards)) > 1
            worth = advantages(group.rewards)
            for place, text in enumerate(group.completions):
                rows.append((group.prompt, text, worth[place]))
                masks.append(is_loud and not group.is_masked[place])
        before = max(len(prompt) for prompt, _, _ in rows)
        after = max(len(text) for _, text, _ in rows)
        prompts = [[0] * (before - len(one)) + list(one) for one, _, _ in rows]
        texts = [[*one, *[0] * (after - len(one))] for _, one, _ in rows]
        mask = torch.tensor([[1] * len(one) + [0] * (after - len(one)) for _, one, _ in rows])
        loss_mask = mask * torch.tensor(masks).unsqueeze(1)
        num_kept = sum(len(one.completions) for one in groups if len(set(one.rewards)) > 1)
        inputs = {
            "prompt_ids": torch.tensor(prompts),
            "prompt_mask": torch.tensor(
                [[0] * (before - len(one)) + [1] * len(one) for one, _, _ in rows]
            ),
            "completion_ids": torch.tensor(texts),
            "completion_mask": mask,
            "advantages": torch.tensor([worth for _, _, worth in rows]),
            "loss_mask": loss_mask,
            "loss_weights": token_weights(loss_mask, settings, num_kept),
            "old_per_token_logps": self.logps(self.sampler, rows, after),
            "start_logps": self.logps(self.start, rows, after),
        }
        for part in (slice(0, 5), slice(5, None)):
            trainer._compute_loss(
                trainer.model, {name: value[part] for name, value in inputs.items()}
            ).backward()
        self.sums = trainer._sums
        self.num_tokens = int(loss_mask.sum())
        return gradient(self.life.policy.parameters())

    def logps(self, model, rows, length):
        of = log_probabilities(model, TEMPERATURE)
        with torch.no_grad():
            found = [of(prompt, text) for prompt, text, _ in rows]
        return torch.stack([torch.nn.functional.pad(o, (0, length - len(o))) for o in found])


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    settings = config(sampling=Sampling(max_tokens=10, temperature=TEMPERATURE))
    with rig(folder, make_model_folder(folder / "model"), settings, MemoryRun(folder)) as life:
        yield Bench(life, folder)


@pytest.mark.parametrize("weighting", ["token", "completion", "constant"])
@pytest.mark.parametrize("ratio", ["token", "sequence"])
@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_the_gradient_is_that_of_the_readable_step(bench, weighting, ratio, beta):
    settings = ObjectiveConfig(weighting=weighting, ratio=ratio, beta=beta, max_tokens=10)
    ours, readable = bench.trained(GROUPS, settings), bench.readable(GROUPS, settings)
    assert float(readable.norm()) > 1e-3
    assert 0.1 < bench.sums["clipped_share"] / bench.num_tokens < 0.9
    assert difference(ours, readable) < 1e-5


@pytest.mark.parametrize(
    "other",
    [
        {"low": 0.6},
        {"high": 1.0},
        {"weighting": "completion"},
        {"weighting": "constant"},
        {"beta": 0.01},
        {"ratio": "sequence"},
    ],
    ids=str,
)
def test_another_objective_has_another_gradient(bench, other):
    """What the equality above would not survive."""
    usual = {"weighting": "token", "max_tokens": 10}
    one = bench.trained(GROUPS, ObjectiveConfig(**usual))
    assert difference(bench.readable(GROUPS, ObjectiveConfig(**{**usual, **other})), one) > 1e-3


class Paid:
    """Scoring by the place of an answer; all answers of the first group are worth the same."""

    prefilter_s = 0.0

    def __init__(self, scorer, silent=lambda: False):
        self.archive, self.device, self.is_silent = scorer.archive, scorer.device, silent

    def outcomes(self, answered):
        first, silent = answered[0][0].cursor, self.is_silent()
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
def test_a_whole_step_has_the_gradient_of_the_readable_one(taught, tmp_path, weighting):
    """Sampled, paid, without the silent group and without what was cut, in parts."""
    objective = ObjectiveConfig(weighting=weighting, max_tokens=8)
    settings = config(
        num_steps=1,
        masks_cut=True,
        sampling=Sampling(max_tokens=8, temperature=1.4),
        grpo={
            "piece_size": 8,
            "max_grad_norm": 1e9,
            "objective": objective,
        },
    )
    run = MemoryRun(tmp_path)
    with rig(tmp_path, taught, settings, run) as life:
        life.scorer = Paid(life.scorer)
        before = copy.deepcopy(life.policy.model)
        trainer = ContrastiveTrainer(life.loop(), tmp_path / "scratch")
        seen = Gradients(life.policy.parameters())
        trainer.add_callback(seen)
        trainer.train()
        assert trainer.done == 1
        groups = [
            Group(
                prompt=life.policy.prompt_ids(group.prompt.messages),
                completions=[one.token_ids for one in group.completions],
                rewards=paid,
                is_masked=[one.is_cut for one in group.completions],
            )
            for group, paid in zip(trainer.asked.groups, trainer.paid, strict=True)
        ]
        cut = [flag for one in groups for flag in one.is_masked]
        assert 0 < sum(cut) < len(cut)
        assert run.numbers[1]["silent_share"] == 0.25
        now = log_probabilities(before, 1.4)
        loss = readable_loss(groups, now, None, None, objective)
        loss.backward()
        assert difference(gradient(list(before.parameters())), seen.found[0]) < 1e-5
        assert run.numbers[1]["loss"] == pytest.approx(loss.item(), rel=1e-4, abs=1e-7)
        assert run.numbers[1]["ratio"] == pytest.approx(1.0)


def test_nothing_moves_where_all_groups_are_silent(taught, tmp_path):
    """An optimizer that has moved before would go on by itself."""
    states: list = []

    class Watched(MemoryRun):
        def log(self, stage, step, **numbers):
            states.append([one.detach().clone() for one in weights])
            super().log(stage, step, **numbers)

    run = Watched(tmp_path)
    with rig(tmp_path, taught, config(num_steps=3), run) as life:
        weights = life.policy.parameters()
        before = [one.detach().clone() for one in weights]
        life.scorer = Paid(life.scorer, lambda: len(run.numbers) > 0)
        ContrastiveTrainer(life.loop(), tmp_path / "scratch").train()
    assert [run.numbers[step]["silent_share"] for step in (1, 2, 3)] == [0.25, 1.0, 1.0]
    assert (run.numbers[3]["num_tokens"], run.numbers[3]["loss"]) == (0, None)
    assert not all(torch.equal(a, b) for a, b in zip(before, states[0], strict=True))
    assert all(torch.equal(a, b) for a, b in zip(states[0], states[2], strict=True))
