"""A warm process from which runners are forked: torch is imported, nothing was run.

A fork costs some milliseconds where an import costs seconds. No tensor operation may run here:
a thread pool that exists before a fork does not exist after it. Whatever a runner leaves behind is
adopted by the template (it is the subreaper) and killed with the runner.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import resource
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from .channel import Channel, ChannelClosed

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
MAX_LOG_BYTES = 256 * 2**20
"""Of any file that a runner writes: a program that prints forever must not fill the disk."""


def prctl(option: int, value: int) -> None:
    """Raises OSError when the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def main(channel: Channel, num_threads: int) -> None:
    """Fork, warm up and reap as the judge asks, until it is gone."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    import torch

    torch.set_num_threads(num_threads)
    torch.set_num_interop_threads(1)
    children: set[int] = set()
    while True:
        try:
            message, fds = channel.receive()
        except ChannelClosed:
            kill_all()
            return
        if message["op"] == "fork":
            pid = fork_runner(channel, fds[0], message)
            children.add(pid)
            channel.send({"pid": pid})
        elif message["op"] == "warm":
            channel.send({"imported": warm(message["modules"], message["path"])})
        elif message["op"] == "reap":
            channel.send({"status": reap(message["pid"], children)})


def warm(modules: list[str], path: list[str]) -> int:
    """Import what runners imported from outside of the checkout, so that later ones find it done.
    A module that cannot be imported alone is left to the runner."""
    sys.path[:] = [*sys.path, *(p for p in path if p not in sys.path)]
    count = 0
    for name in modules:
        if name not in sys.modules:
            with contextlib.suppress(Exception):
                importlib.import_module(name)
                count += 1
    return count


def fork_runner(channel: Channel, fd: int, message: dict[str, Any]) -> int:
    """Start a runner that talks over `fd`; returns its process id."""
    pid = os.fork()
    if pid:
        os.close(fd)
        return pid
    code = 1
    try:
        channel.close()
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        confine(message)
        from . import runner

        runner.main(Channel(socket.socket(fileno=fd)), Path(message["scratch"]))
        code = 0
    finally:
        os._exit(code)


def confine(message: dict[str, Any]) -> None:
    """Limits, and stdout and stderr into the log."""
    log = os.open(message["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_LOG_BYTES, MAX_LOG_BYTES))
    limit = message["memory_bytes"]
    if limit is not None:  # on a GPU the driver reserves more addresses than there is memory
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def reap(pid: int, children: set[int]) -> int | None:
    """The wait status of a runner that was killed or ended, after killing what it left behind."""
    children.discard(pid)
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:
        return None
    for orphan in orphans(children):
        with contextlib.suppress(OSError):
            os.kill(orphan, signal.SIGKILL)
            os.waitpid(orphan, 0)
    return status


def orphans(children: set[int]) -> list[int]:
    """Processes that this one adopted when a runner ended."""
    me = os.getpid()
    try:
        text = Path(f"/proc/{me}/task/{me}/children").read_text()
    except OSError:
        return []
    return [pid for pid in map(int, text.split()) if pid not in children]


def kill_all() -> None:
    """End every child, runner or adopted."""
    for pid in orphans(set()):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
