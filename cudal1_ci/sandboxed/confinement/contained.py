"""The first process of a container: it hears the host hang up, and ends the container with itself.

A container outlives the command that started it, and an engine gives it none of the caller's
descriptors. So the worker comes to a socket in a folder that it was given, and this process waits
beside it: for the worker's end, and for the end of the host's side, which the kernel closes however
the host ended. It also waits for orphans, as the first process of a PID namespace must.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
from typing import NoReturn

from . import kernel

REAP_MS = 1000
"""How long an orphan may stay a zombie."""


def call_the_host(path: str) -> int:
    """A descriptor of a conversation with the host; goes on as a child that has it.

    The process that was here before stays as the first of the container, or, where there is none,
    as the parent of all that is started from here.
    """
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    # Programs of the interpreter's environment, such as ninja; the image's own come after them.
    folders = [os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]  # noqa: PTH120
    os.environ["PATH"] = os.pathsep.join(folders)
    end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    end.connect(path)
    parent = os.getpid()
    pid = os.fork()
    if pid:
        stand_by(end, pid)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    return end.detach()


def stand_by(end: socket.socket, worker: int) -> NoReturn:
    """Wait until the worker or the host is gone; then nothing else is left to be done here."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # The first process of a PID namespace ignores what it does not handle.
        signal.signal(number, lambda *_: leave(worker, 1))
    events = select.poll()
    events.register(end, 0)  # that the other side has closed is told without being asked for
    events.register(os.pidfd_open(worker), select.POLLIN)
    while True:
        hung_up = end.fileno() in dict(events.poll(REAP_MS))
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == worker:
                os._exit(os.waitstatus_to_exitcode(ended[1]) & 0xFF)
        if hung_up:
            leave(worker, 0)


def leave(worker: int, code: int) -> NoReturn:
    """End the worker, whose runners end with it, and this process."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(worker, signal.SIGKILL)
    os._exit(code)
