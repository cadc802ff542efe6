"""Evaluate texts as a plain harness does, in a process that is kept or in a fresh one.

The fairest harness without defenses that we can think of, for throughput.py: a warm process that
imported torch, a context on the device, five trials of `torch.allclose` with KernelBench's
tolerance, `triton.testing.do_bench` on a GPU and torch's Timer on a CPU. The reference of a problem
is timed once. Only a process that dies is started again. In a fresh process it does what
KernelBench's scripts do where KernelBench itself is not given.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

NUM_TRIALS = 5
TOLERANCE = 1e-2
SEED = 42
TIMEOUT_S = 180.0
TIMED_S = 0.2
"""Seconds of torch's Timer on a CPU, about what do_bench takes on a GPU."""


class Harness:
    """Context manager: a process that evaluates one text after the other."""

    def __init__(self, device: str):
        self.device = device
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def evaluated(self, reference: str, candidate: str) -> dict[str, Any]:
        """Return the answer of the process with the seconds that it took, its start included."""
        started_s = time.monotonic()
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, __file__, self.device],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        found: dict[str, Any] = {"error": "the process died"}
        with contextlib.suppress(OSError, json.JSONDecodeError):
            self._process.stdin.write(json.dumps([reference, candidate]) + "\n")
            self._process.stdin.flush()
            found = json.loads(self._process.stdout.readline())
        if "error" in found:
            self.end()
        return {**found, "seconds": round(time.monotonic() - started_s, 3)}


def main(device: str) -> None:
    """Answer requests from the standard input, one a line."""
    started_s = time.perf_counter()
    answers = sys.stdout
    sys.stdout = sys.stderr
    import torch

    torch.set_num_threads(1)
    torch.zeros(1, device=device).sum().item()
    start_s: float | None = time.perf_counter() - started_s
    times_ms: dict[str, float] = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for number, line in enumerate(sys.stdin):
            reference, candidate = json.loads(line)
            found = one_evaluation(reference, candidate, device, Path(folder), number, times_ms)
            if start_s is not None:
                found["spent_s"]["start"], start_s = round(start_s, 3), None
            print(json.dumps(found), file=answers, flush=True)


def one_evaluation(
    reference: str,
    candidate: str,
    device: str,
    folder: Path,
    number: int,
    times_ms: dict[str, float],
) -> dict[str, Any]:
    """Evaluate a text against its reference."""
    import torch

    spent_s: dict[str, float] = {}
    last_s = time.perf_counter()

    def spend(phase: str) -> None:
        nonlocal last_s
        now_s = time.perf_counter()
        spent_s[phase], last_s = round(now_s - last_s, 3), now_s

    try:
        ours = module_of(reference, folder / f"reference_{number}.py")
        theirs = module_of(candidate, folder / f"candidate_{number}.py")
        given = getattr(ours, "get_init_inputs", list)()
        models = []
        for module, name in ((ours, "Model"), (theirs, "ModelNew")):
            torch.manual_seed(SEED)
            models.append(getattr(module, name)(*given).to(device))
        spend("load")
        is_correct = True
        inputs: list[Any] = []
        with torch.no_grad():
            for trial in range(NUM_TRIALS):
                torch.manual_seed(SEED + trial)
                inputs = [
                    one.to(device) if isinstance(one, torch.Tensor) else one
                    for one in ours.get_inputs()
                ]
                expected, got = (model(*inputs) for model in models)
                is_correct &= expected.shape == got.shape and torch.allclose(
                    expected, got, atol=TOLERANCE, rtol=TOLERANCE
                )
            spend("correctness")
            if reference not in times_ms:
                times_ms[reference] = time_ms(models[0], inputs, device)
            candidate_ms = time_ms(models[1], inputs, device) if is_correct else None
            spend("timing")
    except Exception as error:  # noqa: BLE001 (a candidate may raise anything)
        return {"correct": False, "why": f"{error}"[:400], "spent_s": spent_s}
    return {
        "correct": is_correct,
        "why": "" if is_correct else "other values",
        "reference_ms": times_ms[reference],
        "runtime_ms": candidate_ms,
        "spent_s": spent_s,
    }


def module_of(text: str, path: Path) -> Any:
    """Import a text from a file, as Triton needs it."""
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def time_ms(model: Any, inputs: list[Any], device: str) -> float:
    """Return the median milliseconds of a call."""
    if device == "cpu":
        from torch.utils.benchmark import Timer

        timer = Timer("model(*inputs)", globals={"model": model, "inputs": inputs})
        return float(timer.blocked_autorange(min_run_time=TIMED_S).median * 1e3)
    from triton.testing import do_bench

    return float(do_bench(lambda: model(*inputs), return_mode="median"))


if __name__ == "__main__":
    main(sys.argv[1])
