"""A trained adapter in the form in which the product takes it, and what is refused."""

from __future__ import annotations

import datetime
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

from cudal1_ci.errors import ConfigError, CudaL1Error
from cudal1_ci.propose.llm.servers import adapters
from cudal1_ci.propose.llm.servers.adapters import chosen
from cudal1_ci.propose.llm.servers.config import ModelConfig
from model_training.__main__ import main
from model_training.evaluate import Evaluated
from model_training.export.bundle import BundleConfig, bundle
from model_training.table import Sample, Table, table

ID = "owner/tiny"
SIZES = {
    "model_type": "qwen2",
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 32,
}
LAYER = "base_model.model.model.layers.0.mlp.up_proj.lora_{}.weight"


@dataclass
class Trained:
    """A run with an adapter and the base of both."""

    config: BundleConfig
    shelf: Path

    @property
    def run(self) -> Path:
        return self.config.run

    def changed(self, **changes) -> BundleConfig:
        return msgspec.structs.replace(self.config, **changes)


def save_adapter(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    save_file(tensors, folder / "adapter_model.safetensors")


def lora(rank: int = 2, width: int = 8) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        LAYER.format("A"): torch.randn(rank, width, generator=generator),
        LAYER.format("B"): torch.randn(16, rank, generator=generator),
    }


def evaluation(name: str, num_correct: int, seed: int) -> Evaluated:
    """Of four tasks with eight answers, of which so many are right and half as fast again."""
    samples = tuple(
        Sample(task=f"diagonal-{task}", status="passed", speedup=1.5)
        if number < num_correct
        else Sample(task=f"diagonal-{task}", status="no_code")
        for task in range(4)
        for number in range(8)
    )
    row = table(samples, 4)
    return Evaluated(
        name=name, policy=name, k=4, temperature=0.8, seed=seed, samples=samples, table=row
    )


@pytest.fixture
def trained(tmp_path, monkeypatch) -> Trained:
    base, adapter, shelf = (tmp_path / name for name in ("base", "adapter", "shelf"))
    for folder in (base, adapter, shelf):
        folder.mkdir()
    (base / "model.safetensors").write_bytes(b"the base")
    (base / "config.json").write_text(json.dumps({**SIZES, "rope_theta": 1e6}))
    run = tmp_path / "run"
    (run / "evaluations").mkdir(parents=True)
    for name, correct, seed in (("base", 1, 0), ("contrastive", 3, 0), ("contrastive", 5, 1)):
        content = msgspec.json.encode(evaluation(name, correct, seed))
        (run / "evaluations" / f"{name}-{seed}.json").write_bytes(content)
    digest = hashlib.sha256(b"the base").hexdigest()
    environment = {"commit": "f" * 40, "weights_sha256": {"model.safetensors": digest}}
    environment |= {"weights": str(base), "resumed": [{"python": "3.12.1"}]}
    (run / "environment.json").write_text(json.dumps(environment))
    said = {"hash": "0", "config": {"model": {"path": str(base)}, "run": {"folder": str(run)}}}
    (run / "config.json").write_text(json.dumps(said))
    settings = {"peft_type": "LORA", "r": 2, "base_model_name_or_path": str(base)}
    (adapter / "adapter_config.json").write_text(json.dumps(settings))
    save_adapter(adapter, lora())
    monkeypatch.setattr(adapters, "FOLDER", shelf)
    config = BundleConfig(
        run=run,
        adapter=adapter,
        name="tiny",
        base=base,
        ids=(ID,),
        evaluation="contrastive",
        results="assets/results/training",
        date=datetime.date(2026, 11, 22),
    )
    return Trained(config, shelf)


def test_a_bundled_adapter_is_what_the_product_takes(trained):
    place = bundle(trained.config)
    assert [path.name for path in trained.shelf.iterdir()] == ["tiny"]
    by_id = chosen(ModelConfig(model=ID))
    by_sizes = chosen(ModelConfig(model=str(trained.config.base)))
    assert by_id == by_sizes
    assert (by_id.folder, by_id.rank, by_id.made_for) == (place, 2, ID)


def test_its_numbers_are_bf16_and_its_files_know_no_folder_of_the_machine(trained, tmp_path):
    place = bundle(trained.config)
    stored, before = load_file(place / "adapter_model.safetensors"), lora()
    assert {tensor.dtype for tensor in stored.values()} == {torch.bfloat16}
    assert all(torch.equal(stored[name], before[name].bfloat16()) for name in before)
    for path in place.glob("*.json"):
        assert str(tmp_path) not in path.read_text()
    settings = json.loads((place / "adapter_config.json").read_text())
    assert settings == {"peft_type": "LORA", "r": 2, "base_model_name_or_path": ID}


def test_its_record_says_where_it_comes_from(trained):
    record = json.loads((bundle(trained.config) / "record.json").read_text())
    assert record["base"]["config"] == SIZES
    assert record["base"]["weights_sha256"].keys() == {"model.safetensors"}
    assert record["training"]["commit"] == "f" * 40
    config = (trained.run / "config.json").read_bytes()
    assert record["training"]["config_sha256"] == hashlib.sha256(config).hexdigest()
    assert record["training"]["date"] == "2026-11-22"
    row = msgspec.convert(record["training"]["row"], Table)
    assert (row.num_samples, row.correct.value) == (64, 0.5), "of both seeds"


def test_a_run_that_collected_before_there_were_weights_knows_them_from_later(trained):
    path = trained.run / "environment.json"
    later = json.loads(path.read_text())
    first = {**later, "weights_sha256": {}}
    path.write_text(json.dumps({**first, "resumed": [later]}))
    record = json.loads((bundle(trained.config) / "record.json").read_text())
    assert record["base"]["weights_sha256"] == later["weights_sha256"]


def test_a_run_of_two_bases_is_refused(trained):
    path = trained.run / "environment.json"
    first = json.loads(path.read_text())
    other = {**first, "weights_sha256": {"model.safetensors": "0" * 64}}
    path.write_text(json.dumps({**first, "resumed": [other]}))
    with pytest.raises(ConfigError, match="same weights"):
        bundle(trained.config)
    assert not list(trained.shelf.iterdir())


def with_a_whole_layer(trained):
    save_adapter(trained.config.adapter, {**lora(), "model.embed_tokens.weight": torch.ones(2)})


def with_infinities(trained):
    save_adapter(trained.config.adapter, {LAYER.format("A"): torch.tensor([float("inf")])})


def too_large(trained):
    save_adapter(trained.config.adapter, lora(rank=1000, width=8000))


def on_other_weights(trained):
    (trained.config.base / "model.safetensors").write_bytes(b"others")


def without_sizes(trained):
    (trained.config.base / "config.json").write_text('{"model_type": "qwen2"}')


def without_its_evaluation(trained):
    for path in (trained.run / "evaluations").glob("contrastive*.json"):
        path.unlink()


def of_a_broken_run(trained):
    (trained.run / "environment.json").write_text("{}")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (with_a_whole_layer, "tensors of LoRA alone, found model.embed_tokens"),
        (with_infinities, "holds what is no number"),
        (too_large, "less than 16,000,000 bytes in bf16, .* are 16,0.*train with a lower rank"),
        (on_other_weights, r"model\.safetensors: expected SHA-256.*name the weights"),
        (without_sizes, r"config\.json: expected hidden_size, .*vocab_size"),
        (without_its_evaluation, "one of base; got 'contrastive'"),
        (of_a_broken_run, r"environment\.json: .*commit"),
    ],
)
def test_what_does_not_belong_into_the_package_is_refused_and_nothing_is_left(trained, spoil, said):
    spoil(trained)
    with pytest.raises(CudaL1Error, match=said):
        bundle(trained.config)
    assert list(trained.shelf.iterdir()) == []


def test_a_name_is_that_of_a_folder_and_taken_once(trained):
    with pytest.raises(ConfigError, match=r"^--name: .*'\.\./tiny'"):
        bundle(trained.changed(name="../tiny"))
    bundle(trained.config)
    with pytest.raises(ConfigError, match="is there already"):
        bundle(trained.config)


def test_the_command_says_what_is_wrong(trained):
    config = trained.config
    words = ["bundle", trained.run, "--name", "tiny", "--id", ID, "--results", config.results]
    words += ["--adapter", config.adapter, "--base", config.base, "--date", "2026-11-22"]
    done = CliRunner().invoke(main, [*map(str, words), "--evaluation", "no such one"])
    assert done.exit_code == ConfigError.exit_code
    assert "one of base, contrastive; got 'no such one'" in done.stderr
