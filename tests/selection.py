"""Which tests of a family are run where not all of them are: one, and a quarter of the rest.

Drawn by the commit's hash, so that a commit has the same ones wherever it is tested and a hundred
commits have them all. A test is of a family by its mark, `family(name)`.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest


def chosen(option: str) -> str | None:
    """What the tests are drawn by; None where all are run."""
    if option == "all":
        return None
    return commit() if option == "commit" else option


def commit() -> str:
    """Return the first digits of the commit's hash; without a checkout all say the same."""
    words = ["git", "rev-parse", "--short=12", "HEAD"]
    done = subprocess.run(
        words, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "0"


def drawn(names: Iterable[str], draw: str) -> frozenset[str]:
    """Return one of a family's names and a quarter of the others, rounded up."""
    by_hash = sorted(names, key=lambda name: hashlib.sha256(f"{draw} {name}".encode()).digest())
    return frozenset(by_hash[: 1 + -(-(len(by_hash) - 1) // 4)])


def left_out(items: Sequence[pytest.Item], draw: str) -> list[pytest.Item]:
    """Return the tests of families that are not drawn."""
    families: dict[tuple[str, str], list[pytest.Item]] = {}
    for item in items:
        if mark := item.get_closest_marker("family"):
            families.setdefault((item.nodeid.partition("[")[0], mark.args[0]), []).append(item)
    found = []
    for members in families.values():
        kept = drawn((item.name for item in members), draw)
        found += [item for item in members if item.name not in kept]
    return found
