"""The model card of an adapter says what the records of its runs say."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import msgspec
import pytest
import torch
import yaml
from click.testing import CliRunner
from huggingface_hub import ModelCard
from safetensors.torch import save_file

from cudal1_ci.errors import ConfigError, ReportError
from model_training.report.card import card_text
from model_training.report.command import card
from model_training.report.rows import rows_of
from model_training.report.run_folder import read_run
from tests.training.run_folders import HOSTILE, evaluation, judged, metrics, write_run

BASE = "Qwen/Qwen2.5-Coder-0.5B-Instruct"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(
        tmp_path_factory.mktemp("runs") / "h200",
        metrics=metrics("supervised", 4, loss=0.3) + metrics("contrastive", 6, reward=1.2),
        samples=judged("contrastive", 6, completion=HOSTILE),
        evaluations=[
            evaluation("base", 0.2, 1.0, num_tasks=8),
            evaluation("contrastive", 0.7, 1.3, num_tasks=8, policy="contrastive-20"),
        ],
    )


@pytest.fixture
def adapter(tmp_path) -> Path:
    folder = tmp_path / "cudal1-0.5b"
    folder.mkdir()
    save_file({"lora_A.weight": torch.ones(16, 8)}, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({"r": 16, "peft_type": "LORA"}))
    return folder


def text_of(run: Path, adapter: Path, evaluation: str = "contrastive") -> str:
    return card_text(
        [read_run(run)],
        adapter,
        base_model=BASE,
        evaluation=evaluation,
        license_name="apache-2.0",
    )


def test_the_hub_reads_its_front_matter(run, adapter):
    data = ModelCard(text_of(run, adapter)).data
    row = rows_of([read_run(run)])[1]
    assert (data.base_model, data.license, data.library_name) == (BASE, "apache-2.0", "peft")
    assert "lora" in data.tags
    found = {one.metric_name: one.metric_value for one in data.eval_results}
    assert found["pass@1"] == pytest.approx(row.table.correct.value, abs=1e-4)
    assert found["geometric mean speedup, best of 4"] == pytest.approx(
        row.table.geometric_mean.value, abs=1e-4
    )
    assert found["max speedup"] == pytest.approx(row.table.max, abs=1e-4)
    assert found["success"] == row.table.success / 8


def test_the_front_matter_is_yaml_with_a_model_index(run, adapter):
    _, front, _ = text_of(run, adapter).split("---\n", 2)
    found = yaml.safe_load(front)
    assert found["model-index"][0]["name"] == "cudal1-0.5b"
    assert len(found["model-index"][0]["results"][0]["metrics"]) == 7


def test_it_tells_training_hashes_limits_and_environment(run, adapter):
    text = text_of(run, adapter)
    row = rows_of([read_run(run)])[1]
    weights = hashlib.sha256((adapter / "adapter_model.safetensors").read_bytes()).hexdigest()
    assert f"| adapter\\_model.safetensors | {weights} |" in text
    assert f"| base: model.safetensors | {'a' * 64} |" in text
    assert "- contrastive, run h200: 6 steps in 1 min 0 s; 24 samples judged" in text
    assert f"- {1 - row.table.correct.value:.1%} of its answers" in text
    assert f"{row.table.hacks} of 64 of its answers" in text
    assert "Speedups were measured on Fake GPU." in text
    assert "| torch | 2.13.0 |" in text and "taken up again (1)" in text
    assert "weights/tiny" not in text, "a path of the machine says nothing to a reader"
    assert "A LoRA adapter (rank 16)" in text
    assert "owned" not in text, "what models wrote is not in it"


def test_stages_after_the_adapter_are_not_among_its_training(tmp_path, adapter):
    run = write_run(
        tmp_path / "h200",
        metrics=metrics("supervised", 4, loss=0.3)
        + metrics("contrastive", 6, reward=1.2)
        + metrics("evaluation-contrastive", 1, correct=0.5),
        evaluations=[evaluation("base", 0.2, 1.0), evaluation("supervised", 0.7, 1.3)],
    )
    text = text_of(run, adapter, "supervised")
    assert "- supervised, run h200: 4 steps" in text
    assert "contrastive, run h200" not in text


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        (["torch"], "rewrites PyTorch code into"),
        (["torch", "graph"], "PyTorch code and CUDA graphs"),
    ],
)
def test_it_says_what_its_examples_were(run, adapter, kinds, said):
    known = read_run(run)
    told = {**known.config, "config": {"collection": {"kinds": kinds}}}
    changed = msgspec.structs.replace(known, config=told)
    words = {"base_model": BASE, "evaluation": "contrastive", "license_name": "apache-2.0"}
    assert said in card_text([changed], adapter, **words)


def test_the_checkpoint_of_the_adapter_names_its_row_too(run, adapter):
    assert text_of(run, adapter, "contrastive-20") == text_of(run, adapter)


def test_an_evaluation_that_is_not_there_is_told_with_those_that_are(run, adapter):
    with pytest.raises(ReportError, match="one of base, contrastive; got 'best'"):
        text_of(run, adapter, "best")


def test_a_folder_without_an_adapter_has_no_card(run, tmp_path):
    with pytest.raises(ConfigError, match=r"found no adapter_config\.json"):
        text_of(run, tmp_path)


def test_the_command_writes_the_readme_of_the_adapter(run, adapter):
    words = [run, "--adapter", adapter, "--id", BASE, "--evaluation", "contrastive"]
    done = CliRunner().invoke(card, [str(one) for one in words], catch_exceptions=False)
    assert done.exit_code == 0
    assert (adapter / "README.md").read_text() == text_of(run, adapter)
