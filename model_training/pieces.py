"""Pieces of work for several workers, which may come while they are at work.

    pieces = Pieces(len(judges), key=lambda task: task.id)
    with at_work(pieces, judges, work):
        pieces.put(task)

Pieces of one key are for one worker: who had that key the last time, since it has learned something
of it. Who has nothing left takes what another has too much of: while more may come, of those who
have two waiting, and first what nobody has learned of.
"""

from __future__ import annotations

import contextlib
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
W = TypeVar("W")
SPARED = 2
"""Of the pieces that wait for a worker, so many that others take one."""


class Pieces(Generic[T]):
    """Those that wait, by whom they wait for; any thread may put and take."""

    def __init__(
        self,
        num_workers: int,
        key: Callable[[T], str],
        homes: MutableMapping[str, int] | None = None,
    ) -> None:
        """`homes` is who had each key the last time, and is kept up: for the pieces to come."""
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
        """No more come."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        with self._changed:
            self.errors.append(error)
            self._changed.notify_all()

    def take(self, number: int) -> T | None:
        """The next one of a worker, waited for; None when no more come, or after an error."""
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
        """A worker's own, or what another can spare."""
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
    pieces: Pieces[T], workers: Sequence[W], work: Callable[[W, T], object]
) -> Iterator[None]:
    """Each worker is at work in a thread of its own; more pieces may come inside of the block,
    which ends when all are done. Raises the first error, of a worker or of the block."""

    def run(number: int) -> None:
        while (piece := pieces.take(number)) is not None:
            try:
                work(workers[number], piece)
            except BaseException as error:  # noqa: BLE001 - raised below, for whoever asked
                pieces.fail(error)

    threads = [
        threading.Thread(target=run, args=(number,), name="judge", daemon=True)
        for number in range(len(workers))
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    except BaseException as error:
        pieces.fail(error)
        raise
    finally:
        pieces.close()
        for thread in threads:
            thread.join()
    if pieces.errors:
        raise pieces.errors[0]
