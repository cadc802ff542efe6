"""Imports programs before the judge does, so that they are compiled when their turn comes.

It has the template, the sandbox and the folders of builds that the judge has, no GPU, a lower
priority, and the cores that it is told. Requests come from the host, one at a time:

    open   {store, architecture, cores, num_at_once}
    begin  {number, program, limit_s}   -> at once; the build waits for its turn
    cancel {number}                     -> its runner is killed
    poll   {wait_s}                     -> what has ended since

A build that fails for any other reason than the compiler's (a program that looks for a GPU when it
is imported) says nothing: the judge will see for itself.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ..confinement import SandboxError
from ..forkserver.client import Template
from ..forkserver.handles import RunnerFailure, RunnerHandle
from ..memory.accelerators import available_memory_bytes
from ..verifier.cases import verdict_of
from ..verifier.failures import rejection_of_candidate
from ..wire.channel import Channel, ChannelClosed

COMPILER_BYTES = 2 * 2**30
"""Memory of one: g++ takes 1 GB for torch's headers, nvcc's front end more."""
MAX_WAIT_S = 10.0


def main(channel: Channel, process: subprocess.Popen[bytes], template_channel: Channel) -> None:
    """Answer the host until it hangs up. `process` is that of the template."""
    template = Template(process, template_channel, available_memory_bytes())
    template.builds.num_idle = 0  # the judge wants a folder as soon as it is built
    template.has_gpu = False
    builder = Builder(template)
    answers: dict[str, Callable[..., dict[str, Any]]] = {
        "open": builder.open,
        "begin": builder.begin,
        "cancel": builder.cancel,
        "poll": builder.poll,
    }
    try:
        while True:
            message, _ = channel.receive()
            channel.send(answers[message.pop("op")](**message))
    except ChannelClosed:
        return
    finally:
        builder.close()


class Builder:
    """Builds that wait, run and have ended."""

    def __init__(self, template: Template):
        self.template = template
        self.pool = ThreadPoolExecutor(1)
        self.num_at_once = self.num_cores = 1
        self.futures: dict[int, Future[None]] = {}
        self.runners: dict[int, RunnerHandle] = {}
        self.cancelled: set[int] = set()
        self.ended: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.lock = threading.Lock()

    def open(
        self,
        store: dict[str, Any] | None,
        architecture: str | None,
        cores: list[int],
        num_at_once: int,
    ) -> dict[str, Any]:
        """Whether what is built here can be found by the judge, and how many are built at once."""
        self.template.cores = cores
        self.template.build_for(architecture, store)
        num_fit = max(1, available_memory_bytes() // COMPILER_BYTES)
        num_at_once = min(num_at_once, num_fit)
        self.pool = ThreadPoolExecutor(num_at_once)
        self.num_at_once = num_at_once
        self.num_cores = len(cores)
        return {"is_kept": self.template.builds.store is not None, "num_at_once": num_at_once}

    def begin(self, number: int, program: dict[str, Any], limit_s: float) -> dict[str, Any]:
        self.template.builds.forget_checkouts()
        self.futures[number] = self.pool.submit(self.build, number, program, limit_s)
        # ninja starts as many compilers as there are cores, in each of the builds.
        num_running = min(self.num_at_once, len(self.futures))
        self.template.environment["MAX_JOBS"] = str(max(1, self.num_cores // num_running))
        return {}

    def build(self, number: int, program: dict[str, Any], limit_s: float) -> None:
        """In a thread of the pool."""
        verdict = None
        try:
            with self.template.runner(program) as runner:
                with self.lock:
                    if number in self.cancelled:
                        return
                    self.runners[number] = runner
                runner.ask("build", limit_s, program=program)
        except RunnerFailure as failure:
            if failure.error.get("stage") == "compile" and number not in self.cancelled:
                verdict = verdict_of(rejection_of_candidate(failure, program))
        except (SandboxError, OSError) as error:
            print(f"builder: {error}", flush=True)  # noqa: T201 - into the worker's log
        finally:
            with self.lock:
                self.runners.pop(number, None)
            self.ended.put({"number": number, "verdict": verdict})

    def cancel(self, number: int) -> dict[str, Any]:
        """End a build. `poll` says when it has ended."""
        future = self.futures.get(number)
        if future is not None and future.cancel():
            self.ended.put({"number": number, "verdict": None})
            return {}
        with self.lock:
            self.cancelled.add(number)
            runner = self.runners.get(number)
            if runner is not None:
                runner.signal(signal.SIGKILL)
        return {}

    def poll(self, wait_s: float) -> dict[str, Any]:
        """Builds that have ended; the first is waited for."""
        ended = []
        with contextlib.suppress(queue.Empty):
            ended.append(self.ended.get(timeout=min(wait_s, MAX_WAIT_S)))
            while True:
                ended.append(self.ended.get_nowait())
        for one in ended:
            self.futures.pop(one["number"], None)
        return {"ended": ended}

    def close(self) -> None:
        """Kill what is being built."""
        for number in list(self.futures):
            self.cancel(number)
        self.pool.shutdown(wait=True, cancel_futures=True)
        self.template.close()
