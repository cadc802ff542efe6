"""A folder of Qwen2 or Llama weights as one GGUF file: f16, bf16 or Q8_0, with its tokenizer.

    write_gguf(Path("merged"), Path("model-q8_0.gguf"), "q8_0")

Names of tensors and fields are those of the `gguf` package, which is llama.cpp's own. As its
converter does: matrices are in the precision that is asked for, vectors in f32; a matrix whose rows
are no multiple of 32 is f16 where Q8_0 is asked for; where the output is the embedding, it is there
once; Llama's queries and keys are in the order in which llama.cpp rotates pairs.

Not covered, and refused: other architectures, scaled rotary positions, tokenizers other than
byte-level BPE of a known kind (gguf_vocabulary.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cudal1_ci.errors import ConfigError
from model_training.export.gguf_vocabulary import add_vocabulary

if TYPE_CHECKING:
    import gguf
    import numpy
    from transformers import PretrainedConfig

Kind = Literal["f16", "bf16", "q8_0"]
KINDS: tuple[Kind, ...] = ("f16", "bf16", "q8_0")
ARCHITECTURES = {"qwen2": "QWEN2", "llama": "LLAMA"}
FILE_TYPES = {"f16": "MOSTLY_F16", "bf16": "MOSTLY_BF16", "q8_0": "MOSTLY_Q8_0"}


def write_gguf(model: Path, output: Path, kind: Kind = "f16") -> Path:
    """The file that it was written to.

    Raises:
        ConfigError: The folder has no model, or one that is not covered.
    """
    import gguf
    from transformers import AutoConfig

    if not (model / "config.json").is_file():
        raise ConfigError(f"{model}: expected a model as transformers saves it, no config.json")
    config = AutoConfig.from_pretrained(model)
    if config.model_type not in ARCHITECTURES:
        known = " or ".join(ARCHITECTURES)
        raise ConfigError(
            f"{model / 'config.json'}, model_type: expected {known}, got {config.model_type}"
        )
    output.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(output, config.model_type, use_temp_file=True)
    try:
        writer.add_name(model.resolve().name)
        add_shape(writer, config, model)
        writer.add_file_type(gguf.LlamaFileType[FILE_TYPES[kind]])
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
        add_vocabulary(writer, model, config.vocab_size)
        architecture = gguf.MODEL_ARCH[ARCHITECTURES[config.model_type]]
        names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
        for name, values in tensors_of(model, config):
            stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
            if stored is None:
                raise ConfigError(f"{model}: a tensor that {config.model_type} has not: {name}")
            add_tensor(writer, stored, values, kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    except BaseException:
        writer.close()
        output.unlink(missing_ok=True)
        raise
    writer.close()
    return output


def add_shape(writer: gguf.GGUFWriter, config: PretrainedConfig, model: Path) -> None:
    """Sizes, and how positions are rotated."""
    rope: dict[str, Any] = config.rope_parameters
    if rope.get("rope_type", "default") != "default":
        raise ConfigError(
            f"{model / 'config.json'}, rope_parameters: expected rotary positions without scaling, "
            f"got {rope['rope_type']}; llama.cpp's own converter knows those"
        )
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_dimension_count(head)
    writer.add_vocab_size(config.vocab_size)


def tensors_of(model: Path, config: PretrainedConfig) -> Iterator[tuple[str, numpy.ndarray]]:
    """Each as f32, one after the other: a large model is never in memory as a whole."""
    import torch
    from safetensors import safe_open

    paths = sorted(model.glob("*.safetensors"))
    if not paths:
        raise ConfigError(f"{model}: expected weights as safetensors, found none; save them so")
    for path in paths:
        with safe_open(path, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118 - it has no other way to be walked
                if name == "lm_head.weight" and config.tie_word_embeddings:
                    continue
                values = opened.get_tensor(name).to(torch.float32).numpy()
                yield name, in_order(name, values, config)


def in_order(name: str, values: numpy.ndarray, config: PretrainedConfig) -> numpy.ndarray:
    """Rows of Llama's queries and keys: transformers rotates the first half of a head with the
    second, llama.cpp each row with the next."""
    heads = {
        "q_proj": config.num_attention_heads,
        "k_proj": config.num_key_value_heads,
    }.get(name.split(".")[-2] if "." in name else "")
    if config.model_type != "llama" or heads is None:
        return values
    half = values.shape[0] // heads // 2
    return values.reshape(heads, 2, half, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)


def add_tensor(writer: gguf.GGUFWriter, name: str, values: numpy.ndarray, kind: Kind) -> None:
    """In the precision of its kind."""
    from gguf import GGMLQuantizationType as Type
    from gguf import quants

    if values.ndim < 2:
        stored = Type.F32
    elif kind == "q8_0" and values.shape[-1] % 32:
        stored = Type.F16
    else:
        stored = Type[kind.upper()]
    writer.add_tensor(name, quants.quantize(values, stored), raw_dtype=stored)
