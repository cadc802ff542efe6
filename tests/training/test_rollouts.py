"""Answers of the model that is trained."""

from __future__ import annotations

import pytest
import torch

from cudal1_ci.propose.llm.servers import Message
from model_training.policy import PolicyConfig, load_policy
from model_training.rollouts import Sampling
from model_training.rollouts.transformers_rollouts import TransformersRollouts
from tests.training.tiny_weights import tiny_weights

SHORT = (Message(role="user", content="sort"),)
LONG = (Message(role="user", content="please sort these numbers fast please"),)
SETTINGS = Sampling(temperature=1.0, max_tokens=12)


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    folder = tiny_weights(tmp_path_factory.mktemp("tiny"))
    found = load_policy(PolicyConfig(path=str(folder), lora_rank=2))
    with torch.no_grad():
        for one in found.parameters():
            one.add_(0.05)
    return found


def test_a_seed_gives_the_same_answers_and_another_gives_others(policy):
    rollouts = TransformersRollouts(policy)
    first = rollouts.sample([SHORT, LONG], 6, SETTINGS, seed=3)
    assert [len(some) for some in first] == [6, 6]
    assert rollouts.sample([SHORT, LONG], 6, SETTINGS, seed=3) == first
    assert rollouts.sample([SHORT, LONG], 6, SETTINGS, seed=4) != first


def test_answers_end_where_the_model_ends_them_or_are_cut(policy):
    found = TransformersRollouts(policy).sample([SHORT] * 4, 8, SETTINGS, seed=0)
    end = policy.tokenizer.eos_token_id
    seen = set()
    for one in (one for some in found for one in some):
        seen.add(one.is_cut)
        assert end not in one.token_ids[:-1]
        assert one.is_cut == (one.token_ids[-1] != end)
        assert not one.is_cut or len(one.token_ids) == SETTINGS.max_tokens
        assert "<|end|>" not in one.text
    assert seen == {True, False}


@pytest.mark.parametrize("batch_size", [128, 3])
def test_the_likeliest_answer_does_not_depend_on_what_it_is_batched_with(policy, batch_size):
    rollouts = TransformersRollouts(policy, batch_size)
    settings = Sampling(temperature=0.0, max_tokens=8)
    prompts = [SHORT, LONG, SHORT, LONG]
    found = rollouts.sample(prompts, 1, settings, seed=0)
    expected = [likeliest(policy, prompt, 8) for prompt in prompts]
    assert [some[0].token_ids for some in found] == expected


def likeliest(policy, prompt, limit):
    """By the logits, one token at a time, without a cache."""
    ids, found = policy.prompt_ids(prompt), []
    while len(found) < limit and (not found or found[-1] != policy.ends[0]):
        with torch.no_grad():
            found.append(int(policy.model(torch.tensor([[*ids, *found]])).logits[0, -1].argmax()))
    return tuple(found)


def test_the_settings_of_the_weights_own_file_do_not_count(policy):
    plain = TransformersRollouts(policy).sample([SHORT], 8, SETTINGS, seed=0)
    generation = policy.base.generation_config
    generation.top_k, generation.repetition_penalty = 1, 5.0
    try:
        assert TransformersRollouts(policy).sample([SHORT], 8, SETTINGS, seed=0) == plain
    finally:
        generation.top_k = generation.repetition_penalty = None


def test_sampling_leaves_training_as_it_was(policy):
    policy.model.train()
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    TransformersRollouts(policy).sample([SHORT], 2, SETTINGS, seed=5)
    assert torch.equal(torch.rand(3), expected)
    assert policy.model.training
    assert policy.parameters()
    assert all(one.grad is None for one in policy.parameters())
