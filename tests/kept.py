"""Verifiers that outlive a session and serve the next one: each takes three seconds to start.

A `Check` tells a verifier all that it has to know, so that the next session's problem is to it what
the next target of a scan is. What it learned before is not found again, as the next session may
have another precision. Only builds stay in the folder of the first session. One that failed in any
way is ended, and so is one that was moved to other cores. For tests of what becomes of verdicts,
and not of those that look at a process.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cudal1_ci.processes import Local
from cudal1_ci.processes.local import Worker, scrubbed_environment
from cudal1_ci.sandboxed.wire.verifier import Check

NUM_IDLE = 2
"""So many are kept; each takes half a gigabyte."""


class Kept:
    """A worker inside a `with`, which is given back at its end."""

    def __init__(self, verifiers: Verifiers, key: object, worker: Worker):
        self.verifiers, self.key, self.worker = verifiers, key, worker
        self.is_sound, self.is_moved = True, False
        self.name = uuid.uuid4().hex
        """Of what this session's problems are known by."""

    def __enter__(self) -> Kept:
        return self

    def __exit__(self, *_: object) -> None:
        self.verifiers.give_back(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.worker, name)

    def ask(self, request: Any, timeout_s: float) -> Any:
        if isinstance(request, Check):
            self.is_moved |= request.cores is not None
            if request.key is not None:
                request = replace(request, key=f"{request.key} in {self.name}")
        self.is_sound = False  # until it has answered
        reply = self.worker.ask(request, timeout_s)
        self.is_sound = not self.is_moved
        return reply


class Verifiers:
    """Those that wait for a session."""

    def __init__(self) -> None:
        self.idle: list[tuple[object, Worker]] = []
        self.lock = threading.Lock()

    def start(self, local: Local, role: str, *, num_threads: int, device: str) -> Worker | Kept:
        """Return a worker as `Local.start` does: one that was started alike, where one waits."""
        if role != "verifier":
            return Worker(role, python=local.python, num_threads=num_threads, device=device)
        environment = scrubbed_environment(os.environ, Path(), num_threads)
        key = (local.python, num_threads, device, environment)
        with self.lock:
            for at, (found, worker) in enumerate(self.idle):
                if found == key and worker.process.poll() is None:
                    del self.idle[at]
                    return Kept(self, key, worker)
        worker = Worker(role, python=local.python, num_threads=num_threads, device=device)
        return Kept(self, key, worker.__enter__())

    def give_back(self, kept: Kept) -> None:
        """Keep a worker that answered; end it otherwise, or the one that has waited longest."""
        ended = [kept.worker]
        if kept.is_sound:
            with self.lock:
                self.idle.append((kept.key, kept.worker))
                ended = [worker for _, worker in self.idle[:-NUM_IDLE]]
                del self.idle[:-NUM_IDLE]
        for worker in ended:
            worker.__exit__(None, None, None)

    def close(self) -> None:
        for _, worker in self.idle:
            worker.__exit__(None, None, None)
        self.idle.clear()

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Let this process's sessions have them."""

        def start(local: Local, role: str, *, num_threads: int, device: str) -> Worker | Kept:
            return self.start(local, role, num_threads=num_threads, device=device)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Local, "start", start)
            yield
