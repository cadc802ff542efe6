"""What Python processes of this machine wait for in the kernel, seen from outside.

    sudo python benchmarks/kernel_waits.py --seconds 20

Twenty times a second each thread that runs or waits without being interruptible is asked for its
stack in the kernel (/proc/PID/task/TID/stack, which is root's to read). Such waits are counted by
the functions they are in, and by whether one of these takes the lock of NVIDIA's resource manager,
which is one for all GPUs of a host.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from discovery_speed import provenance

OUTPUT = Path(__file__).parent / "results" / "kernel-waits.json"
PROC = Path("/proc")
LOCK = "rmapiLockAcquire"
PAUSE_S = 0.05
DEPTH = 7
"""Functions of a stack that tell it from others, innermost first."""


def looks(proc: Path = PROC) -> Iterator[tuple[str, tuple[str, ...]]]:
    """State (`R`, `D`) and stack of each thread that has one of these, now."""
    for process in proc.iterdir():
        if not process.name.isdigit():
            continue
        try:
            if not (process / "comm").read_text().startswith("python"):
                continue
            for thread in (process / "task").iterdir():
                state = (thread / "stat").read_text().rpartition(")")[2].split()[0]
                if state in "RD":
                    yield state, functions((thread / "stack").read_text())
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            continue


def functions(stack: str) -> tuple[str, ...]:
    """`[<0>] rm_ioctl+0x4c/0x60 [nvidia]` is `rm_ioctl`."""
    lines = stack.splitlines()[:DEPTH]
    return tuple(line.partition("] ")[2].partition("+")[0] for line in lines)


def counted(found: list[tuple[str, tuple[str, ...]]], num_rounds: int) -> dict[str, Any]:
    waits = Counter(stack for state, stack in found if state == "D")
    return {
        "num_rounds": num_rounds,
        "num_running": sum(state == "R" for state, _ in found),
        "num_waiting": waits.total(),
        "num_waiting_for_the_lock": sum(n for stack, n in waits.items() if LOCK in stack),
        "waits": {" < ".join(stack): number for stack, number in waits.most_common()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    found, num_rounds, until_s = [], 0, time.monotonic() + options.seconds
    while time.monotonic() < until_s:
        found += looks()
        num_rounds += 1
        time.sleep(PAUSE_S)
    document = {**provenance(), **counted(found, num_rounds)}
    options.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({key: value for key, value in document.items() if key != "waits"}))


if __name__ == "__main__":
    main()
