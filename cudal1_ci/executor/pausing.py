"""Stops a process with all that it started, and lets them go on.

    stopped = stop(pid)      # none of them runs the text of its program when this returns
    go_on(stopped)

What the kernel or a GPU has begun for a process comes to its end, which may be later. Who was
stopped already, by whomever, is left as it is.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import defaultdict
from pathlib import Path

PROC = Path("/proc")
STOPPED = frozenset("tTZX")
"""States of processes that do not run: stopped, traced, and those that have ended."""
PATIENCE_S = 0.2
"""For the call into the kernel that a process is in."""
LOOK_S = 0.002


def stop(pid: int) -> list[int]:
    """Stop a process and its descendants, those that they start meanwhile too. Returns those that
    ran.

    Raises:
        PermissionError: One of them is another user's; nothing is stopped then.
    """
    stopped: list[int] = []
    seen: set[int] = set()
    try:
        while new := [one for one in family(pid) if one not in seen]:
            for one in new:
                seen.add(one)
                if state_of(one) not in STOPPED:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(one, signal.SIGSTOP)
                        stopped.append(one)
            wait_for(new)
    except BaseException:
        go_on(stopped)
        raise
    return stopped


def go_on(pids: list[int]) -> None:
    """Children first: a parent finds them running."""
    for pid in reversed(pids):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def family(pid: int) -> list[int]:
    """The process and its descendants, parents before their children."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in PROC.iterdir():
        if entry.name.isdecimal() and (fields := fields_of(int(entry.name))):
            children[int(fields[1])].append(int(entry.name))
    found = [pid]
    for one in found:
        found += children[one]
    return found


def wait_for(pids: list[int]) -> None:
    """Until none of them runs, as long as the kernel may keep one."""
    until_s = time.monotonic() + PATIENCE_S
    while any(state_of(one) not in STOPPED for one in pids) and time.monotonic() < until_s:
        time.sleep(LOOK_S)


def state_of(pid: int) -> str:
    """One letter, `X` of a process that is gone."""
    fields = fields_of(pid)
    return fields[0] if fields else "X"


def fields_of(pid: int) -> list[str]:
    """State, parent and what follows; empty of a process that is gone."""
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
