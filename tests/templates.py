"""Templates for tests: processes that runners are forked from, without a verifier."""

from __future__ import annotations

import os
import socket
import sys

from cudal1_ci.processes.local import BOOTSTRAP, SANDBOXED
from cudal1_ci.sandboxed.forkserver.client import Template
from cudal1_ci.sandboxed.wire.channel import Channel

PARENT = """
import os, socket, sys
from cudal1_sandboxed.confinement import kernel
from cudal1_sandboxed.start import fork_template
kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
kernel.prctl(kernel.PR_SET_PDEATHSIG, 9)
end = socket.socket(fileno=int(sys.argv[2]))
pid = fork_template(end, 1)
os.closerange(3, os.sysconf("SC_OPEN_MAX"))
os.waitpid(pid, 0)
"""
"""Stands for the verifier's process, which forks a template before it does anything else."""


def start_template(memory_bytes: int | None = 2**36) -> Template:
    """Return one in this environment. The caller closes it."""
    ours, theirs = socket.socketpair()
    bootstrap, _, _ = BOOTSTRAP.partition("from cudal1_sandboxed.start")
    words = [sys.executable, "-c", bootstrap + PARENT, str(SANDBOXED), str(theirs.fileno())]
    with theirs:
        os.set_inheritable(theirs.fileno(), True)
        pid = os.posix_spawn(sys.executable, words, os.environ)
    return Template(pid, Channel(ours), memory_bytes)
