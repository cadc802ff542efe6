"""What is done to a trial from outside: processes killed or stopped, a full disk.

A strike is a context manager around the trial, and says how often it hit.
"""

from __future__ import annotations

import ctypes
import os
import random
import signal
import threading
from contextlib import suppress
from pathlib import Path

from fault_programs import REFERENCE_NAME, VICTIM_NAME
from fault_remains import descendants, named

from cudal1_ci.verification import Session

LATEST_S = {"cpu": 1.2, "cuda": 4.0}
"""A trial of the victim takes about as long."""
LATEST_LEARNED_S = {"cpu": 0.1, "cuda": 1.0}
DISK_BYTES = 2**28
DISK_FILES = 4096
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x00020000, 16384, 1 << 18


def judge_of(session: Session) -> int:
    """Return its number, or 0 while there is none."""
    worker = session._worker
    return worker.pid if worker is not None else 0


class Signals:
    """A thread that kills or stops a process at a random moment of the trial under way. `kill`
    does so once, `killall` whenever there is one, `stop` as often as somebody lets it go on."""

    def __init__(self, session: Session, strike: str, rng: random.Random, device: str) -> None:
        self.action, self.target = strike.split()
        self.session, self.random = session, rng
        latest_s = (LATEST_LEARNED_S if self.target == "learned" else LATEST_S)[device]
        self.delay_s = 0.0 if self.action == "killall" else rng.uniform(0, latest_s)
        self.over = threading.Event()
        self.num_hits = 0
        self.thread = threading.Thread(target=self.run)

    def __enter__(self) -> Signals:
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()
        self.thread.join()

    def run(self) -> None:
        self.over.wait(self.delay_s)
        number = signal.SIGSTOP if self.action == "stop" else signal.SIGKILL
        while not self.over.wait(0.001):
            pids = self.targets()
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
                    self.num_hits += 1
            if pids and self.action == "kill":
                return

    def targets(self) -> list[int]:
        """Return the processes that it meets now; none while they are not there."""
        judge = judge_of(self.session)
        if not judge or self.target == "judge":
            return [judge] if judge else []
        if self.target == "template":
            found = list(descendants(judge))[:2]  # the one that waits, and the one that forks
        elif self.target == "runner":
            found = named(judge, VICTIM_NAME)
        else:
            found = named(judge, REFERENCE_NAME)
            if self.target == "reference" and not named(judge, VICTIM_NAME):
                found = []
        return [self.random.choice(found)] if found else []


def small_disk(folder: Path) -> None:
    """Let a folder be a disk of its own that can be filled, for this process and its children."""
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"size={DISK_BYTES},nr_inodes={DISK_FILES}".encode()
    for done in (
        lambda: libc.unshare(CLONE_NEWNS),
        lambda: libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None),
        lambda: libc.mount(b"tmpfs", str(folder).encode(), b"tmpfs", 0, options),
    ):
        if done() != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"{os.strerror(number)} (run it as root)", str(folder))


class FullDisk:
    """Fill the disk that holds the folder at a random moment, bytes and files, until it is over."""

    def __init__(self, folder: Path, rng: random.Random, device: str) -> None:
        self.folder = folder
        self.delay_s = rng.uniform(0, LATEST_S[device])
        self.over = threading.Event()
        self.num_hits = 0
        self.files: list[Path] = []
        self.thread = threading.Thread(target=self.run)

    def __enter__(self) -> FullDisk:
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()
        self.thread.join()
        for path in self.files:
            path.unlink(missing_ok=True)

    def run(self) -> None:
        if self.over.wait(self.delay_s):
            return
        page = bytes(2**20)
        with suppress(OSError), self.new_file().open("wb", buffering=0) as file:
            while True:
                file.write(page)
        with suppress(OSError):
            while True:
                self.new_file().touch()
        self.num_hits = 1

    def new_file(self) -> Path:
        self.files.append(self.folder / f"full-{len(self.files)}")
        return self.files[-1]


def strike_of(
    session: Session, strike: str, folder: Path, rng: random.Random, device: str
) -> Signals | FullDisk:
    """Return the context manager for the words of a fault."""
    if strike == "fill disk":
        return FullDisk(folder, rng, device)
    return Signals(session, strike, rng, device)
