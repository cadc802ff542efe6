"""Merge LoRA weights into the base's, as a folder of safetensors with its tokenizer.

The sum is made in float32 and rounded once: in bf16, what an adapter changes is often less than the
last bit of a weight, and would be lost for each of its ranks. Needs four bytes of memory a weight.
"""

from __future__ import annotations

from pathlib import Path

from cudal1_ci.errors import ConfigError
from model_training.export.adapter import settings_of


def merge(base: Path, adapter: Path, output: Path, precision: str = "bfloat16") -> Path:
    """Write the sum; return the folder.

    Raises:
        ConfigError: There is no model in `base` or no adapter in `adapter`.
    """
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if not (base / "config.json").is_file():
        raise ConfigError(f"{base}: expected a model as transformers saves it, no config.json")
    settings_of(adapter)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    adapted = PeftModel.from_pretrained(model, str(adapter))
    merged = adapted.merge_and_unload(safe_merge=True).to(getattr(torch, precision))
    merged.save_pretrained(output)
    AutoTokenizer.from_pretrained(base).save_pretrained(output)
    return output
