"""A policy's weights and words."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import torch
from peft import get_peft_model, get_peft_model_state_dict
from safetensors.torch import save
from transformers import Qwen2Config, Qwen2ForCausalLM

from cudal1_ci.errors import ConfigError
from cudal1_ci.propose.llm.servers import Message
from model_training.config import load_config
from model_training.export.adapter import LIMIT_BYTES
from model_training.policy import PolicyConfig, load_policy, lora
from tests.training.tiny_weights import TEMPLATE, tiny_weights

CONFIGS = Path(__file__).parents[2] / "model_training" / "configs"
ASKED = (
    Message(role="system", content="please sort"),
    Message(role="user", content="these numbers"),
)
ANSWER = Message(role="assistant", content="yes one")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_weights(tmp_path_factory.mktemp("tiny"))


def policy_of(folder, **config):
    return load_policy(PolicyConfig(path=str(folder), **config))


def logits(policy):
    with torch.no_grad():
        return policy.model(torch.tensor([policy.prompt_ids(ASKED)])).logits


def num_trained(policy):
    return sum(one.numel() for one in policy.parameters())


def num_weights(policy):
    return sum(one.numel() for one in policy.model.parameters())


def shifted(policy, amount=0.05):
    with torch.no_grad():
        for one in policy.parameters():
            one.add_(amount)


def test_lora_trains_its_own_weights_alone_and_changes_nothing_at_first(folder):
    full, lora = policy_of(folder, tuning="full"), policy_of(folder, lora_rank=2)
    assert num_trained(full) == num_weights(full)
    assert 0 < num_trained(lora) < num_trained(full)
    assert num_weights(lora) == num_weights(full) + num_trained(lora)
    assert all(one.dtype == torch.float32 for one in lora.parameters())
    torch.testing.assert_close(logits(lora), logits(full))


@pytest.mark.parametrize("tuning", ["lora", "full"])
def test_what_was_saved_is_loaded(folder, tmp_path, tuning):
    policy = policy_of(folder, tuning=tuning, lora_rank=2)
    before = logits(policy)
    shifted(policy)
    assert not torch.allclose(logits(policy), before)
    policy.save(tmp_path)
    again = load_policy(policy.config, tmp_path)
    torch.testing.assert_close(logits(again), logits(policy))
    assert num_trained(again) == num_trained(policy)


@pytest.mark.parametrize(
    ("config", "hidden", "inner", "num_layers", "num_heads"),
    [("h200-0.5b", 896, 4864, 24, 14), ("h200-1.5b", 1536, 8960, 28, 12)],
)
def test_the_rank_is_the_largest_that_the_repository_can_carry(
    config, hidden, inner, num_layers, num_heads
):
    model = Qwen2Config(
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=num_layers,
        num_attention_heads=num_heads,
        num_key_value_heads=2,
        vocab_size=151936,
    )
    given = load_config(CONFIGS / f"{config}.toml").model
    fits, more = (
        bf16_bytes(model, msgspec.structs.replace(given, lora_rank=given.lora_rank + extra))
        for extra in (0, 1)
    )
    assert fits < LIMIT_BYTES <= more
    assert config != "h200-0.5b" or given.lora_rank == PolicyConfig(path="").lora_rank


def bf16_bytes(model: Qwen2Config, config: PolicyConfig) -> int:
    """Of the file with an adapter's weights."""
    with torch.device("meta"):
        adapted = get_peft_model(Qwen2ForCausalLM(model), lora(config))
    found = get_peft_model_state_dict(adapted)
    tensors = {
        name: torch.empty(one.shape, dtype=torch.bfloat16, device="cpu")
        for name, one in found.items()
    }
    return len(save(tensors, metadata={"format": "pt"}))


def test_an_adapter_of_another_rank_is_refused(folder, tmp_path):
    policy_of(folder, lora_rank=2).save(tmp_path)
    with pytest.raises(ConfigError, match=r"expected an adapter of .* of rank 4"):
        load_policy(PolicyConfig(path=str(folder), lora_rank=4), tmp_path)


def test_what_is_no_folder_of_weights_is_said(tmp_path):
    with pytest.raises(ConfigError, match=r"model\.path: .*hf download"):
        policy_of(tmp_path)


@pytest.mark.parametrize("has_template", [True, False])
def test_an_example_is_what_sampling_asks_and_would_have_to_write(tmp_path, has_template):
    policy = policy_of(tiny_weights(tmp_path, has_template=has_template))
    asked, answered = policy.example_ids([*ASKED, ANSWER])
    assert asked == policy.prompt_ids(ASKED)
    assert policy.tokenizer.decode(answered).split() == ["yes", "one", "<|end|>"]
    assert policy.ends == (policy.tokenizer.eos_token_id,)


def test_an_example_ends_where_an_answer_is_cut_by_whatever_ends_it(folder):
    """The end that the template writes may be another than the tokenizer's own, and not the last
    that it writes."""
    policy = policy_of(folder)
    policy.tokenizer.chat_template = TEMPLATE.replace("<|end|> ", "<|end|> two ")
    policy.tokenizer.eos_token = "<|user|>"
    policy.base.generation_config.eos_token_id = [2]
    _, answered = policy.example_ids([*ASKED, ANSWER])
    assert policy.tokenizer.decode(answered).split() == ["yes", "one", "<|end|>"]


def test_without_a_template_a_conversation_is_plain(tmp_path):
    policy = policy_of(tiny_weights(tmp_path, has_template=False))
    words = policy.tokenizer.decode(policy.prompt_ids(ASKED)).split()
    assert words == ["system", "please", "sort", "user", "these", "numbers", "assistant"]


def test_an_example_without_an_answer_is_refused(folder):
    with pytest.raises(ConfigError, match="expected the assistant's answer"):
        policy_of(folder).example_ids(ASKED)
