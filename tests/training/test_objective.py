"""The objective of stage 3 on numbers with known answers."""

from __future__ import annotations

import math

import pytest
import torch

from cudal1_ci.records import Evaluation, Finding, Verdict
from model_training.objective.advantage import EPSILON, advantages, is_silent
from model_training.objective.loss import (
    Objective,
    ObjectiveConfig,
    divergence,
    objective,
    token_weights,
)
from model_training.objective.reward import reward, smoothed
from tests.fakes import a_candidate, a_problem
from tests.unit.stats.test_regression import measured

PLAIN = ObjectiveConfig(beta=0.0)


def whole(logp, sampled, worth, mask, config, start=None) -> Objective:
    """The objective of a batch by itself."""
    weights = token_weights(mask, config, len(mask))
    return objective(logp, sampled, worth, mask, weights, config, start)


def judged(speedup: float | None, status: str = "passed") -> Evaluation:
    problem = a_problem()
    findings = () if status == "passed" else (Finding(rule="x", message="why"),)
    # `measured` tells how much slower a head is than its base.
    measurements = () if speedup is None else (measured(1 / speedup, noise=0.0),)
    return Evaluation(
        candidate=a_candidate(problem),
        verdict=Verdict(status=status, findings=findings),
        measurements=measurements,
    )


def test_a_reward_is_the_speedup():
    assert reward(judged(2.0)) == pytest.approx(2.0, rel=1e-6)


@pytest.mark.parametrize("status", ["reward_hack", "incorrect_values", "inconclusive", "timeout"])
def test_what_did_not_pass_gets_nothing(status):
    assert reward(judged(None, status)) == 0.0


def test_equation_6_standardizes_and_clips():
    rewards = [0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 100.0]
    mean = sum(rewards) / 8
    spread = math.sqrt(sum((r - mean) ** 2 for r in rewards) / 8)
    found = smoothed(rewards)
    assert found[-1] == 1.5, "an outlier counts as much as any good one"
    assert found[0] == pytest.approx(-mean / spread)
    assert smoothed([2.0, 2.0]) == [0.0, 0.0]
    assert smoothed([]) == []
    assert smoothed([0.0, 0.0, 0.0, 0.0, 5.0], k=1.8)[-1] == 1.8


def test_equation_4_is_torchs_mean_and_spread():
    rewards = [1.0, 2.0, 4.0, 1.5]
    tensor = torch.tensor(rewards)
    expected = (tensor - tensor.mean()) / (tensor.std() + EPSILON)
    assert advantages(rewards) == pytest.approx(expected.tolist(), rel=1e-5)


def test_a_group_of_equal_rewards_says_nothing():
    assert advantages([0.5] * 4) == [0.0] * 4
    assert is_silent([0.5] * 4)
    assert not is_silent([0.5, 0.6])


def batch(num_completions: int = 3, num_tokens: int = 5):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(num_completions, num_tokens, 11, generator=generator, requires_grad=True)
    tokens = torch.randint(0, 11, (num_completions, num_tokens), generator=generator)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0]])
    logp = logits.log_softmax(-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    return logits, logp, mask


def test_on_policy_the_gradient_is_that_of_reinforce():
    """At ratio 1 equation 5 is the policy gradient: the mean over tokens of A grad log p."""
    logits, logp, mask = batch()
    worth = torch.tensor([1.0, -2.0, 0.5])
    whole(logp, logp.detach(), worth, mask, PLAIN).loss.backward()
    found, logits.grad = logits.grad.clone(), None
    logits_again, logp, mask = batch()
    means = (logp * mask).sum(1) / mask.sum(1)
    (-(means * worth).mean()).backward()
    torch.testing.assert_close(found, logits_again.grad)


@pytest.mark.parametrize(
    ("ratio", "advantage", "gain", "is_clipped"),
    [
        (1.1, 1.0, 1.1, False),
        (1.5, 1.0, 1.28, True),
        (0.5, 1.0, 0.5, False),
        (0.5, -1.0, -0.8, True),
        (1.5, -1.0, -1.5, False),
    ],
)
def test_the_clip_bounds_what_a_step_can_win_and_nothing_else(ratio, advantage, gain, is_clipped):
    logp = torch.full((1, 1), math.log(ratio), requires_grad=True)
    one = torch.ones(1, 1)
    found = whole(logp, torch.zeros(1, 1), torch.tensor([advantage]), one, PLAIN)
    assert found.loss.item() == pytest.approx(-gain)
    assert found.clipped_share == float(is_clipped)
    found.loss.backward()
    assert (logp.grad.item() == 0) == is_clipped


def test_a_ratio_of_whole_completions_is_the_product_of_those_of_tokens():
    logp = torch.log(torch.tensor([[1.1, 0.9, 7.0]]))
    mask = torch.tensor([[1.0, 1.0, 0.0]])
    config = ObjectiveConfig(ratio="sequence")
    found = whole(logp, torch.zeros(1, 3), torch.tensor([1.0]), mask, config)
    assert found.loss.item() == pytest.approx(-1.1 * 0.9)


@pytest.mark.parametrize(
    ("weighting", "expected"),
    [("completion", -(1 + 2) / 2), ("token", -(5 + 2 * 2) / 7), ("constant", -(5 + 4) / 20)],
)
def test_how_much_a_long_completion_counts(weighting, expected):
    mask = torch.tensor([[1.0] * 5, [1.0, 1.0, 0.0, 0.0, 0.0]])
    config = ObjectiveConfig(weighting=weighting, max_tokens=10)
    zeros = torch.zeros(2, 5)
    found = whole(zeros, zeros, torch.tensor([1.0, 2.0]), mask, config)
    assert found.loss.item() == pytest.approx(expected)


def test_what_the_policy_did_not_write_has_no_gradient():
    logits, logp, mask = batch()
    whole(logp, logp.detach(), torch.ones(3), mask, PLAIN).loss.backward()
    assert logits.grad[mask == 0].abs().max() == 0
    assert logits.grad[mask == 1].abs().sum() > 0


def test_the_divergence_is_unbiased_and_never_negative():
    generator = torch.Generator().manual_seed(0)
    p = torch.randn(7, generator=generator).log_softmax(0)
    q = torch.randn(7, generator=generator).log_softmax(0)
    exact = (p.exp() * (p - q)).sum()
    each = divergence(p, q)
    assert each.min() >= 0
    assert (p.exp() * each).sum() == pytest.approx(exact.item(), rel=1e-5)
    assert divergence(p, p).abs().max() == 0


def test_a_divergence_with_a_weight_pulls_back():
    logp = torch.full((1, 1), -1.0, requires_grad=True)
    config = ObjectiveConfig(beta=0.5)
    ones = torch.ones(1, 1)
    found = whole(logp, logp.detach(), torch.zeros(1), ones, config, torch.full((1, 1), -2.0))
    assert found.divergence == pytest.approx(math.exp(-1) + 1 - 1)
    found.loss.backward()
    assert logp.grad.item() > 0, "a step down the loss makes it less likely again"
