"""Keep other processes of the same user from reading this one.

    make_unreadable()

The environment that a process was started with stays in its memory, also when it removes a key from
`os.environ`, and `/proc/PID/environ` shows it to every process of the same user. Called first of
all where the tool begins. What it starts is readable again: only an environment without secrets is
given to it.

    start_again(environment)

Only a new program image is without what the old one was started with.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from typing import NoReturn

PR_SET_DUMPABLE = 4
_is_front_door = False


def make_unreadable() -> None:
    """Forbid other processes of this user to read the memory and the environment of this one, or to
    trace it."""
    global _is_front_door
    _is_front_door = True
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def has_made_unreadable() -> bool:
    """Return whether this process is the tool's own, and not one that imports it."""
    return _is_front_door


def start_again(environment: Mapping[str, str]) -> NoReturn:
    """Replace this program by itself under another environment, with the same arguments."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], dict(environment))
