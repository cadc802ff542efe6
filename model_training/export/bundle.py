"""Put a trained adapter into the package: a folder of `cudal1_ci/adapters`.

    bundle(BundleConfig(run=Path("runs/h200-0.5b"), name="small", ...))

Writes the files of `export adapter` and a record with the row of an evaluation. Folders of
the machine that trained it are in none of them. Written whole or not at all.
"""

from __future__ import annotations

import datetime
import re
import tempfile
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from cudal1_ci.errors import ConfigError
from cudal1_ci.propose.llm.servers import adapters
from cudal1_ci.propose.llm.servers.adapter_record import (
    ADAPTER_FILES,
    RECORD_FILE,
    SCHEMA_VERSION,
    SIZES,
    AdapterRecord,
    Base,
    Training,
    sha256,
)
from cudal1_ci.records import Record
from model_training.evaluate import EVALUATIONS, Evaluated
from model_training.export.adapter import write_adapter
from model_training.run import ENVIRONMENT
from model_training.table import Table, table

NAME = re.compile(r"[a-z0-9][a-z0-9.-]*")
T = TypeVar("T")


class BundleConfig(Record, frozen=True, kw_only=True):
    """Configure the bundle: its run, its content, its name."""

    run: Path
    """Folder of the run that trained it."""
    adapter: Path
    """Folder of the adapter, as peft saves one."""
    name: str
    base: Path
    """Folder of the weights that it was trained on."""
    ids: tuple[str, ...]
    """Of those weights in the hub, the best known first."""
    evaluation: str
    """Name of its evaluation, such as `contrastive`."""
    results: str
    """Where the raw results lie, a path in the repository."""
    date: datetime.date
    """When the training ended."""


class Resumed(msgspec.Struct):
    """Read what is needed of a time that the run was resumed."""

    weights_sha256: dict[str, str] = {}


class Environment(msgspec.Struct):
    """Read what is needed of a run's environment.json."""

    commit: str
    weights_sha256: dict[str, str]
    resumed: tuple[Resumed, ...] = ()

    def weights(self) -> dict[str, str]:
        """Return hashes of the weights. Examples may be collected before there are any; the times
        that the run was resumed have them then.

        Raises:
            ConfigError: They were not the same each time.
        """
        all_of_them = [self.weights_sha256, *(one.weights_sha256 for one in self.resumed)]
        found = [one for one in all_of_them if one]
        if any(one != found[0] for one in found):
            raise ConfigError(
                f"{ENVIRONMENT}: expected the same weights each time that the run was resumed, "
                "got others; an adapter fits one base"
            )
        return found[0] if found else {}


def bundle(config: BundleConfig) -> Path:
    """Write the folder, and return where it is.

    Raises:
        ConfigError: A file is missing or not of its form, the weights are not those of the run,
            or the adapter is none that the package takes.
    """
    if not NAME.fullmatch(config.name):
        raise ConfigError(
            f"--name: expected small letters, digits, dots and dashes, got {config.name!r}"
        )
    place = adapters.FOLDER / config.name
    if place.exists():
        raise ConfigError(f"{place}: is there already; choose another name, or remove it first")
    with tempfile.TemporaryDirectory(dir=adapters.FOLDER, prefix=".") as folder:
        made = Path(folder) / config.name
        write_adapter(config.adapter, made, base_id=config.ids[0])
        record = record_of(config, made)
        content = msgspec.json.encode(record)
        (made / RECORD_FILE).write_bytes(msgspec.json.format(content, indent=1) + b"\n")
        made.rename(place)
    return place


def record_of(config: BundleConfig, made: Path) -> AdapterRecord:
    """Return the record of the files that were made.

    Raises:
        ConfigError: The base is not what the run was of.
    """
    run = config.run
    environment = read(run / ENVIRONMENT, Environment)
    weights = environment.weights()
    for name, expected in weights.items():
        if sha256(present(config.base / name)) != expected:
            raise ConfigError(
                f"{config.base / name}: expected SHA-256 {expected}, as {ENVIRONMENT} of {run} "
                "has it; name the weights that the run was of"
            )
    described = read(config.base / "config.json", dict[str, Any])
    missing = [key for key in SIZES if key not in described]
    if missing:
        raise ConfigError(f"{config.base / 'config.json'}: expected {', '.join(missing)}")
    return AdapterRecord(
        schema_version=SCHEMA_VERSION,
        files={name: sha256(made / name) for name in ADAPTER_FILES},
        base=Base(
            ids=config.ids, config={key: described[key] for key in SIZES}, weights_sha256=weights
        ),
        training=Training(
            date=config.date,
            commit=environment.commit,
            config_sha256=sha256(present(run / "config.json")),
            results=config.results,
            row=msgspec.to_builtins(row_of(run, config.evaluation)),
        ),
    )


def row_of(run: Path, evaluation: str) -> Table:
    """Return the table's row of an evaluation, over all seeds of sampling.

    Raises:
        ConfigError: The run has none of this name.
    """
    files = sorted((run / EVALUATIONS).glob("*.json"))
    every = [read(path, Evaluated) for path in files]
    found = [one for one in every if one.name == evaluation]
    if not found:
        known = ", ".join(sorted({one.name for one in every})) or "none"
        raise ConfigError(
            f"{run / EVALUATIONS}: expected the adapter's evaluation, one of {known}; got "
            f"{evaluation!r}"
        )
    samples = [one for seed in found for one in seed.samples]
    return table(samples, min(one.k for one in found))


def present(path: Path) -> Path:
    if not path.is_file():
        raise ConfigError(f"{path}: expected a file, found none")
    return path


def read(path: Path, form: type[T]) -> T:
    try:
        return msgspec.json.decode(present(path).read_bytes(), type=form)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path}: {error}") from error


PATH = click.Path(path_type=Path)


@click.command("bundle")
@click.argument("run", type=PATH)
@click.option("--adapter", required=True, type=PATH, help="Folder that peft saved.")
@click.option("--name", required=True, help="Of the folder that is made.")
@click.option("--base", required=True, type=PATH, help="Folder of the base's weights.")
@click.option(
    "--id", "ids", multiple=True, required=True, help="Of the base in the hub; may be repeated."
)
@click.option("--evaluation", required=True, help="Name of its evaluation, such as contrastive.")
@click.option("--results", required=True, help="Where the raw results lie, a path here.")
@click.option(
    "--date",
    type=click.DateTime(["%Y-%m-%d"]),
    default=lambda: datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
    show_default="today",
    help="When the training ended.",
)
def bundle_command(date: datetime.datetime, **given: Any) -> None:
    """Put an adapter into the package, with its record. RUN is the folder of the run that trained
    it."""
    click.echo(bundle(BundleConfig(date=date.date(), **given)))
