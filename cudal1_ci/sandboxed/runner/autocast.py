"""Put each call of a program under autocast, as its caller does.

A caller enters autocast once for a forward pass, so the copies of weights that autocast keeps are
those of one call. The settings that a call leaves are compared with those that it was given before
they are put back: outside of the call they cannot be seen. `torch.autocast` sets more and takes
twice as long, which counts where a call takes microseconds.
"""

from __future__ import annotations

import torch

NAMES = ("{kind}", "{kind}.dtype", "cache")
Setting = bool | torch.dtype


class Autocast:
    """Enter autocast for a kind of device; with no dtype do nothing."""

    def __init__(self, kind: str, dtype: torch.dtype | None):
        self.kind, self.dtype = kind, dtype
        self.left: dict[str, tuple[str, str]] = {}
        """Settings that calls have changed, with both values."""
        if dtype is not None:
            torch.set_autocast_dtype(kind, dtype)

    def __enter__(self) -> None:
        if self.dtype is not None:
            torch.set_autocast_enabled(self.kind, True)
            torch.autocast_increment_nesting()

    def __exit__(self, *_: object) -> None:
        if self.dtype is None:
            return
        depth = torch.autocast_decrement_nesting()
        torch.clear_autocast_cache()
        if (
            depth
            or not torch.is_autocast_enabled(self.kind)
            or torch.get_autocast_dtype(self.kind) != self.dtype
            or not torch.is_autocast_cache_enabled()
        ):
            self.note(depth)
        torch.set_autocast_enabled(self.kind, False)

    def note(self, depth: int) -> None:
        """Note what a call has changed, and put back what it was given."""
        assert self.dtype is not None
        given: tuple[Setting, ...] = (True, self.dtype, True)
        now: tuple[Setting, ...] = (
            torch.is_autocast_enabled(self.kind),
            torch.get_autocast_dtype(self.kind),
            torch.is_autocast_cache_enabled(),
        )
        for name, was, one in zip(NAMES, given, now, strict=True):
            if was != one:
                self.left[f"torch.autocast.{name.format(kind=self.kind)}"] = str(was), str(one)
        if depth:
            self.left["torch.autocast.nesting"] = "1", str(depth + 1)
        while depth > 0:
            depth = torch.autocast_decrement_nesting()
        while depth < 0:
            depth = torch.autocast_increment_nesting()
        torch.set_autocast_dtype(self.kind, self.dtype)
        torch.set_autocast_cache_enabled(True)

    def changes(self) -> tuple[tuple[str, str, str], ...]:
        """Return the settings that calls have left changed: the name, and the value before and
        after."""
        return tuple((name, was, now) for name, (was, now) in sorted(self.left.items()))
