"""A trained adapter becomes one that comes with the package: a folder of `cudal1_ci/adapters`.

    python -m model_training.bundle RUN --adapter RUN/checkpoints/contrastive-400 --name small \\
        --base /models/qwen2.5-coder-0.5b --id Qwen/Qwen2.5-Coder-0.5B-Instruct \\
        --evaluation contrastive --results benchmarks/results/training-0.5b --card card.md

The weights are stored as bf16, whatever they were trained in: an evaluation that speaks of the
bundled adapter is one of the file that this writes. Folders of the machine that trained it are not
in it. Written whole or not at all.
"""

from __future__ import annotations

import argparse
import datetime
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import torch
from safetensors.torch import load_file, save_file

from cudal1_ci.errors import ConfigError
from cudal1_ci.propose.models.adapter_record import (
    ADAPTER_FILES,
    RECORD_FILE,
    SCHEMA_VERSION,
    SIZES,
    AdapterRecord,
    Base,
    Training,
    sha256,
)
from cudal1_ci.propose.models.adapters import FOLDER
from cudal1_ci.schema import Record
from model_training.table import Table

MAX_BYTES = 16_000_000
"""Of the weights: the repository carries them."""
NAME = re.compile(r"[a-z0-9][a-z0-9.-]*")
CONFIG_FILE, WEIGHTS_FILE = ADAPTER_FILES
T = TypeVar("T")


class BundleConfig(Record, frozen=True, kw_only=True):
    """What is bundled, of which run, under which name."""

    adapter: Path
    """Folder of the adapter, as peft saves one."""
    run: Path
    """Folder of the run that trained it."""
    name: str
    base: Path
    """Folder of the weights that it was trained on."""
    ids: tuple[str, ...]
    """Of those weights in the hub, the best known first."""
    evaluation: str
    """Which of the run's evaluations is its row."""
    results: str
    """Where the raw results lie, a path in the repository."""
    card: Path
    """The model card, Markdown."""
    date: datetime.date
    """When the training ended."""


class Environment(msgspec.Struct):
    """What is read of a run's environment.json."""

    commit: str
    weights_sha256: dict[str, str]


class Evaluation(msgspec.Struct):
    """What is read of a run's evaluation."""

    table: Table


def bundle(config: BundleConfig, shelf: Path = FOLDER) -> Path:
    """Writes the folder, and says where it is.

    Raises:
        ConfigError: A file is missing or not of its form, the weights are not those of the run,
            or the adapter is none that the package takes.
    """
    if not NAME.fullmatch(config.name):
        raise ConfigError(
            f"name: expected small letters, digits, dots and dashes, got {config.name!r}"
        )
    place = shelf / config.name
    if place.exists():
        raise ConfigError(f"{place}: is there already; choose another name, or remove it first")
    with tempfile.TemporaryDirectory(dir=shelf, prefix=".") as folder:
        made = Path(folder) / config.name
        made.mkdir()
        written_weights(config.adapter / WEIGHTS_FILE, made / WEIGHTS_FILE)
        written_settings(config, made / CONFIG_FILE)
        shutil.copyfile(present(config.card), made / "README.md")
        content = msgspec.json.encode(record_of(config, made))
        (made / RECORD_FILE).write_bytes(msgspec.json.format(content, indent=1) + b"\n")
        made.rename(place)
    return place


def written_weights(source: Path, target: Path) -> None:
    """The adapter's tensors as bf16.

    Raises:
        ConfigError: They are not those of a LoRA adapter, not numbers, or too many.
    """
    tensors = load_file(present(source))
    for name, tensor in tensors.items():
        if ".lora_A." not in name and ".lora_B." not in name:
            raise ConfigError(f"{source}: expected tensors of LoRA alone, found {name}")
        if not torch.isfinite(tensor).all():
            raise ConfigError(f"{source}: {name} holds what is no number; take another checkpoint")
    save_file({n: t.to(torch.bfloat16).contiguous() for n, t in tensors.items()}, target)
    target.chmod(0o644)  # safetensors writes for its owner alone
    size_bytes = target.stat().st_size
    if size_bytes >= MAX_BYTES:
        raise ConfigError(
            f"{source}: expected less than {MAX_BYTES:,} bytes as bf16, got {size_bytes:,}; train "
            "with a smaller rank, or on fewer layers"
        )


def written_settings(config: BundleConfig, target: Path) -> None:
    """peft's configuration, with the id of the base in place of its folder."""
    settings = read(config.adapter / CONFIG_FILE, dict[str, Any])
    settings["base_model_name_or_path"] = config.ids[0]
    target.write_bytes(msgspec.json.format(msgspec.json.encode(settings), indent=1) + b"\n")


def record_of(config: BundleConfig, made: Path) -> AdapterRecord:
    """The record of the files that were made.

    Raises:
        ConfigError: The base is not what the run was of.
    """
    environment = read(config.run / "environment.json", Environment)
    for name, expected in environment.weights_sha256.items():
        if sha256(present(config.base / name)) != expected:
            raise ConfigError(
                f"{config.base / name}: expected SHA-256 {expected}, as environment.json of "
                f"{config.run} has it; name the weights that the run was of"
            )
    described = read(config.base / "config.json", dict[str, Any])
    missing = [key for key in SIZES if key not in described]
    if missing:
        raise ConfigError(f"{config.base / 'config.json'}: expected {', '.join(missing)}")
    evaluation = read(config.run / "evaluations" / f"{config.evaluation}.json", Evaluation)
    return AdapterRecord(
        schema_version=SCHEMA_VERSION,
        files={name: sha256(made / name) for name in ADAPTER_FILES},
        base=Base(
            ids=config.ids,
            config={key: described[key] for key in SIZES},
            weights_sha256=environment.weights_sha256,
        ),
        training=Training(
            date=config.date,
            commit=environment.commit,
            config_sha256=sha256(present(config.run / "config.json")),
            results=config.results,
            row=msgspec.to_builtins(evaluation.table),
        ),
    )


def present(path: Path) -> Path:
    if not path.is_file():
        raise ConfigError(f"{path}: expected a file, found none")
    return path


def read(path: Path, form: type[T]) -> T:
    try:
        return msgspec.json.decode(present(path).read_bytes(), type=form)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path}: {error}") from error


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m model_training.bundle", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("run", type=Path, help="folder of the run")
    parser.add_argument("--adapter", type=Path, required=True, help="folder that peft saved")
    parser.add_argument("--name", required=True, help="of the folder that is made")
    parser.add_argument("--base", type=Path, required=True, help="folder of the base's weights")
    parser.add_argument("--id", dest="ids", action="append", required=True, help="in the hub")
    parser.add_argument("--evaluation", required=True, help="of the run: its row of the table")
    parser.add_argument("--results", required=True, help="path of the raw results here")
    parser.add_argument("--card", type=Path, required=True, help="model card, Markdown")
    today = datetime.datetime.now(datetime.UTC).date()
    parser.add_argument("--date", type=datetime.date.fromisoformat, default=today)
    given = vars(parser.parse_args(words))
    try:
        place = bundle(BundleConfig(**{**given, "ids": tuple(given["ids"])}))
    except ConfigError as error:
        parser.exit(error.exit_code, f"error: {error}\n")
    parser.exit(0, f"{place}\n")


if __name__ == "__main__":
    main()
