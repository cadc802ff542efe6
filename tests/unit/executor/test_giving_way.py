"""Who measures does not wait for a program that compiles: that is stopped, and goes on."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from cudal1_ci.executor import Local, lock, pausing
from cudal1_ci.executor.conversation import Conversation
from cudal1_ci.worker.channel import Channel, ChannelTimeout, Left

pytestmark = pytest.mark.alone

COUNT = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
number = 0
while True:
    number += 1
    open(sys.argv[1] + str(os.getpid()), "w").write(str(number))
    time.sleep(0.01)
"""
"""A process and its child, which has a session of its own."""

HOST = """
import os, sys, time
from cudal1_ci.executor import Local, pausing
with Local().start("judge", num_threads=1, device="cpu") as worker:
    worker.ask({"op": "describe"}, 60)
    print(*pausing.stop(worker.pid), flush=True)
    time.sleep(60)
"""


@pytest.fixture
def counting(tmp_path):
    """Its process, and what its two processes have counted to."""
    process = subprocess.Popen([sys.executable, "-c", COUNT, f"{tmp_path}/count-"])

    def counts():
        return sorted(p.read_text() for p in tmp_path.glob("count-*"))

    until(lambda: len(counts()) == 2)
    yield process, counts
    for pid in pausing.family(process.pid):
        os.kill(pid, signal.SIGKILL)
    process.wait()


def until(holds, seconds=10.0):
    end_s = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_all_of_a_family_is_stopped_and_goes_on(counting):
    process, counts = counting
    stopped = pausing.stop(process.pid)
    assert stopped == pausing.family(process.pid)
    assert len(stopped) == 2
    before = counts()
    time.sleep(0.1)
    assert counts() == before
    pausing.go_on(stopped)
    until(lambda: not set(counts()) & set(before))


def test_who_was_stopped_by_another_stays_so(counting):
    process, _ = counting
    child = pausing.family(process.pid)[1]
    os.kill(child, signal.SIGSTOP)
    pausing.wait_for([child])
    stopped = pausing.stop(process.pid)
    assert stopped == [process.pid]
    pausing.go_on(stopped)
    until(lambda: pausing.state_of(process.pid) in "RS")
    assert pausing.state_of(child) == "T"


def test_a_process_that_is_gone_is_not_stopped():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert pausing.stop(process.pid) == []


def test_a_measurement_stops_what_gives_way(tmp_path, monkeypatch, counting):
    monkeypatch.setattr(lock, "FOLDER", tmp_path)
    process, counts = counting
    with lock.giving_way("gpu", process.pid) as paused_s:
        assert paused_s() == 0.0
        started_s = time.monotonic()
        with lock.exclusive("gpu"):
            assert time.monotonic() - started_s < 2.0
            assert all(pausing.state_of(pid) == "T" for pid in pausing.family(process.pid))
            before = counts()
            time.sleep(0.5)
            assert counts() == before
            assert paused_s() > 0.4, "the pause that there is counts too"
        until(lambda: not set(counts()) & set(before))
        until(lambda: paused_s() > 0.5)
        assert paused_s() < 2.0
    with lock.exclusive("gpu"):
        assert pausing.state_of(process.pid) in "RS"


def test_nobody_is_stopped_for_those_who_share(tmp_path, monkeypatch, counting):
    monkeypatch.setattr(lock, "FOLDER", tmp_path)
    process, _ = counting
    with lock.giving_way("gpu", process.pid) as paused_s, lock.giving_way("gpu", process.pid):
        with lock.shared("gpu"):
            time.sleep(2 * lock.GRACE_S)
        assert paused_s() == 0.0


def test_what_may_not_be_stopped_is_waited_for(tmp_path, monkeypatch, counting):
    monkeypatch.setattr(lock, "FOLDER", tmp_path)
    process, _ = counting

    def refuse(pid, how):
        raise PermissionError

    monkeypatch.setattr(pausing.os, "kill", refuse)
    has_timed = threading.Event()

    def measure():
        with lock.exclusive("gpu"):
            has_timed.set()

    thread = threading.Thread(target=measure)
    with lock.giving_way("gpu", process.pid) as paused_s:
        thread.start()
        assert not has_timed.wait(3 * lock.GRACE_S)
        assert paused_s() == 0.0
    assert has_timed.wait(5)
    thread.join()
    monkeypatch.undo()


def test_the_time_in_which_a_process_was_stopped_does_not_count():
    left = Left(1.0)
    assert left.passed(0.2)
    assert left.passed(600.0)
    assert left.seconds == pytest.approx(0.55)
    assert left.slice_s() == pytest.approx(0.25)
    assert left.passed(0.25)
    assert left.passed(0.25)
    assert left.slice_s() == pytest.approx(0.05)
    assert not left.passed(0.25)


def test_a_wait_of_several_slices_ends_in_time():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        started_s = time.monotonic()
        with pytest.raises(ChannelTimeout):
            Channel(ours).receive(0.6)
        assert 0.55 < time.monotonic() - started_s < 2.0


def test_the_host_waits_longer_for_a_worker_that_was_stopped():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        conversation = Conversation(ours, "judge", lambda: "it ended")
        threading.Timer(0.6, lambda: Channel(theirs).send({"late": True})).start()
        reply = conversation.ask({"op": "x"}, 0.2, lambda: 30.0)
        assert reply == {"late": True}


def test_a_stopped_worker_ends_when_its_host_is_killed():
    """Its channel is closed, and nobody else would wake it."""
    host = subprocess.Popen([sys.executable, "-c", HOST], stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None
    pids = [int(pid) for pid in host.stdout.readline().split()]
    assert len(pids) >= 2
    assert {pausing.state_of(pid) for pid in pids} == {"T"}
    host.kill()
    host.wait()
    host.stdout.close()
    until(lambda: all(pausing.state_of(pid) in "XZ" for pid in pids), 30.0)


def test_a_worker_answers_after_it_was_stopped():
    with Local().start("judge", num_threads=1, device="cpu") as worker:
        found = worker.ask({"op": "describe"}, 60)
        pausing.go_on(pausing.stop(worker.pid))
        assert worker.ask({"op": "describe"}, 60) == found


AWAKE = """
import time
from cudal1_ci.worker.awake import Awake
with Awake() as clock:
    print("begun", flush=True)
    input()
    print(clock.seconds())
"""


def test_a_clock_stands_still_while_its_process_is_stopped():
    process = subprocess.Popen(
        [sys.executable, "-c", AWAKE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    time.sleep(0.5)
    stopped = pausing.stop(process.pid)
    time.sleep(2.0)
    pausing.go_on(stopped)
    said, _ = process.communicate("\n", timeout=10)
    assert 0.3 < float(said) < 1.5
