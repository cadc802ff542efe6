"""A search and a sweep by several judges: the same as by one, whatever becomes of them."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from cudal1_ci.discover.plan import Plan, Planned
from cudal1_ci.errors import WorkerError
from cudal1_ci.optimize.config import ReviewConfig
from cudal1_ci.optimize.context import RunContext
from cudal1_ci.optimize.llm_loop import Optimizer
from cudal1_ci.optimize.run import review
from cudal1_ci.optimize.sweep.loop import course_of, sweep
from cudal1_ci.pool import Pool, SlotLost
from cudal1_ci.propose.llm.config import ContrastConfig, OptimizerConfig
from cudal1_ci.propose.llm.hack_review.cases import Database
from cudal1_ci.propose.llm.hack_review.review import Reviewer
from cudal1_ci.propose.llm.servers import Answer
from cudal1_ci.records.archive import Archive
from cudal1_ci.render.progress import SilentProgress
from tests.fakes import (
    CPU,
    FakeBackend,
    FakeModel,
    FakeSession,
    a_candidate,
    a_problem,
    a_target,
)

ANSWERS = {
    "fast": ("passed", 2.0),
    "wrong": ("incorrect_values", 1.0),
    "unsure": ("inconclusive", 1),
}
NAMES = [f"Block{index}" for index in range(6)]
OTHER = msgspec.structs.replace(CPU, name="other")


class Same:
    """Proposes the same for every problem, in the first round."""

    name = "same"

    def propose(self, problem, evaluations, n):
        return [] if evaluations else [a_candidate(problem, source) for source in ANSWERS]


class OnSlot(FakeSession):
    def __init__(self, number, house):
        super().__init__(dict(ANSWERS))
        self.number, self.house = number, house

    def check(self, problem, most_s=None):
        self.house.before(self, problem.reference.source, "reference")
        return super().check(problem)

    def evaluate(self, problem, candidate):
        key = problem.reference.source, candidate.program.source
        self.house.before(self, *key)
        self.house.judged[key] += 1
        self.house.by[key[0]] = self.number
        time.sleep(0.002)
        return super().evaluate(problem, candidate)

    def profile(self, workload, *, is_candidate):
        return []


class House:
    """Slots, what was done on them, and a checkout."""

    def __init__(self, folder: Path, before=lambda session, target, source: None, **fields):
        self.folder, self.before = folder, before
        self.judged: Counter = Counter()
        self.by: dict[str, int] = {}
        self.notices: list[str] = []
        self.backend = FakeBackend(lambda number: OnSlot(number, self), **fields)

    def plan(self, names=NAMES) -> Plan:
        posed = [
            Planned(target=a_target(qualname=name), problem=problem, workloads=problem.workloads)
            for name in names
            for problem in [a_problem(name)]
        ]
        unposed = Planned(target=a_target(qualname="Free"), problem=None, reason="no workload")
        return Plan(root=self.folder, repository="repo", targets=(*posed, unposed))

    def bench(self, archive, session, pool, **fields) -> RunContext:
        known = {
            "session": session,
            "pool": pool,
            "strategies": [Same()],
            "archive": archive,
            "progress": SilentProgress(),
            "config": ReviewConfig(),
            "policy": "p",
        }
        return RunContext(**(known | fields))

    def report(self, names=NAMES, *, search=review, is_single=False, **fields):
        self.folder.mkdir(exist_ok=True)
        with Archive.open(self.folder / "archive.sqlite") as archive:
            if is_single:
                bench = self.bench(archive, FakeSession(dict(ANSWERS)), None, **fields)
                return content(search(self.plan(names), bench))
            with Pool(self.backend, notice=self.notices.append, is_of_one_kind=True) as pool:
                return search(self.plan(names), self.bench(archive, pool.first, pool, **fields))


def swept(plan, bench):
    return sweep(course_of(plan, bench, "means"), bench)


def content(report):
    return msgspec.structs.replace(report, elapsed_s=0.0, generated_at=None)


def once(target, source, error):
    is_first = threading.Lock()

    def before(session, at, what):
        if (at, what) == (target, source) and is_first.acquire(blocking=False):
            raise error

    return before


@pytest.mark.parametrize("search", [review, swept])
def test_two_slots_make_the_report_that_one_makes(tmp_path, search):
    house = House(tmp_path / "two")
    report = house.report(search=search)
    assert content(report) == House(tmp_path / "one").report(search=search, is_single=True)
    assert [entry.target.qualname for entry in report.entries] == [*NAMES, "Free"]
    assert set(house.by.values()) == {0, 1}
    assert set(house.judged.values()) == {1}
    again = House(tmp_path / "two")
    assert all(one.reused for one in again.report(search=search).entries[:-1])
    assert {source for _, source in again.judged} == {"unsure"}


@pytest.mark.parametrize("may_reuse", [True, False])
def test_a_target_whose_slot_is_lost_is_done_by_another_and_nothing_twice(tmp_path, may_reuse):
    house = House(tmp_path / "two", once("Block2", "unsure", SlotLost("gone")))
    report = house.report(may_reuse=may_reuse)
    one = House(tmp_path / "one").report(is_single=True, may_reuse=may_reuse)
    assert content(report) == one, "and nothing is said to be from an earlier run"
    assert set(house.judged.values()) == {1}
    assert len(house.backend.opened) == 3
    assert len(house.notices) == 1


def test_what_an_earlier_run_found_is_measured_again_with_fresh_alone(tmp_path):
    House(tmp_path).report()
    house = House(tmp_path)
    house.report(may_reuse=False)
    assert house.judged.total() == 3 * len(NAMES)


def test_a_target_with_which_judges_die_has_its_reason_and_costs_no_other(tmp_path):
    def before(session, target, source):
        if target == "Block1":
            raise SlotLost("out of memory")

    report = House(tmp_path, before).report()
    reasons = [entry.skipped for entry in report.entries]
    died = "its verifier died 3 times: out of memory"
    assert reasons == [None, died, None, None, None, None, "no workload"]
    assert report.ended == "done"


def test_a_judge_that_dies_with_a_reference_is_the_targets_reason(tmp_path):
    def before(session, target, source):
        if target == "Block1":
            raise WorkerError("killed by signal 9")

    report = House(tmp_path, before).report()
    assert report.entries[1].skipped == "the verifier failed: killed by signal 9"
    assert [entry.best for entry in report.entries] == [0, None, 0, 0, 0, 0, None]


def test_a_budget_is_that_of_all_slots(tmp_path):
    house = House(tmp_path)
    report = house.report(config=ReviewConfig(budget_s=-1.0))
    assert report.ended == "budget"
    assert {entry.skipped for entry in report.entries} == {
        "not reached: the budget was spent",
        "no workload",
    }
    assert not house.judged


def test_slots_share_a_budget_so_that_no_target_takes_the_turn_of_another(tmp_path):
    house = House(tmp_path, lambda *of: of[2] != "reference" and time.sleep(0.4))
    report = house.report(config=ReviewConfig(budget_s=2.0))
    tried = [len(entry.evaluations) for entry in report.entries[:-1]]
    assert report.ended == "budget", "all candidates of a target take 1.2 s"
    assert min(tried) >= 1, "the last two would begin after 2.4 s"
    assert set(house.judged.values()) == {1}


def test_each_target_has_its_first_candidate_before_others_have_all(tmp_path):
    def before(session, target, source):
        if source != "reference":
            time.sleep(0.1)

    house = House(tmp_path, before)
    report = house.report(config=ReviewConfig(budget_s=60.0))
    assert report.ended == "done"
    assert [len(entry.evaluations) for entry in report.entries[:-1]] == [3] * len(NAMES)
    assert set(house.judged.values()) == {1}
    first = [*house.judged][: len(NAMES)]
    assert {name for name, _ in first} == {*NAMES}


def interrupting(*targets):
    """Ctrl-C once both of these are under way, whose judges end by it."""
    both = threading.Barrier(2)

    def before(session, target, source):
        if target in targets and source == "wrong":
            if both.wait(10) == 0:
                os.kill(os.getpid(), signal.SIGINT)
            session.is_closed.wait(10)
            raise WorkerError("the judge ended")

    return before


def test_an_interrupt_keeps_what_was_found(tmp_path):
    report = House(tmp_path, interrupting("Block2", "Block3")).report()
    assert report.ended == "interrupted"
    assert [len(entry.evaluations) for entry in report.entries] == [3, 3, 1, 1, 0, 0, 0]
    assert [entry.skipped for entry in report.entries[4:]] == [
        "not reached: interrupted",
        "not reached: interrupted",
        "no workload",
    ]
    house = House(tmp_path)
    assert house.report().ended == "done"
    assert not {key for key in house.judged if key[0] < "Block2" and key[1] != "unsure"}


def test_a_sweep_that_is_interrupted_notes_no_target_that_it_did_not_end(tmp_path):
    house = House(tmp_path, interrupting("Block0", "Block1"))
    assert house.report(search=swept).ended == "interrupted"
    house = House(tmp_path)
    report = house.report(search=swept)
    assert report.ended == "done"
    assert {name for name, _ in house.judged} == set(NAMES)


def test_a_slot_of_another_kind_is_left_out(tmp_path):
    house = House(tmp_path, devices=(CPU, OTHER))
    report = house.report()
    assert report.device == CPU
    assert set(house.by.values()) == {0}
    assert "slot-1 is left out" in house.notices[0]


def test_a_model_that_several_targets_ask_at_once_answers_each(tmp_path):
    """What one target cancels at its end is not what another one waits for."""
    is_slow = threading.Event()

    def reply(messages, seed):
        is_slow.wait(0.05)
        return Answer(failure="empty")

    model = FakeModel(reply)
    optimizer = Optimizer(
        model=model,
        config=OptimizerConfig(num_rounds=2, num_samples=2),
        contrast=ContrastConfig(),
        num_concurrent=2,
        overlaps=True,
        since=time.time(),
    )
    with Archive.open(tmp_path / "archive.sqlite") as archive:
        reviewer = Reviewer(
            model=model, database=Database((), archive, time.time()), prompt_tokens=9
        )
        bench = House(tmp_path).bench(
            archive, FakeSession({}), None, optimizer=optimizer, reviewer=reviewer
        )
        lent = bench.with_verifier(FakeSession({}))
    for part in (lent.optimizer, lent.reviewer):
        part.model.cancel()
    assert not model.is_cancelled.is_set()
    report = House(tmp_path).report(optimizer=optimizer)
    used = [entry.model_use for entry in report.entries[:-1]]
    assert [use.num_answers for use in used] == [4] * 6
    assert [use.refused for use in used] == [{"empty": 4}] * 6
    assert not model.is_cancelled.is_set()
