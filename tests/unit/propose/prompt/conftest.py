"""The checkout that the prompts are about."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.propose.prompt.samples import write_checkout


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_checkout(tmp_path / "checkout")
