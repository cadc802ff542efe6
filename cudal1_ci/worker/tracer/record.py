"""What was called, how often and for how long; written to a file of this process.

Equal calls are one line. The file is replaced as a whole every two seconds and at the end, so that
a process which is killed loses little.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

FLUSH_S = 2.0
MAX_SIGNATURES = 64
"""Distinct calls of one target in one process; the rest is counted together as `others`."""


class Log:
    """The calls of this process."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.lock = threading.Lock()
        self.calls: dict[Any, dict[str, Any]] = {}
        self.num_signatures: dict[str, int] = {}
        self.reset()
        os.register_at_fork(after_in_child=self.reset)

    def reset(self) -> None:
        """A new process starts with an empty file of its own."""
        self.lock = threading.Lock()
        self.calls = {}
        self.num_signatures = {}
        self.path = self.folder / f"trace-{os.getpid()}-{time.time_ns():x}.jsonl"
        self.flushed_s = time.monotonic()

    def knows(self, key: Any) -> bool:
        return key in self.calls

    def add(self, key: Any, call: dict[str, Any]) -> None:
        """A call that was not seen before."""
        name = call["target"]
        with self.lock:
            if self.num_signatures.get(name, 0) < MAX_SIGNATURES:
                self.num_signatures[name] = self.num_signatures.get(name, 0) + 1
                self.calls.setdefault(key, {**call, "num_calls": 0, "total_s": 0.0})

    def count(self, key: Any, elapsed_s: float) -> None:
        """One more call, and its time without that of other recorded calls inside of it."""
        with self.lock:
            call = self.calls.get(key)
            if call is not None:
                call["num_calls"] += 1
                call["total_s"] += elapsed_s
        if time.monotonic() - self.flushed_s > FLUSH_S:
            self.flush()

    def flush(self) -> None:
        """Write everything; a full disk loses the trace and nothing else."""
        with self.lock:
            self.flushed_s = time.monotonic()
            lines = [json.dumps(call) for call in self.calls.values() if call["num_calls"]]
            if not lines:
                return
            part = self.path.with_suffix(".part")
            try:
                part.write_text("\n".join(lines) + "\n", encoding="utf-8")
                part.replace(self.path)
            except OSError:
                return
