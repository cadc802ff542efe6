"""Build programs that compile something ahead of their verification.

A separate worker imports several programs at the same time. Their builds go to the folders where
the verifier's runners look. On a GPU machine with spare processor cores, builds run during timing
on their own cores. Elsewhere they share the device with the verifier's examinations and never with
timing (processes/lock.py).
While a program is verified, no builder of it is alive: a builder could work for the timed process.

A failure here costs only time: the verifier imports every program itself. Only the compiler's
errors on a text are kept, so that it is not compiled again.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from cudal1_ci.errors import WorkerError
from cudal1_ci.processes import Executor, Worker
from cudal1_ci.processes.lock import shared
from cudal1_ci.records import Candidate, Program, TextProgram, Verdict
from cudal1_ci.sandboxed.wire.builder import Begin, Cancel, Ended, Open, Poll
from cudal1_ci.sandboxed.wire.verifier import Store
from cudal1_ci.verification.config import BuildsConfig
from cudal1_ci.verification.crossing import program_on_wire, verdict_of

POLL_S = 0.25
ANSWER_S = 60.0
START_S = 180.0
CANCEL_S = 15.0
"""Seconds from a kill until it takes effect."""
END_S = 2.0
SPARE_CORES = 3
"""Cores left free besides those of a runner's threads: for the verifier, the driver and
autograd. A verifier on a GPU has no reserved cores, as there may be one for each GPU. The kernel
finds idle ones."""
_COMPILES = re.compile(
    r"\b(?:load_inline|cpp_extension|CUDAExtension|CppExtension|RawKernel|RawModule"
    r"|nvrtcCreateProgram|_?compile_kernel|nvcc|torch\.utils\.cpp_extension)\b"
)


def compiles(program: Program) -> bool:
    """Return whether a program compiles something when it is imported, or is itself compiled
    then. Triton kernels and torch.compile compile at their first call, on the device, and do not
    count."""
    if isinstance(program, TextProgram):
        return _COMPILES.search(program.source) is not None
    return any(
        not file.path.endswith(".py") or _COMPILES.search(file.text) for file in program.overlay
    )


@dataclass(frozen=True)
class Site:
    """The cores and the device that builds use."""

    lock: str | None
    """Name of the device that is not timed on during builds; None where builds do not disturb
    timing."""
    architecture: str | None
    cores: tuple[int, ...]
    num_at_once: int


def site_for(
    kind: str,
    device_lock: str,
    architecture: str | None,
    threads: int,
    num_at_once: int | None,
) -> Site:
    """Choose cores for builds. On a GPU machine these are all that timing does not need, if
    there are any. Else they are all cores, as nothing is timed during builds."""
    cores = sorted(os.sched_getaffinity(0))
    spare = cores[: max(0, len(cores) - threads - SPARE_CORES)] if kind == "cuda" else []
    mine = spare or cores
    return Site(
        lock=None if spare else device_lock,
        architecture=architecture,
        cores=tuple(mine),
        num_at_once=min(num_at_once or len(mine), len(mine)),
    )


@dataclass
class Build:
    """A program that is built ahead."""

    number: int
    candidate: Candidate
    state: Literal["waiting", "running", "cancelled", "done"] = "waiting"
    verdict: Verdict | None = None
    """The compiler's verdict on a text that does not compile."""


class Ahead:
    """The builds of a session. One thread uses it; a second thread talks to the worker."""

    def __init__(self, config: BuildsConfig, executor: Executor, *, threads: int, limit_s: float):
        self.config = config
        self.executor = executor
        self.threads = threads
        self.limit_s = limit_s
        self._builds: dict[str, Build] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._worker: Worker | None = None
        self._stack = contextlib.ExitStack()
        self._is_closed = False

    def start(self, candidates: Sequence[Candidate], site: Site) -> None:
        """Build the candidates that compile something and were not built before. Return at once."""
        if self.config.num_processes == 0 or not self.config.keep or self._is_closed:
            return
        with self._changed:
            for candidate in candidates:
                if candidate.id not in self._builds and compiles(candidate.program):
                    self._builds[candidate.id] = Build(len(self._builds), candidate)
            if self._thread is None and self._in("waiting"):
                self._thread = threading.Thread(
                    target=self._work, args=(site,), name="builds", daemon=True
                )
                self._thread.start()

    def in_turn(
        self, candidates: Sequence[Candidate], is_over: Callable[[], bool] = lambda: False
    ) -> Iterator[Candidate]:
        """Yield all candidates, those whose builds are ready first. Once `is_over()`, wait for
        no build."""
        left = list(candidates)
        deadline_s = time.monotonic() + self.limit_s
        while left:
            with self._changed:
                while (number := self._first_ready(left)) is None:
                    left_s = deadline_s - time.monotonic()
                    if left_s <= 0 or is_over():
                        number = 0
                        break
                    self._changed.wait(min(POLL_S, left_s))
            yield left.pop(number)
            deadline_s = time.monotonic() + self.limit_s

    def _first_ready(self, candidates: Sequence[Candidate]) -> int | None:
        for number, candidate in enumerate(candidates):
            build = self._builds.get(candidate.id)
            if build is None or build.state == "done":
                return number
        return None

    def settle(self, candidate: Candidate) -> Verdict | None:
        """Wait for a candidate's build, or end it after a time. Then no builder of it runs.
        Return the compiler's verdict on a text that does not compile."""
        with self._changed:
            build = self._builds.get(candidate.id)
            if build is None:
                return None
            if not self._changed.wait_for(lambda: build.state == "done", self.limit_s):
                self._cancel(build)
            return build.verdict

    def _cancel(self, build: Build) -> None:
        """End a build whose time is over, if necessary with all others."""
        if build.state == "waiting":
            build.state = "done"
            return
        build.state = "cancelled"
        if not self._changed.wait_for(lambda: build.state == "done", CANCEL_S):
            self._end_worker()
            build.state = "done"

    def close(self) -> None:
        """End all builds."""
        with self._changed:
            self._is_closed = True
            for build in self._in("waiting"):
                build.state = "done"
            thread = self._thread
        self._end_worker()
        if thread is not None:
            thread.join(END_S)  # it may wait for the lock of a device, which cannot be interrupted

    def _in(self, *states: str) -> list[Build]:
        return [build for build in self._builds.values() if build.state in states]

    # --- in the second thread ------------------------------------------------------------------

    def _work(self, site: Site) -> None:
        """Build until no build is left."""
        try:
            with shared(site.lock) if site.lock else contextlib.nullcontext():
                self._build_all(site)
        except (WorkerError, OSError):
            self._end_worker()
        finally:
            with self._changed:
                for build in self._in("waiting", "running", "cancelled"):
                    build.state = "done"  # the verifier imports it itself
                self._thread = None
                self._changed.notify_all()

    def _build_all(self, site: Site) -> None:
        """Build all waiting programs. Raises WorkerError when the worker cannot be started, or
        is gone."""
        while True:
            with self._changed:
                waiting, ended = self._in("waiting"), self._in("cancelled")
                if self._is_closed or not self._in("waiting", "running", "cancelled"):
                    return
            worker = self._worker or self._open(site)
            if worker is None:
                return
            for build in waiting:
                request = Begin(
                    number=build.number,
                    program=program_on_wire(build.candidate.program),
                    limit_s=self.limit_s,
                )
                with self._changed:
                    if build.state != "waiting":
                        continue
                    build.state = "running"
                worker.ask(request, ANSWER_S)
            for build in ended:
                worker.ask(Cancel(number=build.number), ANSWER_S)
            self._note(worker.ask(Poll(wait_s=POLL_S), ANSWER_S).ended)

    def _open(self, site: Site) -> Worker | None:
        """Start the worker. Return None when the verifier would not find its builds."""
        starting = self.executor.start("builder", num_threads=self.threads, device="none")
        with self._changed:
            if self._is_closed:
                return None
            worker = self._worker = self._stack.enter_context(starting)
        request = Open(
            store=store_of(self.config),
            architecture=site.architecture,
            cores=site.cores,
            num_at_once=site.num_at_once,
        )
        if worker.ask(request, START_S).is_kept:
            return worker
        self._end_worker()
        self._is_closed = True
        return None

    def _note(self, ended: Sequence[Ended]) -> None:
        by_number = {build.number: build for build in self._builds.values()}
        with self._changed:
            for one in ended:
                build = by_number[one.number]
                build.state = "done"
                if one.verdict is not None:
                    build.verdict = verdict_of(one.verdict)
            self._changed.notify_all()

    def _end_worker(self) -> None:
        with self._changed:
            stack, self._stack = self._stack, contextlib.ExitStack()
            self._worker = None
        stack.close()


def store_of(config: BuildsConfig) -> Store | None:
    """Return where builds are kept, in the form that workers receive."""
    if not config.keep:
        return None
    return Store(folder=str(config.place()), max_bytes=config.max_bytes)
