"""Processes that are started for several launches at a time."""

from __future__ import annotations

import random
import signal
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from cudal1_ci.errors import WorkerError
from cudal1_ci.sandboxed.forkserver.client import Template
from cudal1_ci.sandboxed.timing.runner_groups import Crews, most_crews
from cudal1_ci.sandboxed.verifier.failures import RunnerFailure
from cudal1_ci.sandboxed.wire.tensors import Slot
from cudal1_ci.sandboxed.wire.verifier import (
    Dismiss,
    Dismissed,
    Repeated,
    StartAhead,
    StartedAhead,
    Times,
)
from cudal1_ci.verification import TrialConfig, device_hold, repetitions
from cudal1_ci.verification.device_hold import Seat
from tests.fakes import CPU
from tests.unit.sandboxed.messages import text

ONE = {"reference": text("r"), "candidate": text("c")}
OTHER = {"reference": text("r"), "candidate": text("d")}


class Runner:
    def __init__(self, program, is_trusted, is_new=False):
        self.program = program
        self.is_trusted = is_trusted
        self.is_new = is_new
        self.said = []

    def pause(self):
        self.said.append("pause")

    def kill(self):
        self.said.append("kill")


class FakeCase:
    """Counts what it started; the one of a number fails."""

    state_slots = ()
    trials = (("drawn 0", SimpleNamespace(tensors=[])),)
    remembers = False

    def __init__(self, failing: int | None = None):
        self.started: list[Runner] = []
        self.failing = failing

    @contextmanager
    def runner(self, template, program, limits, is_trusted, is_new=False):
        made = Runner(program, is_trusted, is_new)
        self.started.append(made)
        if len(self.started) == self.failing:
            raise RunnerFailure("raised", "no", is_trusted=is_trusted)
        try:
            yield made
        finally:
            made.said.append("end")

    def answer(self, runner, limits, sets):
        assert sets == [self.trials[0][1]]
        runner.said.append("call")


def take(crews, case, programs=ONE, number=3):
    return crews.take(case, programs, None, number, random.Random(0))


def test_those_of_several_launches_are_started_together_and_stopped_until_their_turn():
    crews, case = Crews(None), FakeCase()
    taken = [take(crews, case) for _ in range(3)]
    assert len(case.started) == 6
    assert all(one.is_new for one in case.started), "processes of launches are alike"
    assert {id(runner) for crew in taken for runner in crew.runners.values()} == {
        id(runner) for runner in case.started
    }
    for crew in taken:
        reference, candidate = crew.runners["reference"], crew.runners["candidate"]
        assert (reference.program, reference.is_trusted) == (text("r"), True)
        assert (candidate.program, candidate.is_trusted) == (text("c"), False)
        assert reference.said == candidate.said == ["call", "pause"]
        crew.end()
        assert reference.said == candidate.said == ["call", "pause", "kill", "end"]
    take(crews, case)
    assert len(case.started) == 12


@pytest.mark.parametrize("other", ["case", "program"])
def test_another_candidate_or_workload_gets_none_of_them(other):
    crews, case = Crews(None), FakeCase()
    first = take(crews, case)
    asked = FakeCase() if other == "case" else case
    crew = take(crews, asked, OTHER if other == "program" else ONE)
    waited = [one for one in case.started[:6] if one not in first.runners.values()]
    assert [one.said for one in waited] == [["call", "pause", "kill", "end"]] * 4
    assert set(crew.runners.values()) <= set(asked.started[-6:])
    crews.dismiss()
    assert [one.said[-1] for one in crew.runners.values()] == ["pause", "pause"]


def test_one_that_is_paused_while_others_time_stays_so():
    """Several are started by threads, of which one waits for the device."""

    class Handle:
        def __init__(self):
            self.is_paused, self.said = False, []

        def signal(self, number):
            self.said.append(number)

        def has_stopped(self):
            return True

    running, done = Handle(), Handle()
    template = SimpleNamespace(alive={running, done})
    stopped = Template.stop(template)
    assert set(stopped) == {running, done}
    done.is_paused = True
    Template.go_on(template, stopped)
    assert (running.said[-1], done.said[-1]) == (signal.SIGCONT, signal.SIGSTOP)


def test_when_one_cannot_be_started_none_is_left():
    crews, case = Crews(None), FakeCase(failing=4)
    with pytest.raises(RunnerFailure):
        take(crews, case)
    assert crews.waiting == []
    ended = [one.said[-1] for i, one in enumerate(case.started, 1) if i != 4]
    assert ended == ["end"] * 5


def test_one_that_is_started_alone_makes_its_first_call_in_its_launch():
    crews, case = Crews(None), FakeCase()
    crew = take(crews, case, number=1)
    assert [one.said for one in crew.runners.values()] == [["pause"]] * 2


@pytest.mark.parametrize(
    ("state_mib", "input_mib", "memory_mib", "expected"),
    [(512, 0, 64 * 1024, 5), (512, 0, 1, 1), (0, 128, 64 * 1024, 5), (0, 0, 24 * 1024, 4)],
)
def test_large_modules_and_inputs_are_started_for_few_launches(
    state_mib, input_mib, memory_mib, expected
):
    slot = Slot(dtype="float32", shape=(state_mib * 2**18,), stride=(1,))
    case = SimpleNamespace(
        state_slots=[slot] if state_mib else [],
        trials=[("drawn 0", SimpleNamespace(tensors=[SimpleNamespace(nbytes=input_mib * 2**20)]))],
    )
    assert most_crews(case, 3, memory_mib * 2**20) == expected


@pytest.mark.parametrize(
    ("kind", "num_launches", "expected"),
    [
        ("cuda", 0, 2),
        ("cuda", 4, 2),
        ("cuda", 11, 1),
        ("cpu", 0, 1),
    ],
)
def test_as_many_as_are_sure_to_come(kind, num_launches, expected):
    assert repetitions.num_ahead(TrialConfig(), kind, num_launches) == expected


def test_one_that_is_started_before_the_device_is_held_makes_its_first_call_then():
    crews, case = Crews(None), FakeCase()
    assert crews.start(case, ONE, None, 1, random.Random(0)) == 1
    crew = take(crews, case)
    assert [one.said for one in crew.runners.values()] == [["call", "pause"]] * 2
    assert len(case.started) == 2


class Device:
    """Answers as a verifier does, and notes what is asked while the device is held."""

    def __init__(self, monkeypatch, num_ahead):
        monkeypatch.setitem(device_hold.MOST_AHEAD, "cpu", 2)
        monkeypatch.setattr(device_hold, "exclusive", self.exclusive)
        self.num_ahead, self.said, self.is_held = num_ahead, [], False
        self.seat = Seat(self.ask, self.ask, CPU, "a device")

    @contextmanager
    def exclusive(self, lock):
        self.is_held = True
        yield
        self.is_held = False

    def ask(self, request, timeout_s):
        self.said.append(request)
        assert self.is_held != isinstance(request, StartAhead)
        if isinstance(request, StartAhead):
            return StartedAhead(number=self.num_ahead, took_s=0.0)
        if isinstance(request, Dismiss):
            return Dismissed()
        candidate_us = 40.0 + 10 * len(self.said)  # no interval of these is ever narrow
        tens = (100.0,) * 3
        times = Times(
            reference_us=tens,
            candidate_us=(candidate_us,) * 3,
            control_us=tens,
            num_calls=1,
            phases_s={},
        )
        return Repeated(times=times)

    def measure(self, goes_on=False, **config):
        workload = SimpleNamespace(name="w")
        repetitions.measure(self.seat, TrialConfig(**config), workload, goes_on=goes_on)
        return " ".join(one.op for one in self.said)


def test_the_device_is_held_for_what_is_ready_and_released_for_what_is_not(monkeypatch):
    device = Device(monkeypatch, num_ahead=2)
    said = device.measure(num_launches=5)
    two = "start_ahead repeat repeat dismiss"
    assert said == f"{two} {two} start_ahead repeat dismiss"
    ahead = [one.clock.num_ahead for one in device.said if isinstance(one, StartAhead)]
    assert ahead == [2, 2, 1]
    dismissed = [one.goes_on for one in device.said if isinstance(one, Dismiss)]
    assert dismissed == [True, True, False], "the candidate is needed again until the last one"


def test_it_is_held_for_all_repetitions_where_nothing_starts_ahead(monkeypatch):
    said = Device(monkeypatch, 0).measure(num_launches=3)
    assert said == "start_ahead repeat repeat repeat dismiss"
    said = Device(monkeypatch, 2).measure(num_launches=1)
    assert said == "repeat dismiss", "the processes of a screening run already"


def test_a_measurement_leaves_no_process_waiting_that_does_not_go_on(monkeypatch):
    for goes_on in (True, False):
        device = Device(monkeypatch, num_ahead=2)
        device.measure(goes_on)
        assert device.said[-1] == Dismiss(goes_on=goes_on)


def test_a_verifier_that_has_failed_is_asked_for_nothing_more(monkeypatch):
    device = Device(monkeypatch, num_ahead=2)

    def failing(request, timeout_s):
        device.said.append(request)
        raise WorkerError("it is gone")

    device.seat = Seat(failing, device.ask, CPU, "a device")
    with pytest.raises(WorkerError):
        device.measure()
    assert [one.op for one in device.said] == ["start_ahead", "repeat"]
    assert not device.is_held
