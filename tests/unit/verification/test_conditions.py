"""What of a GPU's state makes a launch worthless, and what does not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest

from cudal1_ci.processes import WORKER_NAME
from cudal1_ci.verification.conditions import (
    Conditions,
    Gpu,
    disturbance,
    gpu_of,
    has_another_clock,
    is_foreign,
    is_of_others,
)

NOBODY = 2**30
"""A process id beyond those that a kernel gives."""


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ({}, {}, None),
        ({"other_processes": 0}, {"other_processes": 0, "power_w": 700.0}, None),
        ({}, {"slowed_by": ("power brake",)}, "power brake"),
        ({"slowed_by": ("too hot (software)",)}, {}, "too hot"),
        ({"other_processes": 1}, {"other_processes": 0}, "1 other process on the GPU"),
        ({"other_processes": 0}, {"other_processes": 2}, "2 other processes"),
    ],
)
def test_a_disturbed_launch_says_by_what(before, after, words):
    found = disturbance(Conditions(**before), Conditions(**after))
    assert (found is None) if words is None else (words in found)


@pytest.mark.parametrize(
    ("clock", "others", "expected"),
    [
        (1980.0, [], False),
        (1000.0, [1980.0], False),  # of two, nobody knows which one is the usual
        (1980.0, [1980.0, 1965.0], False),
        (1400.0, [1980.0, 1965.0, 1980.0], True),
        (None, [1980.0, 1980.0], False),
    ],
)
def test_a_launch_at_another_clock_is_made_again(clock, others, expected):
    assert has_another_clock(clock, others) is expected


def test_children_are_ours_and_what_is_gone_is_nobodys():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert not is_foreign(child.pid, os.getpid())
        assert not is_foreign(os.getpid(), os.getpid())
        assert not is_foreign(child.pid, NOBODY), "what the host started, such as a model"
        assert is_foreign(os.getppid(), child.pid)
        child.communicate(b"\n")
    assert not is_foreign(child.pid, os.getpid())


@pytest.mark.parametrize(("name", "expected"), [(WORKER_NAME, False), ("another", True)])
def test_what_a_worker_of_another_session_started_is_not_foreign(name, expected, monkeypatch):
    command = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    with subprocess.Popen(
        [sys.executable, "-c", command, name], stdin=subprocess.PIPE, start_new_session=True
    ) as worker:
        (child,) = children_of(worker.pid)
        monkeypatch.setattr(os, "getpid", lambda: NOBODY)  # this is another host
        for pid in (worker.pid, child):
            assert is_foreign(pid, ancestor=NOBODY) is expected
        worker.communicate(b"\n")


def test_others_are_all_that_this_process_has_not_started(monkeypatch):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert not is_of_others(child.pid)
        assert not is_of_others(os.getpid())
        assert is_of_others(os.getppid())
        pids = [child.pid, os.getpid(), os.getppid(), NOBODY]
        listed = [SimpleNamespace(pid=pid) for pid in pids]
        monkeypatch.setattr(
            pynvml, "nvmlDeviceGetComputeRunningProcesses", {"a GPU": listed}.__getitem__
        )
        gpu = Gpu.__new__(Gpu)
        gpu.handle = "a GPU"
        assert gpu.num_others() == 1
        child.communicate(b"\n")
    assert not is_of_others(child.pid), "it is gone"


def test_a_gpu_that_does_not_list_processes_has_no_others(monkeypatch):
    def refuses(handle):
        raise pynvml.NVMLError_NotSupported

    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", refuses)
    gpu = Gpu.__new__(Gpu)
    gpu.handle = "a GPU"
    assert gpu.num_others() == 0


def children_of(pid, patience_s=10.0):
    """The children of a process, once there are any."""
    deadline_s = time.monotonic() + patience_s
    while time.monotonic() < deadline_s:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if found:
            return [int(child) for child in found]
        time.sleep(0.01)
    raise AssertionError(f"{pid} started nothing")


def test_where_nvml_cannot_be_asked_there_is_no_gpu_to_read():
    assert gpu_of(None) is None
    assert gpu_of("00000000-0000-0000-0000-000000000000") is None
