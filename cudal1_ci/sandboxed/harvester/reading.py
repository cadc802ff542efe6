"""Read files of the checkout, each once."""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
from pathlib import Path
from typing import Any


@functools.cache
def text_of(path: Path) -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="utf-8")
    return ""


@functools.cache
def parsed(path: Path) -> Any:
    """Return what a file holds; None where it is no YAML or JSON, or nothing here reads YAML."""
    with contextlib.suppress(ImportError, ValueError, RecursionError):
        if path.suffix == ".json":
            return json.loads(text_of(path))
        yaml: Any = importlib.import_module("yaml")
        safe = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        with contextlib.suppress(yaml.YAMLError):
            return yaml.load(text_of(path), Loader=safe)
    return None
