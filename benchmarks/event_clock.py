"""Times a reference and a candidate in one process, as the harness of CUDA-L1 did, and honestly.

Two clocks on the same calls: CUDA events on the current stream, which see nothing of what runs
elsewhere, and the host's clock around a few calls and a wait for the whole device. Values are not
looked at. It stands for no measurement of ours; it shows what a harness that trusts events would
have believed.

A server is started once, so that torch is imported once, and forks a process for every pair:

    with Clocks("cuda") as clocks:
        clocks.measured(reference, candidate)   # {"event_speedup": 4.1, "waited_speedup": 1.0, ...}

The code runs with the rights of the user, in a folder of its own, and without a sandbox.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, TracebackType
from typing import IO, Any, Self

NUM_WARM_UPS = 3
NUM_BATCHES = 10
BATCH_CALLS = 5
MOST_S = 2.0
"""Of timing one program by one clock, once it has three batches."""
PATIENCE_S = 60.0
START_S = 120.0
SEED = 0


class Clocks:
    """The server's other end; it is started when it is first asked."""

    def __init__(self, device: str):
        self.device = device
        self.server: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.server is not None:
            self.server.__exit__(None, None, None)  # closes its pipes, and waits

    def measured(self, reference: str, candidate: str) -> dict[str, Any]:
        """Microseconds of a call by both clocks, and the speedups; `error` where it failed."""
        if self.server is None:
            self.server = subprocess.Popen(
                [sys.executable, __file__, self.device],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        stdin, stdout = self.server.stdin, self.server.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps([reference, candidate]) + "\n")
        stdin.flush()
        is_ready = select.select([stdout], [], [], PATIENCE_S + START_S)[0]
        line = stdout.readline() if is_ready else ""
        if not line:
            self.server.kill()
            self.server.__exit__(None, None, None)
            self.server = None  # the next one gets a new one
            return {"error": "the clocks' process " + ("ended" if is_ready else "did not answer")}
        found: dict[str, Any] = json.loads(line)
        return found


def serve(device: str, requests: IO[str], answers: IO[str]) -> None:
    """A line for every line."""
    for line in requests:
        reference, candidate = json.loads(line)
        answers.write(json.dumps(forked(device, reference, candidate)) + "\n")
        answers.flush()


def forked(device: str, reference: str, candidate: str) -> dict[str, Any]:
    """The times from a process of their own, which is killed when it takes too long."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        result = Path(folder) / "result.json"
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(OSError):
                os.setpgid(0, 0)
            run_child(device, reference, candidate, result)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if os.waitpid(pid, os.WNOHANG)[0]:
                break
            time.sleep(0.01)
        else:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return {"error": f"not finished after {PATIENCE_S:.0f} s"}
        if not result.exists():
            return {"error": "the process ended without an answer"}
        found: dict[str, Any] = json.loads(result.read_text())
        return found


def run_child(device: str, reference: str, candidate: str, result: Path) -> None:
    """Never returns: writes the times or the error, and ends the process."""
    try:
        sink = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(sink, descriptor)
        os.chdir(result.parent)
        os.environ["TORCH_EXTENSIONS_DIR"] = str(result.parent / "extensions")
        found = times(device, reference, candidate, result.parent)
    except BaseException as error:  # noqa: BLE001 - whatever the code raises is its answer
        found = {"error": f"{type(error).__name__}: {error}"[:400]}
    partial = result.with_suffix(".partial")
    partial.write_text(json.dumps(found))
    partial.replace(result)
    os._exit(0)


def times(device: str, reference: str, candidate: str, folder: Path) -> dict[str, Any]:
    """Both programs by both clocks, in microseconds a call."""
    import torch

    found: dict[str, Any] = {}
    with torch.no_grad():
        module = load(folder, "reference", reference)
        torch.manual_seed(SEED)
        inputs = [moved(x, device) for x in module.get_inputs()]
        init = list(getattr(module, "get_init_inputs", list)())
        for name, entry in (("reference", module.Model), ("candidate", None)):
            kind = entry or load(folder, "candidate", candidate).ModelNew
            torch.manual_seed(SEED)
            program = kind(*[moved(x, device) for x in init]).to(device).eval()
            found[f"{name}_event_us"], found[f"{name}_waited_us"] = clocked(program, inputs, device)
    for clock in ("event", "waited"):
        one, other = found[f"reference_{clock}_us"], found[f"candidate_{clock}_us"]
        found[f"{clock}_speedup"] = round(one / max(other, 1e-3), 4)
    return found


def load(folder: Path, name: str, source: str) -> ModuleType:
    path = folder / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def moved(value: Any, device: str) -> Any:
    return value.to(device) if hasattr(value, "to") else value


def clocked(program: Callable[..., Any], inputs: list[Any], device: str) -> tuple[float, float]:
    """Microseconds a call, by events on the current stream and by waiting for the device."""
    import torch

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    def by_events() -> float:
        if device != "cuda":
            return waiting() / BATCH_CALLS * 1e6
        total_ms = 0.0
        for _ in range(BATCH_CALLS):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            program(*inputs)
            end.record()
            end.synchronize()  # of the current stream alone
            total_ms += start.elapsed_time(end)
            wait()
        return total_ms / BATCH_CALLS * 1e3

    def waiting() -> float:
        start_s = time.perf_counter()
        for _ in range(BATCH_CALLS):
            program(*inputs)
        wait()
        return time.perf_counter() - start_s

    for _ in range(NUM_WARM_UPS):
        program(*inputs)
    wait()
    event_us = typical(by_events)
    waited_us = typical(lambda: waiting() / BATCH_CALLS * 1e6)
    return round(event_us, 3), round(waited_us, 3)


def typical(measure: Callable[[], float]) -> float:
    """The median of some batches."""
    found: list[float] = []
    started_s = time.monotonic()
    while len(found) < NUM_BATCHES:
        found.append(measure())
        if len(found) >= 3 and time.monotonic() - started_s > MOST_S:
            break
    return statistics.median(found)


if __name__ == "__main__":
    import torch  # noqa: F401 - once, for all that are forked

    serve(sys.argv[1], sys.stdin, sys.stdout)
