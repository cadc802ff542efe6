"""Which flags mean several judges, which verbs refuse them, and what a model may not disturb."""

from __future__ import annotations

import subprocess
import sys
from io import StringIO
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from cudal1_ci.cli import device, main
from cudal1_ci.cli import devices as room
from cudal1_ci.cli import model as cli_model
from cudal1_ci.config import Settings, load_settings
from cudal1_ci.errors import ConfigError, UnsupportedError
from cudal1_ci.pool import LocalBackend
from cudal1_ci.propose.llm.servers.config import ModelConfig
from cudal1_ci.render.parallel_progress import PlainParallelProgress
from cudal1_ci.render.progress import PlainProgress

TASK = """\
import torch


class {name}(torch.nn.Module):
    def forward(self, x):
        return x + 1


def get_inputs():
    return [torch.rand(4)]
"""


@pytest.fixture
def gpus(monkeypatch):
    """A machine with four."""
    driver = SimpleNamespace(
        nvmlInit=lambda: None, nvmlDeviceGetCount=lambda: 4, NVMLError=RuntimeError
    )
    monkeypatch.setattr(device, "pynvml", driver)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reference.py").write_text(TASK.format(name="Model"))
    (tmp_path / "candidate.py").write_text(TASK.format(name="ModelNew"))
    return tmp_path


def settings_for(folder, **given):
    return load_settings(folder, overrides=given, environ={})


def run(*words):
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("cuda:0,cuda:2", ("cuda:0", "cuda:2")),
        ("cuda:all", ("cuda:0", "cuda:1", "cuda:2", "cuda:3")),
        ("cuda:1,cuda:1", ("cuda:1", "cuda:1")),
    ],
)
def test_several_gpus_of_a_machine_are_a_slot_each(gpus, folder, given, found):
    settings = settings_for(folder, device=given, **{"trial.seed": 7})
    with room.placed(settings, folder) as place:
        assert isinstance(place.backend, LocalBackend)
        assert place.backend.devices == found
        assert place.settings.device == ",".join(found)
        assert place.backend.config.trial == settings.trial
        assert place.backend.config.checkouts == (str(folder),)
    assert isinstance(
        room.progress_for(settings, StringIO(), {}, quiet=False), PlainParallelProgress
    )


@pytest.mark.parametrize(
    ("given", "visible", "found"), [("cuda:3", "", "cuda:3"), ("cuda:all", "2", "cuda:0")]
)
def test_one_gpu_is_a_session_as_ever(gpus, folder, monkeypatch, given, visible, found):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    settings = settings_for(folder, device=given)
    with room.placed(settings) as place:
        assert place.backend is None
        assert place.settings.device == found
    assert isinstance(room.progress_for(settings, StringIO(), {}, quiet=False), PlainProgress)


def test_no_gpu_is_said_before_anything_is_looked_at(folder):
    result = run("scan", folder, "--device", "cuda:all")
    assert result.exit_code == 4
    assert "no NVIDIA driver here" in result.stderr


@pytest.mark.parametrize("device", ["cuda", "cuda:3", "cuda:all", "cuda:0,cuda:1"])
def test_a_listing_needs_no_gpu(folder, device):
    result = run("scan", folder, "--device", device, "--list", "--json", "-")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == run("scan", folder, "--list", "--json", "-").stdout
    assert '"entries"' in result.stdout


def test_a_dry_run_needs_the_gpu_that_a_run_needs(folder):
    assert run("scan", folder, "--device", "cuda", "--dry-run").exit_code == 4


def test_gpus_that_are_not_there_are_refused(gpus, folder):
    settings = settings_for(folder, device="cuda:0,cuda:7")
    message = r"cuda:7: this machine has 4 GPU\(s\)"
    with pytest.raises(UnsupportedError, match=message), room.placed(settings):
        pass


@pytest.mark.parametrize(
    ("verb", "flags", "others"),
    [
        ("verify", ("--device", "cuda:0,cuda:1"), "bench, scan, sweep and compare use several"),
    ],
)
def test_a_verb_that_does_not_take_them_names_the_key_and_the_way(folder, verb, flags, others):
    commit(folder)
    words = {"verify": ("reference.py", "candidate.py"), "compare": ("HEAD",)}[verb]
    result = run(verb, *words, *flags)
    assert result.exit_code == 2
    key = flags[0].removeprefix("--")
    assert f'`{key}` = "{flags[1]}" (command line)' in result.stderr
    assert others in result.stderr
    assert f"Try --{key} " in result.stderr


def commit(folder):
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
        subprocess.run(["git", *identity, *words], cwd=folder, check=True)


@pytest.mark.parametrize("verb", ["verify", "compare"])
def test_a_configured_cluster_is_refused_by_a_verb_that_uses_none(folder, monkeypatch, verb):
    commit(folder)
    monkeypatch.setenv("CUDAL1_CI_EXECUTOR", "ray")
    words = {"verify": ("reference.py", "candidate.py"), "compare": ("HEAD",)}[verb]
    result = run(verb, *words)
    assert result.exit_code == 2
    assert '`executor` = "ray" (CUDAL1_CI_EXECUTOR)' in result.stderr
    assert "bench, scan and sweep do" in result.stderr


@pytest.mark.parametrize("words", [("scan", "."), ("sweep", "."), ("bench", "reference.py")])
def test_an_address_without_a_cluster_is_refused(folder, words):
    result = run(*words, "--address", "10.0.0.7:6379")
    assert result.exit_code == 2
    assert "add --executor ray" in result.stderr


@pytest.mark.parametrize("words", [("scan", "."), ("sweep", "."), ("bench", "reference.py")])
def test_where_ray_is_not_installed_it_says_so(folder, monkeypatch, words):
    monkeypatch.setitem(sys.modules, "ray", None)
    result = run(*words, "--executor", "ray", "--address", "local")
    assert result.exit_code == 4
    assert "pip install 'cudal1-ci[ray]'" in result.stderr


def test_ray_and_not_the_user_chooses_which_gpu(folder, monkeypatch):
    monkeypatch.setattr("cudal1_ci.pool.ray.ray_module", lambda: None)
    result = run("scan", ".", "--executor", "ray", "--device", "cuda:0,cuda:1")
    assert result.exit_code == 2
    assert "as Ray chooses which GPU" in result.stderr


@pytest.mark.starts_verifier
def test_what_judges_nothing_needs_no_cluster(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    for words in (("--list",), ("--dry-run",)):
        result = run("scan", ".", "--executor", "ray", *words)
        assert result.exit_code == 0, result.stderr


def test_the_settings_of_a_cluster_reach_its_slots(folder, monkeypatch):
    made = {}

    class Cluster:
        device, num_slots = "cuda", 3

        def __init__(self, config, **given):
            made.update(given, config=config)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            made["is_left"] = True

    monkeypatch.setattr(room, "RayBackend", Cluster)
    given = {"executor": "ray", "address": "10.0.0.7:6379", "python": "python3"}
    with room.placed(settings_for(folder, **given), folder) as place:
        assert place.settings.device == "cuda", "so that kernels are looked at"
    assert (made["address"], made["device"], made["is_left"]) == ("10.0.0.7:6379", "auto", True)
    assert made["config"].executor == "local"
    assert made["config"].python == "python3"


@pytest.mark.parametrize(
    ("given", "is_refused"),
    [
        ({"device": "cuda:0,cuda:1", "model.model": "weights"}, True),
        ({"device": "cuda:0,cuda:1", "model.model": "weights", "model.gpu": "1"}, True),
        ({"device": "cuda:0,cuda:1", "model.model": "weights", "model.gpu": "2"}, False),
        ({"device": "cuda:0,cuda:1", "model.model": "http://10.0.0.8:8000/v1"}, False),
        ({"device": "cuda", "executor": "ray", "model.model": "weights"}, True),
        ({"device": "cuda", "executor": "ray", "model.model": "weights", "model.gpu": "0"}, False),
        ({"device": "cuda:0,cuda:1"}, False),
    ],
)
def test_a_model_may_not_write_where_judges_time(gpus, folder, given, is_refused):
    settings = settings_for(folder, **given)
    if not is_refused:
        cli_model.refuse_a_model_that_disturbs(settings, settings.model)
        return
    with pytest.raises(ConfigError, match=r"`model\.gpu`"):
        cli_model.refuse_a_model_that_disturbs(settings, settings.model)


def test_every_verb_that_has_an_address_has_it_as_a_setting():
    for name in ("bench", "scan", "sweep"):
        assert any(one.name == "address" for one in main.get_command(None, name).params)
    for name in ("verify", "compare", "doctor"):
        assert not any(one.name == "address" for one in main.get_command(None, name).params)


@pytest.mark.parametrize(
    ("fields", "cores", "expected"),
    [
        ({}, 16, "auto,auto,auto"),
        ({"device": "cuda"}, 16, "cuda,cuda,cuda"),
        ({"device": "cuda", "verifiers_per_gpu": 2}, 16, "cuda,cuda"),
        ({}, 8, "auto,auto"),
        ({}, 2, "auto"),
        ({"device": "cuda:0"}, 16, "cuda:0"),
        ({"device": "cpu"}, 16, "cpu"),
        ({"executor": "container"}, 16, "auto"),
        ({"model": ModelConfig(model="weights")}, 16, "auto"),
        ({"model": ModelConfig(model="http://host/v1")}, 16, "auto,auto,auto"),
    ],
)
def test_a_search_has_several_verifiers_on_a_gpu(monkeypatch, fields, cores, expected):
    monkeypatch.setattr(room, "measures_on_gpu", lambda device: device != "cpu")
    assert room.with_shared_gpu(Settings(**fields), cores).device == expected


def test_without_a_gpu_a_search_has_one_verifier(monkeypatch):
    monkeypatch.setattr(room, "measures_on_gpu", lambda device: False)
    assert room.with_shared_gpu(Settings(), 64).device == "auto"
