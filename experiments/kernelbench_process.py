"""Run KernelBench's own `eval_kernel_against_ref`, a fresh process a candidate, as its scripts do.

Nothing of it is in this repository. What is needed of a clone of
github.com/ScalingIntelligence/KernelBench is written to a folder that git ignores, and can be
carried to a machine with a GPU:

    python experiments/kernelbench_process.py KernelBench/.git build/gpu/kernelbench

The defaults are those of its `eval_from_generations.py`: 5 correctness trials, 100 timed ones by
CUDA events, single precision, at most 180 s, a build folder for each candidate. Packages that
its modules import and its evaluation does not use (clients of language models) are stood in for
where they are not installed: that makes its processes start sooner, never later.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

MODULES = "src/kernelbench"
FILES = tuple(f"{MODULES}/{n}.py" for n in ("__init__", "eval", "timing", "dataset", "utils"))
ADVERSARIAL = f"{MODULES}/unit_tests/test_kernels"
SQUARE = "KernelBench/level1/1_Square_matrix_multiplication_.py"
TIMEOUT_S = 180.0
MARK = "what KernelBench says:"
MOST_CHARS = 400

ASK = f"""
import importlib.util, json, sys, time, types

request = json.load(sys.stdin)
spent_s = {{"process": time.time() - request["started_s"]}}
stood_in = []


def stand_in(name, **members):
    if importlib.util.find_spec(name) is None:
        module = types.ModuleType(name)
        vars(module).update(members)
        sys.modules[name] = module
        stood_in.append(name)


class BaseModel:
    def __init__(self, **fields):
        for name, value in vars(type(self)).items():
            if not name.startswith("_"):
                setattr(self, name, dict(value) if isinstance(value, dict) else value)
        vars(self).update(fields)


def unused(*args, **kwargs):
    raise RuntimeError("a stand-in was called")


stand_in("pydantic", BaseModel=BaseModel)
stand_in("requests")
stand_in("dotenv", load_dotenv=lambda *args, **kwargs: False)
stand_in("tqdm", tqdm=unused)
stand_in("openai", OpenAI=unused)
stand_in("litellm", completion=unused)


def timed(owner, name, phase):
    function = getattr(owner, name)

    def call(*args, **kwargs):
        started_s = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            more_s = time.perf_counter() - started_s
            spent_s[phase] = spent_s.get(phase, 0.0) + more_s

    setattr(owner, name, call)


started_s = time.perf_counter()
import torch
from kernelbench import eval as kernelbench_eval
from kernelbench import timing, utils

utils.set_gpu_arch(request["gpu_arch"])
spent_s["import"] = time.perf_counter() - started_s
timed(kernelbench_eval, "load_custom_model", "load_and_build")
timed(kernelbench_eval, "load_custom_model_with_tempfile", "load_and_build")
timed(kernelbench_eval, "run_and_check_correctness", "correctness")
timed(timing, "time_execution_with_cuda_event", "timing")
started_s = time.perf_counter()
result = kernelbench_eval.eval_kernel_against_ref(
    original_model_src=request["reference"],
    custom_model_src=request["candidate"],
    measure_performance=True,
    timing_method="cuda_event",
    num_correct_trials=request["num_correct_trials"],
    num_perf_trials=request["num_perf_trials"],
    build_dir=request["build_dir"],
    device=torch.device(request["device"]),
    backend=request["backend"],
    precision=torch.float32,
)
spent_s["evaluation"] = time.perf_counter() - started_s
found = {{"error": "no result"}} if result is None else {{
    "compiled": result.compiled,
    "correct": result.correctness,
    "runtime_ms": result.runtime,
    "reference_ms": result.ref_runtime,
    "excessive_speedup": bool(result.metadata.get("excessive_speedup")),
    "why": str(
        result.metadata.get("correctness_issue")
        or result.metadata.get("runtime_error")
        or result.metadata.get("compilation_error")
        or ""
    )[:{MOST_CHARS}],
}}
found["stood_in"] = stood_in
found["spent_s"] = {{phase: round(seconds, 3) for phase, seconds in spent_s.items()}}
print("{MARK}", json.dumps(found), flush=True)
"""
"""Run by `python -c`; `process` is the time until the interpreter reads its request."""


def unpack(git: Path, folder: Path) -> None:
    """Write the modules that the evaluation needs, and the kernels of its adversarial tests."""
    show = ["git", "--git-dir", str(git)]

    def said(*words: str) -> str:
        return subprocess.run([*show, *words], check=True, capture_output=True, text=True).stdout

    kernels = said("ls-tree", "--name-only", "HEAD", f"{ADVERSARIAL}/").split()
    for path in (*FILES, *kernels, SQUARE):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(said("show", f"HEAD:{path}"), encoding="utf-8")
    (folder / "COMMIT").write_text(said("rev-parse", "HEAD"), encoding="utf-8")


def commit_of(folder: Path) -> str:
    return (folder / "COMMIT").read_text(encoding="utf-8").strip()


def evaluated(
    folder: Path,
    reference: str,
    candidate: str,
    *,
    backend: str = "cuda",
    gpu_arch: str = "Hopper",
    num_correct_trials: int = 5,
    num_perf_trials: int = 100,
    timeout_s: float = TIMEOUT_S,
    prelude: str = "",
    device: str = "cuda:0",
) -> dict[str, Any]:
    """Evaluate in a fresh process; return its answer with the seconds from start to end, or
    `error`. The backend is `cuda` for texts that are executed, `triton` for those that must be
    files. `prelude` is run first, for tests without a GPU.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
        request = {
            "started_s": time.time(),
            "reference": reference,
            "candidate": candidate,
            "backend": backend,
            "gpu_arch": [gpu_arch],
            "device": device,
            "num_correct_trials": num_correct_trials,
            "num_perf_trials": num_perf_trials,
            "build_dir": str(Path(work) / "build"),
        }
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                filter(None, [str(folder.absolute() / "src"), os.environ.get("PYTHONPATH")])
            ),
            "TRITON_CACHE_DIR": str(Path(work) / "triton"),
        }
        started_s = time.monotonic()
        with (Path(work) / "out").open("w+", encoding="utf-8", errors="replace") as out:
            child = subprocess.Popen(
                [sys.executable, "-c", prelude + ASK],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=work,
                env=environment,
                start_new_session=True,
            )
            error = None
            try:
                child.communicate(json.dumps(request).encode(), timeout=timeout_s)
            except subprocess.TimeoutExpired:
                error = f"not finished after {timeout_s:.0f} s"
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
            seconds = round(time.monotonic() - started_s, 2)
            out.seek(0)
            lines = out.read().splitlines()
    answers = [line for line in lines if line.startswith(MARK)]
    if error is None and answers:
        found: dict[str, Any] = json.loads(answers[-1].removeprefix(MARK))
        return {**found, "seconds": seconds}
    last = [line for line in lines if line.strip()][-3:]
    why = error or f"exit {child.returncode}: {' | '.join(last)}"[:MOST_CHARS]
    return {"error": why, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("git", type=Path, help="the git directory of a clone")
    parser.add_argument("folder", type=Path, help="where to write what is needed of it")
    options = parser.parse_args()
    unpack(options.git, options.folder)
    print(f"{options.folder}: KernelBench {commit_of(options.folder)}", file=sys.stderr)


if __name__ == "__main__":
    main()
