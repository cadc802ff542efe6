"""What tests of experiments have in common."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def experiment_module(monkeypatch):
    """A module of experiments/, which is no package."""
    monkeypatch.syspath_prepend(str(ROOT / "experiments"))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(ROOT / "experiments") in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
