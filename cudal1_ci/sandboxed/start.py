"""Start a worker process in its role, over a descriptor or a socket."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from .confinement import kernel
from .wire.channel import Channel

NICENESS_OF_BUILDS = 10
HOME_PREFIX = "cudal1-ci-"
"""Prefix of the folder that the host makes for a worker."""


def main(argv: list[str], bootstrap: list[str]) -> None:
    """Run `judge FD NUM_THREADS DEVICE`, `builder ...` or `template ...`. `bootstrap` starts
    another worker. In a container FD is the path of a socket."""
    role, where, num_threads, device = argv[0], argv[1], int(argv[2]), argv[3]
    sys.dont_write_bytecode = True
    channel = Channel(connected(where))
    if role == "judge":
        # Another process of the same user can neither read this one's memory nor trace it.
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        # Before torch is imported here, so that both processes import it at the same time.
        template = start_template(bootstrap, num_threads, device)
        from .verifier import verifier

        with home_removed():
            verifier.main(channel, num_threads, device, *template)
    elif role == "builder":
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        with contextlib.suppress(OSError):
            os.nice(NICENESS_OF_BUILDS)
        template = start_template(bootstrap, num_threads, device)
        from .builds import builder

        with home_removed():
            builder.main(channel, *template)
    elif role == "template":
        from .forkserver import server as role_of_template

        role_of_template.main(channel, num_threads)
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


def start_template(
    bootstrap: list[str], num_threads: int, device: str
) -> tuple[subprocess.Popen[bytes], Channel]:
    """Start the process that runners are forked from."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [
                sys.executable,
                *bootstrap,
                "template",
                str(theirs.fileno()),
                str(num_threads),
                device,
            ],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )
    return process, Channel(ours)
