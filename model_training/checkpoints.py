"""Write checkpoints that are there as a whole or not at all.

    with writing(run / "checkpoints", "supervised", step=40) as folder:
        policy.save(folder)
    newest(run / "checkpoints", "supervised").folder

A checkpoint is written under a name that no code reads, forced to the disk, and then renamed. A
folder with the name of a checkpoint is complete, whatever kills the process.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from cudal1_ci.errors import ConfigError

STATE = "state.json"
NUM_KEPT = 2
"""Of each stage: the newest, and the one before it, should a person doubt the newest."""
_NAME = re.compile(r"(?P<stage>[a-z_]+)-(?P<step>\d+)")


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Hold a folder with weights and all that is needed to resume from them."""

    folder: Path
    stage: str
    step: int

    def state(self) -> dict[str, Any]:
        """Return what the stage has noted: `stage`, `step` and its own.

        Raises:
            ConfigError: The file is not there or no JSON.
        """
        path = self.folder / STATE
        try:
            found: dict[str, Any] = msgspec.json.decode(path.read_bytes())
        except (OSError, msgspec.DecodeError) as error:
            raise ConfigError(
                f"{path}: expected the state of a checkpoint ({error}); remove {self.folder}, and "
                "the run goes on from the one before it"
            ) from error
        return found


@contextmanager
def writing(root: Path, stage: str, step: int, state: dict[str, Any]) -> Iterator[Path]:
    """Open a folder to write a checkpoint into; when the block ends without an error it is
    one."""
    root.mkdir(parents=True, exist_ok=True)
    unfinished = root / f".{stage}-{step}.{os.getpid()}"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    try:
        yield unfinished
        adopt(root, unfinished, stage, step, state)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def adopt(root: Path, folder: Path, stage: str, step: int, state: dict[str, Any]) -> Checkpoint:
    """Make a folder of the same file system, which somebody has written, a checkpoint."""
    noted = {"stage": stage, "step": step, **state}
    (folder / STATE).write_bytes(msgspec.json.encode(noted))
    for path in folder.rglob("*"):
        if path.is_file():
            synced(path)
    synced(folder)
    named = root / f"{stage}-{step}"
    if named.exists():  # of a run that was taken up again at an earlier step
        shutil.rmtree(named)
    folder.rename(named)
    for old in all_of(root, stage)[:-NUM_KEPT]:
        shutil.rmtree(old.folder)
    return Checkpoint(folder=named, stage=stage, step=step)


def newest(root: Path, stage: str) -> Checkpoint | None:
    """Return the newest checkpoint of a stage."""
    found = all_of(root, stage)
    return found[-1] if found else None


def all_of(root: Path, stage: str) -> list[Checkpoint]:
    """Return checkpoints of a stage, by their step."""
    found = [
        Checkpoint(folder=path, stage=stage, step=int(match["step"]))
        for path in root.glob(f"{stage}-*")
        if (match := _NAME.fullmatch(path.name)) and match["stage"] == stage
    ]
    return sorted(found, key=lambda one: one.step)


def write_text(path: Path, text: str) -> None:
    """Replace a file, so that a reader finds the old text or the new."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    with unfinished.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    synced(path.parent)


def synced(path: Path) -> None:
    """Force a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
