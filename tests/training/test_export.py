"""What leaves a run, on tiny models with random weights: adapters, merged weights, GGUF files."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import gguf
import pytest
import torch
from click.testing import CliRunner
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
)

from cudal1_ci.errors import ConfigError
from model_training.export.adapter import SUMS, WEIGHTS, write_adapter, write_sums
from model_training.export.command import export
from model_training.export.gguf import write_gguf
from model_training.export.gguf_vocabulary import SPLITS
from model_training.export.merge import merge

TEXT = "def forward(self, x):\n    return torch.relu(x) * 123 + y  # it's\n"
IDS = torch.arange(3, 60)[None]
SIZES = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def write_tokenizer(folder: Path, split: str) -> None:
    """A byte-level BPE with the special tokens and the template of a chat."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(split), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        show_progress=False,
    )
    made.train_from_iterator([TEXT] * 3, trainer)
    found = PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    found.chat_template = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
    found.save_pretrained(folder)


def write_model(folder: Path, config: type, split: str, *, is_tied: bool = True) -> Path:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config(**SIZES, tie_word_embeddings=is_tied))
    for weight in model.parameters():
        weight.data += 0.05 * torch.randn_like(weight)
    model.save_pretrained(folder)
    write_tokenizer(folder, split)
    return folder


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("qwen"), Qwen2Config, next(iter(SPLITS)))


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
    write_sums(written.folder)
    tensors = load_file(tmp_path / "out" / WEIGHTS)
    before = load_file(adapter / WEIGHTS)
    assert {one.dtype for one in tensors.values()} == {torch.bfloat16}
    assert tensors.keys() == before.keys()
    assert all(torch.equal(tensors[name], before[name].bfloat16()) for name in before)
    content = (tmp_path / "out" / WEIGHTS).read_bytes()
    assert written.sha256 == hashlib.sha256(content).hexdigest()
    assert (written.num_bytes, written.rank) == (len(content), 4)
    checked = subprocess.run(
        ["sha256sum", "-c", SUMS], cwd=tmp_path / "out", capture_output=True, check=False
    )
    assert checked.returncode == 0
    one = logits(PeftModel.from_pretrained(loaded(qwen), str(adapter)))
    other = logits(PeftModel.from_pretrained(loaded(qwen), str(tmp_path / "out")))
    assert torch.allclose(one, other, atol=0.02)
    assert not torch.allclose(one, logits(loaded(qwen)), atol=0.02)


def test_an_adapter_that_is_too_large_is_told_with_the_rank_that_is_not(adapter, qwen, tmp_path):
    limit = write_adapter(adapter, tmp_path / "all").num_bytes * 8 // 10
    with pytest.raises(ConfigError, match="rank 4") as error:
        write_adapter(adapter, tmp_path / "out", limit_bytes=limit)
    assert not (tmp_path / "out").exists()
    told = str(error.value)
    assert f"less than {limit:,} bytes" in told
    rank = int(told.partition("a rank of at most ")[2])
    assert rank in (1, 2, 3)
    for other in (rank, rank + 1):
        config = LoraConfig(r=other, target_modules="all-linear")
        get_peft_model(loaded(qwen), config).save_pretrained(tmp_path / f"rank-{other}")
    fits, more = tmp_path / f"rank-{rank}", tmp_path / f"rank-{rank + 1}"
    assert write_adapter(fits, tmp_path / "out", limit_bytes=limit).num_bytes < limit
    with pytest.raises(ConfigError, match=f"at most {rank}$"):
        write_adapter(more, tmp_path / "out", limit_bytes=limit)


def test_what_no_rank_mends_is_told_so(adapter, tmp_path):
    with pytest.raises(ConfigError, match="adapt fewer layers"):
        write_adapter(adapter, tmp_path / "out", limit_bytes=4_000)


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
    with pytest.raises(ConfigError, match=r"no config\.json"):
        write_gguf(tmp_path, tmp_path / "out.gguf")


# --- GGUF ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "tolerance"), [("f16", 2e-3), ("bf16", 2e-2), ("q8_0", 6e-2)])
def test_a_gguf_file_is_the_same_qwen(qwen, tmp_path, kind, tolerance):
    path = write_gguf(qwen, tmp_path / f"{kind}.gguf", kind)
    found = logits(loaded(tmp_path, gguf_file=path.name))
    expected = logits(loaded(qwen))
    assert (found - expected).abs().max() < tolerance < expected.std()


@pytest.mark.parametrize("is_tied", [True, False])
def test_a_gguf_file_is_the_same_llama(tmp_path, is_tied):
    folder = write_model(tmp_path / "llama", LlamaConfig, list(SPLITS)[1], is_tied=is_tied)
    path = write_gguf(folder, tmp_path / "f16.gguf")
    model = loaded(tmp_path, gguf_file=path.name)
    assert torch.allclose(logits(model), logits(loaded(folder)), atol=2e-3)
    names = [one.name for one in gguf.GGUFReader(path).tensors]
    assert ("output.weight" in names) is not is_tied


def test_a_gguf_file_has_the_tokenizer(qwen, tmp_path):
    path = write_gguf(qwen, tmp_path / "f16.gguf")
    one, other = (
        AutoTokenizer.from_pretrained(qwen),
        AutoTokenizer.from_pretrained(tmp_path, gguf_file=path.name),
    )
    assert other(TEXT).input_ids == one(TEXT).input_ids
    assert other.chat_template == one.chat_template
    fields = gguf.GGUFReader(path).fields
    assert fields["tokenizer.ggml.pre"].contents() == "qwen2"
    assert fields["tokenizer.ggml.eos_token_id"].contents() == one.eos_token_id
    assert fields["tokenizer.ggml.padding_token_id"].contents() == one.pad_token_id
    tokens = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    assert len(tokens) == len(types) == 320
    assert types[one.eos_token_id] == gguf.TokenType.CONTROL
    assert (tokens[319], types[319]) == ("[PAD319]", gguf.TokenType.UNUSED)


def test_precisions_are_those_of_llama_cpp(qwen, tmp_path):
    path = write_gguf(qwen, tmp_path / "q8_0.gguf", "q8_0")
    found = {one.name: one.tensor_type for one in gguf.GGUFReader(path).tensors}
    assert found["blk.0.ffn_up.weight"] == gguf.GGMLQuantizationType.Q8_0
    assert found["blk.0.attn_q.bias"] == gguf.GGMLQuantizationType.F32
    assert found["output_norm.weight"] == gguf.GGMLQuantizationType.F32
    assert gguf.GGUFReader(path).fields["general.file_type"].contents() == 7


@pytest.mark.parametrize(
    ("file", "key", "value", "told"),
    [
        ("config.json", "model_type", "gpt2", "model_type: expected qwen2 or llama, got gpt2"),
        (
            "config.json",
            "rope_parameters",
            {
                "rope_type": "yarn",
                "factor": 2.0,
                "rope_theta": 10000.0,
                "original_max_position_embeddings": 1024,
            },
            "rotary positions without scaling, got yarn",
        ),
        ("tokenizer.json", "pre_tokenizer", {"type": "Whitespace"}, "expected that of smollm"),
    ],
)
def test_what_is_not_covered_is_refused(qwen, tmp_path, file, key, value, told):
    folder = tmp_path / "model"
    folder.mkdir()
    for path in qwen.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    changed = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps({**changed, key: value}))
    with pytest.raises(ConfigError, match=told):
        write_gguf(folder, tmp_path / "out.gguf")
    assert not (tmp_path / "out.gguf").exists()


def test_the_commands_write_what_the_functions_do(qwen, adapter, tmp_path):
    def run(*words: object) -> str:
        done = CliRunner().invoke(export, [str(word) for word in words], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    told = run("adapter", adapter, "--output", tmp_path / "adapter")
    assert "rank 4" in told and "sha256 " in told
    run("merge", qwen, adapter, "--output", tmp_path / "merged", "--precision", "float16")
    run("gguf", tmp_path / "merged", "--output", tmp_path / "model.gguf")
    found = logits(loaded(tmp_path, gguf_file="model.gguf"))
    assert torch.allclose(found, logits(loaded(tmp_path / "merged")), atol=2e-3)
