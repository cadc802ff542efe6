"""What `doctor --model` says of a language model."""

from __future__ import annotations

import pytest

from cudal1_ci.cli.model_check import model_diagnoses
from cudal1_ci.propose.llm.servers.config import ModelConfig
from tests.replay_server import Status, replay_server


def said(config: ModelConfig) -> list[tuple[str, str, str, str]]:
    return [(one.name, one.grade, one.found, one.fix) for one in model_diagnoses(config)]


def test_a_server_is_asked_for_its_models_and_for_an_answer():
    with replay_server(answers=["ready"], models=["small", "large"]) as server:
        listed, model = said(ModelConfig(model=server.url))
        assert listed[1:3] == ("ok", f"{server.url} lists small, large")
        assert model[:2] == ("model", "ok")
        assert model[2].startswith("small (the first of 2; `model.name` chooses) answers in ")
        _, model = said(ModelConfig(model=server.url, name="large", token_budget=4096))
        assert model[2].startswith("large answers in ")
    assert [request["model"] for request in server.requests] == ["small", "large"]


def test_a_model_that_the_server_does_not_have_is_named_with_the_nearest():
    with replay_server(models=["qwen-7b", "llama"]) as server:
        _, model = said(ModelConfig(model=server.url, name="qwen-8b"))
    assert model[:3] == ("model", "missing", "`qwen-8b` is not among the server's models")
    assert "did you mean `qwen-7b`?" in model[3]
    assert not server.requests


def test_a_server_that_refuses_to_answer_is_quoted(monkeypatch):
    monkeypatch.setenv("SOME_KEY", "sk-very-secret")
    with replay_server(answers=[Status(401, message="no such key sk-very-secret")]) as server:
        _, model = said(ModelConfig(model=server.url, api_key_env="SOME_KEY"))
    assert model[1] == "missing"
    assert "HTTP 401: no such key" in model[2]
    assert "sk-very-secret" not in model[2]
    assert "SOME_KEY" in model[3]


@pytest.mark.parametrize("name", [None, "large"])
def test_a_server_that_is_down_is_missing(name):
    with replay_server() as server:
        config = ModelConfig(model=server.url, name=name)
    rows = said(config)
    assert [row[1] for row in rows] == (["limited", "missing"] if name else ["missing"])
    assert all("the connection failed" in row[2] for row in rows)


def test_weights_are_looked_for(tmp_path):
    ((_, grade, found, fix),) = said(ModelConfig(model=str(tmp_path / "gone")))
    assert (grade, found) == ("missing", f"'{tmp_path}/gone' is no folder")
    assert fix.startswith("expected a folder of weights")
    ((_, grade, found, _),) = said(ModelConfig(model="owner/name"))
    assert (grade, found) == ("ok", "owner/name is an id of the hub; not asked")
