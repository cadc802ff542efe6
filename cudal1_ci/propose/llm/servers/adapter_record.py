"""Read an adapter's record and check that its files still match it.

    record = read_record(folder)
    record.base.fits(config_of_the_weights)
    refuse_other_files(folder, record)

The record is the file `record.json` in the folder of a LoRA adapter. An adapter without a record
comes from elsewhere, and nothing is known of it.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from cudal1_ci.errors import ConfigError
from cudal1_ci.records import Record

RECORD_FILE = "record.json"
ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")
SCHEMA_VERSION = 1
"""Version of the form: it changes when a field changes its meaning, is added or removed."""
SIZES = (
    "model_type",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
)
"""Keys of a base's config.json that give its tensors and their shapes."""
BLOCK_BYTES = 2**20

Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Scalar = str | int | float | bool | None


class Base(Record, frozen=True, kw_only=True):
    """The weights that an adapter was made for."""

    ids: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    """Hub ids of the weights; the first one was used in training."""
    config: Annotated[dict[str, str | int], msgspec.Meta(min_length=1)]
    """Required values of the base's config.json, by their keys."""
    weights_sha256: dict[str, Sha256]
    """Hashes of the weight files used in training, by file name."""

    def fits(self, config: Mapping[str, Any]) -> bool:
        """Return whether weights with that config.json have the tensors that the adapter changes.
        Quantized weights do not.
        """
        if config.get("quantization_config"):
            return False
        return all(config.get(key) == value for key, value in self.config.items())


class Training(Record, frozen=True, kw_only=True):
    """A description of how an adapter was trained."""

    date: datetime.date
    """Date when the training ended."""
    commit: str
    """Commit of this repository whose code ran the training."""
    config_sha256: Sha256
    """Hash of the run's config.json."""
    results: str
    """Path in this repository of the run's raw results."""
    row: dict[str, Scalar | dict[str, Scalar]]
    """The adapter's row in the table of evaluations."""


class AdapterRecord(Record, frozen=True, kw_only=True):
    """The content of `record.json`."""

    schema_version: int
    files: dict[str, Sha256]
    """The SHA-256 of each file of the adapter."""
    base: Base
    training: Training

    def __post_init__(self) -> None:
        if set(self.files) != set(ADAPTER_FILES):
            raise ValueError(f"expected a hash of {' and '.join(ADAPTER_FILES)} in `files`")


class Version(msgspec.Struct):
    """The version of a record in any form."""

    schema_version: int


def read_record(folder: Path) -> AdapterRecord | None:
    """Return the record in a folder; None without one.

    Raises:
        ConfigError: It cannot be read, or a later version of this package wrote it.
    """
    path = folder / RECORD_FILE
    try:
        content = path.read_bytes()
        version = msgspec.json.decode(content, type=Version).schema_version
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"{path}: expected the record of an adapter: {error}") from error
    if version != SCHEMA_VERSION:
        raise ConfigError(
            f"{path}: expected schema_version {SCHEMA_VERSION}, got {version}; use the version of "
            "cudal1-ci that the adapter came with"
        )
    try:
        return msgspec.json.decode(content, type=AdapterRecord)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path}: expected the record of an adapter: {error}") from error


def refuse_other_files(folder: Path, record: AdapterRecord) -> None:
    """Check that the adapter's files match the record.

    Raises:
    ConfigError: A file of the adapter is not there, or not the one that was written down.
    """
    for name, expected in record.files.items():
        path = folder / name
        try:
            found = sha256(path)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
        if found != expected:
            raise ConfigError(
                f"{path}: expected SHA-256 {expected} ({RECORD_FILE} beside it), got {found}: "
                "the file is damaged or another one"
            )


def sha256(path: Path) -> str:
    """Return the hash of a file's content, 64 hex digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
