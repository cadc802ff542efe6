"""Choose processor cores for timed programs, and cores that nothing else may use meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

OTHER_CORES = 3
"""For each GPU besides those of a runner's threads: for the verifier, the driver and autograd."""
TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


def cores_for(num_threads: int) -> list[int] | None:
    """Return the last cores, as many as there are threads. All runners share them, and the
    verifier has another one. Return None where there are no more cores than threads."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[-num_threads:] if num_threads < len(allowed) else None


def cores_of_turns(
    cores: Sequence[int], num_threads: int, gpu_index: int
) -> tuple[list[int], set[int]] | None:
    """Choose, among the usable cores, those for the runners of a repetition on a GPU.

    Each GPU of a machine gets other cores. Return them, and the cores that the verifier must not
    use meanwhile: the same cores and all on the same pieces of silicon, where a busy wait would
    slow the runners down. Return None where there are too few.
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
    """Return groups of cores that are threads of one piece of silicon, ordered by their last
    core."""
    allowed = set(cores)
    found = {tuple(sorted(siblings(core) & allowed)) for core in allowed}
    return sorted(found, key=lambda group: group[-1])


def siblings(core: int) -> set[int]:
    """Return a core and the others on the same silicon, as the kernel reports them."""
    try:
        text = Path(TOPOLOGY.format(core)).read_text(encoding="ascii")
        return {core, *expanded(text)}
    except (OSError, ValueError):
        return {core}


def expanded(text: str) -> set[int]:
    """Expand a list of the kernel: `0-2,8` is 0, 1, 2 and 8. Raises ValueError."""
    ranges = [part.split("-") for part in text.strip().split(",")]
    return {one for ends in ranges for one in range(int(ends[0]), int(ends[-1]) + 1)}
