"""Keep other processes of the same user from reading this one.

    make_unreadable()

The environment that a process was started with stays in its memory, also when it removes a key from
`os.environ`, and `/proc/PID/environ` shows it to every process of the same user. Called first of
all where the tool begins. What it starts is readable again: only an environment without secrets is
given to it.
"""

from __future__ import annotations

import ctypes
import sys

PR_SET_DUMPABLE = 4


def make_unreadable() -> None:
    """Forbid other processes of this user to read the memory and the environment of this one, or to
    trace it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
