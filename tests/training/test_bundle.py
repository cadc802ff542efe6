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
from safetensors.torch import load_file, save_file

from cudal1_ci.errors import ConfigError
from cudal1_ci.propose.models import adapters
from cudal1_ci.propose.models.adapters import chosen
from cudal1_ci.propose.models.config import ModelConfig
from model_training.bundle import BundleConfig, bundle, main
from model_training.table import Sample, table

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


@pytest.fixture
def trained(tmp_path, monkeypatch) -> Trained:
    base, run, adapter, shelf = (tmp_path / n for n in ("base", "run", "adapter", "shelf"))
    for folder in (base, run / "evaluations", adapter, shelf):
        folder.mkdir(parents=True)
    (base / "model.safetensors").write_bytes(b"the base")
    (base / "config.json").write_text(json.dumps({**SIZES, "rope_theta": 1e6}))
    digest = hashlib.sha256(b"the base").hexdigest()
    (run / "config.json").write_text("{}")
    environment = {"commit": "abc", "weights_sha256": {"model.safetensors": digest}, "torch": "2"}
    (run / "environment.json").write_text(json.dumps(environment))
    row = table([Sample(task="a", status="passed", speedup=1.5)], k=1)
    evaluation = {"name": "contrastive", "table": row, "samples": []}
    (run / "evaluations" / "contrastive.json").write_bytes(msgspec.json.encode(evaluation))
    settings = {"peft_type": "LORA", "r": 2, "base_model_name_or_path": str(base)}
    (adapter / "adapter_config.json").write_text(json.dumps(settings))
    save_adapter(adapter, lora())
    (tmp_path / "card.md").write_text("# Tiny\n")
    monkeypatch.setattr(adapters, "FOLDER", shelf)
    config = BundleConfig(
        adapter=adapter,
        run=run,
        name="tiny",
        base=base,
        ids=(ID,),
        evaluation="contrastive",
        results="benchmarks/results/training",
        card=tmp_path / "card.md",
        date=datetime.date(2026, 11, 22),
    )
    return Trained(config, shelf)


def test_a_bundled_adapter_is_what_the_product_takes(trained):
    place = bundle(trained.config, trained.shelf)
    assert [path.name for path in trained.shelf.iterdir()] == ["tiny"]
    by_id = chosen(ModelConfig(model=ID))
    by_sizes = chosen(ModelConfig(model=str(trained.config.base)))
    assert by_id == by_sizes
    assert (by_id.folder, by_id.rank, by_id.made_for) == (place, 2, ID)
    assert (place / "README.md").read_text() == "# Tiny\n"


def test_its_numbers_are_bf16_and_its_files_know_no_folder_of_the_machine(trained, tmp_path):
    place = bundle(trained.config, trained.shelf)
    stored, before = load_file(place / "adapter_model.safetensors"), lora()
    assert {tensor.dtype for tensor in stored.values()} == {torch.bfloat16}
    assert all(torch.equal(stored[name], before[name].bfloat16()) for name in before)
    for path in place.glob("*.json"):
        assert str(tmp_path) not in path.read_text()
    settings = json.loads((place / "adapter_config.json").read_text())
    assert settings == {"peft_type": "LORA", "r": 2, "base_model_name_or_path": ID}


def test_its_record_says_where_it_comes_from(trained):
    record = json.loads((bundle(trained.config, trained.shelf) / "record.json").read_text())
    assert record["base"]["config"] == SIZES
    assert record["base"]["weights_sha256"].keys() == {"model.safetensors"}
    assert record["training"]["commit"] == "abc"
    assert record["training"]["config_sha256"] == hashlib.sha256(b"{}").hexdigest()
    assert record["training"]["date"] == "2026-11-22"
    assert record["training"]["row"]["mean"]["value"] == 1.5


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


def without_a_card(trained):
    trained.config.card.unlink()


def of_a_broken_run(trained):
    (trained.config.run / "environment.json").write_text("{}")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (with_a_whole_layer, "tensors of LoRA alone, found model.embed_tokens"),
        (with_infinities, "holds what is no number"),
        (too_large, r"less than 16,000,000 bytes as bf16, got 16,0.*smaller rank"),
        (on_other_weights, r"model\.safetensors: expected SHA-256.*name the weights"),
        (without_sizes, r"config\.json: expected hidden_size, .*vocab_size"),
        (without_a_card, r"card\.md: expected a file, found none"),
        (of_a_broken_run, r"environment\.json: .*commit"),
    ],
)
def test_what_does_not_belong_into_the_package_is_refused_and_nothing_is_left(trained, spoil, said):
    spoil(trained)
    with pytest.raises(ConfigError, match=said):
        bundle(trained.config, trained.shelf)
    assert list(trained.shelf.iterdir()) == []


def test_a_name_is_that_of_a_folder_and_taken_once(trained):
    with pytest.raises(ConfigError, match=r"^name: .*'\.\./tiny'"):
        bundle(trained.changed(name="../tiny"), trained.shelf)
    bundle(trained.config, trained.shelf)
    with pytest.raises(ConfigError, match="is there already"):
        bundle(trained.config, trained.shelf)


def test_the_command_line_says_what_is_wrong(trained, capsys):
    config = trained.config
    words = [str(config.run), "--name", "tiny", "--id", ID, "--results", config.results]
    words += ["--adapter", str(config.adapter), "--base", str(config.base)]
    words += ["--card", str(config.card), "--evaluation", "no such one"]
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == ConfigError.exit_code
    assert "no such one.json: expected a file" in capsys.readouterr().err
