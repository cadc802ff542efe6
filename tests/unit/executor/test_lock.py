"""One measurement at a time, and no lock outlives its holder."""

from __future__ import annotations

import subprocess
import sys
import time

from cudal1_ci.executor import lock

HOLD = """
import sys, time, pathlib
from cudal1_ci.executor import lock
lock.FOLDER = pathlib.Path(sys.argv[1])
with lock.exclusive("gpu"):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def holder(folder, seconds):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), str(seconds)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_process_waits_for_the_first(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "FOLDER", tmp_path)
    with holder(tmp_path, 0.5):
        started_s = time.monotonic()
        with lock.exclusive("gpu"):
            assert time.monotonic() - started_s > 0.2


def test_other_devices_do_not_wait(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "FOLDER", tmp_path)
    with holder(tmp_path, 30) as process:
        with lock.exclusive("another"):
            assert process.poll() is None
        process.kill()


def test_the_lock_of_a_killed_process_is_free(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "FOLDER", tmp_path)
    with holder(tmp_path, 30) as process:
        process.kill()
        process.wait()
        with lock.exclusive("gpu"):
            pass
