"""One file for a run: what is wrong in it is said with file, key and mend."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from cudal1_ci.errors import ConfigError
from model_training.__main__ import main
from model_training.config import TrainingConfig, load_config
from model_training.tasks.draft import Scale

CONFIGS = Path(__file__).parents[2] / "model_training" / "configs"
LEAST = '[model]\npath = "weights"\n'


def read(tmp_path, text: str, **given) -> TrainingConfig:
    path = tmp_path / "run.toml"
    path.write_text(text)
    return load_config(path, **given)


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.toml")), ids=lambda path: path.stem)
def test_the_configurations_that_are_shipped_can_be_read(path):
    assert load_config(path).model.path


def test_settings_of_the_paper_and_of_the_measured_run():
    config = load_config(CONFIGS / "h200-0.5b.toml")
    assert (config.supervised.learning_rate, config.supervised.epochs) == (2e-4, 2)
    assert (config.self_supervised.training.learning_rate, config.model.lora_rank) == (1e-4, 14)
    assert config.contrastive.grpo.objective.high == 0.28
    assert config.contrastive.group_size == 8
    assert config.contrastive.stream.contrast.num_exemplars == 2


def test_tables_are_records_at_any_depth(tmp_path):
    text = f"""{LEAST}
[tasks.generated]
held-out = ["diagonal"]
scale = {{ min-elements = 64, max-elements = 128 }}
[judge.trial]
num-rounds = 3
[[collection.models]]
model = "http://127.0.0.1:1/v1"
temperature = 0.5
[[collection.models]]
model = "weights"
"""
    config = read(tmp_path, text, max_minutes=3.5, folder="elsewhere")
    assert config.tasks.generated.scale == Scale(min_elements=64, max_elements=128)
    assert config.tasks.generated.held_out == ("diagonal",)
    assert config.judge.trial.num_rounds == 3
    assert [one.temperature for one in config.collection.models] == [0.5, 0.8]
    assert (config.run.max_minutes, config.run.folder) == (3.5, "elsewhere")


def test_a_change_stands_in_place_of_what_the_file_says(tmp_path):
    text = f"""{LEAST}
[contrastive]
num-steps = 16
[contrastive.stream]
contrast = {{ num-exemplars = 2 }}
"""
    changes = (
        "contrastive.num_steps=3",
        "contrastive.environment.proposer=mine",
        "contrastive.stream.contrast.sampler = none",
        'run.stages=["contrastive"]',
        "model.adapter=./adapters/a=b",
        "self-supervised.training.learning-rate=1e-5",
    )
    config = read(tmp_path, text, changes=changes)
    assert (config.contrastive.num_steps, config.contrastive.environment.proposer) == (3, "mine")
    contrast = config.contrastive.stream.contrast
    assert (contrast.sampler, contrast.num_exemplars) == ("none", 2)
    assert config.run.stages == ("contrastive",)
    assert config.model.adapter == "./adapters/a=b"
    assert config.self_supervised.training.learning_rate == 1e-5


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("frozen", "--set: expected KEY=VALUE, such as contrastive.num-steps=4, got 'frozen'"),
        (".num-steps=4", "--set: expected KEY=VALUE"),
        ("model.path.deeper=1", "`path` is no table in the file"),
        ("contrastive.num-step=4", "unknown key `contrastive.num-step`; did you mean `num-steps`?"),
        ("contrastive.num-steps=many", "`contrastive.num-steps`: Expected `int`, got `str`"),
    ],
)
def test_a_change_that_is_none_is_said(tmp_path, change, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        read(tmp_path, LEAST, changes=(change,))


def test_commands_take_changes():
    words = [
        "contrastive",
        "--config",
        str(CONFIGS / "tiny.toml"),
        "--set",
        "contrastive.num-step=x",
    ]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2
    assert "tiny.toml: unknown key `contrastive.num-step`; did you mean `num-steps`?" in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[modle]\n", "run.toml: unknown key `modle`; did you mean `model`?"),
        (
            f"{LEAST}[supervised]\nlearning-rat = 1\n",
            "run.toml: unknown key `supervised.learning-rat`; did you mean `learning-rate`?",
        ),
        (f"{LEAST}[run]\nzzz = 1\n", "unknown key `run.zzz`; known keys: folder, seed"),
        (
            f"{LEAST}[tasks.generated.scale]\nmin-element = 1\n",
            "unknown key `tasks.generated.scale.min-element`; did you mean `min-elements`?",
        ),
        (f'{LEAST}[supervised]\nepochs = "3"\n', "`supervised.epochs`: Expected `float`"),
        (
            f"{LEAST}[supervised]\nbatch-size = 0\n",
            "[supervised] supervised.batch-size: ",
        ),
        (f"{LEAST}[judge]\ndevices = []\n", "judge.devices: expected a device or more"),
        (f'{LEAST}run = "x"\n', "unknown key `model.run`"),
        (f"model = 3\n{'' * 2}", "`model` must be a table, got 3"),
        ("[run]\nseed = 1\n", "[top] Missing required argument 'model'"),
        (f'{LEAST}[judge]\nkind = "toy"\n', "expected `toy` for both or for neither"),
        (
            f'{LEAST}[run]\nstages = ["supervised", "collect"]\n',
            "expected some of collect, supervised, self_supervised, contrastive in this order",
        ),
        (f'{LEAST}[run]\nevaluates = ["collect"]\n', "expected some of base, supervised"),
        ("[model\n", "expected TOML in UTF-8"),
        (f"{LEAST}[collection]\nmodels = 3\n", "must be a list of tables"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, text, said):
    with pytest.raises(ConfigError, match=re.escape(said)) as raised:
        read(tmp_path, text)
    assert str(tmp_path / "run.toml") in str(raised.value)


def test_a_file_that_is_not_there_is_said(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.toml: cannot be read: No such file"):
        load_config(tmp_path / "none.toml")
