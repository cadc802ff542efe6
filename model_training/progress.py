"""How far work is that takes minutes, said now and then by the standard logging.

    progress = Progress("references learned", len(tasks))
    progress.step()

`python -m model_training` shows it.
"""

from __future__ import annotations

import logging
import threading
import time

LOG = logging.getLogger("model_training")
EVERY_S = 30.0


class Progress:
    """Counts what is done, from any thread."""

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total = what, total
        self.done = 0
        self._started_s = self._said_s = time.monotonic()
        self._lock = threading.Lock()

    def step(self, count: int = 1) -> None:
        """So many more are done."""
        with self._lock:
            self.done += count
            now_s = time.monotonic()
            if now_s - self._said_s < EVERY_S:
                return
            self._said_s = now_s
            elapsed_s = now_s - self._started_s
        LOG.info("%s: %d of %d in %.0f s", self.what, self.done, self.total, elapsed_s)
