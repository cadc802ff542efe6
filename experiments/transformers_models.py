"""Call small models of the installed transformers package, for a trace of its modules.

The package is copied to a folder of its own, so that its modules are targets there:

    mkdir models && cp -r $(python -c "import transformers; print(transformers.__path__[0])") models
    cp experiments/transformers_models.py models && cd models && git init && git add . && git commit
    cudal1-ci trace . --timeout 300 -- python transformers_models.py
    python experiments/third_party_yield.py --output FILE models

A model that does not work at these sizes is named and left out.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import torch
from transformers import AutoConfig, AutoModel

SIZES: dict[str, int] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd"), 64),
    **dict.fromkeys(("intermediate_size", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff"), 128),
    **dict.fromkeys(("num_hidden_layers", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_layers", "n_layer", "num_key_value_heads"), 2),
    **dict.fromkeys(("num_attention_heads", "num_heads", "n_head"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("head_dim", "d_kv"), 16),
    "vocab_size": 512,
    "image_size": 32,
    "patch_size": 8,
}
TEXT = (
    *("bert", "gpt2", "llama", "mistral", "mixtral", "qwen2", "gemma", "phi", "opt", "bloom"),
    *("gpt_neox", "gpt_neo", "gptj", "codegen", "roberta", "deberta-v2", "electra", "albert"),
    *("distilbert", "mpnet", "roformer", "nystromformer", "fnet", "megatron-bert", "ctrl"),
    *("xlnet", "xlm", "flaubert", "mamba", "rwkv", "falcon", "olmo", "cohere", "stablelm"),
)
PAIRS = ("t5", "bart", "pegasus", "marian", "mbart", "m2m_100")
IMAGES = ("vit", "deit", "beit", "dinov2", "swin", "convnext", "resnet", "poolformer")
AUDIO = ("wav2vec2", "hubert")


def call(name: str) -> None:
    """Call a small model of a family once, in inference."""
    config = AutoConfig.for_model(name)
    for key, value in SIZES.items():
        if hasattr(config, key):
            with contextlib.suppress(Exception):  # some configurations refuse some sizes
                setattr(config, key, value)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = AutoModel.from_config(config).eval()
    ids = torch.randint(0, 500, (2, 64))
    given: dict[str, Any] = {"input_ids": ids}
    if name in PAIRS:
        given["decoder_input_ids"] = ids
    elif name in IMAGES:
        size = getattr(config, "image_size", SIZES["image_size"])
        given = {"pixel_values": torch.randn(2, 3, size, size)}
    elif name in AUDIO:
        given = {"input_values": torch.randn(2, 4000)}
    with torch.no_grad():
        model(**given)


def main() -> None:
    """Call the models that are named; all without a name."""
    for name in sys.argv[1:] or (*TEXT, *PAIRS, *IMAGES, *AUDIO):
        try:
            call(name)
        except Exception as error:  # noqa: BLE001 (a model that does not work is left out)
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:80]}")


if __name__ == "__main__":
    main()
