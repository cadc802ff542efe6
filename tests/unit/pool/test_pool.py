"""Seats that are lost, that die, that are slow: with stand-ins in threads, and a real archive."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import pytest

from cudal1_ci.errors import ArchiveError, UnsupportedError, WorkerError
from cudal1_ci.pool import Broken, Limits, SeatLost, Task, evaluate_all
from cudal1_ci.records.archive import Archive
from tests.fakes import CPU, a_candidate, a_problem, an_evaluation

POLICY = "policy"
WAIT_S = 20.0


@dataclass
class FakeSeats:
    """Judges by a function of the seat and the source, which may raise SeatLost."""

    num_seats: int = 2
    says: Callable[[str, str], None] = lambda seat, source: None
    devices: tuple = ()
    opens: Callable[[int], None] = lambda number: None
    opened: list[str] = field(default_factory=list)
    judged: Counter = field(default_factory=Counter)
    """How often each source was judged."""
    at: dict[str, str] = field(default_factory=dict)
    """The seat at which each source was judged last."""
    batches: list[int] = field(default_factory=list)
    num_closed: int = 0

    def open(self, number, is_over):
        self.opens(number)
        self.opened.append(f"seat-{number}")
        device = self.devices[number] if self.devices else CPU
        return FakeSeat(f"seat-{number}", device, self)


@dataclass
class FakeSeat:
    name: str
    device: object
    seats: FakeSeats
    is_closed: threading.Event = field(default_factory=threading.Event)
    remark: str | None = None

    def judge(self, problem, candidates):
        self.seats.batches.append(len(candidates))
        for candidate in candidates:
            source = candidate.program.source
            try:
                self.seats.says(self.name, source)
            except WorkerError as error:
                yield Broken(candidate_id=candidate.id, message=str(error))
                continue
            self.seats.judged[source] += 1
            self.seats.at[source] = self.name
            found = an_evaluation(candidate)
            yield msgspec.structs.replace(found, device=self.device)

    def close(self):
        self.seats.num_closed += not self.is_closed.is_set()
        self.is_closed.set()


def a_task(name: str, number: int) -> Task:
    problem = a_problem(name)
    several = tuple(a_candidate(problem, f"{name} {index}") for index in range(number))
    return Task(problem=problem, candidates=several, name=name)


def sources(*tasks: Task) -> list[str]:
    return sorted(one.program.source for task in tasks for one in task.candidates)


def source_of(judged) -> str:
    return judged.evaluation.candidate.program.source


@pytest.fixture
def archive(tmp_path):
    with Archive.open(tmp_path / "archive.sqlite") as opened:
        yield opened


def statuses(archive: Archive) -> Counter:
    return Counter(one.verdict.status for _, one in archive.recorded())


def test_every_candidate_is_judged_once_and_is_in_the_archive(archive):
    tasks = [a_task(name, 5) for name in "abcd"]
    seats = FakeSeats()
    found = list(evaluate_all(tasks, seats, archive, POLICY))
    assert sorted(map(source_of, found)) == sources(*tasks)
    assert set(seats.judged.values()) == {1}
    assert statuses(archive) == {"passed": 20}
    assert {one.seat for one in found} == {"seat-0", "seat-1"}
    assert seats.num_closed == 2


def test_a_result_is_in_the_archive_when_it_is_told(archive):
    task = a_task("a", 3)
    for found in evaluate_all([task], FakeSeats(1), archive, POLICY):
        candidate = found.evaluation.candidate
        assert archive.lookup(task.problem.id, candidate.id, CPU.key, POLICY) == found.evaluation


def test_what_is_known_is_told_and_not_judged_again(archive):
    tasks = [a_task("a", 4), a_task("b", 4)]
    list(evaluate_all(tasks[:1], FakeSeats(), archive, POLICY))
    seats = FakeSeats()
    found = list(evaluate_all([*tasks, tasks[0]], seats, archive, POLICY))
    assert sorted(map(source_of, found)) == sources(*tasks)
    assert sorted(seats.judged) == sources(tasks[1])
    assert sum(one.is_known for one in found) == 4


def test_other_rules_know_nothing_and_fresh_asks_nothing(archive):
    task = a_task("a", 2)
    list(evaluate_all([task], FakeSeats(), archive, POLICY))
    for policy, may_reuse in (("other", True), (POLICY, False)):
        seats = FakeSeats()
        list(evaluate_all([task], seats, archive, policy, may_reuse=may_reuse))
        assert sorted(seats.judged) == sources(task)


def test_nothing_is_lost_with_a_seat(archive):
    is_first = threading.Lock()

    def says(seat, source):
        if source == "a 3" and is_first.acquire(blocking=False):
            raise SeatLost("killed")

    tasks = [a_task("a", 8), a_task("b", 8)]
    seats = FakeSeats(says=says)
    found = list(evaluate_all(tasks, seats, archive, POLICY))
    assert sorted(map(source_of, found)) == sources(*tasks)
    assert set(seats.judged.values()) == {1}
    assert len(seats.opened) == 3
    assert statuses(archive) == {"passed": 16}


def test_a_seat_that_cannot_be_opened_again_leaves_its_work_to_the_other(archive):
    gone = threading.Event()

    def says(seat, source):
        if seat == "seat-0":
            gone.set()
            raise SeatLost("its machine was taken away")

    def opens(number):
        if number == 0 and gone.is_set():
            raise SeatLost("no machine")

    tasks = [a_task(name, 3) for name in "abcdef"]
    found = list(evaluate_all(tasks, FakeSeats(says=says, opens=opens), archive, POLICY))
    assert sorted(map(source_of, found)) == sources(*tasks)


@pytest.mark.parametrize("death", [SeatLost, WorkerError])
def test_a_candidate_that_kills_its_judge_each_time_is_a_harness_error(archive, death):
    num_deaths = Counter()

    def says(seat, source):
        if source == "a 1":
            num_deaths[source] += 1
            raise death("killed by signal 9")

    task = a_task("a", 6)
    seats = FakeSeats(1, says)
    limits = Limits(max_batch=1, num_tries=3)
    found = list(evaluate_all([task], seats, archive, POLICY, limits=limits))
    assert sorted(map(source_of, found)) == sources(task)
    bad = next(one.evaluation for one in found if source_of(one) == "a 1")
    assert bad.verdict.status == "harness_error"
    assert "3 times: killed by signal 9" in bad.verdict.findings[0].message
    assert num_deaths == {"a 1": 3}
    assert statuses(archive) == {"passed": 5, "harness_error": 1}
    assert archive.lookup(task.problem.id, bad.candidate.id, CPU.key, POLICY) is None


def test_when_judges_die_whatever_they_are_given_it_is_not_the_candidates(archive):
    def says(seat, source):
        raise WorkerError("no kernel image")

    limits = Limits(num_tries=1, max_given_up=3, max_losses=100)
    with pytest.raises(WorkerError, match=r"3 candidates in a row.*no kernel image"):
        list(evaluate_all([a_task("a", 50)], FakeSeats(1, says), archive, POLICY, limits=limits))


def test_a_machine_on_which_every_judge_dies_is_left_out(archive):
    def says(seat, source):
        if seat == "seat-0":
            raise WorkerError("the GPU has fallen off the bus")
        time.sleep(0.002)

    tasks = [a_task(name, 6) for name in "abcdef"]
    limits = Limits(max_losses=2)
    seats = FakeSeats(says=says)
    found = list(evaluate_all(tasks, seats, archive, POLICY, limits=limits))
    assert sorted(map(source_of, found)) == sources(*tasks)
    assert {one.evaluation.verdict.status for one in found} == {"passed"}
    assert set(seats.at.values()) == {"seat-1"}
    assert seats.opened.count("seat-0") <= 2


def test_without_a_seat_it_says_which_was_lost_and_why(archive):
    def opens(number):
        raise SeatLost("torch is not installed")

    with pytest.raises(WorkerError, match=r"no seat is left.*torch is not installed"):
        list(evaluate_all([a_task("a", 1)], FakeSeats(opens=opens), archive, POLICY))


def test_what_no_other_try_would_mend_is_raised(archive):
    def opens(number):
        raise UnsupportedError("the sandbox is required")

    with pytest.raises(UnsupportedError, match="the sandbox is required"):
        list(evaluate_all([a_task("a", 1)], FakeSeats(opens=opens), archive, POLICY))


def test_a_result_that_cannot_be_kept_is_raised_and_not_told(archive):
    class Full:
        def lookup(self, *_):
            return None

        def record(self, *_):
            raise ArchiveError("the disk is full")

    with pytest.raises(ArchiveError, match="the disk is full"):
        list(evaluate_all([a_task("a", 3)], FakeSeats(), Full(), POLICY))


def test_seats_wait_for_a_caller_that_takes_nothing(archive):
    seats = FakeSeats(1)
    limits = Limits(max_unread=2, max_batch=1)
    results = evaluate_all([a_task("a", 30)], seats, archive, POLICY, limits=limits)
    next(results)
    time.sleep(0.3)
    assert seats.judged.total() <= 5
    assert len(list(results)) == 29


def test_tasks_are_read_as_they_are_needed(archive):
    read = []

    def tasks():
        for index in range(100):
            read.append(index)
            yield a_task(f"t{index}", 4)

    limits = Limits(max_batch=2, max_unread=2)
    results = evaluate_all(tasks(), FakeSeats(), archive, POLICY, limits=limits)
    next(results)
    assert len(read) < 20
    assert len(list(results)) == 399


def test_once_it_is_over_nothing_more_is_begun(archive):
    seats = FakeSeats()
    seen: list[str] = []
    tasks = [a_task(name, 20) for name in "abcd"]
    results = evaluate_all(tasks, seats, archive, POLICY, is_over=lambda: len(seen) >= 5)
    seen.extend(map(source_of, results))
    assert 5 <= len(seen) < 80
    assert len(seen) == statuses(archive).total()
    again = list(evaluate_all(tasks, FakeSeats(), archive, POLICY))
    assert sorted(map(source_of, again)) == sources(*tasks)
    assert sum(one.is_known for one in again) == len(seen)


def test_whoever_stops_asking_ends_what_is_under_way(archive):
    seats = FakeSeats(num_seats=1)
    closed = threading.Event()

    class Slow(FakeSeat):
        def judge(self, problem, candidates):
            yield an_evaluation(candidates[0])
            assert self.is_closed.wait(WAIT_S)
            closed.set()
            raise SeatLost("closed")

    seats.open = lambda number, is_over: Slow("slow", CPU, seats)
    results = evaluate_all([a_task("a", 8)], seats, archive, POLICY)
    next(results)
    started_s = time.monotonic()
    results.close()
    assert closed.is_set()
    assert time.monotonic() - started_s < WAIT_S / 2


def test_devices_of_two_kinds_are_told_apart(archive):
    other = msgspec.structs.replace(CPU, name="another")
    seats = FakeSeats(devices=(CPU, other), says=lambda seat, source: time.sleep(0.01))
    tasks = [a_task(name, 4) for name in "abcdefgh"]
    found = list(evaluate_all(tasks, seats, archive, POLICY))
    kinds = {}
    for one in found:
        kinds.setdefault(one.evaluation.candidate.problem_id, set()).add(one.evaluation.device.key)
    assert all(len(of_problem) == 1 for of_problem in kinds.values())
    assert set().union(*kinds.values()) == {CPU.key, other.key}


def test_two_seats_of_one_name_are_two(archive):
    class Twins(FakeSeats):
        def open(self, number, is_over):
            return FakeSeat("twin", CPU, self)

    barrier = threading.Barrier(2, timeout=WAIT_S)
    together = Counter()

    def says(seat, source):
        together[source] += 1
        if together.total() <= 2:
            barrier.wait()

    tasks = [a_task(name, 4) for name in "ab"]
    found = list(evaluate_all(tasks, Twins(says=says), archive, POLICY))
    assert {one.seat for one in found} == {"twin", "twin (2)"}
    assert len(found) == 8


def test_no_tasks_are_no_results(archive):
    assert list(evaluate_all([], FakeSeats(), archive, POLICY)) == []


def test_a_task_refuses_candidates_of_another_problem():
    stray = a_candidate(a_problem("another"))
    with pytest.raises(ValueError, match="expected candidates of problem"):
        Task(problem=a_problem("this"), candidates=(stray,))
