"""The real thing: weights, a real server, real answers.

    CUDAL1_CI_TEST_MODEL=/models/qwen CUDAL1_CI_TEST_MODEL_PYTHON=.../bin/python pytest -m model

The folder holds a small model that chats; the interpreter has transformers[serving] (the tests' own
without the variable). With CUDAL1_CI_TEST_VLLM_PYTHON, an interpreter that has vLLM, all is tried
with it too; on a CPU it wants VLLM_CPU_KVCACHE_SPACE=2. With CUDAL1_CI_TEST_ADAPTER, a LoRA adapter
that changes what the model says is tried.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cudal1_ci.propose.llm.servers import LanguageModel, Message
from cudal1_ci.propose.llm.servers.config import ModelConfig
from cudal1_ci.propose.llm.servers.opening import opened

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

MESSAGES = (
    Message(role="system", content="Answer with Python code only, in one block."),
    Message(role="user", content="Write a function `relu(x)` with torch."),
)


INTERPRETERS = {
    "transformers": "CUDAL1_CI_TEST_MODEL_PYTHON",
    "vllm": "CUDAL1_CI_TEST_VLLM_PYTHON",
}


@pytest.fixture(scope="module", params=INTERPRETERS)
def server(request) -> str:
    if request.param == "vllm" and not os.environ.get(INTERPRETERS["vllm"]):
        pytest.skip(f"no interpreter that has vLLM in {INTERPRETERS['vllm']}")
    return request.param


@contextmanager
def a_model(server: str, **changes) -> Iterator[LanguageModel]:
    folder = os.environ.get("CUDAL1_CI_TEST_MODEL")
    if not folder:
        pytest.fail("expected a folder of weights in CUDAL1_CI_TEST_MODEL")
    settings = {"max_tokens": 96, "temperature": 1.0, **changes}
    python = os.environ.get(INTERPRETERS[server])
    config = ModelConfig(model=folder, server=server, python=python, **settings)
    with opened(config, offline=True) as model:
        yield model


@pytest.fixture(scope="module")
def model(server) -> Iterator[LanguageModel]:
    with a_model(server) as opened_model:
        yield opened_model


def texts(model: LanguageModel, n: int, seed: int) -> list[str]:
    answers = list(model.ask(MESSAGES, n=n, seed=seed))
    assert [answer.message for answer in answers] == [""] * n
    return [answer.text for answer in answers]


def test_a_model_answers_with_code_and_says_what_it_took(model):
    answers = list(model.ask(MESSAGES, n=3, seed=0))
    assert {answer.failure for answer in answers} == {None}
    assert any("def relu" in answer.text for answer in answers)
    assert all(1 <= answer.completion_tokens <= 96 for answer in answers)
    assert all(answer.prompt_tokens > 10 for answer in answers)
    assert all(0 < answer.elapsed_s < 300 for answer in answers)


def test_a_seed_draws_the_same_again_and_another_seed_another(model):
    first = texts(model, n=3, seed=10)
    assert len(set(first)) > 1
    assert sorted(texts(model, n=3, seed=10)) == sorted(first)


def test_a_model_is_known_by_its_weights_and_its_server(model, server):
    identity = model.identity
    assert re.fullmatch(rf"{server} \d.*", identity.server)
    assert re.fullmatch(r"[0-9a-f]{16}", identity.revision)
    assert identity.adapter is None


def test_temperature_0_is_the_same_for_every_seed(server):
    with a_model(server, temperature=0.0, max_tokens=32) as greedy:
        assert len(set(texts(greedy, n=2, seed=0))) == 1


def test_an_adapter_changes_what_is_said(server):
    folder = os.environ.get("CUDAL1_CI_TEST_ADAPTER")
    if not folder:
        pytest.skip("no adapter in CUDAL1_CI_TEST_ADAPTER")
    with a_model(server, temperature=0.0, max_tokens=16) as plain:
        without = texts(plain, n=1, seed=0)
    with a_model(server, temperature=0.0, max_tokens=16, adapter=folder) as adapted:
        answers = list(adapted.ask(MESSAGES, n=1, seed=0))
        assert re.fullmatch(r"[0-9a-f]{16}", adapted.identity.adapter)
    assert [answer.text for answer in answers] != without
