"""Prove that no process of a stopped runner runs before another runner is timed.

A signal does not stop a process in the middle of a system call: a child in one long write keeps a
core busy until the write is over. So every thread of the whole tree of processes is seen stopped,
or seen to use no processor time, before a clock starts. (The freezer of a cgroup waits for the same
moment.) Children that lost their parent belong to the first process of the runner's namespace.
Where the kernel does not list children, all processes of the runner's group are looked for.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..forkserver.handles import STOPPED, Process, RunnerHandle
from ..verifier.cases import Rejected

LOOK_S = 0.0005
MOST_S = 2.0
"""A thread that waits for a disk for longer, without a processor, is as good as stopped."""
BUSY_MS = 10.0
"""Processor time of a thread after its stop that no honest program needs: the longest system call
of a reply is a message."""
MOST_BUSY = 3
"""Stops of a runner after which something still ran. One may be an accident of the system."""

PROC = Path("/proc")
LISTS_CHILDREN = (PROC / "thread-self" / "children").exists()


@dataclass
class Thread:
    """A thread that still ran when it was first seen after the stop."""

    name: str
    first_ms: float
    last_ms: float

    @property
    def ran_ms(self) -> float:
        return self.last_ms - self.first_ms


def quiet_others(runner: RunnerHandle) -> None:
    """Wait until nothing of the other stopped runners runs.

    Raises:
        Rejected: A candidate's processes have run after their stop again and again.
    """
    for other in tuple(runner.template.alive):
        if other is not runner and other.is_paused and not other.is_still:
            quiet(other)


def quiet(runner: RunnerHandle) -> None:
    """Wait until nothing of a stopped runner runs. Raises as `quiet_others` does."""
    if runner.process is None or runner.ended or runner.process.group <= 0:
        return
    busiest = wait_until_still(runner.process)
    runner.is_still = True
    if busiest is None or busiest.ran_ms <= BUSY_MS:
        return
    runner.num_restless += 1
    if runner.num_restless >= MOST_BUSY and not runner.is_trusted:
        message = (
            f"its process `{busiest.name}` ran for {busiest.ran_ms:.0f} ms after it was stopped, "
            f"{runner.num_restless} times: it takes the processor from the programs timed next"
        )
        raise Rejected("reward_hack", "timing.not_stopped", message)


def wait_until_still(process: Process) -> Thread | None:
    """Wait until every thread of the tree is stopped. Return the one that ran longest after."""
    seen: dict[int, Thread] = {}
    until_s = time.monotonic() + MOST_S
    while True:
        running = [one for one in threads_of(process) if not is_still(one)]
        progressed = [look(seen, one) for one in running]
        is_late = time.monotonic() > until_s
        if not running or (is_late and not any(progressed)):
            break
        if is_late and time.monotonic() > until_s + MOST_S:
            break
        time.sleep(LOOK_S if not is_late else MOST_S / 40)
    return max(seen.values(), key=lambda one: one.ran_ms, default=None)


def look(seen: dict[int, Thread], task: Path) -> bool:
    """Note the processor time of a running thread. Return whether it grew since the last look."""
    with contextlib.suppress(OSError, ValueError):
        now_ms = int((task / "schedstat").read_text().split()[0]) / 1e6
        number = int(task.name)
        if number not in seen:
            seen[number] = Thread((task / "comm").read_text().strip(), now_ms, now_ms)
            return True
        grew = now_ms > seen[number].last_ms
        seen[number].last_ms = now_ms
        return grew
    return False


def is_still(task: Path) -> bool:
    """Return whether a thread is stopped or has ended."""
    try:
        stat = (task / "stat").read_text(errors="replace")
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] in STOPPED


def threads_of(process: Process) -> Iterator[Path]:
    """Yield the threads of a runner's whole tree of processes."""
    waiting = [process.group]
    if process.keeper is not None and LISTS_CHILDREN:
        waiting += children(PROC / str(process.keeper) / "task" / str(process.keeper))
    else:  # orphans have a parent with other children
        waiting += of_group(process.group)
    done: set[int] = set()
    while waiting:
        number = waiting.pop()
        if number in done:
            continue
        done.add(number)
        with contextlib.suppress(OSError):
            for task in (PROC / str(number) / "task").iterdir():
                yield task
                waiting += children(task)


def children(task: Path) -> list[int]:
    """Return the processes that a thread started and that are still its own."""
    try:
        return [int(one) for one in (task / "children").read_text().split()]
    except OSError:
        return []


def of_group(group: int) -> list[int]:
    """Return all processes of a process group."""
    found = []
    for folder in PROC.iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError, ValueError, IndexError):
                words = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if int(words[2]) == group:
                    found.append(int(folder.name))
    return found
