"""When a scan opens a model, whose machine it is on, and where a key may go."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from cudal1_ci.cli import devices as cli_devices
from cudal1_ci.cli import model as cli_model
from cudal1_ci.config import load_settings
from cudal1_ci.discover.plan import Plan, Planned
from cudal1_ci.errors import ConfigError
from cudal1_ci.propose.llm.hack_review.cases import known_cases
from cudal1_ci.records.archive import Archive
from cudal1_ci.render.progress import SilentProgress
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
    def opened(config, told):
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
        (True, True, False, None),
        (True, False, True, None),
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
        cli_devices, "measures_on_gpu", lambda one: has_gpu if one == "auto" else one != "cpu"
    )
    given = {"model.model": model, "device": device} | ({} if gpu is None else {"model.gpu": gpu})
    settings = load_settings(tmp_path, overrides=given, environ={})
    assert cli_devices.has_own_device(settings) is expected


# --- a second opinion ----------------------------------------------------------------------------


OTHER = "https://other.example.com/v1"


@pytest.mark.parametrize(
    ("given", "environ", "key", "is_refused"),
    [
        ({}, {"CUDAL1_CI_OPINION_MODEL": OTHER}, "sk-1", False),
        ({}, {}, "", False),
        ({}, {}, "sk-1", True),
    ],
)
def test_the_second_model_has_its_own_key_which_goes_to_no_url_of_the_repository(
    root, monkeypatch, asked_for, given, environ, key, is_refused
):
    (root / "pyproject.toml").write_text(f"{FILE}\n[tool.cudal1-ci.opinion]\nmodel = {OTHER!r}\n")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-first-model")
    monkeypatch.setenv("OPINION_API_KEY", key)
    settings = load_settings(root, overrides=given, environ=environ)
    if is_refused:
        with (
            pytest.raises(ConfigError, match=r"`opinion\.model` .*CUDAL1_CI_OPINION_MODEL"),
            cli_model.opinion_of(settings, SilentProgress()),
        ):
            pass
        assert asked_for == []
        return
    with cli_model.opinion_of(settings, SilentProgress()) as model:
        assert model is not None
    (config,) = asked_for
    assert (config.model, config.api_key_env) == (OTHER, "OPINION_API_KEY")
    assert (config.temperature, config.adapter, config.num_concurrent) == (0.0, "none", 1)


def test_nobody_is_asked_by_default(tmp_path, asked_for):
    settings = load_settings(tmp_path, overrides={"model.model": URL}, environ={})
    with cli_model.opinion_of(settings, SilentProgress()) as model:
        assert model is None
    assert asked_for == []
    assert cli_model.reviewer_of(None, settings, tmp_path, None, 0.0) is None


def test_a_model_that_is_asked_about_its_own_work_is_named(tmp_path, asked_for):
    given = {"model.model": URL, "opinion.model": URL}
    progress = Notices()
    with cli_model.opinion_of(load_settings(tmp_path, overrides=given, environ={}), progress):
        pass
    assert "asked about its own work" in progress.notices[0]
    given["opinion.name"] = "another"
    progress = Notices()
    with cli_model.opinion_of(load_settings(tmp_path, overrides=given, environ={}), progress):
        pass
    assert progress.notices == [f"second opinion: {URL}"]


def test_cases_of_people_are_added_to_those_that_ship(tmp_path):
    (tmp_path / "ours.toml").write_text("[[case]]\nname='a'\ndescription='b'\ncode='zap()'\n")
    settings = load_settings(tmp_path, overrides={"opinion.cases": "ours.toml"}, environ={})
    model = FakeModel(lambda messages, seed: "")
    with Archive.open(tmp_path / "archive.sqlite") as archive:
        reviewer = cli_model.reviewer_of(model, settings, tmp_path, archive, 0.0)
        assert [case.name for case in reviewer.database.like("zap(1)", "")] == ["a"]
        assert len(reviewer.database.proven) == len(known_cases()) + 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"opinion.model": "https://me:pw@x.example"}, r"opinion\.model: .*opinion\.api-key-env"),
        ({"opinion.model": "weights", "opinion.name": "a"}, r"opinion\.name: "),
        ({"opinion.model": URL, "opinion.max-tokens": 0}, r"opinion\.max-tokens: "),
        ({"opinion.prompt-tokens": 0}, r"opinion\.prompt-tokens: "),
    ],
)
def test_a_wrong_value_is_named_by_its_own_key(tmp_path, given, message):
    with pytest.raises(ConfigError, match=message) as raised:
        load_settings(tmp_path, overrides=given, environ={})
    assert "pw" not in str(raised.value).replace("(set here", "")
