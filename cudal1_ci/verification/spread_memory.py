"""Keep on disk how far controls strayed on this machine, as a prior of the next measurement.

A lost, damaged or foreign file costs a wider first interval, and nothing else.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from cudal1_ci.stats.speedups import Kind
from cudal1_ci.stats.spreads import MOST, learned, length_of

MOST_KEYS = 64
"""Devices and lengths of calls in the file; the oldest are dropped."""
MOST_BYTES = 2**20
FARTHEST = 10.0
"""Largest log ratio that a control can have shown."""


class SpreadMemory:
    """The log ratios of controls by device and length of call; without a file, none are kept."""

    def __init__(self, path: Path | None):
        self.path = path

    def spread(self, kind: Kind, device_key: str, call_us: float) -> float:
        """Return the spread to expect of repetitions of such a call."""
        return learned(kind, call_us, self._read().get(key_of(device_key, call_us), []))

    def note(self, device_key: str, call_us: float, ratios: Sequence[float]) -> None:
        """Add the log ratios of a control. Of two processes that write at once, one is lost."""
        if self.path is None or not ratios:
            return
        known, key = self._read(), key_of(device_key, call_us)
        known[key] = [*known.pop(key, []), *(round(one, 5) for one in ratios)][-MOST:]
        newest = dict(list(known.items())[-MOST_KEYS:])
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            written = self.path.with_name(f".{self.path.name}.{os.getpid()}")
            written.write_bytes(msgspec.json.encode(newest))
            written.replace(self.path)

    def _read(self) -> dict[str, list[float]]:
        if self.path is None:
            return {}
        try:
            if self.path.stat().st_size > MOST_BYTES:
                return {}
            found = msgspec.json.decode(self.path.read_bytes(), type=dict[str, list[float]])
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return {}
        return {
            key: ratios[-MOST:]
            for key, ratios in found.items()
            if all(abs(one) < FARTHEST for one in ratios)
        }


def key_of(device_key: str, call_us: float) -> str:
    return f"{device_key}/{length_of(call_us)}"
