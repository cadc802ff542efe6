"""Work on several slots: slots that are lost, verifiers that die, kinds of devices, Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable

import msgspec
import pytest

from cudal1_ci.errors import ArchiveError, UnsupportedError, WorkerError
from cudal1_ci.pool import Pool, RetryLimits, SlotLost
from cudal1_ci.records.run_status import Ending
from tests.fakes import CPU, FakeBackend, FakeSession, a_candidate, a_problem

WAIT_S = 10.0
"""For what comes at once; nothing here depends on how fast that is."""
ITEMS = list("abcdef")
OTHER = msgspec.structs.replace(CPU, name="another one")


class Says(FakeSession):
    """A verifier of which every evaluation calls a function of the slot's number and the source."""

    def __init__(self, number: int, says: Callable[[int, str], None]):
        super().__init__({})
        self.number, self.says = number, says

    def evaluate(self, problem, candidate):
        self.says(self.number, candidate.program.source)
        self.answers[candidate.program.source] = ("passed", 2.0)
        return super().evaluate(problem, candidate)


class Run:
    """One run over items, in each of which one candidate is evaluated."""

    def __init__(self, says=lambda slot, source: None, **slots):
        self.backend = FakeBackend(lambda number: Says(number, self.said), **slots)
        self.says = says
        self.done: Counter = Counter()
        self.at: dict[str, str] = {}
        self.notices: list[str] = []
        self.is_noticed = threading.Event()
        self.run_status = Ending()

    def said(self, number, source):
        self.says(number, source)

    def notice(self, text):
        self.notices.append(text)
        self.is_noticed.set()

    def work(self, item, verifier):
        problem = a_problem()
        try:
            verifier.evaluate(problem, a_candidate(problem, item))
        except KeyboardInterrupt:
            return f"half of {item}"
        self.done[item] += 1
        self.at[item] = threading.current_thread().name
        return f"done {item}"

    def pool(self, **named):
        return Pool(self.backend, notice=self.notice, **named)

    def outcomes(self, items=ITEMS, *, limits=None, is_of_one_kind=False, work=None, **named):
        with self.pool(limits=limits, is_of_one_kind=is_of_one_kind) as pool:
            self.last = pool
            given = {"is_over": lambda: False, "run_status": self.run_status} | named
            return pool.map(items, work or self.work, **given)

    def results(self, *arguments, **named):
        return [one.result for one in self.outcomes(*arguments, **named)]


def all_done(items=ITEMS):
    return [f"done {item}" for item in items]


def once(slot: int | None, source: str, error: Exception):
    """Raises that error the first time that this slot, or any, is at this source."""
    is_first = threading.Lock()

    def says(at, what):
        if what == source and slot in (None, at) and is_first.acquire(blocking=False):
            raise error

    return says


def test_two_slots_share_the_items_and_the_results_are_in_their_order():
    both = threading.Barrier(2)
    run = Run(lambda slot, source: both.wait(WAIT_S) if source in "ab" else None)
    assert run.results() == all_done()
    assert set(run.done.values()) == {1}
    assert {run.at["a"], run.at["b"]} == {"slot 0", "slot 1"}
    assert sorted(run.backend.opened) == [0, 1]
    assert run.backend.num_closed == 2
    assert run.notices == []


def test_one_slot_takes_all_in_order():
    seen = []
    run = Run(lambda slot, source: seen.append(source), num_slots=1)
    assert run.results() == all_done()
    assert seen == ITEMS


def test_a_slot_stays_open_from_one_map_to_the_next():
    run = Run(num_slots=1)
    with run.pool() as pool:
        for items in ("ab", "cd"):
            found = pool.map(items, run.work, is_over=lambda: False, run_status=run.run_status)
            assert [one.result for one in found] == all_done(items)
        assert run.backend.num_closed == 0
    assert run.backend.opened == [0]
    assert run.backend.num_closed == 1


def test_the_kind_that_has_begun_an_item_reaches_the_queue():
    run = Run(devices=(CPU, OTHER))
    results = run.results(begun_on=lambda item: frozenset([OTHER.key]))
    assert results == all_done()
    assert set(run.at.values()) == {"slot 1"}


def test_the_problem_of_an_item_reaches_the_queue():
    """The first has p and waits; the second takes q before the rest of p."""
    begun, seen = threading.Barrier(2), []

    def says(slot, source):
        seen.append(source)
        if source in ("p1", "q1"):
            begun.wait(WAIT_S)

    run = Run(says)
    items = ["p1", "p2", "q1"]
    assert run.results(items, problem_of=lambda item: item[0]) == all_done(items)
    assert sorted(seen[:2]) == ["p1", "q1"]


def test_what_is_lost_with_a_slot_is_done_by_the_other_one():
    both = threading.Barrier(2)
    lost = []

    def says(slot, source):
        if source in "ab" and not lost:
            both.wait(WAIT_S)
            if source == "a":
                lost.append(f"slot {slot}")
                raise SlotLost("killed")

    run = Run(says)
    assert run.results() == all_done()
    assert run.done["a"] == 1
    assert run.at["a"] not in lost
    assert run.notices == [f"lost {lost[0].replace(' ', '-')}: killed"]


def test_a_single_slot_that_is_lost_is_opened_again():
    run = Run(once(0, "c", SlotLost("killed")), num_slots=1)
    assert run.results() == all_done()
    assert run.backend.opened == [0, 0]
    assert run.backend.num_closed == 2


def test_an_item_with_which_slots_are_lost_has_its_reason_and_costs_no_other():
    def says(slot, source):
        if source == "b":
            raise SlotLost("out of memory")

    run = Run(says)
    outcomes = run.outcomes()
    assert [one.result for one in outcomes] == [
        None if item == "b" else f"done {item}" for item in ITEMS
    ]
    assert outcomes[1].reason == "its verifier died 3 times: out of memory"


def test_when_slots_are_lost_whatever_they_are_given_it_is_said():
    def says(slot, source):
        raise SlotLost("no driver")

    with pytest.raises(WorkerError, match="with 5 in a row its verifier died 3 times: no driver"):
        Run(says).results()


def test_when_no_slot_is_left_it_says_which_was_lost_last():
    run = Run(num_slots=1)
    sessions = iter([Says(0, once(0, "b", SlotLost("killed")))])

    def verifier(number):
        found = next(sessions, None)
        if found is None:
            raise SlotLost("no such machine")
        return found

    run.backend.verifier = verifier
    message = "no slot is left; the last one that was lost: slot 0: no such machine"
    with pytest.raises(WorkerError, match=message):
        run.results()


def test_the_first_slot_is_any_that_can_be_opened():
    run = Run()

    def verifier(number):
        if number == 0:
            raise SlotLost("busy")
        return Says(number, run.said)

    run.backend.verifier = verifier
    assert run.results(limits=RetryLimits(max_losses=1)) == all_done()
    assert set(run.at.values()) == {"slot 1"}


def test_no_slot_at_all_is_an_error_before_anything_is_done():
    def verifier(number):
        raise SlotLost("no device")

    run = Run()
    run.backend.verifier = verifier
    with pytest.raises(WorkerError, match="no slot could be opened: no device"):
        run.results()


def waiting(closed):
    """A verifier that waits to be ended, and notes whether it was."""

    class Waiting(FakeSession):
        def evaluate(self, problem, candidate):
            closed.append(self.is_closed.wait(WAIT_S))
            raise WorkerError("the verifier ended")

    return Waiting({})


def test_a_slot_that_no_try_would_open_ends_the_run():
    run, closed = Run(), []

    def verifier(number):
        if number == 1:
            raise UnsupportedError("the sandbox is required")
        return waiting(closed)

    run.backend.verifier = verifier
    with pytest.raises(UnsupportedError, match="sandbox"):
        run.results()
    assert all(closed)
    assert run.backend.num_closed == 1


def test_once_it_is_over_nothing_more_is_begun():
    run = Run()
    results = run.results(is_over=lambda: run.done.total() >= 2)
    assert results[:2] == all_done("ab")
    assert results[-1] is None
    assert 2 <= run.done.total() <= 3, "each slot ends what it is at"


def test_an_interrupt_ends_all_slots_at_once_and_their_halves_are_kept():
    both = threading.Barrier(2)
    run, closed = Run(), []

    class Waiting(FakeSession):
        def evaluate(self, problem, candidate):
            if candidate.program.source in "ab":
                return
            if both.wait(WAIT_S) == 0:
                os.kill(os.getpid(), signal.SIGINT)
            closed.append(self.is_closed.wait(WAIT_S))
            raise WorkerError("the verifier ended")

    run.backend.verifier = lambda number: Waiting({})
    assert run.results() == ["done a", "done b", "half of c", "half of d", None, None]
    assert closed == [True, True]
    assert run.run_status.was_interrupted
    assert run.backend.num_closed == 2


def test_a_verifier_that_was_being_opened_at_an_interrupt_is_ended_too():
    is_opening = threading.Event()
    run, asked = Run(), []

    class Interrupted(FakeSession):
        def evaluate(self, problem, candidate):
            is_opening.wait(WAIT_S)
            os.kill(os.getpid(), signal.SIGINT)
            asked.append(self.is_closed.wait(WAIT_S))
            raise WorkerError("the verifier ended")

    first = Interrupted({})

    def opened(number, is_over):
        if number == 1:
            is_opening.set()
            first.is_closed.wait(WAIT_S)
            asked.append(is_over())
        return at_once(number, is_over)

    at_once, run.backend.open = run.backend.open, opened
    run.backend.verifier = lambda number: FakeSession({}) if number else first
    assert run.results() == ["half of a", None, None, None, None, None]
    assert asked == [True, True]
    assert run.backend.num_closed == len(run.backend.opened) == 2


def test_after_an_interrupt_slots_are_opened_again():
    run = Run(num_slots=1)
    run.says = lambda *_: os.kill(os.getpid(), signal.SIGINT)
    with run.pool() as pool:
        given = {"is_over": lambda: False, "run_status": run.run_status}

        def interrupted(item, verifier):
            run.work(item, verifier)
            verifier.slot.is_closed.wait(WAIT_S)
            return run.work(item, verifier)

        assert pool.map(["a"], interrupted, **given)[0].result == "half of a"
        run.says = lambda *_: None
        assert pool.map(["b"], run.work, **given)[0].result == "done b"
    assert run.backend.opened == [0, 0]
    assert run.backend.num_closed == 2


def test_what_the_work_raises_reaches_the_caller_and_ends_the_other_slot():
    both = threading.Barrier(2)
    run = Run()
    is_ended = []

    def work(item, verifier):
        if both.wait(WAIT_S) == 0:
            raise ArchiveError("the disk is full")
        is_ended.append(verifier.slot.is_closed.wait(WAIT_S))
        verifier.check(a_problem())

    with pytest.raises(ArchiveError, match="disk is full"):
        run.results(list("ab"), work=work)
    assert is_ended == [True]


def test_a_verifier_that_dies_leaves_the_result_where_the_slot_is_well():
    died = once(None, "b", WorkerError("the verifier died"))
    run = Run(died, num_slots=1)

    def work(item, verifier):
        try:
            return run.work(item, verifier)
        except WorkerError as error:
            return f"{item}: {error}"

    assert run.results(work=work)[:3] == ["done a", "b: the verifier died", "done c"]
    assert run.backend.opened == [0, 0], "opened again, to see whether it was the slot"


def test_a_slot_that_is_not_well_spoils_no_result():
    """A GPU that fell off the bus: its verifier dies at once, and no other one can be started."""
    run = Run()
    both, is_broken = threading.Barrier(2), threading.Event()

    def says(number, source):
        if not is_broken.is_set():
            both.wait(WAIT_S)
        if number == 0:
            is_broken.set()
            raise WorkerError("CUDA error")
        is_broken.wait(WAIT_S)

    def verifier(number):
        if number == 0 and is_broken.is_set():
            raise SlotLost("no such device")
        return Says(number, says)

    def work(item, verifier):
        try:
            return run.work(item, verifier)
        except WorkerError as error:
            return f"{item}: {error}"

    run.backend.verifier = verifier
    assert run.results(work=work, limits=RetryLimits(max_losses=2)) == all_done()
    assert set(run.at.values()) == {"slot 1"}


def test_slots_of_another_kind_are_left_out_where_one_kind_is_wanted():
    run = Run(num_slots=3, devices=(CPU, OTHER, CPU))
    run.says = lambda *_: run.is_noticed.wait(WAIT_S)
    assert run.results(is_of_one_kind=True) == all_done()
    assert "slot 1" not in run.at.values()
    (notice,) = run.notices
    assert notice.startswith("slot-1 is left out: its device is another one, 1 thread")
    assert run.last.devices == [CPU]


def test_a_slot_that_was_left_out_is_not_opened_again():
    run = Run(devices=(CPU, OTHER))
    run.says = lambda *_: run.is_noticed.wait(WAIT_S)
    given = {"is_over": lambda: False, "run_status": run.run_status}
    with run.pool(is_of_one_kind=True) as pool:
        for items in ("ab", "cd"):
            assert [one.result for one in pool.map(items, run.work, **given)] == all_done(items)
    assert sorted(run.backend.opened) == [0, 1]
    assert len(run.notices) == 1


def test_where_kinds_may_differ_all_work_and_are_named():
    both = threading.Barrier(2)
    run = Run(lambda slot, source: both.wait(WAIT_S) and None, devices=(CPU, OTHER))
    assert run.results(list("ab")) == all_done("ab")
    assert run.last.devices == [CPU, OTHER]


def test_what_has_to_be_known_of_a_slot_is_said():
    run = Run(num_slots=1)
    at_once = run.backend.open

    def opened(number, is_over):
        slot = at_once(number, is_over)
        slot.remark = "others go first"
        return slot

    run.backend.open = opened
    assert run.results() == all_done()
    assert run.notices == ["slot-0: others go first"]
