"""The first thing that runs in a worker process: which role, over which descriptor."""

from __future__ import annotations

import socket
import sys

from .channel import Channel


def main(argv: list[str], bootstrap: list[str]) -> None:
    """`judge FD NUM_THREADS` or `template FD NUM_THREADS`; `bootstrap` starts another worker."""
    role, fd, num_threads = argv[0], int(argv[1]), int(argv[2])
    channel = Channel(socket.socket(fileno=fd))
    sys.dont_write_bytecode = True
    if role == "judge":
        from . import judge

        judge.main(channel, num_threads, bootstrap)
    elif role == "template":
        from . import template

        template.main(channel, num_threads)
    else:
        raise SystemExit(f"unknown role {role!r}")
