"""Choose the LoRA adapter for a configuration's weights: its own, or a bundled one.

    chosen(ModelConfig(model="Qwen/Qwen2.5-Coder-0.5B-Instruct"))    # a bundled one, if one fits
    chosen(ModelConfig(model="/models/qwen", adapter="/models/lora"))
    chosen(ModelConfig(model="/models/qwen", adapter="none"))        # None

A bundled adapter is a folder of `cudal1_ci/adapters` with a record. Its files are assets
(cudal1_ci/assets.py), found by hash when a configuration uses the adapter. A model with a hub id is
identified by that id: weights of the same sizes may be others. A folder of weights has no trusted
name, and is identified by the sizes in its config.json. If two adapters fit, the one trained later
is used.

A damaged file is an error, also in a bundled adapter: otherwise the report would describe another
model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from cudal1_ci import assets
from cudal1_ci.errors import ConfigError, UnsupportedError
from cudal1_ci.propose.llm.servers.adapter_record import (
    RECORD_FILE,
    AdapterRecord,
    read_record,
    refuse_other_files,
)
from cudal1_ci.propose.llm.servers.config import AUTOMATIC, NONE, ModelConfig
from cudal1_ci.propose.llm.servers.weights import Adapter, adapter

FOLDER = Path(__file__).parents[3] / "adapters"
WITHOUT = "or go without it: --adapter none (model.adapter)"


@dataclass(frozen=True)
class Bundled:
    """An adapter that comes with the package."""

    folder: Path
    record: AdapterRecord

    def whole(self) -> Adapter:
        """Return the adapter after its files are compared with the record.

        Raises:
            UnsupportedError: They are others and the installation is broken, or they are assets
                that are not to be had here.
        """
        try:
            folder = assets.folder(f"adapters/{self.folder.name}") or self.folder
        except UnsupportedError as error:
            raise UnsupportedError(f"{error}; {WITHOUT}") from error
        try:
            refuse_other_files(folder, self.record)
            found = adapter(str(folder))
        except ConfigError as error:
            raise broken(error) from error
        return replace(found, made_for=self.record.base.ids[0])


def chosen(config: ModelConfig) -> Adapter | None:
    """Return the adapter for the weights of a configuration; None if the weights are served
    unchanged.

    Raises:
        ConfigError: The configuration names a folder that holds none, or not the one that the
            record in it is of.
        UnsupportedError: The bundled one that fits is damaged.
    """
    if config.adapter == NONE:
        return None
    if config.adapter == AUTOMATIC:
        found = bundled_for(config)
        return None if found is None else found.whole()
    named = adapter(config.adapter)
    record = read_record(named.folder)
    if record is not None:
        try:
            refuse_other_files(named.folder, record)
        except ConfigError as error:
            raise ConfigError(
                f"model.adapter: {error}; copy the folder again, or remove {RECORD_FILE} if you "
                "changed the adapter"
            ) from error
    return named


def bundled_for(config: ModelConfig) -> Bundled | None:
    """Return the bundled adapter that a configuration gets by default; the adapter's files are not
    read yet.

    Raises:
        UnsupportedError: A record of the package cannot be read.
    """
    if config.model is None or config.is_url or config.adapter != AUTOMATIC:
        return None
    folder = Path(config.model).expanduser()
    base = config_of(folder) if folder.is_dir() else config.model
    fitting = [
        one
        for one in bundled()
        if (base in one.record.base.ids if isinstance(base, str) else one.record.base.fits(base))
    ]
    return max(fitting, key=lambda one: (one.record.training.date, one.folder.name), default=None)


def bundled() -> Iterator[Bundled]:
    """Yield all adapters that come with the package.

    Raises:
        UnsupportedError: A record cannot be read.
    """
    for path in sorted(FOLDER.glob(f"*/{RECORD_FILE}")):
        try:
            record = read_record(path.parent)
        except ConfigError as error:
            raise broken(error) from error
        if record is not None:
            yield Bundled(path.parent, record)


def config_of(folder: Path) -> dict[str, Any]:
    """Return the config.json of weights; empty without one, since the server reports that error."""
    try:
        return msgspec.json.decode((folder / "config.json").read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError):
        return {}


def broken(error: ConfigError) -> UnsupportedError:
    """Return the error of a damaged file that only the package installs."""
    return UnsupportedError(f"{error}; it is part of cudal1-ci: install it again, {WITHOUT}")
