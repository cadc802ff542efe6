"""Open slots on this machine: a Session in a thread of this process for each of some devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cudal1_ci.errors import ConfigError, UnsupportedError, WorkerError
from cudal1_ci.pool.config import SessionConfig
from cudal1_ci.pool.slots import SlotLost
from cudal1_ci.verification import Session


class LocalBackend:
    """Devices of this machine, as `--device` names them: `cuda:0`, `cuda:1`. One that is named
    twice has two slots, which share its memory. They load and examine at the same time and take
    turns to time: for candidates that compile at their first call."""

    def __init__(self, config: SessionConfig, devices: Sequence[str] = ("auto",)):
        if not devices:
            raise ConfigError("devices: expected one or more, such as cuda:0, got none")
        self.config = config
        self.devices = tuple(devices)

    @property
    def num_slots(self) -> int:
        return len(self.devices)

    def open(self, number: int, is_over: Callable[[], bool]) -> LocalSlot:
        """Start a verifier on that device. Raises: SlotLost, UnsupportedError."""
        del is_over  # a start has its own limit
        device = self.devices[number]
        return LocalSlot(f"{device} #{number}", self.config, device, self.devices.count(device))


class LocalSlot:
    """A Session."""

    remark = None

    def __init__(self, name: str, config: SessionConfig, device: str, num_sharing: int = 1):
        self.name = name
        self.verifier: Session = config.session(device, num_sharing)
        try:
            self.device = self.verifier.device()
        except UnsupportedError:
            self.close()
            raise
        except WorkerError as error:
            self.close()
            raise SlotLost(str(error)) from error

    def close(self) -> None:
        """End the verifier; a thread that waits for its answer gets a WorkerError."""
        self.verifier.__exit__(None, None, None)
