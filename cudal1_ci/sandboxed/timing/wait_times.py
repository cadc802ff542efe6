"""Record how long the verifier waited for its runners, by request, to show where time is spent.

with spent.over("load"): ...
spent.taken()  # {"load": (3, 0.52)}: times and seconds, then starts again
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator


class Spent:
    """Waiting times of all threads. Seconds of parallel waits are added."""

    def __init__(self) -> None:
        self._found: dict[str, list[float]] = {}
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def over(self, what: str) -> Iterator[None]:
        started_s = time.monotonic()
        try:
            yield
        finally:
            self.add(what, 1, time.monotonic() - started_s)

    def add(self, what: str, times: float, seconds: float) -> None:
        """Add times that another object has counted."""
        with self._lock:
            one = self._found.setdefault(what, [0, 0.0])
            one[0] += times
            one[1] += seconds

    def taken(self) -> dict[str, tuple[float, float]]:
        """Return what was recorded since the last call."""
        with self._lock:
            found, self._found = self._found, {}
        return {what: (times, round(seconds, 4)) for what, (times, seconds) in found.items()}
