"""Trees to discover: written from a mapping of paths to texts."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

WriteTree = Callable[[Mapping[str, str | bytes]], Path]


@pytest.fixture
def write_tree(tmp_path: Path) -> WriteTree:
    """Writes files below a fresh folder and returns it; texts may be indented."""

    def write(files: Mapping[str, str | bytes]) -> Path:
        root = tmp_path / "repository"
        root.mkdir(exist_ok=True)
        for path, text in files.items():
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            content = text if isinstance(text, bytes) else textwrap.dedent(text).encode()
            file.write_bytes(content)
        return root

    return write
