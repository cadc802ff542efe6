"""What is known of streams at one point of one path through a function.

Streams and events are known by how they are written, indices by their literals: `streams[]` is any
of `streams`. The stream on which the caller waits is MAIN.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

MAIN = ""
CAPTURE = "<capture>"
"""Work that a CUDA graph records is not run on any stream yet."""


@dataclass(frozen=True)
class StreamState:
    """Work that nobody waits for yet, the current stream, and what names stand for."""

    pending: frozenset[tuple[str, int]] = frozenset()
    """A stream with unfinished work, and the line that made it current."""
    current: str = MAIN
    current_line: int = 0
    events: frozenset[tuple[str, str]] = frozenset()
    names: frozenset[tuple[str, str]] = frozenset()
    tests: frozenset[tuple[str, bool]] = frozenset()
    """Conditions that this path has met: the same words have the same answer later."""

    def named(self, name: str) -> str | None:
        return next((key for known, key in self.names if known == name), None)

    def name(self, name: str, key: str | None) -> StreamState:
        """The state in which a name stands for a stream, or for nothing known."""
        others = frozenset(pair for pair in self.names if pair[0] != name)
        return replace(self, names=others | {(name, key)} if key is not None else others)

    def working(self) -> StreamState:
        """The state after work was given to the current stream."""
        if self.current in {MAIN, CAPTURE}:
            return self
        return replace(self, pending=self.pending | {(self.current, self.current_line)})

    def joined(self, stream: str | None, by: str | None) -> StreamState:
        """The state after stream `by` was told to wait for `stream` (None: for whatever it is)."""
        if by == stream and by is not None:
            return self
        moved = frozenset(p for p in self.pending if stream is None or covers(stream, p[0]))
        left = self.pending - moved
        if by in {MAIN, CAPTURE, None}:
            return replace(self, pending=left)
        return replace(self, pending=left | {(by or MAIN, line) for _, line in moved})

    def recorded(self, event: str, stream: str) -> StreamState:
        """The state after an event was recorded on a stream."""
        others = frozenset(pair for pair in self.events if pair[0] != event)
        return replace(self, events=others | {(event, stream)})

    def assumed(self, tests: frozenset[tuple[str, bool]]) -> StreamState:
        return replace(self, tests=self.tests | tests)

    def forgotten(self, target: str) -> StreamState:
        """The state without conditions that mention what is being set."""
        kept = frozenset(pair for pair in self.tests if target not in pair[0])
        return self if len(kept) == len(self.tests) else replace(self, tests=kept)


def covers(key: str, other: str) -> bool:
    """Whether a stream's key includes another: `streams[]` is all of `streams[0]`."""
    return key == other or (key.endswith("[]") and other.startswith(key[:-1]))
