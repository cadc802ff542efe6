"""One sweep after another, with a stand-in for the judge: what is measured, and what is told."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from cudal1_ci.discover.plan import Plan, Planned
from cudal1_ci.errors import WorkerError
from cudal1_ci.optimize.config import ReviewConfig
from cudal1_ci.optimize.context import RunContext
from cudal1_ci.optimize.sweep.loop import course_of, sweep
from cudal1_ci.optimize.sweep.memory import with_earlier
from cudal1_ci.records import ContractCheck, Entry, Problem, Report
from cudal1_ci.records.archive import Archive
from cudal1_ci.render.progress import SilentProgress
from tests.fakes import (
    FakeSession,
    a_candidate,
    a_measurement,
    a_problem,
    a_target,
    an_evaluation,
)

ANSWERS = {f"fast {i}": ("passed", 2.0) for i in range(9)}


class OneEach:
    """Proposes one candidate for each problem, named after its source."""

    name = "one each"

    def propose(self, problem, evaluations, n):
        return [a_candidate(problem, problem.reference.source.replace("slow", "fast"))]


class Busy(FakeSession):
    """A machine on which the times of some say nothing."""

    def __init__(self, answers, busy=("fast 0",)):
        super().__init__(answers)
        self.busy = busy

    def evaluate(self, problem, candidate):
        found = super().evaluate(problem, candidate)
        if candidate.program.source not in self.busy:
            return found
        noisy = tuple(a_measurement(2.0, m.workload, spread=1.5) for m in found.measurements)
        return msgspec.structs.replace(found, measurements=noisy)


class Ended(BaseException):
    """As a kill would: nothing runs after it."""


@dataclass
class Repository:
    """Targets by name, and the state that one sweep leaves to the next."""

    path: Path
    problems: dict[str, Problem]
    answers: dict = field(default_factory=lambda: dict(ANSWERS))
    means: str = "m"
    proposer: OneEach = field(default_factory=lambda: OneEach())

    def sweep(self, session=None, budget_s=None, may_reuse=True) -> tuple[Report, list[str]]:
        session = session or FakeSession(self.answers)
        targets = tuple(
            Planned(target=a_target(qualname=name), problem=one, workloads=one.workloads)
            for name, one in self.problems.items()
        )
        plan = Plan(root=self.path, repository="repo", targets=targets)
        with Archive.open(self.path / "archive.sqlite") as archive:
            bench = RunContext(
                session=session,
                strategies=[self.proposer],
                archive=archive,
                progress=SilentProgress(),
                config=ReviewConfig(budget_s=budget_s),
                policy="p",
                may_reuse=may_reuse,
            )
            report = sweep(course_of(plan, bench, self.means), bench)
        return report, [one for one in session.asked if one != "reference"]


@pytest.fixture
def repository(tmp_path) -> Repository:
    return Repository(tmp_path, {f"T{i}": a_problem(f"slow {i}") for i in range(3)})


def proposals(report: Report) -> set[str]:
    return {entry.target.qualname for entry in report.entries if entry.best is not None}


def test_a_second_sweep_measures_nothing_and_tells_the_same(repository):
    first, asked = repository.sweep()
    assert asked == ["fast 0", "fast 1", "fast 2"]
    session = FakeSession({})
    second, _ = repository.sweep(session)
    assert session.asked == [], "not even the references"
    assert proposals(second) == proposals(first) == {"T0", "T1", "T2"}
    told = {e.target.qualname: e.evaluations for e in first.entries}
    assert {e.target.qualname: e.evaluations for e in second.entries} == told
    assert all(entry.reused for entry in second.entries)
    assert second.complete
    assert second.device == first.device


def test_a_sweep_that_is_killed_goes_on_with_the_target_that_it_was_at(repository):
    class Killed(FakeSession):
        def evaluate(self, problem, candidate):
            if candidate.program.source == "fast 1":
                raise Ended
            return super().evaluate(problem, candidate)

    with pytest.raises(Ended):
        repository.sweep(Killed(repository.answers))
    report, asked = repository.sweep()
    assert asked == ["fast 1", "fast 2"]
    assert proposals(report) == {"T0", "T1", "T2"}


def test_what_a_short_budget_does_not_reach_is_told_as_it_was_known(repository):
    repository.sweep()
    repository.problems["new"] = a_problem("slow 7")
    report, asked = repository.sweep(budget_s=-1.0)
    assert asked == []
    assert report.ended == "budget"
    assert proposals(report) == {"T0", "T1", "T2"}
    (new,) = (entry for entry in report.entries if entry.target.qualname == "new")
    assert "not reached" in new.skipped


def test_only_what_is_new_or_changed_is_looked_at_the_new_first(repository):
    repository.sweep()
    repository.problems |= {"T1": a_problem("slow 5"), "new": a_problem("slow 7")}
    report, asked = repository.sweep()
    assert asked == ["fast 7", "fast 5"]
    assert proposals(report) == {"T0", "T1", "T2", "new"}


def test_another_model_looks_at_everything_again_and_what_is_proven_costs_nothing(repository):
    repository.sweep()
    repository.means = "with a model"
    session = FakeSession({})
    report, _ = repository.sweep(session)
    assert session.asked == []
    assert proposals(report) == {"T0", "T1", "T2"}


def test_a_short_night_with_other_means_loses_none_of_what_is_proven(repository):
    repository.sweep()
    repository.means = "with a model"
    repository.problems["T1"] = a_problem("slow 5")
    report, asked = repository.sweep(budget_s=-1.0)
    assert asked == []
    assert report.ended == "budget"
    assert proposals(report) == {"T0", "T2"}, "and T1 is another one now"


def test_what_was_inconclusive_is_tried_again_after_all_else(repository):
    repository.answers["fast 0"] = ("inconclusive", 0.0)
    repository.sweep()
    repository.answers["fast 0"] = ("passed", 2.0)
    repository.problems["new"] = a_problem("slow 7")
    report, asked = repository.sweep()
    assert asked == ["fast 7", "fast 0"]
    assert "T0" in proposals(report)


def test_a_gain_that_noise_hid_is_looked_for_again_after_all_else(repository):
    repository.sweep(Busy(repository.answers))
    repository.problems["new"] = a_problem("slow 7")
    report, asked = repository.sweep()
    assert asked == ["fast 7", "fast 0"]
    assert proposals(report) == {"T0", "T1", "T2", "new"}
    _, asked = repository.sweep()
    assert asked == []


def test_noise_beside_a_proposal_settles_its_target(repository):
    class Both(OneEach):
        def propose(self, problem, evaluations, n):
            other = a_candidate(problem, "fast 8")
            return [*super().propose(problem, evaluations, n), other]

    repository.proposer = Both()
    repository.sweep(Busy(repository.answers, busy=("fast 8",)))
    _, asked = repository.sweep()
    assert asked == []


def test_a_reference_that_does_not_run_is_tried_again_and_one_without_a_rewrite_is_not(tmp_path):
    repository = Repository(tmp_path, {"T": a_problem("slow 1")})
    broken, _ = repository.sweep(FakeSession({}, reference="invalid_reference"))
    assert "no file" in broken.entries[0].skipped
    assert proposals(repository.sweep()[0]) == {"T"}

    degenerate = Repository(tmp_path / "other", {"T": a_problem("slow 1")})
    first, _ = degenerate.sweep(FakeSession({}, reference="degenerate"))
    session = FakeSession({})
    second, _ = degenerate.sweep(session)
    assert session.asked == []
    assert second.entries[0].skipped == first.entries[0].skipped


def test_a_target_with_which_the_judge_died_is_tried_again(repository):
    class Dies(FakeSession):
        def evaluate(self, problem, candidate):
            if candidate.program.source == "fast 1":
                raise WorkerError("out of memory")
            return super().evaluate(problem, candidate)

    report, _ = repository.sweep(Dies(repository.answers))
    assert proposals(report) == {"T0", "T2"}
    report, asked = repository.sweep()
    assert asked == ["fast 1"]
    assert proposals(report) == {"T0", "T1", "T2"}


class OneMore(OneEach):
    """A better one comes first."""

    def propose(self, problem, evaluations, n):
        return [a_candidate(problem, "fast 8"), *super().propose(problem, evaluations, n)]


class Others(OneEach):
    """What an earlier sweep proved does not come again."""

    def propose(self, problem, evaluations, n):
        return [a_candidate(problem, "fast 8"), a_candidate(problem, "fast 7")]


class DiesLater(FakeSession):
    """With all but `fast 8`."""

    def evaluate(self, problem, candidate):
        if candidate.program.source != "fast 8":
            raise WorkerError("out of memory")
        return super().evaluate(problem, candidate)


def test_a_target_in_whose_middle_the_judge_died_is_told_and_looked_at_again(repository):
    repository.proposer = OneMore()
    report, asked = repository.sweep(DiesLater(repository.answers))
    assert asked == ["fast 8"] * 3
    assert proposals(report) == {"T0", "T1", "T2"}
    assert len(report.warnings) == 3
    report, asked = repository.sweep()
    assert asked == ["fast 0", "fast 1", "fast 2"], "and what was judged is known"
    assert [len(entry.evaluations) for entry in report.entries] == [2, 2, 2]
    assert report.warnings == ()
    assert repository.sweep()[1] == []


def test_what_was_judged_before_a_death_and_what_was_proven_earlier_are_told_together(repository):
    repository.sweep()
    repository.proposer, repository.means = Others(), "with a model"
    repository.answers["fast 8"] = ("passed", 1.0)
    report, _ = repository.sweep(DiesLater(repository.answers))
    for number, entry in enumerate(report.entries):
        sources = [one.candidate.program.source for one in entry.evaluations]
        assert sources == ["fast 8", f"fast {number}"]
        assert entry.best == 1
    report, _ = repository.sweep(budget_s=-1.0)
    assert proposals(report) == {"T0", "T1", "T2"}, "as the next one knows too"


def test_a_judge_that_dies_takes_back_nothing_that_was_proven(repository):
    class Dies(FakeSession):
        def evaluate(self, problem, candidate):
            raise WorkerError("out of memory")

    class More(OneEach):
        def propose(self, problem, evaluations, n):
            return [*super().propose(problem, evaluations, n), a_candidate(problem, "fast 8")]

    first, _ = repository.sweep()
    repository.proposer, repository.means = More(), "with a model"
    report, _ = repository.sweep(Dies({}))
    told = {e.target.qualname: e.evaluations for e in first.entries}
    assert {e.target.qualname: e.evaluations for e in report.entries} == told
    report, _ = repository.sweep(budget_s=-1.0)
    assert proposals(report) == {"T0", "T1", "T2"}, "as the next one knows too"
    _, asked = repository.sweep()
    assert asked == ["fast 8"] * 3, "and what was not judged is tried again"


def test_a_fresh_sweep_measures_everything_again(repository):
    repository.sweep()
    _, asked = repository.sweep(may_reuse=False)
    assert asked == ["fast 0", "fast 1", "fast 2"]


def test_an_archive_that_lost_an_evaluation_gets_it_again(repository):
    repository.sweep()
    with Archive.open(repository.path / "archive.sqlite") as archive:
        archive._write("DELETE FROM evaluations WHERE id = ?", (2,))
    _, asked = repository.sweep()
    assert len(asked) == 1


def test_a_target_that_is_cut_short_keeps_what_was_known_of_it(repository):
    class TwoEach(OneEach):
        def propose(self, problem, evaluations, n):
            return [*super().propose(problem, evaluations, n), a_candidate(problem, "doubtful")]

    repository.proposer = TwoEach()
    repository.answers["doubtful"] = ("inconclusive", 0.0)
    repository.sweep()

    class Interrupted(FakeSession):
        def evaluate(self, problem, candidate):
            raise KeyboardInterrupt

    report, _ = repository.sweep(Interrupted({}))
    assert report.ended == "interrupted"
    assert proposals(report) == {"T0", "T1", "T2"}


def test_a_target_whose_turn_is_cut_before_anything_was_tried_counts_as_not_reached(repository):
    class Slow(FakeSession):
        def check(self, problem, most_s=None):
            time.sleep(0.3)
            return super().check(problem)

    report, asked = repository.sweep(Slow(repository.answers), budget_s=0.2)
    assert asked == []
    assert {entry.skipped for entry in report.entries} == {"not reached: the budget was spent"}


def test_what_an_earlier_look_only_timed_is_no_proposal_beside_what_was_examined():
    problem = a_problem()
    held = (ContractCheck(aspect="gradients", result="held"),)
    examined = an_evaluation(a_candidate(problem, "examined"), speedup=2.0)
    examined = msgspec.structs.replace(examined, contract=held)
    timed = an_evaluation(a_candidate(problem, "timed"), speedup=4.0)
    looks = [
        Entry(target=a_target(), workloads=problem.workloads, evaluations=(one,))
        for one in (examined, timed)
    ]
    assert with_earlier(*looks).best == 0
    assert with_earlier(*looks[::-1]).best == 1
