"""Whose machine a model is on, and where a key may go."""

from __future__ import annotations

import pytest

from cudal1_ci.cli import model as cli_model
from cudal1_ci.config import load_settings
from cudal1_ci.errors import ConfigError

URL = "https://llm.example.com/v1"
FILE = f"[tool.cudal1-ci.model]\nmodel = {URL!r}\npython = 'venv/bin/python'\n"


@pytest.fixture
def root(tmp_path):
    (tmp_path / "pyproject.toml").write_text(FILE)
    return tmp_path


def test_a_url_of_the_repository_gets_no_key(root, monkeypatch):
    settings = load_settings(root, environ={})
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    cli_model.refuse_a_key_for_a_url_in_a_file(settings)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    with pytest.raises(ConfigError, match=r"pyproject\.toml.*--model") as raised:
        cli_model.refuse_a_key_for_a_url_in_a_file(settings)
    assert "sk-1" not in str(raised.value)


@pytest.mark.parametrize(
    ("overrides", "environ"),
    [({"model.model": URL}, {}), ({}, {"CUDAL1_CI_MODEL_MODEL": URL})],
)
def test_a_url_that_the_user_gives_gets_it(root, monkeypatch, overrides, environ):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    settings = load_settings(root, overrides=overrides, environ=environ)
    cli_model.refuse_a_key_for_a_url_in_a_file(settings)


def test_weights_of_the_repository_need_no_key(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text(FILE.replace(URL, "weights"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    cli_model.refuse_a_key_for_a_url_in_a_file(load_settings(tmp_path, environ={}))


def test_the_interpreter_of_the_server_is_relative_to_the_file(root):
    assert load_settings(root, environ={}).model.python == str(root / "venv/bin/python")


@pytest.mark.parametrize(
    ("model", "gpu", "device", "has_gpu", "expected"),
    [
        (URL, None, "cpu", False, True),
        ("weights", None, "cpu", False, False),
        ("weights", None, "cpu", True, True),
        ("weights", "", "cpu", True, False),
        ("weights", None, "cuda:0", True, False),
        ("weights", "0", "cuda:0", True, False),
        ("weights", "1", "cuda:0", True, True),
        ("weights", "0", "cuda:1", True, True),
        ("weights", "0,1", "cuda:1", True, False),
        ("weights", "", "cuda:0", True, True),
    ],
)
def test_a_model_writes_while_something_is_timed_where_it_has_another_device(
    tmp_path, monkeypatch, model, gpu, device, has_gpu, expected
):
    monkeypatch.setattr(
        cli_model, "measures_on_gpu", lambda one: has_gpu if one == "auto" else one != "cpu"
    )
    given = {"model.model": model, "device": device} | ({} if gpu is None else {"model.gpu": gpu})
    settings = load_settings(tmp_path, overrides=given, environ={})
    assert cli_model.has_own_device(settings) is expected
