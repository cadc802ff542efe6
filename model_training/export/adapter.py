"""A LoRA adapter as a file that a repository can carry: bf16, under a stated size, with its hash.

    written = write_adapter(Path("checkpoints/contrastive-20"), Path("adapter"), 16_000_000)

The size of an adapter is its rank times what a rank costs, so one that is too large is told with
the rank that would not be.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from cudal1_ci.errors import ConfigError
from cudal1_ci.schema import Record

WEIGHTS, SETTINGS, SUMS = "adapter_model.safetensors", "adapter_config.json", "SHA256SUMS"
LIMIT_BYTES = 16_000_000


class Written(Record, frozen=True, kw_only=True):
    """An adapter on the disk."""

    folder: Path
    num_bytes: int
    """Of the weights."""
    sha256: str
    rank: int


def write_adapter(adapter: Path, output: Path, limit_bytes: int = LIMIT_BYTES) -> Written:
    """Its weights in bf16 and its settings, in a folder that peft and vLLM load; `sha256sum -c`
    reads the hashes.

    Raises:
        ConfigError: The folder has no adapter, or its weights are larger than the limit.
    """
    import torch
    from safetensors.torch import load, save

    settings = settings_of(adapter)
    tensors = {
        name: tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor
        for name, tensor in load((adapter / WEIGHTS).read_bytes()).items()
    }
    encoded = save(tensors, metadata={"format": "pt"})
    rank = int(settings["r"])
    if len(encoded) > limit_bytes:
        weights_bytes = sum(one.numel() * one.element_size() for one in tensors.values())
        raise ConfigError(too_large(adapter, len(encoded), weights_bytes, rank, limit_bytes))
    output.mkdir(parents=True, exist_ok=True)
    (output / WEIGHTS).write_bytes(encoded)
    (output / SETTINGS).write_bytes((adapter / SETTINGS).read_bytes())
    lines = [f"{sha256(output / name)}  {name}\n" for name in (WEIGHTS, SETTINGS)]
    (output / SUMS).write_text("".join(lines), encoding="ascii")
    return Written(
        folder=output, num_bytes=len(encoded), sha256=sha256(output / WEIGHTS), rank=rank
    )


def settings_of(adapter: Path) -> dict[str, Any]:
    """What peft has written of an adapter.

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


def too_large(
    adapter: Path, num_bytes: int, weights_bytes: int, rank: int, limit_bytes: int
) -> str:
    """What to do about it: the header does not shrink with the rank, the weights do."""
    room = limit_bytes - (num_bytes - weights_bytes)
    fits = rank * room // weights_bytes
    mend = (
        f"train with a rank of at most {fits}, or raise --limit"
        if fits >= 1
        else "no rank does; adapt fewer layers or raise --limit"
    )
    return (
        f"{adapter}: expected at most {limit_bytes:,} bytes, its weights are {num_bytes:,} bytes "
        f"in bf16 with rank {rank}; {mend}"
    )


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
