"""Configure a pool: how the verifier of a slot is opened, and how often work is tried again."""

from __future__ import annotations

import sys
from pathlib import Path

from cudal1_ci.processes import EXECUTORS, ContainerConfig, ExecutorName
from cudal1_ci.records import Record
from cudal1_ci.records.validation import at_least
from cudal1_ci.verification import BuildsConfig, Session, TrialConfig


class RetryLimits(Record, frozen=True, kw_only=True):
    """Limit how often something is tried again."""

    max_tries: int = 3
    """Of an item with which slots are lost."""
    max_losses: int = 5
    """Of one slot, in a row and not by the fault of an item; then the slot is left out."""
    max_given_up: int = 5
    """Items in a row that are given up, over all slots; then it is not the items, and the run
    ends."""

    def __post_init__(self) -> None:
        at_least(self, "pool", 1, *self.__struct_fields__)


class SessionConfig(Record, frozen=True, kw_only=True):
    """Describe how a Session is opened, on this machine or on another one."""

    trial: TrialConfig = TrialConfig()
    builds: BuildsConfig = BuildsConfig()
    executor: ExecutorName = "local"
    container: ContainerConfig = ContainerConfig()
    python: str | None = None
    """Interpreter with the project's torch; None is the one of the slot's own process."""
    checkouts: tuple[str, ...] = ()
    """Folders that programs are read from, at the same path on every machine."""
    require_sandbox: bool = False
    require_kernel: bool = False

    def session(self, device: str, num_sharing: int = 1) -> Session:
        """Return a session that is not started yet, one of so many on its device."""
        python = self.python or sys.executable
        checkouts = tuple(map(Path, self.checkouts))
        return Session(
            self.trial,
            python=python,
            device=device,
            num_sharing=num_sharing,
            require_sandbox=self.require_sandbox,
            require_kernel=self.require_kernel,
            builds=self.builds,
            executor=EXECUTORS[self.executor](self.container, python, checkouts),
            recalls=False,  # an item has its verifier from its beginning to its end
        )
