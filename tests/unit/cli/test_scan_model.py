"""When a scan opens a model, whose machine it is on, and where a key may go."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from cudal1_ci.cli import model as cli_model
from cudal1_ci.config import load_settings
from cudal1_ci.errors import ConfigError
from cudal1_ci.report.progress import SilentProgress
from cudal1_ci.survey import Plan, Planned
from tests.fakes import FakeModel, a_problem, a_target

URL = "https://llm.example.com/v1"
FILE = f"[tool.cudal1-ci.model]\nmodel = {URL!r}\npython = 'venv/bin/python'\n"


@pytest.fixture
def root(tmp_path):
    (tmp_path / "pyproject.toml").write_text(FILE)
    return tmp_path


class Notices(SilentProgress):
    def __init__(self):
        self.notices = []

    def notice(self, text):
        self.notices.append(text)


@pytest.fixture
def asked_for(monkeypatch):
    """The configurations for which a model was opened, which is all that opening one does."""
    configs = []

    @contextmanager
    def opened(config):
        configs.append(config)
        yield FakeModel(lambda messages, seed: "")

    monkeypatch.setattr(cli_model, "opened", opened)
    return configs


def a_plan(root, problem=None):
    planned = Planned(target=a_target(), problem=problem, workloads=(), reason="none")
    return Plan(root=root, repository="repo", targets=(planned,))


@pytest.mark.parametrize(
    ("in_file", "overrides", "environ", "key", "is_refused"),
    [
        (URL, {}, {}, "sk-1", True),
        (URL, {}, {}, "", False),
        (URL, {"model.model": URL}, {}, "sk-1", False),
        (URL, {}, {"CUDAL1_CI_MODEL_MODEL": URL}, "sk-1", False),
        ("weights", {}, {}, "sk-1", False),
    ],
)
def test_a_key_goes_to_no_url_that_the_repository_names(
    root, monkeypatch, asked_for, in_file, overrides, environ, key, is_refused
):
    (root / "pyproject.toml").write_text(FILE.replace(URL, in_file))
    monkeypatch.setenv("OPENAI_API_KEY", key)
    settings = load_settings(root, overrides=overrides, environ=environ)
    plan = a_plan(root, a_problem())
    model = cli_model.model_for(plan, settings, SilentProgress(), is_wanted=True)
    if not is_refused:
        with model:
            assert [config.model for config in asked_for] == [in_file]
        return
    with pytest.raises(ConfigError, match=r"pyproject\.toml.*--model") as raised, model:
        pass
    assert "sk-1" not in str(raised.value)
    assert asked_for == []


@pytest.mark.parametrize(
    ("has_problem", "is_wanted", "has_model", "said"),
    [
        (True, True, True, f"model: {URL}"),
        (True, True, False, "no model: rewrites of the playbook alone (--model)"),
        (True, False, True, "no model: rewrites of the playbook alone (--model)"),
        (False, True, True, None),
    ],
)
def test_a_model_is_opened_where_one_is_wanted_and_there_is_something_to_ask(
    tmp_path, asked_for, has_problem, is_wanted, has_model, said
):
    given = {"model.model": URL} if has_model else {}
    settings = load_settings(tmp_path, overrides=given, environ={})
    plan, progress = a_plan(tmp_path, a_problem() if has_problem else None), Notices()
    with cli_model.model_for(plan, settings, progress, is_wanted=is_wanted) as model:
        is_opened = has_problem and is_wanted and has_model
        assert (model is not None) == (len(asked_for) == 1) == is_opened
    assert progress.notices == ([said] if said else [])


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
