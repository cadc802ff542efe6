"""Write what was called, how often and for how long, to a file of this process or to a report.

Equal calls are one line. Calls between two steps of an optimizer are counted separately. This shows
how often a training step makes them, and how long a step takes. The file is replaced as a whole
every two seconds and at the end, so that a killed process loses little.
"""

from __future__ import annotations

import json
import os
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FLUSH_S = 2.0
MAX_SIGNATURES = 64
"""Distinct calls of one target in one process; the rest is counted together as `others`."""
MAX_STEPS = 1000
"""Most steps of one process that are recorded. A mean needs no more."""


@dataclass(frozen=True)
class Root:
    """The outermost call of a module, with all calls inside it."""

    name: str
    """`path:qualname`, and ` train` where it trains."""
    is_first: bool
    """The first call of its kind holds what is done once: memory is had, kernels are chosen."""


class OwnFile:
    """A file of this process in a folder of all. It is replaced as a whole."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.renew()

    def renew(self) -> None:
        """Take another file, in a new process."""
        self.path = self.folder / f"trace-{os.getpid()}-{time.time_ns():x}.jsonl"

    def __call__(self, text: str) -> None:
        """Write all calls. A full disk loses only the trace."""
        part = self.path.with_suffix(".part")
        try:
            part.write_text(text, encoding="utf-8")
            part.replace(self.path)
        except OSError:
            return


class Log:
    """The calls of this process, for a `write` that takes all of them each time. `renew` is called
    in a new process, whose calls are its own."""

    def __init__(self, write: Callable[[str], None], renew: Callable[[], None]):
        self.write = write
        self.renew = renew
        self.lock = threading.Lock()
        self.calls: dict[Any, dict[str, Any]] = {}
        self.num_signatures: dict[str, int] = {}
        self.reset()
        os.register_at_fork(after_in_child=self.forked)

    def forked(self) -> None:
        """Start a new process, with a file of its own."""
        self.renew()
        self.reset()

    def reset(self) -> None:
        """Forget all calls."""
        self.lock = threading.Lock()
        self.calls = {}
        self.num_signatures = {}
        self.steps_s: list[float] = []
        self.step_devices: set[str | None] = set()
        self.optimizers: set[str | None] = set()
        # By optimizer: when its last step ended, and how often each call had been made by then.
        self.marks: Any = weakref.WeakKeyDictionary()
        self.flushed_s = time.monotonic()

    def knows(self, key: Any) -> bool:
        return key in self.calls

    def add(self, key: Any, call: dict[str, Any]) -> None:
        """Add a call that was not seen before."""
        name = call["target"]
        with self.lock:
            if self.num_signatures.get(name, 0) < MAX_SIGNATURES:
                self.num_signatures[name] = self.num_signatures.get(name, 0) + 1
                counts = {"num_calls": 0, "num_in_steps": 0, "total_s": 0.0, "roots": {}}
                self.calls.setdefault(key, {**call, **counts})

    def count(self, key: Any, elapsed_s: float, root: Root | None = None) -> None:
        """Count one more call, and its time without that of recorded calls inside it. Of `root`,
        the outermost call around it, the time is also counted separately."""
        with self.lock:
            call = self.calls.get(key)
            if call is not None:
                call["num_calls"] += 1
                call["total_s"] += elapsed_s
                if root is not None:
                    times = call["roots"].setdefault(root.name, [0.0, 0.0])
                    times[root.is_first] += elapsed_s
        if time.monotonic() - self.flushed_s > FLUSH_S:
            self.flush()

    def step(self, optimizer: Any, device: str | None) -> None:
        """Record a step of an optimizer. Calls since its last step belong to a step. Calls
        before its first step belong to none, nor do calls between the last step of one optimizer
        and the first of another."""
        with self.lock:
            now_s = time.perf_counter()
            counts = {key: call["num_calls"] for key, call in self.calls.items()}
            mark = self.marks.get(optimizer)
            self.marks[optimizer] = (now_s, counts)
            if mark is None or len(self.steps_s) >= MAX_STEPS:
                return
            began_s, before = mark
            self.steps_s.append(now_s - began_s)
            self.step_devices.add(device)
            self.optimizers.add(name_of(type(optimizer)))
            for key, count in counts.items():
                self.calls[key]["num_in_steps"] += count - before.get(key, 0)

    def flush(self) -> None:
        """Write everything."""
        with self.lock:
            self.flushed_s = time.monotonic()
            lines = [json.dumps(call) for call in self.calls.values() if call["num_calls"]]
            if not lines:
                return
            if self.steps_s:
                (device,) = self.step_devices if len(self.step_devices) == 1 else (None,)
                (made_by,) = self.optimizers if len(self.optimizers) == 1 else (None,)
                steps = {"device": device, "durations_s": self.steps_s, "optimizer": made_by}
                lines.append(json.dumps({"steps": steps}))
            self.write("\n".join(lines) + "\n")


def name_of(optimizer: type) -> str | None:
    """Return the name of a class of torch.optim; None of another class."""
    is_known = optimizer.__module__.startswith("torch.optim")
    return optimizer.__qualname__ if is_known else None
