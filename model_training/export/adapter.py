"""Write a LoRA adapter as files that a repository can carry: bf16, below a stated size.

    written = write_adapter(Path("checkpoints/contrastive-20"), Path("adapter"))

It is stored as bf16, whatever it was trained in: an evaluation that speaks of the adapter is one of
the files that this writes. Its size is proportional to its rank.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from cudal1_ci.errors import ConfigError
from cudal1_ci.propose.llm.servers.adapter_record import ADAPTER_FILES, sha256
from cudal1_ci.records import Record

SETTINGS, WEIGHTS = ADAPTER_FILES
LIMIT_BYTES = 16_000_000
"""Of the weights: what the repository carries is less."""


class Written(Record, frozen=True, kw_only=True):
    """Describe an adapter on the disk."""

    folder: Path
    num_bytes: int
    """Of the weights."""
    sha256: str
    """Of the weights."""
    rank: int


def write_adapter(
    adapter: Path, output: Path, *, base_id: str | None = None, limit_bytes: int = LIMIT_BYTES
) -> Written:
    """Write an adapter's weights in bf16 and its settings, in a folder that peft and vLLM load.

    Args:
        base_id: Of the base in a hub, for the settings; None leaves what they say, mostly a folder
            of the machine that trained it.

    Raises:
        ConfigError: The folder has no adapter of LoRA alone, a weight is no number, or they are
            larger than they may be.
    """
    import torch
    from safetensors.torch import load, save

    settings = settings_of(adapter)
    tensors = load((adapter / WEIGHTS).read_bytes())
    for name, tensor in tensors.items():
        if ".lora_A." not in name and ".lora_B." not in name:
            raise ConfigError(f"{adapter / WEIGHTS}: expected tensors of LoRA alone, found {name}")
        if not torch.isfinite(tensor).all():
            raise ConfigError(
                f"{adapter / WEIGHTS}: {name} holds what is no number; take another checkpoint"
            )
    encoded = save(
        {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in tensors.items()},
        metadata={"format": "pt"},
    )
    rank = int(settings["r"])
    if len(encoded) >= limit_bytes:
        raise ConfigError(
            f"{adapter}: expected less than {limit_bytes:,} bytes in bf16, its weights of rank "
            f"{rank} are {len(encoded):,}; train with a lower rank, or adapt fewer layers"
        )
    if base_id is not None:
        settings["base_model_name_or_path"] = base_id
    output.mkdir(parents=True, exist_ok=True)
    (output / WEIGHTS).write_bytes(encoded)
    content = msgspec.json.format(msgspec.json.encode(settings), indent=1)
    (output / SETTINGS).write_bytes(content + b"\n")
    return Written(
        folder=output, num_bytes=len(encoded), sha256=sha256(output / WEIGHTS), rank=rank
    )


def settings_of(adapter: Path) -> dict[str, Any]:
    """Read what peft has written of an adapter.

    Raises:
        ConfigError: There is no LoRA adapter in the folder.
    """
    for name in (SETTINGS, WEIGHTS):
        if not (adapter / name).is_file():
            raise ConfigError(f"{adapter}: expected an adapter as peft saves it, found no {name}")
    settings: dict[str, Any] = msgspec.json.decode((adapter / SETTINGS).read_bytes())
    if "r" not in settings:
        kind = settings.get("peft_type", "none")
        raise ConfigError(f"{adapter / SETTINGS}, r: expected a LoRA adapter, got {kind}")
    return settings
