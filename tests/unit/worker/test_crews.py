"""Processes that are started for several launches at a time."""

from __future__ import annotations

import random
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from cudal1_ci.trial import measuring
from cudal1_ci.worker.cases import Limits
from cudal1_ci.worker.crews import CONTEXT_BYTES, Crews, Terms, most_crews
from cudal1_ci.worker.failures import RunnerFailure
from tests.fakes import CPU

ONE = {"reference": {"source": "r"}, "candidate": {"source": "c"}}
OTHER = {"reference": {"source": "r"}, "candidate": {"source": "d"}}


class Runner:
    def __init__(self, program, is_trusted):
        self.program = program
        self.is_trusted = is_trusted
        self.said = []
        self.lets_go = True

    def pause(self):
        self.said.append("pause")

    def kill(self):
        self.said.append("kill")

    def wait_for_end(self):
        self.said.append("wait")

    def release(self, timeout_s):
        self.said.append("release")
        if not self.lets_go:
            raise RunnerFailure("died", "gone", is_trusted=True)


class FakeCase:
    """Counts what it started; the one of a number fails."""

    state_slots = ()
    trials = (("drawn 0", SimpleNamespace(tensors=[])),)

    def __init__(self, failing: int | None = None, name: str = "w"):
        self.name = name
        self.program = ONE["reference"]
        self.started: list[Runner] = []
        self.failing = failing

    @contextmanager
    def runner(self, template, program, limits, is_trusted):
        made = Runner(program, is_trusted)
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

    def living(self):
        return [one for one in self.started if one.said[-1] != "end"]


def terms(number=3, most=12, *, keeps=False):
    return Terms(Limits(1, 1), number, most, keeps)


KEEPING = terms(keeps=True)


def take(crews, case, programs=ONE, under=None):
    return crews.take(case, programs, under or terms(), random.Random(0))


def launched(crews, case, programs=ONE, under=KEEPING):
    """The runners of a launch that went well."""
    crew = take(crews, case, programs, under)
    crews.finish(crew, under, is_sound=True)
    return crew.runners


def test_those_of_several_launches_are_started_together_and_stopped_until_their_turn():
    crews, case = Crews(None), FakeCase()
    taken = [take(crews, case) for _ in range(3)]
    assert len(case.started) == 6
    assert {id(runner) for crew in taken for runner in crew.runners.values()} == {
        id(runner) for runner in case.started
    }
    for crew in taken:
        reference, candidate = crew.runners["reference"], crew.runners["candidate"]
        assert (reference.program, reference.is_trusted) == ({"source": "r"}, True)
        assert (candidate.program, candidate.is_trusted) == ({"source": "c"}, False)
        assert reference.said == candidate.said == ["call", "pause"]
        crews.finish(crew, terms(), is_sound=True)
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


def test_when_one_cannot_be_started_none_is_left():
    crews, case = Crews(None), FakeCase(failing=4)
    with pytest.raises(RunnerFailure):
        take(crews, case)
    assert crews.waiting == []
    ended = [one.said[-1] for i, one in enumerate(case.started, 1) if i != 4]
    assert ended == ["end"] * 5


def test_one_that_is_started_alone_makes_its_first_call_in_its_launch():
    crews, case = Crews(None), FakeCase()
    crew = take(crews, case, under=terms(number=1))
    assert [one.said for one in crew.runners.values()] == [["pause"]] * 2


def test_a_candidate_meets_no_regular_twice_and_the_next_one_starts_none():
    crews, case = Crews(None), FakeCase()
    met = [launched(crews, case) for _ in range(3)]
    assert len(case.started) == 6
    references = {id(one["reference"]) for one in met}
    assert len(references) == 3
    assert [one.said[-1] for one in case.living()] == ["pause"] * 3
    assert {one.program["source"] for one in case.living()} == {"r"}

    crews.dismiss()
    again = [launched(crews, case, OTHER) for _ in range(3)]
    assert len(case.started) == 9
    assert {id(one["reference"]) for one in again} == references
    assert {one.program["source"] for one in case.started[6:]} == {"d"}


def test_further_launches_of_a_candidate_get_regulars_that_it_has_not_met():
    crews, case = Crews(None), FakeCase()
    met = [launched(crews, case) for _ in range(6)]
    assert len({id(one["reference"]) for one in met}) == 6
    assert len(case.living()) == 6


def test_after_a_launch_that_went_wrong_all_of_it_ends():
    crews, case = Crews(None), FakeCase()
    crew = take(crews, case, under=KEEPING)
    crews.finish(crew, KEEPING, is_sound=False)
    assert [one.said[-1] for one in crew.runners.values()] == ["end", "end"]
    crews.dismiss()
    again = [launched(crews, case, OTHER) for _ in range(3)]
    assert not {id(one) for one in crew.runners.values()} & {id(r["reference"]) for r in again}


def test_a_regular_that_does_not_let_go_of_its_memory_is_not_used_again():
    crews, case = Crews(None), FakeCase()
    crew = take(crews, case, under=KEEPING)
    stuck = crew.runners["reference"]
    stuck.lets_go = False
    crews.finish(crew, KEEPING, is_sound=True)
    assert stuck.said[-1] == "end"
    crews.dismiss()
    assert stuck not in [launched(crews, case, OTHER)["reference"] for _ in range(3)]


def test_regulars_of_a_case_that_was_learned_anew_end():
    crews, case, new = Crews(None), FakeCase(), FakeCase()
    launched(crews, case)
    launched(crews, new)
    assert case.living() == []


def test_there_are_no_more_regulars_than_the_memory_holds():
    crews, one, other = Crews(None), FakeCase(name="a"), FakeCase(name="b")
    tight = terms(number=2, most=2, keeps=True)
    for _ in range(2):
        launched(crews, one, under=tight)
    assert len(one.living()) == 2
    for _ in range(2):
        launched(crews, other, under=tight)
    assert len(one.living()) + len(other.living()) == 4
    for _ in range(4):
        launched(crews, other, under=tight)
    assert one.living() == []
    assert len(other.living()) <= 4


def test_a_regular_that_was_alone_waits_for_the_launches():
    crews, case = Crews(None), FakeCase()
    with crews.regular(case, KEEPING) as runner:
        pass
    assert runner.said == ["pause", "release", "pause"]
    assert runner in [launched(crews, case)["reference"] for _ in range(3)]
    assert len(case.started) == 6
    with crews.regular(case, terms()) as runner:
        pass
    assert runner.said == ["pause", "end"]


def test_at_the_end_none_is_left():
    crews, case = Crews(None), FakeCase()
    launched(crews, case)
    crews.close()
    assert case.living() == []
    assert sum("wait" in one.said for one in case.started) == 3


def test_nothing_is_started_for_a_launch_before_the_last_problems_are_gone():
    crews, case, new = Crews(None), FakeCase(), FakeCase()
    launched(crews, case)
    slow = threading.Event()
    for one in case.living():
        one.wait_for_end = lambda: slow.wait(30)
    crews.leave()
    assert {one.said[-1] for one in case.living()} == {"kill"}
    threading.Timer(0.1, slow.set).start()
    take(crews, new, under=KEEPING)
    assert slow.is_set()
    assert case.living() == []


@pytest.mark.parametrize(
    ("state_mib", "input_mib", "memory_mib", "expected"),
    [(512, 0, 64 * 1024, 5), (512, 0, 1, 1), (0, 128, 64 * 1024, 5), (0, 0, 24 * 1024, 4)],
)
def test_large_modules_and_inputs_are_started_for_few_launches(
    state_mib, input_mib, memory_mib, expected
):
    slot = {"dtype": "float32", "shape": [state_mib * 2**18], "stride": [1], "offset": 0}
    case = SimpleNamespace(
        state_slots=[slot] if state_mib else [],
        trials=[("drawn 0", SimpleNamespace(tensors=[SimpleNamespace(nbytes=input_mib * 2**20)]))],
    )
    assert CONTEXT_BYTES == 512 * 2**20
    assert most_crews(case, 3, memory_mib * 2**20) == expected


@pytest.mark.parametrize(
    ("kind", "num_launches", "expected"),
    [
        ("cuda", 0, 5),
        ("cuda", 3, 2),
        ("cuda", 5, 3),
        ("cuda", 8, 4),
        ("cuda", 12, 1),
        ("cpu", 0, 1),
    ],
)
def test_as_many_as_are_sure_to_come(kind, num_launches, expected):
    assert measuring.num_ahead(kind, num_launches) == expected


def test_a_measurement_leaves_no_process_waiting(monkeypatch):
    monkeypatch.setitem(measuring.MOST_AHEAD, "cpu", 12)
    asked = []

    def ask(request, timeout_s):
        asked.append(request)
        times = {"reference_us": [10.0] * 3, "candidate_us": [5.0] * 3, "control_us": [10.0] * 3}
        return {"launch": {**times, "num_calls": 1}}

    workload = SimpleNamespace(name="w")
    measuring.measure(measuring.Seat(ask, CPU, "crews"), measuring.TrialConfig(), workload)
    ahead = [one["clock"]["num_ahead"] for one in asked if one["op"] == "launch"]
    assert ahead == [5, 4, 3, 2, 1]
    assert asked[-1] == {"op": "dismiss"}
