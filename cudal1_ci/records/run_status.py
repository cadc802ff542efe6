"""State why a run ends before everything was tried, for all of its verifiers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Ending:
    """Hold the end of one run, shared by its verifiers. Each of the two only ever becomes true."""

    was_cut: bool = False
    """Whether the budget kept something from being tried."""
    was_interrupted: bool = False

    @property
    def is_early(self) -> bool:
        return self.was_cut or self.was_interrupted
