"""Processor cores for programs that are timed, and which ones nothing else may use meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

OTHER_CORES = 3
"""For each GPU beside those of a runner's threads: for the judge, the driver and autograd."""
TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


def cores_for(num_threads: int) -> list[int] | None:
    """As many as there are threads, the last ones, so that all runners share them and the judge
    has another; None where there are no more than that."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[-num_threads:] if num_threads < len(allowed) else None


def cores_of_turns(
    cores: Sequence[int], num_threads: int, gpu_index: int
) -> tuple[list[int], set[int]] | None:
    """Of the processor cores that may be used, those for the runners of a launch on a GPU, other
    ones for each of a machine's, and those that the judge leaves alone for it: these, and whatever
    is the same piece of silicon, as who spins there slows them down. None where there are too few.
    """
    silicon = groups(cores)
    end = len(silicon) - gpu_index * num_threads
    taken = silicon[max(0, end - num_threads) :]
    num_left = len(cores) - sum(map(len, taken))
    if end < num_threads or num_left < (gpu_index + 1) * OTHER_CORES:
        return None
    own = taken[:num_threads]
    return [group[-1] for group in own], {core for group in own for core in group}


def groups(cores: Iterable[int]) -> list[tuple[int, ...]]:
    """Cores that are threads of one piece of silicon together, in the order of their last one."""
    allowed = set(cores)
    found = {tuple(sorted(siblings(core) & allowed)) for core in allowed}
    return sorted(found, key=lambda group: group[-1])


def siblings(core: int) -> set[int]:
    """Itself and the others on the same silicon, as far as the kernel says."""
    try:
        text = Path(TOPOLOGY.format(core)).read_text(encoding="ascii")
        return {core, *expanded(text)}
    except (OSError, ValueError):
        return {core}


def expanded(text: str) -> set[int]:
    """Of the kernel's lists: `0-2,8` is 0, 1, 2 and 8. Raises ValueError."""
    ranges = [part.split("-") for part in text.strip().split(",")]
    return {one for ends in ranges for one in range(int(ends[0]), int(ends[-1]) + 1)}
