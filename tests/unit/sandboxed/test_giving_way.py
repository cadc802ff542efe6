"""Who times does not wait for a program that compiles: that is stopped, and goes on."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from cudal1_ci.errors import WorkerError
from cudal1_ci.processes import lock
from cudal1_ci.processes.conversation import Conversation
from cudal1_ci.records import Candidate, TextProgram
from cudal1_ci.sandboxed.timing import giving_way
from cudal1_ci.sandboxed.timing.giving_way import GRACE_S, LOOK_S, Turn
from cudal1_ci.sandboxed.wire.channel import Channel, ChannelClosed
from cudal1_ci.sandboxed.wire.verifier import REQUEST, CountDemand, LeftOut, Waits
from cudal1_ci.verification import Session, TrialConfig
from cudal1_ci.verification.verify import problem_of

REFERENCE = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x + x


def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return []
"""
BUSY_S = 1.0
CANDIDATE = f"""import time
import torch

ends_s = time.process_time() + {BUSY_S}
while time.process_time() < ends_s:
    pass


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return 2 * x
"""


class Said:
    """What a turn has asked for, and said to its host."""

    def __init__(self):
        self.heard = []
        self.is_gone = False

    def turn(self, name="gpu"):
        return Turn(name, stop=self.stop, go_on=self.go_on, host=self)

    def stop(self):
        self.heard.append("stop")
        return "runners"

    def go_on(self, stopped):
        self.heard.append(f"{stopped} go on")

    def send(self, message):
        self.heard.append(message.is_waiting)

    def has_more(self, timeout_s):
        time.sleep(timeout_s)
        return self.is_gone


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "FOLDER", tmp_path)
    monkeypatch.setattr(giving_way, "FOLDER", tmp_path)
    return tmp_path


def timing(seconds, has_begun):
    """In another thread, hold the device alone."""

    def hold():
        with lock.exclusive("gpu"):
            has_begun.set()
            time.sleep(seconds)

    thread = threading.Thread(target=hold)
    thread.start()
    return thread


def looking(turn, until):
    while not until():
        turn.look()
        time.sleep(LOOK_S)


def test_a_turn_gives_way_and_its_clock_stands_still(folder):
    said, has_begun = Said(), threading.Event()
    with said.turn() as turn:
        awake_s, started_s = turn.awake_s(), time.monotonic()
        thread = timing(1.0, has_begun)
        looking(turn, lambda: not thread.is_alive())
        took_s = time.monotonic() - started_s
        assert said.heard == [True, False, "stop", True, False, "runners go on"]
        assert has_begun.is_set()
        assert took_s > 1.0 + GRACE_S / 2
        assert turn.awake_s() - awake_s < took_s - 0.9
        before = list(said.heard)
        looking(turn, lambda: time.monotonic() > started_s + took_s + 2 * GRACE_S)
        assert said.heard == before, "nobody waits any more"


def test_after_a_long_wait_the_device_is_kept_for_a_part_of_it(folder, monkeypatch):
    monkeypatch.setattr(giving_way, "LONG_S", 0.5)
    said, has_begun, again = Said(), threading.Event(), threading.Event()
    first = timing(2.0, has_begun)
    has_begun.wait()
    with said.turn() as turn:
        first.join()
        taken_s = time.monotonic()
        second = timing(0.1, again)
        looking(turn, lambda: again.is_set() or "stop" in said.heard)
        kept_s = time.monotonic() - taken_s
        looking(turn, lambda: not second.is_alive())
    assert said.heard[:3] == [True, False, "stop"]
    assert 0.25 * 1.5 < kept_s < 0.25 * 2.0 + 1.0


def test_nobody_gives_way_to_those_who_share(folder):
    said, other = Said(), Said()
    with said.turn() as turn, other.turn(), lock.shared("gpu"):
        end_s = time.monotonic() + 3 * GRACE_S
        looking(turn, lambda: time.monotonic() > end_s)
    assert said.heard == other.heard == [True, False]


def test_all_who_hold_it_give_way(folder):
    first, second, has_begun = Said(), Said(), threading.Event()
    with first.turn() as one, second.turn() as other:
        thread = timing(0.5, has_begun)
        beside = threading.Thread(target=looking, args=(other, lambda: not thread.is_alive()))
        beside.start()
        looking(one, lambda: not thread.is_alive())
        beside.join()
    assert "stop" in first.heard
    assert "stop" in second.heard


def test_nobody_waits_for_a_host_that_is_gone(folder):
    said = Said()
    with lock.exclusive("gpu"):
        threading.Timer(0.3, lambda: setattr(said, "is_gone", True)).start()
        with pytest.raises(ChannelClosed, match="hung up"), said.turn():
            raise AssertionError("it has the device")
    assert said.heard == [True]


def test_a_host_does_not_count_what_its_worker_waits():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        worker = Channel(theirs)

        def answer():
            worker.receive(REQUEST, 5)
            worker.send(Waits(is_waiting=True))
            time.sleep(2.2)
            worker.send(Waits(is_waiting=False))
            worker.send(LeftOut())

        thread = threading.Thread(target=answer)
        thread.start()
        host = Conversation(ours, "verifier", lambda: "it ended")
        assert host.ask(CountDemand(workload="w", turn="gpu"), 2.0) == LeftOut()
        thread.join()


def test_only_who_was_given_a_turn_may_wait():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        Channel(theirs).send(Waits(is_waiting=True))
        host = Conversation(ours, "verifier", lambda: "it ended")
        with pytest.raises(WorkerError, match=r"the verifier did not answer `demand`: .*op"):
            host.ask(CountDemand(workload="w"), 0.5)


def test_both_halves_mean_the_same():
    assert giving_way.FOLDER == lock.FOLDER


@pytest.mark.times
@pytest.mark.starts_verifier
def test_a_program_that_is_stopped_is_not_late():
    problem = problem_of(REFERENCE, "double")
    candidate = Candidate(
        problem_id=problem.id,
        program=TextProgram(source=CANDIDATE, entry="ModelNew"),
        proposer="test",
    )
    config = TrialConfig(load_s=BUSY_S + 2, call_s=20.0)
    with Session(config, device="cpu") as session:
        assert session.check(problem).status == "passed"
        verdicts = []
        examining = threading.Thread(
            target=lambda: verdicts.append(session.examine(problem, candidate))
        )
        started_s = time.monotonic()
        examining.start()
        time.sleep(0.5)
        with lock.exclusive(session._lock()):
            assert time.monotonic() - started_s < 0.5 + 10 * GRACE_S < BUSY_S + 2.5
            assert examining.is_alive()
            time.sleep(config.load_s)
        examining.join()
        assert time.monotonic() - started_s > config.load_s + BUSY_S
    assert [one.status for one in verdicts] == ["passed"], verdicts
