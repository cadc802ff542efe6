"""Find weights on disk and identify them.

    weights = found("Qwen/Qwen2.5-Coder-0.5B-Instruct", offline=True)
    weights.folder, revision(weights)

This module reads headers and samples, never all weights, and loads nothing.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from cudal1_ci.errors import ConfigError
from cudal1_ci.propose.llm.servers.adapter_record import ADAPTER_FILES, BLOCK_BYTES

HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
NUM_SAMPLES = 16
SAMPLE_BYTES = 4096
"""Bytes of a sample. Two trainings of one model have the same headers; their numbers differ
everywhere."""
MAX_HEADER_BYTES = 100_000_000
"""The most bytes of a header, as the format defines."""


@dataclass(frozen=True)
class Weights:
    """A folder, or a hub id whose snapshot may need a download."""

    given: str
    folder: Path | None
    """Folder of the weights; None before a download."""
    hub_id: str | None
    """Id of the hub; None for a named folder."""

    @property
    def name(self) -> str:
        """Return the name by which a server loads them."""
        return self.hub_id or str(self.folder)


def found(model: str, *, offline: bool, environ: Mapping[str, str] = os.environ) -> Weights:
    """Return where the weights of that name are.

    Raises:
        ConfigError: There are none, or none without a download.
    """
    path = Path(model).expanduser()
    if path.is_dir():
        return Weights(model, path.resolve(), None)
    if model.startswith((".", "/", "~")) or not HUB_ID.fullmatch(model):
        raise ConfigError(
            f"model.model: {model!r} is no folder; expected a folder of weights, an id of the hub "
            "(`owner/name`) or the URL of a server"
        )
    snapshot = cached_snapshot(model, environ)
    if snapshot is None and offline:
        raise ConfigError(
            f"model.model: {model!r} is neither a folder nor in the hub's cache "
            f"({hub_cache(environ)}), and nothing is downloaded offline; run `hf download {model}` "
            "where there is a network, or name a folder"
        )
    return Weights(model, snapshot, model)


def hub_cache(environ: Mapping[str, str]) -> Path:
    """Return the hub library's download cache."""
    if environ.get("HF_HUB_CACHE"):
        return Path(environ["HF_HUB_CACHE"])
    if environ.get("HF_HOME"):
        return Path(environ["HF_HOME"]) / "hub"
    caches = environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "huggingface" / "hub"


def cached_snapshot(hub_id: str, environ: Mapping[str, str]) -> Path | None:
    """Return the folder of a model's main revision; the folder's name is the commit."""
    repository = hub_cache(environ) / ("models--" + hub_id.replace("/", "--"))
    try:
        commit = (repository / "refs" / "main").read_text("ascii").strip()
    except (OSError, ValueError):
        return None
    snapshot = repository / "snapshots" / commit
    return snapshot if snapshot.is_dir() else None


def revision(weights: Weights, environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the snapshot's commit, or a hash of the folder's configuration and of its weights'
    headers and samples; None if the files are missing.
    """
    if weights.hub_id is not None:
        snapshot = cached_snapshot(weights.hub_id, environ)
        return snapshot.name if snapshot else None
    assert weights.folder is not None
    digest = hashlib.sha256()
    for path in sorted(weights.folder.glob("*.json")):
        if path.name == "config.json" or path.name.endswith(".index.json"):
            digest.update(path.name.encode() + path.read_bytes())
    for path in sorted(weights.folder.glob("*.safetensors")):
        digest.update(path.name.encode())
        sample(path, digest)
    return digest.hexdigest()[:16]


def sample(path: Path, digest: hashlib._Hash) -> None:
    """Add the header of a safetensors file, its size and samples of its numbers."""
    size_bytes = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(8)
        (header_bytes,) = struct.unpack("<Q", prefix.ljust(8, b"\0"))
        digest.update(prefix + file.read(min(header_bytes, MAX_HEADER_BYTES)))
        digest.update(str(size_bytes).encode())
        start = file.tell()
        step = max(SAMPLE_BYTES, (size_bytes - start) // NUM_SAMPLES)
        for offset in range(start, size_bytes, step):
            file.seek(offset)
            digest.update(file.read(SAMPLE_BYTES))


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter in a folder."""

    folder: Path
    rank: int
    hash: str
    made_for: str | None = None
    """For a bundled adapter, the id of the weights used in training."""

    @property
    def name(self) -> str:
        """Return the adapter's name in a public report."""
        return self.folder.name

    @property
    def is_bundled(self) -> bool:
        return self.made_for is not None


def adapter(folder: str) -> Adapter:
    """Return the adapter in a folder.

    Raises:
        ConfigError: There is none.
    """
    path = Path(folder).expanduser().resolve()
    digest = hashlib.sha256()
    try:
        for name in ADAPTER_FILES:
            with (path / name).open("rb") as file:
                while block := file.read(BLOCK_BYTES):
                    digest.update(block)
        settings = msgspec.json.decode((path / ADAPTER_FILES[0]).read_bytes(), type=LoraSettings)
    except OSError as error:
        raise ConfigError(
            f"model.adapter: expected a folder with {' and '.join(ADAPTER_FILES)}: {error}"
        ) from error
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"model.adapter: {path / ADAPTER_FILES[0]} is no configuration of LoRA: {error}"
        ) from error
    return Adapter(path, settings.r, digest.hexdigest()[:16])


class LoraSettings(msgspec.Struct):
    r: int


def joined(base: Path, lora: Adapter, place: Path) -> Path:
    """Return a folder that transformers loads as the base with the adapter. It holds links to the
    files of both, and the adapter's configuration with the path of the base.
    """
    place.mkdir()
    for path in base.iterdir():
        (place / path.name).symlink_to(path)
    for name in ADAPTER_FILES:
        (place / name).unlink(missing_ok=True)
    (place / ADAPTER_FILES[1]).symlink_to(lora.folder / ADAPTER_FILES[1])
    settings = msgspec.json.decode((lora.folder / ADAPTER_FILES[0]).read_bytes())
    settings["base_model_name_or_path"] = str(base)
    (place / ADAPTER_FILES[0]).write_bytes(msgspec.json.encode(settings))
    return place
