"""Hand work to several workers; more work may come while they run.

    queue = WorkQueue(len(judges), key=lambda task: task.id)
    with at_work(queue, judges, work):
        queue.put(task)

Work of one key goes to the worker that had that key the last time, since it has learned something
of it. A worker with nothing left takes what another has too much of: while more may come, from
those that have two waiting, and first what no worker has learned of.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Generic, TypeVar

LOG = logging.getLogger("model_training")
EVERY_S = 30.0
T = TypeVar("T")
W = TypeVar("W")
SPARED = 2
"""Of the queue that wait for a worker, so many that others take one."""


class WorkQueue(Generic[T]):
    """Hold what waits, by the worker that it waits for; any thread may put and take."""

    def __init__(
        self,
        num_workers: int,
        key: Callable[[T], str],
        homes: MutableMapping[str, int] | None = None,
    ) -> None:
        """Keep in `homes` which worker had each key the last time."""
        self.key = key
        self.homes = {} if homes is None else homes
        self.errors: list[BaseException] = []
        """The first one ends it all."""
        self._left: list[deque[T]] = [deque() for _ in range(num_workers)]
        self._changed = threading.Condition()
        self._is_closed = False

    def put(self, piece: T) -> None:
        key = self.key(piece)
        with self._changed:
            home = self.homes.get(key, zlib.crc32(key.encode()) % len(self._left))
            self._left[home].append(piece)
            self._changed.notify_all()

    def close(self) -> None:
        """Accept no more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        with self._changed:
            self.errors.append(error)
            self._changed.notify_all()

    def take(self, number: int) -> T | None:
        """Wait for the next piece of a worker; None when no more come, or after an
        error."""
        with self._changed:
            while not self.errors:
                piece = self._next(number)
                if piece is not None:
                    self.homes[self.key(piece)] = number
                    return piece
                if self._is_closed:
                    return None
                self._changed.wait()
        return None

    def _next(self, number: int) -> T | None:
        """Return a worker's own, or what another can spare."""
        if self._left[number]:
            return self._left[number].popleft()
        longest = max(self._left, key=len)
        if len(longest) < (1 if self._is_closed else SPARED):
            return None
        new = [place for place, one in enumerate(longest) if self.key(one) not in self.homes]
        place = new[-1] if new else len(longest) - 1
        piece = longest[place]
        del longest[place]
        return piece


@contextlib.contextmanager
def at_work(
    queue: WorkQueue[T], workers: Sequence[W], work: Callable[[W, T], object]
) -> Iterator[None]:
    """Let each worker work in a thread of its own; more may come inside of the
    block, which ends when all are done. Raises the first error, of a worker or of the block."""

    def run(number: int) -> None:
        while (piece := queue.take(number)) is not None:
            try:
                work(workers[number], piece)
            except BaseException as error:  # noqa: BLE001 - raised below, for the caller
                queue.fail(error)

    threads = [
        threading.Thread(target=run, args=(number,), name="judge", daemon=True)
        for number in range(len(workers))
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    except BaseException as error:
        queue.fail(error)
        raise
    finally:
        queue.close()
        for thread in threads:
            thread.join()
    if queue.errors:
        raise queue.errors[0]


class Progress:
    """Count what is done, from any thread."""

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total = what, total
        self.done = 0
        self._started_s = self._said_s = time.monotonic()
        self._lock = threading.Lock()

    def step(self, count: int = 1) -> None:
        """Count so many more."""
        with self._lock:
            self.done += count
            now_s = time.monotonic()
            if now_s - self._said_s < EVERY_S:
                return
            self._said_s = now_s
            elapsed_s = now_s - self._started_s
        LOG.info("%s: %d of %d in %.0f s", self.what, self.done, self.total, elapsed_s)
