"""What keeps processes that run tests at the same time from waiting for each other.

A runner has the last core that its verifier may use, and one process at a time measures on a
device. Measurements need that, and tests that run next to each other make none.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pytest

from cudal1_ci.verification import Session

SHARED = Session._lock
"""How all processes of a machine name a session's device."""


def take_core(worker: Mapping[str, Any]) -> None:
    """Leave the last cores to the other processes, so that each has another last one."""
    cores, number = sorted(os.sched_getaffinity(0)), number_of(worker)
    if worker["workercount"] <= len(cores):
        os.sched_setaffinity(0, cores[: len(cores) - number])


def take_processor(worker: Mapping[str, Any], patch: pytest.MonkeyPatch) -> None:
    """Let sessions of this process wait for each other, and for no other process, where their
    device is the processor."""
    own = f"cpu-{number_of(worker)}"

    def lock(session: Session) -> str:
        name = SHARED(session)
        return own if name == "cpu" else name

    patch.setattr(Session, "_lock", lock)


def number_of(worker: Mapping[str, Any]) -> int:
    """Return the number of a process of xdist; one that replaces another has the number of one."""
    return int(worker["workerid"].removeprefix("gw")) % int(worker["workercount"])
