"""Read and write the files of a run: JSON that is replaced as a whole, and JSON lines."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from cudal1_ci.errors import ConfigError
from model_training.checkpoints import write_text

CONFIG = "config.json"
EVALUATION = "evaluation-"
"""What the stage of an evaluation begins with, in metrics and samples."""


def refuse_another(
    folder: Path, settings: dict[str, Any], ignored: tuple[str, ...], *, is_resumed: bool
) -> None:
    """Refuse a folder with another run, or with the same run unless it is resumed.

    Raises: ConfigError.
    """
    known = read_json(folder / CONFIG).get("config")
    if known is None:
        return
    if not is_resumed:
        raise ConfigError(
            f"run.folder: {folder} has a run already; `--resume` goes on with it, and another "
            "folder begins a new one"
        )
    before, now = flat(known), flat(settings)
    other = sorted(
        key
        for key in {*before, *now}
        if before.get(key) != now.get(key)
        and not any(key == one or key.startswith(f"{one}.") for one in ignored)
    )
    if other:
        raise ConfigError(
            f"{folder / CONFIG}: expected the configuration that the run began with, got another "
            f"{', '.join(other[:5])}; use that configuration again, or another folder"
        )


def whole(settings: Any) -> Any:
    """Return records as JSON has them, with defaults too: a default may be another tomorrow."""
    if isinstance(settings, msgspec.Struct):
        names = settings.__struct_fields__
        return {name: whole(getattr(settings, name)) for name in names}
    if dataclasses.is_dataclass(settings) and not isinstance(settings, type):
        return whole(dataclasses.asdict(settings))
    if isinstance(settings, dict):
        return {name: whole(value) for name, value in settings.items()}
    if isinstance(settings, list | tuple):
        return [whole(value) for value in settings]
    return settings


def flat(settings: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    """Return values of nested tables by their keys, with points in between."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            found |= flat(value, f"{place}{name}.")
        else:
            found[f"{place}{name}"] = value
    return found


def record_environment(path: Path, found: dict[str, Any]) -> None:
    """Write once for a run, and once more for each time that it was resumed."""
    known = read_json(path)
    if known:
        found = {**known, "resumed": [*known.get("resumed", []), found]}
    write_text(path, pretty(found))


def append(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Add JSON lines, each there as a whole when this returns."""
    text = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    with path.open("ab") as file:
        file.write(text)


def cut(path: Path, stage: str, step: int) -> list[dict[str, Any]]:
    """Leave out lines of a stage after a step, and one that a kill has cut; what is left."""
    if not path.exists():
        return []
    kept = [
        one for one in lines_of(path) if one.get("stage") != stage or one.get("step", 0) <= step
    ]
    write_text(path, "".join(msgspec.json.encode(one).decode() + "\n" for one in kept))
    return kept


def lines_of(path: Path) -> Iterator[dict[str, Any]]:
    """Read JSON lines, without one that a kill has cut."""
    for line in path.read_bytes().splitlines() if path.exists() else ():
        with contextlib.suppress(msgspec.DecodeError):
            yield msgspec.json.decode(line)


def read_json(path: Path) -> dict[str, Any]:
    """Read a file of ours; nothing where there is none."""
    try:
        found: dict[str, Any] = msgspec.json.decode(path.read_bytes())
    except FileNotFoundError:
        return {}
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path}: expected JSON ({error}); remove the file") from error
    return found


def pretty(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=1).decode() + "\n"
