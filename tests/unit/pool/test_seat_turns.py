"""Whole turns with several judges: seats that are lost, judges that die, kinds, Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable

import msgspec
import pytest

from cudal1_ci.errors import ArchiveError, UnsupportedError, WorkerError
from cudal1_ci.pool import Limits, SeatLost
from cudal1_ci.pool.turns import Row
from cudal1_ci.records.run_status import Ending
from tests.fakes import CPU, FakeJudgeSeats, FakeSession, a_candidate, a_problem

WAIT_S = 10.0
ITEMS = list("abcdef")
OTHER = msgspec.structs.replace(CPU, name="another one")


class Says(FakeSession):
    """A judge of which every evaluation calls a function of the seat's number and the source."""

    def __init__(self, number: int, says: Callable[[int, str], None]):
        super().__init__({})
        self.number, self.says = number, says

    def evaluate(self, problem, candidate):
        self.says(self.number, candidate.program.source)
        self.answers[candidate.program.source] = ("passed", 2.0)
        return super().evaluate(problem, candidate)


class Run:
    """One run over items, in each of which one candidate is judged."""

    def __init__(self, says=lambda seat, source: None, **seats):
        self.seats = FakeJudgeSeats(lambda number: Says(number, self.said), **seats)
        self.says = says
        self.done: Counter = Counter()
        self.at: dict[str, str] = {}
        self.told: list[str] = []
        self.ending = Ending()

    def said(self, number, source):
        self.says(number, source)

    def work(self, item, judge):
        problem = a_problem()
        try:
            judge.evaluate(problem, a_candidate(problem, item))
        except KeyboardInterrupt:
            return f"half of {item}"
        self.done[item] += 1
        self.at[item] = threading.current_thread().name
        return f"done {item}"

    def outcomes(self, items=ITEMS, *, limits=None, is_of_one_kind=False, work=None, **named):
        row = Row(self.seats, told=self.told.append, limits=limits, is_of_one_kind=is_of_one_kind)
        with row:
            self.row = row
            given = {"is_over": lambda: False, "ending": self.ending} | named
            return row.each(items, work or self.work, **given)

    def results(self, *arguments, **named):
        return [one.result for one in self.outcomes(*arguments, **named)]


def all_done(items=ITEMS):
    return [f"done {item}" for item in items]


def once(seat: int | None, source: str, error: Exception):
    """Raises that error the first time that this seat, or any, is at this source."""
    is_first = threading.Lock()

    def says(at, what):
        if what == source and seat in (None, at) and is_first.acquire(blocking=False):
            raise error

    return says


def test_two_seats_share_the_items_and_the_results_are_in_their_order():
    both = threading.Barrier(2)
    run = Run(lambda seat, source: both.wait(WAIT_S) if source in "ab" else None)
    assert run.results() == all_done()
    assert set(run.done.values()) == {1}
    assert {run.at["a"], run.at["b"]} == {"seat 0", "seat 1"}
    assert sorted(run.seats.opened) == [0, 1]
    assert run.seats.num_closed == 2
    assert run.told == []


def test_one_seat_takes_all_in_order():
    seen = []
    run = Run(lambda seat, source: seen.append(source), num_seats=1)
    assert run.results() == all_done()
    assert seen == ITEMS


def test_what_is_lost_with_a_seat_is_done_by_the_other_one():
    both = threading.Barrier(2)
    lost = []

    def says(seat, source):
        if source in "ab" and not lost:
            both.wait(WAIT_S)
            if source == "a":
                lost.append(f"seat {seat}")
                raise SeatLost("killed")

    run = Run(says)
    assert run.results() == all_done()
    assert run.done["a"] == 1
    assert run.at["a"] not in lost
    assert run.told == [f"lost {lost[0].replace(' ', '-')}: killed"]


def test_a_single_seat_that_is_lost_is_opened_again():
    run = Run(once(0, "c", SeatLost("killed")), num_seats=1)
    assert run.results() == all_done()
    assert run.seats.opened == [0, 0]


def test_an_item_with_which_judges_die_three_times_has_its_reason_and_costs_no_other():
    def says(seat, source):
        if source == "b":
            raise SeatLost("out of memory")

    run = Run(says)
    outcomes = run.outcomes()
    assert [one.result for one in outcomes] == [
        None if item == "b" else f"done {item}" for item in ITEMS
    ]
    assert outcomes[1].reason == "judges died with it 3 times: out of memory"


def test_seats_are_not_blamed_for_items_that_kill_judges():
    def says(seat, source):
        if source in "bcef":
            raise SeatLost("out of memory")

    run = Run(says)
    outcomes = run.outcomes(limits=Limits(max_losses=3))
    assert [one.result for one in outcomes if one.result] == ["done a", "done d"]


def test_when_judges_die_whatever_they_are_given_it_is_said():
    def says(seat, source):
        raise SeatLost("no driver")

    with pytest.raises(WorkerError, match="with 5 in a row judges died with it 3 times: no driver"):
        Run(says).results()


def test_a_seat_that_does_not_come_back_leaves_its_work_to_the_other_one():
    run = Run(once(None, "a", SeatLost("killed")))
    opened = Counter()
    lost: list[int] = []

    def session(number):
        opened[number] += 1
        if number in lost:
            raise SeatLost("the machine is gone")
        return Says(number, said)

    def said(number, source):
        try:
            run.says(number, source)
        except SeatLost:
            lost.append(number)
            raise

    run.seats.session = session
    assert run.results(list("abcdefgh"), limits=Limits(max_losses=2)) == all_done("abcdefgh")
    assert len(lost) == 1


def test_when_no_seat_is_left_it_says_which_was_lost_last():
    run = Run(num_seats=1)
    sessions = iter([Says(0, once(0, "b", SeatLost("killed")))])

    def session(number):
        found = next(sessions, None)
        if found is None:
            raise SeatLost("no such machine")
        return found

    run.seats.session = session
    message = "no seat is left; the last one that was lost: seat 0: no such machine"
    with pytest.raises(WorkerError, match=message):
        run.results()


def test_the_first_seat_is_any_that_can_be_opened():
    run = Run()

    def session(number):
        if number == 0:
            raise SeatLost("busy")
        return Says(number, run.said)

    run.seats.session = session
    assert run.results(limits=Limits(max_losses=1)) == all_done()
    assert set(run.at.values()) == {"seat 1"}


def test_no_seat_at_all_is_an_error_before_anything_is_done():
    def session(number):
        raise SeatLost("no device")

    run = Run()
    run.seats.session = session
    with pytest.raises(WorkerError, match="no seat could be opened: no device"):
        run.results()


def test_a_seat_that_no_try_would_open_ends_the_run():
    run = Run()

    def session(number):
        if number == 1:
            raise UnsupportedError("the sandbox is required")
        return Says(number, lambda *_: time.sleep(0.05))

    run.seats.session = session
    with pytest.raises(UnsupportedError, match="sandbox"):
        run.results(list("abcdefgh") * 20)


def test_once_it_is_over_nothing_more_is_begun():
    run = Run()
    results = run.results(is_over=lambda: run.done.total() >= 2)
    assert results[:2] == all_done("ab")
    assert results[-1] is None
    assert 2 <= run.done.total() <= 3, "each seat ends what it is at"


def test_an_interrupt_ends_all_seats_at_once_and_their_halves_are_kept():
    both = threading.Barrier(2)
    run = Run()

    class Waiting(FakeSession):
        def evaluate(self, problem, candidate):
            if candidate.program.source in "ab":
                return
            if both.wait(WAIT_S) == 0:
                os.kill(os.getpid(), signal.SIGINT)
            self.is_closed.wait(WAIT_S)
            raise WorkerError("the judge ended")

    run.seats.session = lambda number: Waiting({})
    started_s = time.monotonic()
    results = run.results()
    assert time.monotonic() - started_s < WAIT_S / 2
    assert results == ["done a", "done b", "half of c", "half of d", None, None]
    assert run.ending.was_interrupted
    assert run.seats.num_closed == 2


def test_what_the_work_raises_reaches_the_caller_and_ends_the_other_seat():
    both = threading.Barrier(2)
    run = Run()
    is_ended = []

    def work(item, judge):
        if both.wait(WAIT_S) == 0:
            raise ArchiveError("the disk is full")
        judge.seat.is_closed.wait(WAIT_S)
        is_ended.append(item)
        judge.check(a_problem())

    with pytest.raises(ArchiveError, match="disk is full"):
        run.results(list("ab"), work=work)
    assert len(is_ended) == 1


def test_a_judge_that_dies_in_a_turn_leaves_the_result_where_the_seat_is_well():
    died = once(None, "b", WorkerError("the judge died"))
    run = Run(died, num_seats=1)

    def work(item, judge):
        try:
            return run.work(item, judge)
        except WorkerError as error:
            return f"{item}: {error}"

    assert run.results(work=work)[:3] == ["done a", "b: the judge died", "done c"]
    assert run.seats.opened == [0, 0], "opened again, to see whether it was the seat"


def test_a_seat_that_is_not_well_spoils_no_result():
    """A GPU that fell off the bus: its judge dies at once, and no other one can be started."""
    run = Run(num_seats=2)
    is_broken = threading.Event()

    def says(number, source):
        if number == 0 and source != "a":
            is_broken.set()
            raise WorkerError("CUDA error")
        time.sleep(0.02)

    def session(number):
        if number == 0 and is_broken.is_set():
            raise SeatLost("no such device")
        return Says(number, says)

    def work(item, judge):
        try:
            return run.work(item, judge)
        except WorkerError as error:
            return f"{item}: {error}"

    run.seats.session = session
    items = list("abcdefgh")
    assert run.results(items, work=work, limits=Limits(max_losses=2)) == all_done(items)


def test_seats_of_another_kind_are_left_out_where_one_kind_is_wanted():
    run = Run(lambda *_: time.sleep(0.05), num_seats=3, devices=(CPU, OTHER, CPU))
    assert run.results(is_of_one_kind=True) == all_done()
    assert "seat 1" not in run.at.values()
    (notice,) = run.told
    assert notice.startswith("seat-1 is left out: its device is another one, 1 thread")
    assert run.row.devices == [CPU]


def test_where_kinds_may_differ_all_work_and_are_named():
    both = threading.Barrier(2)
    run = Run(lambda seat, source: both.wait(WAIT_S) and None, devices=(CPU, OTHER))
    assert run.results(list("ab")) == all_done("ab")
    assert run.row.devices == [CPU, OTHER]


def test_an_item_goes_to_a_seat_of_the_kind_that_has_begun_it():
    run = Run(lambda seat, source: time.sleep(0.02), devices=(CPU, OTHER))
    begun = {"a": OTHER.key, "b": OTHER.key, "c": "one that is gone"}
    results = run.results(begun_on=lambda item: frozenset(filter(None, [begun.get(item)])))
    assert results == all_done()
    assert run.at["a"] == run.at["b"] == "seat 1"


def test_an_item_that_was_begun_on_a_kind_that_dies_goes_to_another_in_the_end():
    def says(seat, source):
        if source == "a" and seat == 1:
            raise SeatLost("killed")

    run = Run(says, devices=(CPU, OTHER))
    outcomes = run.outcomes(list("ab"), begun_on=lambda item: frozenset([OTHER.key]))
    assert outcomes[0].reason == "judges died with it 3 times: killed"
    assert outcomes[1].result == "done b"


def test_an_item_waits_for_its_kind_while_that_may_come(monkeypatch):
    """The seat of the kind that has begun everything takes longer to be opened."""
    run = Run(devices=(CPU, OTHER))

    def session(number):
        if number == 1:
            time.sleep(0.3)
        return Says(number, run.said)

    run.seats.session = session
    assert run.results(begun_on=lambda item: frozenset([OTHER.key])) == all_done()
    assert set(run.at.values()) == {"seat 1"}
    monkeypatch.setattr("cudal1_ci.pool.turn_queue.KIND_S", 0.0)
    run.at.clear()
    assert run.results(begun_on=lambda item: frozenset([OTHER.key])) == all_done()
    assert run.at["a"] == "seat 0"


def test_a_judge_that_was_being_opened_at_an_interrupt_is_ended_too():
    is_opening = threading.Event()
    run = Run()

    class Interrupted(FakeSession):
        def evaluate(self, problem, candidate):
            is_opening.wait(WAIT_S)
            os.kill(os.getpid(), signal.SIGINT)
            self.is_closed.wait(WAIT_S)
            raise WorkerError("the judge ended")

    def opened(number, is_over):
        while number == 1 and not is_over():
            is_opening.set()
            time.sleep(0.01)
        return at_once(number, is_over)

    at_once, run.seats.open = run.seats.open, opened
    run.seats.session = lambda number: Interrupted({})
    assert run.results() == ["half of a", None, None, None, None, None]
    assert run.seats.num_closed == len(run.seats.opened) == 2
