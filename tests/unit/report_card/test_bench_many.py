"""A report card by several judges: the same as by one, whatever becomes of them."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import Counter

import msgspec
import pytest

from cudal1_ci.errors import WorkerError
from cudal1_ci.pool import Pool, SlotLost
from cudal1_ci.report_card.run import run
from tests.fakes import CPU, FakeBackend, FakeModel, FakeSession
from tests.unit.report_card.rig import a_bench, a_task, found
from tests.unit.report_card.test_bench_model import an_optimizer

ANSWERS = {"faster": ("passed", 2.0), "slower": ("passed", 0.5), "wrong": ("incorrect_values", 1.0)}
ANSWERS["theirs"] = ("passed", 3.0)
PROPOSED = {"compile": ["slower"], "playbook": ["wrong", "faster"], "published": ["theirs"]}
NAMES = [f"level1/{index}" for index in range(6)]
TASKS = found(*(a_task(name, f"class Model:  # {name}") for name in NAMES))
OTHER = msgspec.structs.replace(CPU, name="other")


class OnSlot(FakeSession):
    """A verifier on a slot, which may be told to do something before an evaluation."""

    def __init__(self, number, house):
        super().__init__(ANSWERS)
        self.number, self.house = number, house

    def device(self):
        return self.house.backend.devices[self.number] if self.house.backend.devices else CPU

    def check(self, problem, most_s=None):
        self.house.before(self, problem.reference.source, "reference")
        return super().check(problem)

    def evaluate(self, problem, candidate):
        task, source = problem.reference.source, candidate.program.source
        self.house.before(self, task, source)
        self.house.judged[task, source] += 1
        self.house.by[task] = self.number
        time.sleep(0.002)
        evaluation = super().evaluate(problem, candidate)
        return msgspec.structs.replace(evaluation, device=self.device())


class House:
    """Two slots, and what was done on them."""

    def __init__(self, before=lambda session, task, source: None, **fields):
        self.before = before
        self.judged: Counter = Counter()
        self.by: dict[str, int] = {}
        self.notices: list[str] = []
        self.backend = FakeBackend(lambda number: OnSlot(number, self), **fields)

    @contextlib.contextmanager
    def bench(self, folder, proposed=PROPOSED, **fields):
        with (
            Pool(self.backend, notice=self.notices.append) as pool,
            a_bench(folder, pool.first, proposed, pool=pool, **fields) as bench,
        ):
            yield bench

    def document(self, folder, tasks=TASKS, **fields):
        with self.bench(folder, **fields) as bench:
            return run(tasks, *bench)


def content(document):
    """Without what no two runs share."""
    return msgspec.structs.replace(document, elapsed_s=None, generated_at=None)


def by_one(folder, tasks=TASKS, **fields):
    with a_bench(folder, FakeSession(ANSWERS), PROPOSED, **fields) as bench:
        return content(run(tasks, *bench))


def source_of(name: str) -> str:
    return f"class Model:  # {name}"


def once(task, source, error):
    """Raises it the first time that a judge is at this candidate of this task."""
    is_first = threading.Lock()

    def before(session, at, what):
        if (at, what) == (source_of(task), source) and is_first.acquire(blocking=False):
            raise error

    return before


def test_two_slots_make_the_document_that_one_makes(tmp_path):
    house = House()
    document = house.document(tmp_path / "two")
    assert content(document) == by_one(tmp_path / "one")
    assert [task.name for task in document.tasks] == NAMES
    assert set(house.by.values()) == {0, 1}
    assert Counter(house.judged.values()) == {1: 24}


@pytest.mark.parametrize("may_reuse", [True, False])
def test_a_task_whose_slot_is_lost_is_done_by_another_and_nothing_twice(tmp_path, may_reuse):
    house = House(once("level1/2", "faster", SlotLost("the machine is gone")))
    document = house.document(tmp_path / "two", may_reuse=may_reuse)
    assert content(document) == by_one(tmp_path / "one")
    assert Counter(house.judged.values()) == {1: 24}
    assert len(house.backend.opened) == 3
    (notice,) = house.notices
    assert "the machine is gone" in notice


def test_a_task_with_which_judges_die_has_its_reason_and_costs_no_other(tmp_path):
    def before(session, task, source):
        if task == source_of("level1/3") and source == "slower":
            raise SlotLost("out of memory")

    house = House(before)
    document = house.document(tmp_path / "two")
    assert [task.standing for task in document.tasks] == [
        "invalid" if name == "level1/3" else "judged" for name in NAMES
    ]
    assert document.tasks[3].reason == "its verifier died 3 times: out of memory"
    assert document.ended == "done"
    assert house.judged[source_of("level1/3"), "wrong"] == 1


def test_a_model_that_one_slot_ends_goes_on_for_the_others(tmp_path):
    model = FakeModel(lambda messages, seed: "")
    with House().bench(tmp_path, optimizer=an_optimizer(model, time.time())) as bench:
        bench.context.with_verifier(FakeSession({})).optimizer.model.cancel()
    assert not model.is_cancelled.is_set()


def test_a_judge_that_dies_costs_one_task_as_with_one_judge(tmp_path):
    def before(session, task, source):
        if task == source_of("level1/1") and source == "slower":
            raise WorkerError("the judge died")

    document = House(before).document(tmp_path)
    assert {task.standing for task in document.tasks} == {"judged"}
    assert document.tasks[1].results[0].failure == "the verifier failed: the judge died"
    assert document.tasks[0].results[0].failure is None


def test_a_budget_is_that_of_all_slots(tmp_path):
    house = House()
    document = house.document(tmp_path, budget_s=0.0)
    assert document.ended == "budget"
    assert {task.standing for task in document.tasks} == {"missing"}
    assert all("budget was spent" in task.reason for task in document.tasks)
    assert not house.judged


def test_an_interrupt_keeps_what_was_found_and_the_next_run_goes_on(tmp_path):
    both = threading.Barrier(2)

    def before(session, task, source):
        if task in map(source_of, NAMES[2:4]) and source == "faster":
            if both.wait(10) == 0:
                os.kill(os.getpid(), signal.SIGINT)
            session.is_closed.wait(10)
            raise WorkerError("the judge ended")

    began = time.time()
    house = House(before)
    document = house.document(tmp_path, since=began)
    assert document.ended == "interrupted"
    assert [task.standing for task in document.tasks] == ["judged"] * 2 + ["missing"] * 4
    assert not any(task.results for task in document.tasks[2:]), "no column of them is whole"
    again = House()
    document = again.document(tmp_path, since=began)
    assert document.ended == "done"
    assert {task.standing for task in document.tasks} == {"judged"}
    assert not set(house.judged) & {key for key in again.judged if key[1] != "faster"}
    assert again.judged.total() == 24 - 10


def test_each_task_has_the_machine_that_it_was_judged_on(tmp_path):
    both = threading.Barrier(2)

    def before(session, task, source):
        if task in map(source_of, NAMES[:2]) and source == "slower":
            both.wait(10)

    house = House(before, devices=(CPU, OTHER))
    document = house.document(tmp_path)
    machines = ["fake, 1 thread, torch 0", "other, 1 thread, torch 0"]
    assert [device.name for device in document.devices] == ["fake", "other"]
    assert [task.machine for task in document.tasks] == [
        machines[house.by[source_of(name)]] for name in NAMES
    ]
    assert {row.machine for row in document.card} == set(machines)
    for task in document.tasks:
        measured = {m.device.name for r in task.results for t in r.trials for m in t.measurements}
        assert len(measured) <= 1


def test_a_run_that_goes_on_takes_a_task_to_the_kind_that_has_begun_it(tmp_path):
    began = time.time()
    first = House(num_slots=1, devices=(OTHER,))
    with first.bench(tmp_path, since=began) as bench:
        run(found(*TASKS.tasks[:2]), *bench)
    house = House(devices=(CPU, OTHER))
    document = house.document(tmp_path, since=began)
    assert not set(house.judged) & set(first.judged)
    assert [task.machine.partition(",")[0] for task in document.tasks[:2]] == ["other", "other"]
