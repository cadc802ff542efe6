"""Answers from servers, and from vLLM as far as that can be told without it: the package is a
stand-in here, which says what it was asked."""

from __future__ import annotations

import sys
import types
from contextlib import closing

import pytest

from cudal1_ci.errors import ConfigError, ModelError
from cudal1_ci.propose.llm.servers import Message
from cudal1_ci.propose.llm.servers.config import ModelConfig
from model_training.policy import PolicyConfig, load_policy
from model_training.rollouts import Completion, Sampling
from model_training.rollouts.server_rollouts import ServerRollouts
from model_training.rollouts.vllm_rollouts import VllmRollouts
from tests.replay_server import Good, Status, replay_server
from tests.training.tiny_weights import tiny_weights

PROMPTS = [(Message(role="user", content="sort"),), (Message(role="user", content="fast please"),)]
SETTINGS = Sampling(temperature=0.5, top_p=0.9, max_tokens=20)


def test_a_server_is_asked_for_each_answer_with_a_seed_of_its_own():
    with replay_server(answers=["yes"]) as server:
        config = ModelConfig(model=server.url, name="m", num_concurrent=1)
        with closing(ServerRollouts(config)) as rollouts:
            found = rollouts.sample(PROMPTS, 2, SETTINGS, seed=3)
            again = len(server.requests)
            rollouts.sample(PROMPTS, 2, SETTINGS, seed=3)
    assert found == [[Completion(text="yes")] * 2] * 2
    asked = server.requests
    assert [one["messages"][0]["content"] for one in asked[:4]] == ["sort"] * 2 + [
        "fast please"
    ] * 2
    assert len({one["seed"] for one in asked[:4]}) == 4
    assert [one["seed"] for one in asked[:again]] == [one["seed"] for one in asked[again:]]
    assert {(one["temperature"], one["top_p"], one["max_tokens"]) for one in asked} == {
        (0.5, 0.9, 20)
    }


def test_a_cut_answer_is_one_and_a_servers_failure_is_an_error():
    with (
        replay_server(answers=[Good("ye", finish_reason="length")]) as server,
        closing(ServerRollouts(ModelConfig(model=server.url, name="m"))) as rollouts,
    ):
        assert rollouts.sample(PROMPTS[:1], 1, SETTINGS, 0) == [
            [Completion(text="ye", is_cut=True)]
        ]
    with (
        replay_server(answers=[Status(400, "no such model")]) as server,
        closing(ServerRollouts(ModelConfig(model=server.url, name="m", max_retries=0))) as rollouts,
        pytest.raises(ModelError, match=r"refused: .*no such model"),
    ):
        rollouts.sample(PROMPTS, 1, SETTINGS, 0)


def test_a_server_cannot_be_given_other_weights():
    with (
        closing(ServerRollouts(ModelConfig(model="http://127.0.0.1:1/v1"))) as rollouts,
        pytest.raises(ConfigError, match=r"rollouts\.kind: a server has the weights"),
    ):
        rollouts.renew()


class Engine:
    def __init__(self, **given):
        self.given, self.asked = given, []

    def generate(self, prompts, params, lora_request, use_tqdm):
        self.asked.append((prompts, params, lora_request))
        output = types.SimpleNamespace(text="yes", token_ids=[7, 2], finish_reason="stop")
        cut = types.SimpleNamespace(text="yes yes", token_ids=[7, 7], finish_reason="length")
        return [types.SimpleNamespace(outputs=[output, cut]) for _ in prompts]


@pytest.fixture
def vllm(monkeypatch):
    package, lora = types.ModuleType("vllm"), types.ModuleType("vllm.lora")
    request = types.ModuleType("vllm.lora.request")
    package.LLM = Engine
    package.SamplingParams = lambda **given: types.SimpleNamespace(**given)
    request.LoRARequest = lambda name, number, path: (name, number, path)
    for name, module in (
        ("vllm", package),
        ("vllm.lora", lora),
        ("vllm.lora.request", request),
    ):
        monkeypatch.setitem(sys.modules, name, module)


def policy_of(folder, **config):
    return load_policy(PolicyConfig(path=str(tiny_weights(folder)), **config))


def test_vllm_is_given_the_adapter_under_a_new_number_after_each_change(vllm, tmp_path):
    policy = policy_of(tmp_path / "weights", lora_rank=14)
    rollouts = VllmRollouts(policy, tmp_path / "adapters", gpu_memory_share=0.3)
    found = rollouts.sample(PROMPTS, 2, SETTINGS, seed=1)
    rollouts.renew()
    rollouts.sample(PROMPTS, 2, SETTINGS, seed=1)
    engine = rollouts._engine
    assert engine.given["max_lora_rank"] == 16
    assert engine.given["gpu_memory_utilization"] == 0.3
    (prompts, params, first), (_, _, second) = engine.asked
    assert [one["prompt_token_ids"] for one in prompts] == [policy.prompt_ids(p) for p in PROMPTS]
    assert len({one.seed for one in params}) == 2
    assert {(one.n, one.temperature, one.max_tokens) for one in params} == {(2, 0.5, 20)}
    assert (first[1], second[1]) == (1, 2)
    assert sorted(path.name for path in (tmp_path / "adapters").iterdir()) == ["version-2"]
    assert (tmp_path / "adapters" / "version-2" / "adapter_model.safetensors").is_file()
    assert found[0] == [
        Completion(text="yes", token_ids=(7, 2)),
        Completion(text="yes yes", token_ids=(7, 7), is_cut=True),
    ]


def test_vllm_is_refused_where_it_cannot_be(vllm, tmp_path, monkeypatch):
    full = policy_of(tmp_path / "weights", tuning="full")
    with pytest.raises(ConfigError, match=r"set model\.tuning to `lora`"):
        VllmRollouts(full, tmp_path)
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(ConfigError, match=r"pip install 'cudal1-ci\[vllm\]'"):
        VllmRollouts(policy_of(tmp_path / "weights"), tmp_path)
