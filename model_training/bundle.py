"""A trained adapter becomes one that comes with the package: a folder of `cudal1_ci/adapters`.

    bundle(BundleConfig(runs=(Path("runs/h200-0.5b"),), name="small", ...))

Its files are those that `export adapter` would write, its card is that of `card`, and its record
has the row of the report. Folders of the machine that trained it are in none of them. Written whole
or not at all.
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
from model_training.export.adapter import write_adapter
from model_training.report.card import CARD, LICENSE, card_text, row_named
from model_training.report.rows import rows_of
from model_training.report.run_folder import Run, read_run
from model_training.run import ENVIRONMENT

NAME = re.compile(r"[a-z0-9][a-z0-9.-]*")
T = TypeVar("T")


class BundleConfig(Record, frozen=True, kw_only=True):
    """What is bundled, of which run, under which name."""

    runs: tuple[Path, ...]
    """Folders of runs for the card: first the one that trained it, then those it is compared
    with."""
    adapter: Path
    """Folder of the adapter, as peft saves one."""
    name: str
    base: Path
    """Folder of the weights that it was trained on."""
    ids: tuple[str, ...]
    """Of those weights in the hub, the best known first."""
    evaluation: str
    """Label of its row of the report."""
    results: str
    """Where the raw results lie, a path in the repository."""
    date: datetime.date
    """When the training ended."""
    license_name: str = LICENSE


class Resumed(msgspec.Struct):
    """What is read of a time that the run was taken up again."""

    weights_sha256: dict[str, str] = {}


class Environment(msgspec.Struct):
    """What is read of a run's environment.json."""

    commit: str
    weights_sha256: dict[str, str]
    resumed: tuple[Resumed, ...] = ()

    def weights(self) -> dict[str, str]:
        """Hashes of the weights. Examples may be collected before there are any; the times that the
        run was taken up again have them then.

        Raises:
            ConfigError: They were not the same each time.
        """
        all_of_them = [self.weights_sha256, *(one.weights_sha256 for one in self.resumed)]
        found = [one for one in all_of_them if one]
        if any(one != found[0] for one in found):
            raise ConfigError(
                f"{ENVIRONMENT}: expected the same weights each time that the run was taken up, "
                "got others; an adapter fits one base"
            )
        return found[0] if found else {}


def bundle(config: BundleConfig) -> Path:
    """Writes the folder, and says where it is.

    Raises:
        ConfigError: A file is missing or not of its form, the weights are not those of the run,
            or the adapter is none that the package takes.
        ReportError: The runs cannot be read, or have no such evaluation.
    """
    if not NAME.fullmatch(config.name):
        raise ConfigError(
            f"--name: expected small letters, digits, dots and dashes, got {config.name!r}"
        )
    place = adapters.FOLDER / config.name
    if place.exists():
        raise ConfigError(f"{place}: is there already; choose another name, or remove it first")
    runs = [read_run(folder) for folder in config.runs]
    with tempfile.TemporaryDirectory(dir=adapters.FOLDER, prefix=".") as folder:
        made = Path(folder) / config.name
        write_adapter(config.adapter, made, base_id=config.ids[0])
        card = card_text(
            runs,
            made,
            base_model=config.ids[0],
            evaluation=config.evaluation,
            license_name=config.license_name,
        )
        (made / CARD).write_text(card, encoding="utf-8")
        content = msgspec.json.encode(record_of(config, runs, made))
        (made / RECORD_FILE).write_bytes(msgspec.json.format(content, indent=1) + b"\n")
        made.rename(place)
    return place


def record_of(config: BundleConfig, runs: list[Run], made: Path) -> AdapterRecord:
    """The record of the files that were made.

    Raises:
        ConfigError: The base is not what the run was of.
    """
    run = config.runs[0]
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
    row = row_named(rows_of(runs), config.evaluation, runs)
    return AdapterRecord(
        schema_version=SCHEMA_VERSION,
        files={name: sha256(made / name) for name in ADAPTER_FILES},
        base=Base(
            ids=config.ids,
            config={key: described[key] for key in SIZES},
            weights_sha256=weights,
        ),
        training=Training(
            date=config.date,
            commit=environment.commit,
            config_sha256=sha256(present(run / "config.json")),
            results=config.results,
            row=msgspec.to_builtins(row.table),
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


PATH = click.Path(path_type=Path)


@click.command("bundle")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=PATH)
@click.option("--adapter", required=True, type=PATH, help="Folder that peft saved.")
@click.option("--name", required=True, help="Of the folder that is made.")
@click.option("--base", required=True, type=PATH, help="Folder of the base's weights.")
@click.option(
    "--id", "ids", multiple=True, required=True, help="Of the base in the hub; may be repeated."
)
@click.option("--evaluation", required=True, help="Its row of the report, such as contrastive.")
@click.option("--results", required=True, help="Where the raw results lie, a path here.")
@click.option(
    "--date",
    type=click.DateTime(["%Y-%m-%d"]),
    default=lambda: datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
    show_default="today",
    help="When the training ended.",
)
@click.option(
    "--license",
    "license_name",
    default=LICENSE,
    show_default=True,
    help="Of the adapter: SPDX.",
)
def bundle_command(date: datetime.datetime, **given: Any) -> None:
    """Put an adapter into the package, with card and record.

    RUN is the folder of the run that trained it, then those that its card compares it with.
    """
    click.echo(bundle(BundleConfig(date=date.date(), **given)))
