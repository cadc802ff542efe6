"""What it takes to start processes on a GPU, several side by side, and to look at kernels in one.

Each is forked from a process that has imported torch, makes a context and computes a little; then
all are ended. On a machine of several GPUs the same number is started on all of them in turn too,
also where a process may open the files of its own one alone, as runners of the judge may; and
with settings of CUDA that might make a context smaller. The profiler is started in a process of
its own, once as torch.profiler does it and once as torch.autograd.profiler does.

    python benchmarks/process_start.py --output benchmarks/results/process-start-h200.json
"""

from __future__ import annotations

import argparse
import json
import os
import select
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from discovery_speed import provenance
from torch.autograd.profiler import profile as plain_profile
from torch.profiler import ProfilerActivity, profile

from cudal1_ci.processes.gpus import gpu_uuid
from cudal1_ci.sandboxed.confinement import gpus as device_files
from cudal1_ci.sandboxed.confinement import landlock, namespaces

OUTPUT = Path(__file__).parent / "results" / "process-start.json"
NUMBERS = (1, 1, 2, 3, 6, 9, 15)
"""The first one is the first process of all that this GPU sees."""
LIMIT_S = 60.0
SETTINGS = {
    "as it is": {},
    "one connection": {"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
    "no cache of kernels": {"CUDA_CACHE_DISABLE": "1"},
}
"""Environments of a process before it asks the driver."""
MANY = 15
"""Processes of a setting, and of several GPUs together."""


def forked(
    count: int,
    work: Callable[[], dict[str, float]],
    environment: Mapping[str, str] = MappingProxyType({}),
    gpus: Sequence[str] = (),
    hidden: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> dict[str, Any]:
    """Seconds until all have answered, and until all are gone, with what they say. Of each GPU
    that is named, the files of others are `hidden` from its processes."""
    started_s = time.monotonic()
    children = []
    for number in range(count):
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.environ.update(environment)
            if gpus:
                os.environ["CUDA_VISIBLE_DEVICES"] = gpus[number % len(gpus)]
                keep_from(hidden.get(gpus[number % len(gpus)], ()))
            os.write(theirs, json.dumps(work()).encode())
            time.sleep(LIMIT_S)
            os._exit(0)
        os.close(theirs)
        children.append((pid, ours))
    said = []
    for _, ours in children:
        if not select.select([ours], [], [], LIMIT_S)[0]:
            raise SystemExit(f"a process did not answer in {LIMIT_S:.0f} s")
        said.append(json.loads(os.read(ours, 4096)))
        os.close(ours)
    answered_s = time.monotonic()
    for pid, _ in children:
        os.kill(pid, 9)
    for pid, _ in children:
        os.waitpid(pid, 0)
    ended_s = time.monotonic()
    return {
        "num_processes": count,
        "start_s": round(answered_s - started_s, 3),
        "end_s": round(ended_s - answered_s, 3),
        "first_said": said[0],
    }


def files_of_others(index: str) -> tuple[str, ...]:
    uuid = gpu_uuid(f"cuda:{index}", {}) or ""
    found = device_files.others_than(uuid.removeprefix("GPU-"))
    if not found:
        raise SystemExit(f"the driver does not tell GPU {index} from others")
    return found


def keep_from(files: Sequence[str]) -> None:
    """This process may not open them; it has one GPU then, which is the first."""
    if files:
        namespaces.forbid_new_privileges()
        landlock.restrict(Path("/tmp"), [], None, private_shm=True, hidden=files)
        os.environ.update(device_files.FIRST)


def steps() -> dict[str, float]:
    """Seconds of each step of a process's first work on the GPU."""
    laps = {}

    def lap(name: str, work: Callable[[], object]) -> None:
        started_s = time.monotonic()
        work()
        torch.cuda.synchronize()
        laps[name] = round(time.monotonic() - started_s, 3)

    lap("context", lambda: torch.zeros(1, device="cuda"))
    x = torch.ones(512, 512, device="cuda")
    lap("elementwise", lambda: (x + 1).relu())
    lap("matmul", lambda: x @ x)
    lap("softmax", lambda: torch.softmax(x, 1).sum())
    return laps


def profiled(start: Callable[[], Any]) -> Callable[[], dict[str, float]]:
    """Seconds of the first look at a kernel."""

    def work() -> dict[str, float]:
        x = torch.ones(512, 512, device="cuda")
        (x @ x).relu()
        torch.cuda.synchronize()
        started_s = time.monotonic()
        with start() as found:
            (x @ x).relu()
            torch.cuda.synchronize()
        events = found.events() if hasattr(found, "events") else found.function_events
        return {"profile": round(time.monotonic() - started_s, 3), "num_events": len(events)}

    return work


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--gpus", default="", help="of several that take turns: 0,1,2,3")
    options = parser.parse_args()
    if not torch.cuda._is_compiled():
        raise SystemExit("this build of torch has no CUDA")
    gpus = options.gpus.split(",") if options.gpus else []
    hidden = {one: files_of_others(one) for one in gpus}
    rows = [forked(count, steps) for count in NUMBERS]
    rows += [
        {"setting": name, **forked(MANY, steps, environment)}
        for name, environment in SETTINGS.items()
    ]
    if gpus:
        shares = [gpus[:number] for number in range(1, len(gpus) + 1)]
        rows += [{"gpus": ",".join(some), **forked(MANY, steps, gpus=some)} for some in shares]
        for some, count in [(gpus[:1], 1), *((some, MANY) for some in shares)]:
            told = forked(count, steps, gpus=some, hidden=hidden)
            rows.append({"gpus": ",".join(some), "others": "hidden", **told})
    profilers = {
        "torch.profiler": forked(1, profiled(lambda: profile(activities=[ProfilerActivity.CUDA]))),
        "torch.autograd.profiler": forked(
            1,
            profiled(lambda: plain_profile(use_cpu=False, use_device="cuda", use_kineto=True)),
        ),
    }
    found = {**provenance(), "device": torch.cuda.get_device_name(), "rows": rows}
    found["profilers"] = profilers
    options.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for row in rows:
        where = row.get("setting") or f"GPUs {row.get('gpus', '0')}"
        times = f"{row['start_s']:.2f} s, end {row['end_s']:.2f}"
        print(f"{row['num_processes']:3} processes, {where}: {times}")
    for name, row in profilers.items():
        print(f"{name}: {row['first_said']}")


if __name__ == "__main__":
    main()
