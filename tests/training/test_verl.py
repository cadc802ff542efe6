"""Stage 3 on verl: rows, dataset and reward, against verl's own interface (0.9.1) as it calls them.

verl is not installed here: `RLHFDataset` is a stand-in that reads a row as verl's does.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import datasets
import msgspec
import pytest
import torch

from cudal1_ci.errors import ConfigError
from cudal1_ci.records.archive import Archive
from model_training.environment import Environment, EnvironmentConfig
from model_training.export.command import write_verl
from model_training.export.verl import reward as reward_module
from model_training.export.verl.prompts import Prompts
from model_training.stream import StreamConfig
from model_training.tasks.generate import generate
from model_training.tasks.record import Task
from tests.fakes import CPU
from tests.training.test_environment import TASK, Judge, answer
from tests.training.test_stream import prove

TASKS = [generate(seed, "softmax") for seed in range(3)]
HELD_OUT = [generate(seed, "diagonal") for seed in range(2)]


class RLHFDataset(torch.utils.data.Dataset):
    """As verl's: constructed by keyword, a row is a dict with `raw_prompt`."""

    def __init__(self, data_files, tokenizer, config, processor=None, max_samples=-1):
        self.config = config
        self.dataframe = datasets.load_dataset("parquet", data_files=str(data_files))["train"]

    def __len__(self):
        return len(self.dataframe)

    def __getitem__(self, item):
        row = self.dataframe[item]
        return {**row, "raw_prompt": row["prompt"], "index": row["extra_info"]["index"]}


@pytest.fixture
def dataset_class(monkeypatch):
    """The class as verl's `load_extern_object` finds it."""
    for name in ("verl", "verl.utils", "verl.utils.dataset"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    module = types.ModuleType("verl.utils.dataset.rl_dataset")
    module.RLHFDataset = RLHFDataset
    monkeypatch.setitem(sys.modules, module.__name__, module)
    name = "model_training.export.verl.dataset"
    monkeypatch.delitem(sys.modules, name, raising=False)
    found = importlib.import_module(name).ContrastiveDataset
    monkeypatch.delitem(sys.modules, name)
    return found


@pytest.fixture
def written(tmp_path, monkeypatch) -> Path:
    """What `export verl` writes."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    run = tmp_path / "run"
    (run / "tasks").mkdir(parents=True)
    for name, tasks in (("training", TASKS), ("evaluation", HELD_OUT)):
        lines = b"".join(msgspec.json.encode(one) + b"\n" for one in tasks)
        (run / "tasks" / f"{name}.jsonl").write_bytes(lines)
    with Archive.open(run / "archive.sqlite") as archive:
        prove(archive, TASKS[0], 2.0, "known")
    output = tmp_path / "verl"
    write_verl(run, msgspec.json.encode(CPU), output)
    return output


def settings(written: Path, batch: int = 3, workers: int = 0):
    return {
        "train_batch_size": batch,
        "dataloader_num_workers": workers,
        "contrastive": {
            "archive": str(written / "archive.sqlite"),
            "device": str(written / "device.json"),
        },
    }


def made(dataset_class, written: Path, name: str = "train", **named: int):
    return dataset_class(
        data_files=written / f"{name}.parquet",
        tokenizer=None,
        processor=None,
        config=settings(written, **named),
        max_samples=-1,
    )


def test_rows_have_the_five_fields_of_verl(written):
    rows = datasets.load_dataset("parquet", data_files=str(written / "train.parquet"))["train"]
    assert len(rows) == 3
    for number, row in enumerate(rows):
        assert set(row) == {"data_source", "prompt", "ability", "reward_model", "extra_info"}
        assert row["data_source"] == "cudal1-ci/generated"
        assert [one["role"] for one in row["prompt"]] == ["system", "user"]
        assert row["reward_model"]["style"] == "rule"
        task = msgspec.json.decode(row["reward_model"]["ground_truth"], type=Task)
        assert task == TASKS[number]
        assert row["extra_info"]["index"] == number
        assert row["extra_info"]["split"] == "train"
    assert "known" in rows[0]["prompt"][1]["content"], "what was proven is shown"
    assert len(rows[0]["extra_info"]["exemplar_ids"].split()) == 2


def test_a_prompt_shows_what_was_found_in_the_batches_before(dataset_class, written):
    dataset = made(dataset_class, written)
    before = [dataset[place]["raw_prompt"][1]["content"] for place in (1, 2)]
    with Archive.open(written / "archive.sqlite") as archive:
        prove(archive, TASKS[1], 3.0, "found_in_training")
    in_the_same_batch = dataset[1]["raw_prompt"][1]["content"]
    in_the_next = dataset[1]
    assert not any("found_in_training" in one for one in (*before, in_the_same_batch))
    assert "found_in_training" in in_the_next["raw_prompt"][1]["content"]
    assert len(in_the_next["extra_info"]["exemplar_ids"].split()) == 2
    assert "found_in_training" not in in_the_next["prompt"][1]["content"], "the file stays"


def test_prompts_of_validation_stay_as_they_are(dataset_class, written):
    dataset = made(dataset_class, written, "test")
    with Archive.open(written / "archive.sqlite") as archive:
        prove(archive, HELD_OUT[0], 3.0, "found_in_training")
    assert dataset[0]["raw_prompt"] == dataset[0]["prompt"]
    assert "found_in_training" not in dataset[0]["raw_prompt"][1]["content"]


def test_workers_that_would_ask_ahead_are_refused(dataset_class, written):
    with pytest.raises(ConfigError, match=r"dataloader_num_workers: expected 0, got 8"):
        made(dataset_class, written, workers=8)


def test_prompts_are_the_same_again(tmp_path):
    def asked() -> list:
        with Archive.open(tmp_path / "archive.sqlite") as archive:
            prompts = Prompts(archive, CPU, StreamConfig(seed=3), batch_size=2)
            return [(one.messages, one.exemplar_ids) for one in map(prompts.of, TASKS * 2)]

    with Archive.open(tmp_path / "archive.sqlite") as archive:
        for word in ("one", "other", "third"):
            prove(archive, TASKS[0], 1.0 + len(word), word)
    assert asked() == asked()


@pytest.mark.parametrize(("text", "told"), [("", "is empty"), ('{"name": 1}\n', "a task a line")])
def test_a_run_without_tasks_is_refused(tmp_path, text, told):
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "training.jsonl").write_text(text)
    with pytest.raises(ConfigError, match=told):
        write_verl(tmp_path, msgspec.json.encode(CPU), tmp_path / "verl")
    assert not (tmp_path / "verl").exists()


# --- the reward ------------------------------------------------------------------------------


@pytest.fixture
def score(tmp_path, monkeypatch):
    """`compute_score` as verl's reward manager calls it, with a judge that says what it is told."""

    def call(said, text: str):
        with Archive.open(tmp_path / "archive.sqlite") as archive:
            environment = Environment(Judge(said), archive, "p", EnvironmentConfig())
            monkeypatch.setattr(reward_module, "environment_of", lambda *_: environment)
            return reward_module.compute_score(
                data_source="cudal1-ci/generated",
                solution_str=text,
                ground_truth=msgspec.json.encode(TASK).decode(),
                extra_info={"index": 4, "exemplar_ids": "e1 e2", "num_turns": 1},
                archive="archive.sqlite",
                gpus=[6],
            )

    return call


@pytest.mark.parametrize(
    ("said", "text", "expected"),
    [
        (1.5, answer("x = x * 1"), (1.5, 1.0, 0.0, 1.0, 1.5)),
        ("incorrect_values", answer("x = x * 1"), (0.0, 0.0, 0.0, 1.0, 1.0)),
        ("reward_hack", answer("x = x * 1"), (0.0, 0.0, 1.0, 1.0, 1.0)),
        (None, "I cannot.", (0.0, 0.0, 0.0, 0.0, 1.0)),
    ],
)
def test_an_answer_is_worth_what_the_environment_says(score, said, text, expected):
    found = score(said, text)
    assert tuple(found.values()) == pytest.approx(expected)
    assert list(found) == ["score", "is_correct", "is_hack", "is_read", "worth"]
    assert {type(one) for one in found.values()} == {float}


def test_each_process_has_a_gpu_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert [reward_module.claimed((6, 7)) for _ in range(2)] == [6, 7]
    with pytest.raises(ConfigError, match=r"set reward\.num_workers to 2"):
        reward_module.claimed((6, 7))
    reward_module.OPEN.close()
    assert reward_module.claimed((6, 7)) == 6
    reward_module.OPEN.close()


# --- the script ------------------------------------------------------------------------------

SCRIPT = Path(reward_module.__file__).parent / "launch.sh"


def launched(tmp_path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """The script with a python that only says what it is called with."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "GPUS=$CUDA_VISIBLE_DEVICES"\nprintf "%s\\n" "$@"\n')
    python.chmod(0o755)
    given = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "DATA": "data", "MODEL": "weights"}
    return subprocess.run(
        ["bash", str(SCRIPT), "trainer.total_epochs=3"],
        env={**given, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_script_scores_on_gpus_that_do_not_train(tmp_path):
    done = launched(tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == ["GPUS=0,1,2,3,4,5", "-m", "verl.trainer.main_ppo"]
    told = dict(one.lstrip("+").split("=", 1) for one in lines[3:])
    assert told["reward.custom_reward_function.reward_kwargs.gpus"] == "[6,7]"
    assert (told["trainer.n_gpus_per_node"], told["reward.num_workers"]) == ("6", "2")
    assert told["data.dataloader_num_workers"] == "0"
    assert told["trainer.total_epochs"] == "3", "what is given comes last"
    for key, name in (("data.custom_cls", "dataset"), ("reward.custom_reward_function", "reward")):
        assert told[f"{key}.path"] == f"pkg://model_training.export.verl.{name}"


def test_the_script_refuses_to_score_where_it_trains(tmp_path):
    done = launched(tmp_path, TRAIN_GPUS="0,1,12", SCORE_GPUS="2,12")
    assert done.returncode == 2
    assert "GPU 12: expected TRAIN_GPUS and SCORE_GPUS apart" in done.stderr
    assert launched(tmp_path, TRAIN_GPUS="0,12", SCORE_GPUS="1,2").returncode == 0
