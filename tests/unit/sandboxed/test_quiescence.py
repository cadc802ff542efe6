"""A process is still when each of its threads is stopped, and its children's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from cudal1_ci.sandboxed.forkserver.handles import Process
from cudal1_ci.sandboxed.timing import quiescence
from cudal1_ci.sandboxed.timing.quiescence import is_still, threads_of, wait_until_still

CHILD = """
import os, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
if os.fork() == 0:
    print("ready", flush=True)
    while True:
        {step}
time.sleep(60)
"""
WRITE = "os.pwrite(os.open('{file}', os.O_RDWR | os.O_CREAT), bytes(2**28), 0)"


@pytest.fixture
def started():
    """A process that leads a group, and has a thread and a child."""
    found = []

    def start(step):
        one = subprocess.Popen(
            [sys.executable, "-c", CHILD.format(step=step)],
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        found.append(one)
        assert one.stdout.readline() == b"ready\n"
        return Process(0, os.pidfd_open(one.pid))

    yield start
    for one in found:
        os.killpg(one.pid, signal.SIGKILL)
        one.wait()
        one.stdout.close()


def test_threads_and_children_are_found(started):
    process = started("time.sleep(60)")
    assert len(list(threads_of(process))) == 3
    assert not any(map(is_still, threads_of(process)))


def test_a_stopped_tree_is_still_at_once(started):
    process = started("pass")
    process.signal(signal.SIGSTOP)
    wait_until_still(process)
    assert all(map(is_still, threads_of(process)))


def test_a_child_in_a_long_system_call_is_waited_for(started, tmp_path):
    process = started(WRITE.format(file=tmp_path / "file"))
    longest_ms = 0.0
    for _ in range(8):
        time.sleep(0.05)
        process.signal(signal.SIGSTOP)
        found = wait_until_still(process)
        assert all(map(is_still, threads_of(process)))
        longest_ms = max(longest_ms, 0.0 if found is None else found.ran_ms)
        process.signal(signal.SIGCONT)
    assert longest_ms > quiescence.BUSY_MS


def test_orphans_are_found_by_their_group_where_there_is_no_namespace(started):
    process = started("time.sleep(60)")
    assert len(quiescence.of_group(process.group)) == 2
