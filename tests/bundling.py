"""Tiny adapters with records, as they lie in the package, for tests that put some into a folder."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import msgspec

from cudal1_ci.propose.llm.servers.adapter_record import (
    ADAPTER_FILES,
    SCHEMA_VERSION,
    AdapterRecord,
    Base,
    Training,
    sha256,
)

CODER = "Qwen/Qwen2.5-Coder-0.5B-Instruct"
CONFIG: dict[str, str | int] = {
    "model_type": "qwen2",
    "hidden_size": 896,
    "num_hidden_layers": 24,
    "vocab_size": 151936,
}
"""Of the weights that it fits."""


def an_adapter(folder: Path, *, rank: int = 4, weights: bytes = b"weights") -> Path:
    """The two files of an adapter, as peft names them."""
    folder.mkdir(parents=True)
    settings = {"r": rank, "base_model_name_or_path": "elsewhere"}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    (folder / "adapter_model.safetensors").write_bytes(weights)
    return folder


def a_record(folder: Path, *, ids: tuple[str, ...] = (CODER,), day: int = 1) -> AdapterRecord:
    """A record of the files that lie there."""
    return AdapterRecord(
        schema_version=SCHEMA_VERSION,
        files={name: sha256(folder / name) for name in ADAPTER_FILES},
        base=Base(ids=ids, config=CONFIG, weights_sha256={}),
        training=Training(
            date=datetime.date(2026, 11, day),
            commit="abc1234",
            config_sha256="0" * 64,
            results="assets/results/training",
            row={"k": 8, "mean": {"value": 1.5, "low": 1.25, "high": 1.75}},
        ),
    )


def a_bundled_adapter(folder: Path, *, rank: int = 4, day: int = 1, **record) -> Path:
    """An adapter with its record."""
    an_adapter(folder, rank=rank)
    content = msgspec.json.encode(a_record(folder, day=day, **record))
    (folder / "record.json").write_bytes(content)
    return folder
