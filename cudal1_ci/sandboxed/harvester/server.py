"""Fork a confined process for each script, wait for it, and end it with all that it started."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from .. import confinement
from ..confinement import kernel, landlock
from ..confinement.namespaces import Nursery, limit_resources
from ..forkserver.server import READY, Forked, end, entered, fork, keep_descriptors, probe, warm
from ..wire.channel import Channel, ChannelClosed
from ..wire.codec import Form, ProtocolError, decode
from ..wire.harvest import CellRan, Opened, OpenHarvest, RunScript, ScriptRan

REQUEST: Form[OpenHarvest | RunScript] = Form(OpenHarvest | RunScript)
CELL: Form[CellRan] = Form(CellRan)
GRACE_S = 5.0
"""More than the script's time: it writes its trace when its own alarm rings."""
POLL_S = 0.25
MAX_TRACE_BYTES = 48 * 2**20
MAX_CELLS = 5000
NEEDED = ("network_namespace", "landlock", "seccomp", "process_limit", "private_tmpfs")
"""Layers without which no script is run. Each bounds what no other one does."""


def main(channel: Channel, num_threads: int) -> None:
    """Serve the host until it is gone."""
    nursery = Nursery()  # while this process is small
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
    granted = confinement.enter()
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    follower = entered(nursery, granted)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    granted = probe(granted, follower)
    torch_version = ""
    with contextlib.suppress(ImportError):
        import torch

        torch.set_num_threads(num_threads)
        torch_version = str(torch.__version__)
    opened: OpenHarvest | None = None
    while True:
        try:
            request, _ = channel.receive(REQUEST)
        except ChannelClosed:
            return
        if isinstance(request, OpenHarvest):
            opened = request
            refused = {
                name: str(granted.get(name))
                for name in NEEDED
                if not confinement.is_granted(granted.get(name))
            }
            if torch_version and not refused:
                until_s = time.monotonic() + request.warm_s
                for name in request.packages:
                    if time.monotonic() < until_s:
                        warm((name,))
            channel.send(Opened(refused=refused, torch=torch_version))
        elif opened is not None:
            channel.send(run_script(channel, opened, request, granted, follower))


def run_script(
    channel: Channel,
    opened: OpenHarvest,
    request: RunScript,
    granted: confinement.Granted,
    nursery: Nursery | None,
) -> ScriptRan:
    """Run a script in a confined child, and return what it reported."""
    scratch = Path(tempfile.mkdtemp(prefix="script-", dir=Path.home()))
    report = os.open(scratch.with_suffix(".report"), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)

    def begin(ready: int) -> None:
        channel.close()
        null = os.open(os.devnull, os.O_WRONLY)
        keep_descriptors(null, report, ready)
        place = confinement.Place(
            scratch=scratch, checkouts=(opened.root,), copies=True, gpu=opened.has_gpu
        )
        limit_resources(None if opened.has_gpu else own_bytes() + opened.memory_bytes)
        confinement.confine(place, granted, strict=True)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
        confinement.move_in(place)
        from . import script

        os.write(ready, READY)
        os.close(ready)
        script.main(opened, request, scratch)

    landlock.readable(tuple(__import__("sys").path))
    try:
        forked, answer = fork(begin, nursery)
        ending = ""
        if answer != READY:
            ending = f"it cannot be confined: {answer.decode(errors='replace')}"
        else:
            ending = wait(forked, request.script_s + GRACE_S, opened.memory_bytes)
        status = end(forked)
        if not ending and status not in (0, None):
            code = os.waitstatus_to_exitcode(status)
            ending = f"its process ended with exit code {code}" if code else ""
        return read_report(report, ending)
    finally:
        os.close(report)
        scratch.with_suffix(".report").unlink(missing_ok=True)
        shutil.rmtree(scratch, ignore_errors=True)


def own_bytes() -> int:
    """Return the size of this process's address space, which its limit includes."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return 8 * 2**30


def wait(forked: Forked, limit_s: float, memory_bytes: int) -> str:
    """Wait for a child to end. Return why it has to be ended, or nothing where it ended itself."""
    deadline = time.monotonic() + limit_s
    pidfd = os.pidfd_open(forked.pid)
    try:
        while True:
            if select.select([pidfd], [], [], POLL_S)[0]:
                return ""
            if time.monotonic() > deadline:
                return f"it did not end within {limit_s - GRACE_S:.0f} s"
            if resident_bytes(forked.pid) > memory_bytes:
                return f"it took more than {memory_bytes / 2**30:.0f} GiB of memory"
    finally:
        os.close(pidfd)


def resident_bytes(group: int) -> int:
    """Return the resident memory of the processes of a group."""
    total = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, ValueError, IndexError):
                if os.getpgid(int(entry.name)) == group:
                    total += int((entry / "statm").read_text(encoding="ascii").split()[1])
    return total * os.sysconf("SC_PAGE_SIZE")


def read_report(descriptor: int, ending: str) -> ScriptRan:
    """Return what a script reported; lines that are none of ours are left out."""
    size = os.fstat(descriptor).st_size
    cells: list[CellRan] = []
    trace, notes = "", []
    if size <= MAX_TRACE_BYTES * 4:
        for line in os.pread(descriptor, size, 0).split(b"\n"):
            found = read_line(line)
            if isinstance(found, CellRan) and len(cells) < MAX_CELLS:
                cells.append(found)
            elif isinstance(found, dict):
                if isinstance(found.get("trace"), str) and len(line) <= MAX_TRACE_BYTES:
                    trace = found["trace"]
                if isinstance(found.get("note"), str):
                    notes.append(found["note"][:300])
    return ScriptRan(
        cells=tuple(cells),
        trace=trace,
        notes=tuple(dict.fromkeys(notes))[:20],
        ending=ending,
    )


def read_line(line: bytes) -> CellRan | dict[str, Any] | None:
    """Return a line of a report as what it is."""
    if line.startswith(b"cell "):
        with contextlib.suppress(ProtocolError):
            return decode(CELL, line[5:])
    if line.startswith(b"{"):
        with contextlib.suppress(ValueError, RecursionError):
            found = json.loads(line)
            return found if isinstance(found, dict) else None
    return None
