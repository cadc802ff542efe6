"""The readable step of GRPO on a language of seven words."""

from __future__ import annotations

import copy
import dataclasses
import math
import statistics

import pytest
import torch

from model_training.batches import Group, batch_of, rows_of
from model_training.gradients import Watch
from model_training.grpo import GrpoConfig, scores_of, step
from model_training.objective.loss import ObjectiveConfig

NUM_WORDS, END, LENGTH = 7, 1, 6
GOOD = 3


class Toy:
    """A recurrent policy, small enough to learn in a second."""

    def __init__(self, seed: int = 0):
        torch.manual_seed(seed)
        self.embed = torch.nn.Embedding(NUM_WORDS, 16)
        self.cell = torch.nn.GRU(16, 16, batch_first=True)
        self.head = torch.nn.Linear(16, NUM_WORDS)

    def parameters(self):
        return [p for part in (self.embed, self.cell, self.head) for p in part.parameters()]

    def logits(self, tokens_BL, mask_BL):
        # What is masked is skipped: a recurrence has no other way not to look.
        x = self.embed(tokens_BL) * mask_BL.unsqueeze(-1)
        return self.head(self.cell(x)[0])

    def scores(self, batch):
        return scores_of(self.logits(batch.tokens_BL, batch.mask_BL), batch)

    @torch.no_grad()
    def sample(self, prompt: tuple[int, ...], num: int, generator) -> list[tuple[int, ...]]:
        tokens = torch.tensor([prompt] * num)
        for _ in range(LENGTH):
            p = self.logits(tokens, torch.ones_like(tokens))[:, -1].softmax(-1)
            tokens = torch.cat([tokens, torch.multinomial(p, 1, generator=generator)], dim=1)
        return [until_end(row) for row in tokens[:, len(prompt) :].tolist()]


def until_end(words: list[int]) -> tuple[int, ...]:
    return tuple(words[: words.index(END) + 1] if END in words else words)


@pytest.fixture(autouse=True)
def one_thread():
    """Tensors this small are slower on several."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def rewarded(policy: Toy, generator, num_groups: int = 4, size: int = 8) -> list[Group]:
    """Groups whose reward is the share of one word."""
    groups = []
    for number in range(num_groups):
        prompt = (2, number % NUM_WORDS)
        texts = tuple(policy.sample(prompt, size, generator))
        rewards = tuple(text.count(GOOD) / LENGTH for text in texts)
        groups.append(Group(prompt=prompt, completions=texts, rewards=rewards))
    return groups


def test_what_is_rewarded_is_learned():
    policy, generator = Toy(), torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.02)
    config = GrpoConfig(max_grad_norm=1.0)
    rewards = [
        step(policy, optimizer, rewarded(policy, generator), config).reward for _ in range(40)
    ]
    assert statistics.fmean(rewards[:3]) < 0.3
    assert statistics.fmean(rewards[-3:]) > 0.8


def test_the_same_seeds_are_the_same_curve():
    def curve():
        policy, generator = Toy(), torch.Generator().manual_seed(0)
        optimizer = torch.optim.Adam(policy.parameters(), lr=0.02)
        return [
            step(policy, optimizer, rewarded(policy, generator), GrpoConfig()) for _ in range(3)
        ]

    assert curve() == curve()


def test_silent_groups_change_nothing():
    policy = Toy()
    before = copy.deepcopy([p.detach().clone() for p in policy.parameters()])
    group = Group(prompt=(2,), completions=((3, 1), (4, 1)), rewards=(0.5, 0.5))
    metrics = step(policy, torch.optim.SGD(policy.parameters(), lr=1.0), [group] * 3, GrpoConfig())
    assert metrics.silent_share == 1.0
    assert metrics.num_tokens == 0
    assert all(torch.equal(a, b) for a, b in zip(before, policy.parameters(), strict=True))


def test_no_step_is_made_along_what_is_no_number():
    policy = Toy()
    policy.parameters()[0].register_hook(lambda gradient: gradient * math.nan)
    before = [one.detach().clone() for one in policy.parameters()]
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1.0)
    groups = rewarded(policy, torch.Generator().manual_seed(0))
    found = step(policy, optimizer, groups, GrpoConfig())
    assert found.num_tokens
    assert not math.isfinite(found.grad_norm)
    for one, other in zip(before, policy.parameters(), strict=True):
        assert torch.equal(one, other)


def test_an_update_that_is_left_out_is_counted_and_those_after_it_are_made():
    policy, seen, watch = Toy(), iter(range(100)), Watch()
    policy.parameters()[0].register_hook(lambda one: one * math.nan if next(seen) == 0 else one)
    before = [one.detach().clone() for one in policy.parameters()]
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
    groups = rewarded(policy, torch.Generator().manual_seed(0))
    config = GrpoConfig(num_updates=3, piece_size=100)
    found = step(policy, optimizer, groups, config, gradients=watch)
    assert math.isfinite(found.grad_norm)
    assert watch.num_skipped == 1
    assert all(bool(one.isfinite().all()) for one in policy.parameters())
    assert not all(torch.equal(a, b) for a, b in zip(before, policy.parameters(), strict=True))


def test_a_silent_group_that_stays_makes_the_step_smaller():
    loud = Group(prompt=(2,), completions=((3, 1), (4, 1)), rewards=(1.0, 0.0))
    silent = Group(prompt=(2,), completions=((5, 1), (6, 1)), rewards=(0.0, 0.0))
    norms = []
    for drops in (True, False):
        policy = Toy()
        optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
        config = GrpoConfig(drops_silent=drops, max_grad_norm=1e9)
        norms.append(step(policy, optimizer, [loud, silent], config).grad_norm)
    assert norms[1] == pytest.approx(norms[0] / 2)


def test_padding_changes_no_probability():
    policy = Toy()
    short = Group(prompt=(2,), completions=((3, 1), (4, 5, 6, 1)), rewards=(1.0, 0.0))
    long = Group(prompt=(2, 4, 5), completions=((6, 6, 1), (3, 3, 3, 3, 1)), rewards=(1.0, 0.0))

    class Unpadded:
        """Each row by itself."""

        def scores(self, batch):
            rows = []
            for tokens, mask in zip(batch.tokens_BL, batch.mask_BL, strict=True):
                place = int(mask.argmax())
                found = policy.logits(tokens[place:][None], mask[place:][None])[0]
                rows.append(torch.cat([torch.zeros(place, NUM_WORDS), found]))
            return scores_of(torch.stack(rows), batch)

    batch = batch_of(rows_of([short, long], "centered")[0], pad=0)
    assert batch.place == 3
    found = Unpadded().scores(batch).logp_BT
    alone = batch_of(rows_of([short], "centered")[0], pad=0)
    expected = policy.scores(alone).logp_BT
    mask = alone.completion_mask_BT.bool()
    torch.testing.assert_close(found[:2, :4][mask], expected[mask])


def test_later_updates_are_bounded_by_the_clip():
    policy, generator = Toy(), torch.Generator().manual_seed(0)
    groups = rewarded(policy, generator)
    optimizer = torch.optim.SGD(policy.parameters(), lr=30.0)
    config = GrpoConfig(num_updates=4, max_grad_norm=1.0)
    assert step(policy, optimizer, groups, config).clipped_share > 0.2
    once = GrpoConfig(num_updates=1)
    assert step(Toy(), optimizer, groups, once).clipped_share == 0.0


def test_a_divergence_with_a_weight_keeps_the_policy_near_its_start():
    distances = []
    for beta in (0.0, 1.0):
        policy, generator = Toy(), torch.Generator().manual_seed(0)
        start = copy.deepcopy(policy)
        optimizer = torch.optim.Adam(policy.parameters(), lr=0.02)
        config = GrpoConfig(objective=ObjectiveConfig(beta=beta), max_grad_norm=1.0)
        for _ in range(15):
            metrics = step(policy, optimizer, rewarded(policy, generator), config, reference=start)
        distances.append(metrics.divergence)
    assert distances[1] < distances[0] / 2


@pytest.mark.parametrize("weighting", ["completion", "token", "constant"])
@pytest.mark.parametrize("is_masked", [(), (False, True)])
def test_the_gradient_of_a_batch_is_that_of_its_pieces(weighting, is_masked):
    texts = [((3, 1), (4, 5, 6, 1)), ((6, 6, 1), (3, 3, 3, 3, 1)), ((5, 1), (2, 2, 1))]
    groups = [
        Group(prompt=(2, number), completions=one, rewards=(1.0, 0.0), is_masked=is_masked)
        for number, one in enumerate(texts)
    ]
    found = []
    for size in (1, 2, 100):
        policy, start = Toy(), Toy(seed=1)
        config = GrpoConfig(
            objective=ObjectiveConfig(weighting=weighting, beta=0.1),
            piece_size=size,
            max_grad_norm=1e9,
        )
        optimizer = torch.optim.SGD(policy.parameters(), lr=1.0)
        metrics = step(policy, optimizer, groups, config, reference=start)
        found.append((metrics, [p.detach() for p in policy.parameters()]))
    for metrics, weights in found[:-1]:
        assert dataclasses.asdict(metrics) == pytest.approx(
            dataclasses.asdict(found[-1][0]), rel=1e-5, abs=1e-7
        )
        torch.testing.assert_close(weights, found[-1][1])
    assert found[0][0].num_tokens == (sum(len(one[0]) for one in texts) if is_masked else 19)


def test_a_masked_completion_counts_for_the_others_alone():
    def learned(rewards, is_masked=()):
        policy = Toy()
        group = Group(
            prompt=(2,), completions=((3, 1), (4, 1)), rewards=rewards, is_masked=is_masked
        )
        optimizer = torch.optim.SGD(policy.parameters(), lr=1.0)
        step(policy, optimizer, [group], GrpoConfig())
        return policy.logits(torch.tensor([[2]]), torch.ones(1, 1))[0, -1].log_softmax(-1)

    before = Toy().logits(torch.tensor([[2]]), torch.ones(1, 1))[0, -1].log_softmax(-1)
    assert learned((1.0, 0.0), (False, True))[3] > before[3]
    assert learned((0.0, 1.0), (False, True))[3] < before[3]


@pytest.mark.parametrize("completions", [((3, 1),), ((3, 1), ())])
def test_a_group_needs_a_reward_for_each_text(completions):
    with pytest.raises(ValueError, match="each with its reward"):
        Group(prompt=(2,), completions=completions, rewards=(1.0, 0.0))
