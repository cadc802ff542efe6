"""One measurement at a time, and no lock outlives its holder."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cudal1_ci.processes import lock
from cudal1_ci.processes.device_wait import patient_until

HOLD = """
import sys, time, pathlib
from cudal1_ci.processes import lock
lock.FOLDER = pathlib.Path(sys.argv[1])
with getattr(lock, sys.argv[2])("gpu"):
    print("held", flush=True)
    sys.stdin.readline()
    print(time.monotonic(), flush=True)
"""


def holder(folder, how="exclusive"):
    """Another process that has the lock, until it is let go."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def let_go(process):
    """When it did, by the clock that all processes have."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def num_waiting(folder):
    """How many wait for a lock of this folder; the kernel lists them."""
    numbers = {str(path.stat().st_ino) for path in folder.iterdir()}
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return sum(line[1] == "->" and line[6].rpartition(":")[2] in numbers for line in lines)


def waiting(folder, how, then):
    """A thread that has come to wait for the lock, for one more than do so already."""
    number = num_waiting(folder)
    thread = threading.Thread(target=enter, args=(how, then))
    thread.start()
    while num_waiting(folder) == number:
        time.sleep(0.01)
    return thread


def enter(how, then):
    with getattr(lock, how)("gpu"):
        then(how)


def test_a_second_process_waits_for_the_first(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "FOLDER", tmp_path)
    entered_s = []
    with holder(tmp_path) as process:
        thread = waiting(tmp_path, "exclusive", lambda _: entered_s.append(time.monotonic()))
        assert entered_s == []
        released_s = let_go(process)
        thread.join()
    assert entered_s[0] > released_s


def test_other_devices_do_not_wait(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "FOLDER", tmp_path)
    with holder(tmp_path) as process:
        with lock.exclusive("another"):
            assert process.poll() is None
        process.kill()


def test_the_lock_of_a_killed_process_is_free(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "FOLDER", tmp_path)
    with holder(tmp_path) as process:
        process.kill()
        process.wait()
        assert process.returncode == -signal.SIGKILL
        with patient_until(lambda: True), lock.exclusive("gpu"):  # gives up where it would wait
            assert num_waiting(tmp_path) == 0


@pytest.mark.parametrize(("theirs", "ours"), [("exclusive", "shared"), ("shared", "exclusive")])
def test_who_does_not_share_lets_nobody_in_beside_it(tmp_path, monkeypatch, theirs, ours):
    monkeypatch.setattr(lock, "FOLDER", tmp_path)
    events = []
    with holder(tmp_path, theirs) as process:
        thread = waiting(tmp_path, ours, events.append)
        assert events == []
        let_go(process)
        thread.join()
    assert events == [ours]


def test_who_shares_is_let_in_beside_who_shares(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "FOLDER", tmp_path)
    with holder(tmp_path, "shared") as process:
        with lock.shared("gpu"):
            assert process.poll() is None
        let_go(process)


def test_a_measurement_is_not_put_off_by_those_who_share_and_come_later(tmp_path, monkeypatch):
    assert order_of_entry(tmp_path, monkeypatch, ("exclusive", "shared")) == ["exclusive", "shared"]


def test_all_who_wait_to_measure_do_so_before_anybody_examines_again(tmp_path, monkeypatch):
    came = ("exclusive", "shared", "exclusive", "shared", "exclusive")
    entered = order_of_entry(tmp_path, monkeypatch, came)
    assert entered == ["exclusive"] * 3 + ["shared"] * 2


def order_of_entry(folder, monkeypatch, came):
    """In which order they are let in who came in that order while somebody shared."""
    monkeypatch.setattr(lock, "FOLDER", folder)
    events = []
    with holder(folder, "shared") as process:
        threads = [waiting(folder, how, events.append) for how in came]
        assert events == []
        let_go(process)
        for thread in threads:
            thread.join()
    return events
