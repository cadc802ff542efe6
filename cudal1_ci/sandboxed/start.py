"""Start a worker process in its role, over a descriptor or a socket."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import socket
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

from .confinement import kernel
from .confinement.namespaces import Nursery, close_others
from .wire.channel import Channel

NICENESS_OF_BUILDS = 10
HOME_PREFIX = "cudal1-ci-"
"""Prefix of the folder that the host makes for a worker."""


def main(argv: list[str]) -> None:
    """Run `verifier FD NUM_THREADS DEVICE` or `builder ...`. In a container FD is the path of a
    socket."""
    role, where, num_threads, device = argv[0], argv[1], int(argv[2]), argv[3]
    sys.dont_write_bytecode = True
    channel = Channel(connected(where))
    # Another process of the same user can neither read this one's memory nor trace it.
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    if role == "verifier":
        template = start_template(num_threads)
        from .verifier import verifier

        with home_removed():
            verifier.main(channel, num_threads, device, *template)
    elif role == "builder":
        with contextlib.suppress(OSError):
            os.nice(NICENESS_OF_BUILDS)
        template = start_template(num_threads)
        from .builds import builder

        with home_removed():
            builder.main(channel, *template)
    elif role == "harvester":
        from .harvester import server

        with home_removed():
            server.main(channel, num_threads)
    else:
        raise SystemExit(f"unknown role {role!r}")
    # Taking torch down takes half a second, and no work is left.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def connected(where: str) -> socket.socket:
    """Return the socket to the host, by its descriptor or, in a container, by its path."""
    if where.isdecimal():
        return socket.socket(fileno=int(where))
    end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    end.connect(where)
    return end


@contextlib.contextmanager
def home_removed() -> Iterator[None]:
    """Remove the worker's folder at the end, as the host may be gone."""
    try:
        yield
    finally:
        if Path.home().name.startswith(HOME_PREFIX):
            shutil.rmtree(Path.home(), ignore_errors=True)


def start_template(num_threads: int) -> tuple[int, Channel]:
    """Start the process that runners are forked from. Return its ID, and the channel to it."""
    ours, theirs = socket.socketpair()
    with theirs:
        pid = fork_template(theirs, num_threads)
    return pid, Channel(ours)


def fork_template(end: socket.socket, num_threads: int) -> int:
    """Import torch, once for both processes, and fork the template, which talks over `end`.

    What a runner must not know does not exist yet: no request was read, no number drawn, CUDA is
    not initialized. The fork has one thread, so that it can enter namespaces.
    """
    nurseries = Nursery(), Nursery()  # while this process is small
    gc.disable()  # what an import makes stays: a collection would find nothing
    import torch  # noqa: F401

    gc.enable()
    sys.stdout.flush()
    sys.stderr.flush()
    gc.freeze()  # a collection in either process would copy what both share
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            close_others(end.fileno(), *(nursery.end.fileno() for nursery in nurseries))
            from .forkserver import server

            server.main(Channel(end), num_threads, *nurseries)
            code = 0
        except BaseException:  # noqa: BLE001 - the host finds it in the log
            traceback.print_exc()
        finally:
            os._exit(code)
    for nursery in nurseries:
        nursery.end.close()
    return pid
