"""A clock that stands still while this process is stopped.

    with Awake() as clock:
        started_s = clock.seconds()

The host stops a judge and its runners while another judge times (executor/pausing.py). A thread
counts, so that it is not for a process that times something itself.
"""

from __future__ import annotations

import threading
import time
from typing import Self

TICK_S = 0.05
MOST_S = 0.2
"""At most so much counts at once; a thread may wait that long for its turn in a busy process."""


class Awake:
    """Counts inside of a `with`."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._count, name="awake", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_ended.set()
        self._thread.join()

    def seconds(self) -> float:
        """Since the beginning."""
        return self._seconds

    def _count(self) -> None:
        last_s = time.monotonic()
        while not self._has_ended.wait(TICK_S):
            now_s = time.monotonic()
            self._seconds += min(now_s - last_s, MOST_S)
            last_s = now_s
