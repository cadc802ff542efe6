"""Import programs before the verifier does, so that they are compiled in time.

The builder uses the verifier's template, sandbox and build folders. It has no GPU, a lower
priority, and given cores. Requests (wire/builder.py) come from the host, one at a time.

A build that fails without a compiler's error has no verdict, as when a program looks for a GPU at
import. The verifier then imports the program itself.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
from concurrent.futures import Future, ThreadPoolExecutor

from ..confinement import SandboxError
from ..forkserver.client import Template
from ..forkserver.handles import RunnerFailure, RunnerHandle
from ..memory.accelerators import available_memory_bytes
from ..verifier.cases import verdict_of
from ..verifier.failures import rejection_of_candidate
from ..wire.builder import (
    REQUEST,
    Begin,
    Cancel,
    Done,
    Ended,
    Open,
    Opened,
    Poll,
    Polled,
    Request,
)
from ..wire.channel import Channel, ChannelClosed
from ..wire.programs import Program
from ..wire.runner import Build

COMPILER_BYTES = 2 * 2**30
"""Memory of one compiler: g++ takes 1 GB for torch's headers, nvcc's front end more."""
MAX_WAIT_S = 10.0


def main(channel: Channel, template_pid: int, template_channel: Channel) -> None:
    """Answer the host until it hangs up."""
    template = Template(template_pid, template_channel, available_memory_bytes())
    template.builds.num_idle = 0  # the verifier wants a folder as soon as it is built
    template.has_gpu = False
    builder = Builder(template)
    try:
        while True:
            channel.send(builder.answer(channel.receive(REQUEST)[0]))
    except ChannelClosed:
        return
    finally:
        builder.close()


class Builder:
    """The builds that wait, run and have ended."""

    def __init__(self, template: Template):
        self.template = template
        self.pool = ThreadPoolExecutor(1)
        self.num_at_once = self.num_cores = 1
        self.futures: dict[int, Future[None]] = {}
        self.runners: dict[int, RunnerHandle] = {}
        self.cancelled: set[int] = set()
        self.ended: queue.SimpleQueue[Ended] = queue.SimpleQueue()
        self.lock = threading.Lock()

    def answer(self, request: Request) -> Opened | Done | Polled:
        """Answer a request."""
        match request:
            case Open():
                return self.open(request)
            case Begin():
                return self.begin(request.number, request.program, request.limit_s)
            case Cancel():
                return self.cancel(request.number)
            case Poll():
                return self.poll(request.wait_s)

    def open(self, request: Open) -> Opened:
        """Return whether the verifier can find the builds, and how many run at the same time."""
        self.template.cores = request.cores
        self.template.build_for(request.architecture, request.store)
        num_fit = max(1, available_memory_bytes() // COMPILER_BYTES)
        num_at_once = min(request.num_at_once, num_fit)
        self.pool = ThreadPoolExecutor(num_at_once)
        self.num_at_once = num_at_once
        self.num_cores = len(request.cores)
        is_kept = self.template.builds.store is not None
        return Opened(is_kept=is_kept, num_at_once=num_at_once)

    def begin(self, number: int, program: Program, limit_s: float) -> Done:
        """Queue a build and return at once."""
        self.template.builds.forget_checkouts()
        self.futures[number] = self.pool.submit(self.build, number, program, limit_s)
        # ninja starts as many compilers as there are cores, in each of the builds.
        num_running = min(self.num_at_once, len(self.futures))
        self.template.environment["MAX_JOBS"] = str(max(1, self.num_cores // num_running))
        return Done()

    def build(self, number: int, program: Program, limit_s: float) -> None:
        """Run a build, in a thread of the pool."""
        verdict = None
        try:
            with self.template.runner(program) as runner:
                with self.lock:
                    if number in self.cancelled:
                        return
                    self.runners[number] = runner
                runner.ask(Build(program=program), limit_s)
        except RunnerFailure as failure:
            if failure.stage == "compile" and number not in self.cancelled:
                verdict = verdict_of(rejection_of_candidate(failure, program))
        except (SandboxError, OSError) as error:
            print(f"builder: {error}", flush=True)  # noqa: T201 - into the worker's log
        finally:
            with self.lock:
                self.runners.pop(number, None)
            self.ended.put(Ended(number=number, verdict=verdict))

    def cancel(self, number: int) -> Done:
        """End a build. `poll` reports when it has ended."""
        future = self.futures.get(number)
        if future is not None and future.cancel():
            self.ended.put(Ended(number=number))
            return Done()
        with self.lock:
            self.cancelled.add(number)
            runner = self.runners.get(number)
            if runner is not None:
                runner.signal(signal.SIGKILL)
        return Done()

    def poll(self, wait_s: float) -> Polled:
        """Return the builds that have ended, after a wait for the first."""
        ended = []
        with contextlib.suppress(queue.Empty):
            ended.append(self.ended.get(timeout=min(wait_s, MAX_WAIT_S)))
            while True:
                ended.append(self.ended.get_nowait())
        for one in ended:
            self.futures.pop(one.number, None)
        return Polled(ended=tuple(ended))

    def close(self) -> None:
        """Kill the running builds."""
        for number in list(self.futures):
            self.cancel(number)
        self.pool.shutdown(wait=True, cancel_futures=True)
        self.template.close()
