"""Measure what the contexts of runners cost on a GPU: as they are, with one queue, and through MPS.

    python experiments/contexts.py
    python experiments/contexts.py --device cpu --processes 4

Each variant forks processes from one that has imported torch, as the product does, and waits until
each has made a context and run a kernel of torch. All are started together. Then each runs a short
matrix product in a row, alone: a variant that starts sooner and runs slower is no gain. MPS is
started for its variant alone, with folders of its own, and ended afterwards. A runner in the
sandbox may not reach its sockets: this says whether allowing that would be worth it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from provenance import provenance

NUM_CALLS = 200
CONTROL = "nvidia-cuda-mps-control"
TEMPLATE = """
import json, os, sys, time
import torch

device, count, calls = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)


def child(write, go):
    torch.ones(8, device=device).sum().item()
    os.write(write, b"r")
    os.read(go, 1)
    x = torch.rand(512, 512, device=device)
    torch.mm(x, x).sum().item()
    started_s = time.perf_counter()
    for _ in range(calls):
        y = torch.mm(x, x)
    y.sum().item()
    os.write(write, json.dumps((time.perf_counter() - started_s) / calls * 1e6).encode())
    os._exit(0)


started_s = time.perf_counter()
children = []
for _ in range(count):
    (read, write), (wait, go) = os.pipe(), os.pipe()
    if os.fork() == 0:
        child(write, wait)
    os.close(write)
    children.append((read, go))
for read, _ in children:
    if os.read(read, 1) != b"r":
        raise SystemExit("a process died")
all_s = time.perf_counter() - started_s
times_us = []
for read, go in children:
    os.write(go, b"g")
    times_us.append(json.loads(os.read(read, 64)))
print(json.dumps({"start_s": all_s, "call_us": times_us}))
"""


@contextlib.contextmanager
def mps() -> Iterator[dict[str, str]]:
    """Run a server of MPS, and yield the variables of its clients.

    Raises:
        OSError: It cannot be started here.
        subprocess.CalledProcessError: It refused to.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        names = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")
        variables = {name: str(Path(folder, name)) for name in names}
        for place in variables.values():
            Path(place).mkdir()
        environment = {**os.environ, **variables}
        subprocess.run([CONTROL, "-d"], env=environment, check=True, capture_output=True)
        try:
            yield variables
        finally:
            subprocess.run([CONTROL], env=environment, input="quit\n", text=True, check=False)


def measured(device: str, count: int, variables: dict[str, str]) -> dict[str, Any]:
    """Return seconds until all processes are ready, and the median of a call in each."""
    words = [sys.executable, "-c", TEMPLATE, device, str(count), str(NUM_CALLS)]
    ran = subprocess.run(
        words, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    if ran.returncode != 0:
        return {"error": ran.stderr[-300:]}
    found = json.loads(ran.stdout)
    call_us = statistics.median(found["call_us"])
    return {"start_s": round(found["start_s"], 3), "call_us": round(call_us, 2)}


def variants(device: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield names of variants with their variables; the last one while MPS runs."""
    yield "as it is", {}
    yield "one queue", {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    yield "one GPU visible", {"CUDA_VISIBLE_DEVICES": "0"}
    yield "both", {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    if device == "cuda" and shutil.which(CONTROL):
        with mps() as found:
            yield "MPS", found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--processes", type=int, default=15)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    document: dict[str, Any] = {**provenance(), "processes": options.processes, "variants": {}}
    for _ in range(options.repeat):
        try:
            for name, variables in variants(options.device):
                row = measured(options.device, options.processes, variables)
                document["variants"].setdefault(name, []).append(row)
                print(name, row, flush=True)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"MPS cannot be started: {error}", flush=True)
    if options.output is not None:
        options.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
