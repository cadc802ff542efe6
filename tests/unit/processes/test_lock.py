"""One measurement at a time, and no lock outlives its holder."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from cudal1_ci.processes import lock

pytestmark = pytest.mark.alone

HOLD = """
import sys, time, pathlib
from cudal1_ci.processes import lock
lock.FOLDER = pathlib.Path(sys.argv[1])
with getattr(lock, sys.argv[3])("gpu"):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def holder(folder, seconds, how="exclusive"):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), str(seconds), how],
        stdout=subprocess.PIPE,
        text=True,
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


@pytest.mark.parametrize(
    ("theirs", "ours", "waits"),
    [
        ("exclusive", "shared", True),
        ("shared", "exclusive", True),
        ("shared", "shared", False),
    ],
)
def test_only_who_shares_is_let_in_beside_who_shares(tmp_path, monkeypatch, theirs, ours, waits):
    monkeypatch.setattr(lock, "FOLDER", tmp_path)
    with holder(tmp_path, 1.0, theirs) as process:
        started_s = time.monotonic()
        with getattr(lock, ours)("gpu"):
            assert (time.monotonic() - started_s > 0.4) is waits
        process.kill()


def test_a_measurement_is_not_put_off_by_those_who_share_and_come_later(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "FOLDER", tmp_path)
    events = []

    def enter(how):
        with getattr(lock, how)("gpu"):
            events.append(how)

    with holder(tmp_path, 1.0, "shared"):
        threads = [threading.Thread(target=enter, args=(how,)) for how in ("exclusive", "shared")]
        for thread in threads:
            thread.start()
            time.sleep(0.2)
        assert events == []
        for thread in threads:
            thread.join()
    assert events == ["exclusive", "shared"]


def test_all_who_wait_to_measure_do_so_before_anybody_examines_again(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "FOLDER", tmp_path)
    events = []

    def enter(how):
        with getattr(lock, how)("gpu"):
            events.append(how)
            time.sleep(0.1)

    with holder(tmp_path, 1.0, "shared"):
        order = ("exclusive", "shared", "exclusive", "shared", "exclusive")
        threads = [threading.Thread(target=enter, args=(how,)) for how in order]
        for thread in threads:
            thread.start()
            time.sleep(0.1)
        assert events == []
        for thread in threads:
            thread.join()
    assert events == ["exclusive"] * 3 + ["shared"] * 2
