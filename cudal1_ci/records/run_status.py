"""Why a run ends before everything was tried, known to all who work on it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Ending:
    """One for each run, shared by its judges. Each of the two only ever becomes true."""

    was_cut: bool = False
    """Whether the budget kept something from being tried."""
    was_interrupted: bool = False

    @property
    def is_early(self) -> bool:
        return self.was_cut or self.was_interrupted
