"""What leaves a run, on tiny models with random weights: adapters, merged weights, GGUF files."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    Qwen2Config,
)

from cudal1_ci.errors import ConfigError
from model_training.export.adapter import WEIGHTS, write_adapter
from model_training.export.commands import export
from model_training.export.merge import merge
from tests.training.tiny_weights import tiny_weights

TEXT = "please sort these numbers"
IDS = torch.arange(3, 60)[None]
SIZES = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tiny_weights(tmp_path_factory.mktemp("qwen"))
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(Qwen2Config(**SIZES))
    for weight in model.parameters():
        weight.data += 0.05 * torch.randn_like(weight)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def adapter(qwen: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """LoRA weights that are not zero."""
    folder = tmp_path_factory.mktemp("adapter")
    model = AutoModelForCausalLM.from_pretrained(qwen, dtype=torch.float32)
    adapted = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear"))
    torch.manual_seed(1)
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            weight.data.normal_(std=0.1)
    adapted.save_pretrained(folder)
    return folder


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(IDS).logits


def loaded(folder: Path, **named: object) -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **named)


# --- the adapter -----------------------------------------------------------------------------


def test_an_adapter_leaves_in_bf16_with_its_hash(qwen, adapter, tmp_path):
    written = write_adapter(adapter, tmp_path / "out")
    tensors = load_file(tmp_path / "out" / WEIGHTS)
    before = load_file(adapter / WEIGHTS)
    assert {one.dtype for one in tensors.values()} == {torch.bfloat16}
    assert tensors.keys() == before.keys()
    assert all(torch.equal(tensors[name], before[name].bfloat16()) for name in before)
    content = (tmp_path / "out" / WEIGHTS).read_bytes()
    assert written.sha256 == hashlib.sha256(content).hexdigest()
    assert (written.num_bytes, written.rank) == (len(content), 4)
    one = logits(PeftModel.from_pretrained(loaded(qwen), str(adapter)))
    other = logits(PeftModel.from_pretrained(loaded(qwen), str(tmp_path / "out")))
    assert torch.allclose(one, other, atol=0.02)
    assert not torch.allclose(one, logits(loaded(qwen)), atol=0.02)


def test_an_adapter_that_is_too_large_is_refused(adapter, tmp_path):
    limit = write_adapter(adapter, tmp_path / "all").num_bytes
    said = f"less than {limit:,} bytes in bf16, its weights of rank 4 are {limit:,}"
    with pytest.raises(ConfigError, match=said):
        write_adapter(adapter, tmp_path / "out", limit_bytes=limit)
    assert not (tmp_path / "out").exists()
    assert write_adapter(adapter, tmp_path / "out", limit_bytes=limit + 1).rank == 4


@pytest.mark.parametrize("missing", [WEIGHTS, "adapter_config.json"])
def test_a_folder_without_an_adapter_is_refused(adapter, tmp_path, missing):
    for path in adapter.iterdir():
        if path.name != missing:
            (tmp_path / path.name).write_bytes(path.read_bytes())
    with pytest.raises(ConfigError, match=f"found no {missing}"):
        write_adapter(tmp_path, tmp_path / "out")


# --- merged weights --------------------------------------------------------------------------


def test_merged_weights_say_what_base_and_adapter_say(qwen, adapter, tmp_path):
    folder = merge(qwen, adapter, tmp_path / "merged", "float32")
    expected = logits(PeftModel.from_pretrained(loaded(qwen), str(adapter)))
    assert torch.allclose(logits(loaded(folder)), expected, atol=1e-5)
    assert sorted(path.suffix for path in folder.glob("model*")) == [".safetensors"]
    assert AutoTokenizer.from_pretrained(folder)(TEXT) == AutoTokenizer.from_pretrained(qwen)(TEXT)


def test_merged_weights_are_rounded_once(qwen, adapter, tmp_path):
    exact = merge(qwen, adapter, tmp_path / "exact", "float32")
    folder = merge(qwen, adapter, tmp_path / "merged")
    name = "model.layers.0.mlp.up_proj.weight"
    one, other = (load_file(path / "model.safetensors")[name] for path in (folder, exact))
    assert torch.equal(one, other.bfloat16())
    assert AutoConfig.from_pretrained(folder).dtype == torch.bfloat16


def test_a_folder_without_a_model_is_refused(adapter, tmp_path):
    with pytest.raises(ConfigError, match=r"no config\.json"):
        merge(tmp_path, adapter, tmp_path / "out")


def test_the_commands_write_what_the_functions_do(qwen, adapter, tmp_path):
    def run(*words: object) -> str:
        done = CliRunner().invoke(export, [str(word) for word in words], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    told = run("adapter", adapter, "--output", tmp_path / "adapter")
    assert "rank 4" in told and "sha256 " in told
    run("merge", qwen, adapter, "--output", tmp_path / "merged")
    assert AutoConfig.from_pretrained(tmp_path / "merged").dtype == torch.bfloat16
