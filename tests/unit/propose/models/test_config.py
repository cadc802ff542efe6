"""What a configuration of a model may say, and the words for what it may not."""

from __future__ import annotations

import pytest

from cudal1_ci.errors import ConfigError
from cudal1_ci.propose.llm.servers.config import ModelConfig


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"max_tokens": 0}, r"model\.max-tokens: expected 1 or more, got 0"),
        ({"num_concurrent": 0}, r"model\.num-concurrent"),
        ({"tensor_parallel": 0}, r"model\.tensor-parallel"),
        ({"request_s": 0}, r"model\.request: expected more than 0s"),
        ({"start_s": float("nan")}, r"model\.start"),
        ({"max_retries": -1}, r"model\.max-retries"),
        ({"temperature": -0.1}, r"model\.temperature: expected 0 to 2"),
        ({"top_p": 0.0}, r"model\.top-p"),
        ({"gpu_memory_share": 1.5}, r"model\.gpu-memory-share"),
        ({"token_budget": 100}, r"model\.token-budget: 100 is less than one answer .*max-tokens"),
        ({"gpu": "0;rm"}, r"model\.gpu: .*CUDA_VISIBLE_DEVICES"),
        ({"model": " "}, r"model\.model: is empty"),
        ({"model": "https://"}, r"model\.model: expected a URL with a host"),
        ({"model": "http://h", "adapter": "a"}, r"model\.adapter: .*model\.name"),
        ({"model": "/weights", "name": "large"}, r"model\.name"),
    ],
    ids=str,
)
def test_a_value_that_cannot_be_is_refused_with_its_key_and_the_mend(changes, words):
    with pytest.raises(ConfigError, match=words):
        ModelConfig(**changes)


@pytest.mark.parametrize(
    "url", ["https://me:hunter22@host/v1", "https://hunter22@host", "https://host/v1?k=hunter22"]
)
def test_a_url_holds_no_key_and_what_it_held_is_not_repeated(url):
    with pytest.raises(ConfigError, match=r"api-key-env names \(OPENAI_API_KEY\)") as error:
        ModelConfig(model=url)
    assert "hunter22" not in str(error.value)


@pytest.mark.parametrize("gpu", [None, "", "0", "0,1", "GPU-0b1c2d3e", "MIG-1,MIG-2"])
def test_gpus_are_written_as_the_driver_reads_them(gpu):
    assert ModelConfig(gpu=gpu).gpu == gpu


def test_weights_are_no_url():
    assert ModelConfig(model="https://host/v1").is_url
    assert not ModelConfig(model="owner/name").is_url
    assert not ModelConfig().is_url
