"""Who waits for a device gives up when the run is over, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest

from cudal1_ci.processes import device_wait, lock
from cudal1_ci.processes.conversation import Conversation
from cudal1_ci.processes.device_wait import GaveUp, patient_until
from cudal1_ci.sandboxed.wire.channel import Channel
from cudal1_ci.sandboxed.wire.verifier import CountDemand, LeftOut, Waits

LONG_S = 10.0
WAITS = Waits(is_waiting=True)


@contextlib.contextmanager
def held(how):
    """The device, by somebody who says when it is free."""
    is_there, is_free = threading.Event(), threading.Event()

    def hold():
        with getattr(lock, how)("gpu"):
            is_there.set()
            is_free.wait(LONG_S)

    thread = threading.Thread(target=hold)
    thread.start()
    assert is_there.wait(LONG_S)
    try:
        yield is_free
    finally:
        is_free.set()
        thread.join()


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "FOLDER", tmp_path)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("exclusive", "exclusive"), ("exclusive", "shared"), ("shared", "exclusive")],
)
def test_a_wait_for_a_device_is_given_up_when_the_run_is_over(theirs, ours):
    began_s = time.monotonic()
    with held(theirs), patient_until(lambda: True):
        with pytest.raises(GaveUp), getattr(lock, ours)("gpu"):
            pass
        assert time.monotonic() - began_s < LONG_S / 2
    with lock.exclusive("gpu"):
        pass


def test_who_gave_up_stands_in_nobodys_way():
    with held("shared") as is_free, patient_until(lambda: True):
        with pytest.raises(GaveUp), lock.exclusive("gpu"):
            pass
        with lock.shared("gpu"):  # who waited to time would keep it out
            assert not is_free.is_set()


def test_a_free_device_is_taken_though_the_run_is_over():
    taken = []
    with patient_until(lambda: True):
        for how in ("exclusive", "shared"):
            with getattr(lock, how)("gpu"):
                taken.append(how)
    assert taken == ["exclusive", "shared"]


def test_a_device_that_is_free_in_time_is_held_alone():
    with held("exclusive") as is_free, patient_until(lambda: False):
        threading.Timer(0.3, is_free.set).start()
        with lock.exclusive("gpu"):
            assert is_free.is_set()
            with pytest.raises(GaveUp), patient_until(lambda: True), lock.shared("gpu"):
                pass


@pytest.mark.parametrize(("noticed_s", "num_said"), [(0.0, 1), (LONG_S, 0)])
def test_a_long_wait_is_reported_once(noticed_s, num_said):
    said = []
    with held("exclusive") as is_free, patient_until(lambda: False, said.append, noticed_s):
        threading.Timer(1.0, is_free.set).start()
        with lock.exclusive("gpu"):
            assert said == [device_wait.WAITING] * num_said


def test_many_short_waits_are_reported_as_a_long_one():
    said = []
    with patient_until(lambda: False, said.append, noticed_s=0.9):
        for _ in range(2):
            assert not said
            with held("exclusive") as is_free:
                threading.Timer(0.7, is_free.set).start()
                with lock.exclusive("gpu"):
                    pass
    assert said == [device_wait.WAITING]


def judged(*replies, pause_s=0.0):
    """What is asked of a judge that says so much, and then nothing more."""
    ours, theirs = socket.socketpair()

    def answer():
        for reply in replies:
            Channel(theirs).send(reply)
            time.sleep(pause_s)

    thread = threading.Thread(target=answer)
    with ours, theirs:
        thread.start()
        try:
            conversation = Conversation(ours, "verifier", lambda: "the verifier ended")
            return conversation.ask(CountDemand(workload="w", turn="gpu"), LONG_S)
        finally:
            thread.join()


def test_a_judge_that_waits_for_the_device_is_waited_for_no_longer_than_the_run():
    began_s = time.monotonic()
    with patient_until(lambda: True), pytest.raises(GaveUp):
        judged(WAITS)
    assert time.monotonic() - began_s < LONG_S / 2


def test_a_judge_that_has_the_device_is_heard_to_its_end():
    replies = (WAITS, Waits(is_waiting=False), LeftOut())
    with patient_until(lambda: True):
        assert judged(*replies) == LeftOut()
    with patient_until(lambda: False):
        assert judged(*replies, pause_s=0.4) == LeftOut(), "and so is one that waited"
