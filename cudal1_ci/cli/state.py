"""The folder that a checkout's memory is in: the archive and the traces."""

from __future__ import annotations

from pathlib import Path

from cudal1_ci.config import Settings
from cudal1_ci.errors import UnsupportedError


def state_folder(root: Path, settings: Settings) -> Path:
    """The folder, made where there is none, with a `.gitignore` so that nobody commits it.

    Raises:
        UnsupportedError: It cannot be written.
    """
    folder = root / settings.state_dir
    ignore = folder / ".gitignore"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8")
    except OSError as error:
        raise UnsupportedError(
            f"{folder}: cannot be written ({error.strerror}); set `state-dir` "
            "(or CUDAL1_CI_STATE_DIR) to a folder that can"
        ) from error
    return folder
