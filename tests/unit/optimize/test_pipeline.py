"""The loop: order, memory, budget, interruption; with stand-ins for the judge and the proposers."""

from __future__ import annotations

import io
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from cudal1_ci.discover.plan import Plan, Planned
from cudal1_ci.errors import WorkerError
from cudal1_ci.optimize.accept import Acceptor
from cudal1_ci.optimize.config import ReviewConfig
from cudal1_ci.optimize.context import RunContext
from cudal1_ci.optimize.reasons import DEVICE_IN_USE, SPENT, hint_of_import
from cudal1_ci.optimize.run import by_promise, review
from cudal1_ci.optimize.target import optimize_target
from cudal1_ci.processes.device_wait import GaveUp
from cudal1_ci.records import Candidate, Edit, Evaluation, Finding, Problem, Verdict
from cudal1_ci.records.archive import Archive
from cudal1_ci.render.progress import PlainProgress, SilentProgress
from cudal1_ci.verification.session import GIVEN_UP
from tests.fakes import (
    FakeProposer,
    FakeSession,
    Waiting,
    a_candidate,
    a_measurement,
    a_problem,
    a_target,
    a_workload,
    an_evaluation,
)


@dataclass
class Setting:
    """A plan of targets, one for each problem, and a bench whose parts a test may replace."""

    path: Path
    session: FakeSession
    proposer: FakeProposer = field(default_factory=lambda: FakeProposer(["fast"]))
    problems: tuple[Problem, ...] = (a_problem(),)
    config: ReviewConfig = field(default_factory=ReviewConfig)
    acceptor: Acceptor | None = None

    def review(self):
        targets = tuple(
            Planned(
                target=a_target(qualname=f"Block{i}"),
                problem=problem,
                workloads=problem.workloads,
            )
            for i, problem in enumerate(self.problems)
        )
        plan = Plan(root=self.path, repository="repo", targets=targets)
        with Archive.open(self.path / "archive.sqlite") as archive:
            bench = RunContext(
                session=self.session,
                strategies=[self.proposer],
                archive=archive,
                progress=SilentProgress(),
                config=self.config,
                policy="p",
                acceptor=self.acceptor,
            )
            return review(plan, bench)


def test_a_passed_candidate_that_is_faster_becomes_the_best(tmp_path):
    session = FakeSession({"fast": ("passed", 2.0), "wrong": ("incorrect_values", 9.0)})
    report = Setting(tmp_path, session, FakeProposer(["wrong", "fast"])).review()
    (entry,) = report.entries
    assert report.complete
    assert [e.verdict.status for e in entry.evaluations] == ["incorrect_values", "passed"]
    assert entry.best == 1


class Screening(FakeSession):
    """Screens with one repetition, and confirms with a speedup of its own."""

    def __init__(self, screened: dict[str, float], confirmed: dict[str, float]):
        super().__init__({source: ("passed", one) for source, one in screened.items()})
        self.confirmed, self.was_confirmed = confirmed, []

    def screen(self, problem, candidate, most_s=None):
        found = super().evaluate(problem, candidate)
        measured = tuple(
            a_measurement(self.answers[candidate.program.source][1], one.workload, num_launches=1)
            for one in found.measurements
        )
        return msgspec.structs.replace(found, measurements=measured, phase="screened")

    def evaluate(self, problem, candidate):
        source = candidate.program.source
        self.was_confirmed.append(source)
        found = an_evaluation(candidate, "passed", self.confirmed[source])
        return msgspec.structs.replace(found, phase="confirmed")


def test_all_are_screened_and_the_best_two_are_confirmed(tmp_path):
    session = Screening({"a": 1.5, "b": 3.0, "c": 2.0, "d": 1.0}, {"b": 1.9, "c": 2.1})
    (entry,) = Setting(tmp_path, session, FakeProposer(["a", "b", "c", "d"])).review().entries
    assert session.asked[1:] == ["a", "b", "c", "d"]
    assert session.was_confirmed == ["b", "c"]
    assert [one.phase for one in entry.evaluations] == [
        "screened",
        "confirmed",
        "confirmed",
        "screened",
    ]
    assert entry.best == 2, "of what was confirmed"


class Compiling(FakeProposer):
    """Proposes a compilation, `compiled`, and an edit, `a`."""

    def propose(self, problem, evaluations, n):
        edit = Edit(operator="compile", technique="compilation", found=(), why="it fuses")
        other = Edit(operator="attention", technique="fusion", found=(), why="it fuses")
        edits = {"compiled": (edit,), "a": (other,)}
        return [
            msgspec.structs.replace(one, edits=edits.get(one.program.source, ()))
            for one in super().propose(problem, evaluations, n)
        ]


def test_within_a_budget_a_gain_is_confirmed_before_what_may_take_minutes(tmp_path):
    class InOrder(Screening):
        def screen(self, problem, candidate, most_s=None):
            self.order.append(candidate.program.source)
            return super().screen(problem, candidate)

        def evaluate(self, problem, candidate):
            self.order.append(f"confirmed {candidate.program.source}")
            return super().evaluate(problem, candidate)

    def order(path, config):
        session = InOrder({"a": 3.0, "compiled": 2.0}, {"a": 3.0, "compiled": 2.0})
        session.order = []
        path.mkdir()
        Setting(path, session, Compiling(["a", "compiled"]), config=config).review()
        return session.order[:3]

    assert order(tmp_path / "0", ReviewConfig(budget_s=1e6)) == ["a", "confirmed a", "compiled"]
    assert order(tmp_path / "1", ReviewConfig()) == ["a", "compiled", "confirmed a"]


def test_where_the_first_two_are_no_gain_others_are_confirmed_and_a_screening_is_no_proposal(
    tmp_path,
):
    screened = {"a": 3.0, "b": 2.5, "c": 2.0, "d": 1.8, "e": 1.7}
    session = Screening(screened, dict.fromkeys(screened, 1.0))
    (entry,) = Setting(tmp_path, session, FakeProposer(list(screened))).review().entries
    assert session.was_confirmed == ["a", "b", "c", "d"]
    assert entry.best is None


def test_a_screening_that_is_known_is_confirmed_by_a_later_run(tmp_path):
    class Interrupted(Screening):
        def evaluate(self, problem, candidate):
            raise KeyboardInterrupt

    first = Interrupted({"fast": 2.0}, {})
    Setting(tmp_path, first).review()
    second = Screening({}, {"fast": 2.0})
    (entry,) = Setting(tmp_path, second).review().entries
    assert (second.asked, second.was_confirmed, entry.best) == ([], ["fast"], 0)


def test_a_candidate_that_is_not_faster_is_never_the_best(tmp_path):
    session = FakeSession({"same": ("passed", 1.0)})
    (entry,) = Setting(tmp_path, session, FakeProposer(["same"])).review().entries
    assert entry.best is None


def test_the_second_round_is_shown_what_was_found_in_the_first(tmp_path):
    session = FakeSession({"a": ("passed", 1.5), "b": ("passed", 3.0), "c": ("timeout", 0.0)})
    proposer = FakeProposer(["a", "b", "c"], [])
    Setting(tmp_path, session, proposer).review()
    assert proposer.shown[0] == []
    shown = [(x.candidate.program.source, x.verdict.status) for x in proposer.shown[1]]
    assert shown == [("a", "passed"), ("b", "passed"), ("c", "timeout")]


def test_a_second_run_reuses_every_evaluation_and_says_so(tmp_path):
    first = FakeSession({"fast": ("passed", 2.0)})
    Setting(tmp_path, first).review()
    second = FakeSession({})
    (entry,) = Setting(tmp_path, second).review().entries
    assert second.asked == []
    assert entry.reused == (entry.evaluations[0].candidate.id,)
    assert entry.best == 0


def test_what_is_not_known_yet_is_built_ahead_and_what_is_known_is_not(tmp_path):
    first = FakeSession({"fast": ("passed", 2.0)})
    (entry,) = Setting(tmp_path, first).review().entries
    assert first.built == [entry.evaluations[0].candidate.id]
    second = FakeSession({})
    Setting(tmp_path, second).review()
    assert second.built == []


def test_a_reference_that_fails_is_skipped_with_the_tracebacks_last_lines(tmp_path):
    session = FakeSession({}, reference="invalid_reference")
    (entry,) = Setting(tmp_path, session).review().entries
    assert entry.evaluations == ()
    assert "ValueError: no file" in entry.skipped
    assert entry.skipped.startswith("reference fails: ")


def test_who_lacks_a_package_reads_where_it_is_missing():
    reason = "reference fails: importing the reference failed: ModuleNotFoundError: No module named"
    assert hint_of_import(f"{reason} 'timm.models'").startswith(
        "install what `timm.models` belongs"
    )
    assert hint_of_import("reference fails: calling the reference failed: KeyError: 'timm'") is None


def test_a_reference_that_takes_too_long_is_left_for_a_run_with_more_time(tmp_path):
    limits = []

    class Slow(FakeSession):
        def check(self, problem, most_s=None):
            limits.append(most_s)
            if problem.reference.source == "large":
                late = Finding(rule=GIVEN_UP, message="its reference was not verified within 30 s")
                return Verdict(status="inconclusive", findings=(late,))
            return super().check(problem)

    setting = Setting(
        tmp_path,
        Slow({"fast": ("passed", 2.0)}),
        FakeProposer(*[["fast"]] * 8),
        problems=(a_problem("large"), a_problem("small")),
        config=ReviewConfig(budget_s=120.0),
    )
    for _ in range(2):
        large, small = setting.review().entries
        assert "not verified within 30 s" in large.skipped
        assert small.best == 0
    assert all(20.0 <= one <= 60.0 for one in limits), "half of what is left for two"
    assert len(limits) > 2, "it is tried again, as nothing is known of it"


def test_a_target_whose_judge_dies_does_not_stop_the_others(tmp_path):
    class Dying(FakeSession):
        def check(self, problem, most_s=None):
            if problem.reference.source == "bad":
                raise WorkerError("the judge was killed")
            return super().check(problem)

    session = Dying({"fast": ("passed", 2.0)})
    setting = Setting(
        tmp_path,
        session,
        FakeProposer(["fast"], ["fast"], []),
        problems=(a_problem("bad"), a_problem("good")),
    )
    bad, good = setting.review().entries
    assert "the judge was killed" in bad.skipped
    assert good.best == 0


def test_a_judge_that_dies_in_the_middle_of_a_target_takes_back_nothing_that_was_judged(tmp_path):
    class Dying(FakeSession):
        def evaluate(self, problem, candidate):
            if candidate.program.source == "deadly":
                raise WorkerError("killed by signal 9")
            return super().evaluate(problem, candidate)

    session = Dying({"fast": ("passed", 2.0), "other": ("passed", 3.0)})
    report = Setting(tmp_path, session, FakeProposer(["fast", "deadly", "other"])).review()
    (entry,) = report.entries
    assert [one.candidate.program.source for one in entry.evaluations] == ["fast"]
    assert (entry.best, entry.skipped, report.ended) == (0, None, "done")
    (notice,) = report.warnings
    assert notice.path == entry.target.path
    assert notice.message == (
        "Block0: the verifier failed: killed by signal 9; what was verified before is kept, "
        "the rest was not tried"
    )


def test_a_report_says_when_it_was_finished(tmp_path):
    before = datetime.now(UTC).replace(microsecond=0)
    finished = Setting(tmp_path, FakeSession({})).review().generated_at
    assert before <= finished <= datetime.now(UTC)


def test_where_nothing_is_proposed_nothing_is_run(tmp_path):
    session = FakeSession({})
    (entry,) = Setting(tmp_path, session, FakeProposer([])).review().entries
    assert session.asked == []
    assert "no rewrite matches" in entry.skipped
    assert entry.workloads


def test_a_bug_that_one_target_meets_is_reported_and_does_not_stop_the_others(tmp_path):
    class Broken(FakeProposer):
        def propose(self, problem, evaluations, n):
            if problem.reference.source == "bad":
                raise RecursionError("too deep")
            return super().propose(problem, evaluations, n)

    session = FakeSession({"fast": ("passed", 2.0)})
    problems = (a_problem("bad"), a_problem("good"))
    bad, good = Setting(tmp_path, session, Broken(["fast"], []), problems).review().entries
    assert "bug" in bad.skipped
    assert "RecursionError: too deep" in bad.skipped
    assert good.best == 0


def test_an_interrupt_keeps_what_was_finished_and_lists_the_rest(tmp_path):
    class Interrupted(FakeSession):
        def evaluate(self, problem: Problem, candidate: Candidate) -> Evaluation:
            if "reference2" in problem.reference.source:
                raise KeyboardInterrupt
            return super().evaluate(problem, candidate)

    problems = tuple(a_problem(f"reference{i}") for i in (1, 2, 3))
    session = Interrupted({"fast": ("passed", 2.0)})
    proposer = FakeProposer(["fast"], [], ["fast"], ["fast"])
    report = Setting(tmp_path, session, proposer, problems).review()
    assert not report.complete
    done, interrupted, untouched = report.entries
    assert done.best == 0
    assert "interrupted" in interrupted.skipped
    assert "not reached" in untouched.skipped

    again = FakeSession({"fast": ("passed", 2.0)})
    Setting(tmp_path, again, FakeProposer(["fast"], [], ["fast"], [], ["fast"]), problems).review()
    assert again.asked.count("fast") == 2, "the finished evaluation must not be judged again"


def test_a_spent_budget_ends_the_review_and_says_which_targets_were_not_reached(tmp_path):
    setting = Setting(
        tmp_path,
        FakeSession({"fast": ("passed", 2.0)}),
        problems=(a_problem("one"), a_problem("two")),
        config=ReviewConfig(budget_s=0.0),
    )
    report = setting.review()
    assert not report.complete
    assert all("budget" in entry.skipped for entry in report.entries)


def test_a_budget_ends_while_another_process_has_the_device_and_loses_nothing(tmp_path):
    answers = {"fast": ("passed", 2.0), "other": ("passed", 3.0)}
    config = ReviewConfig(budget_s=0.5)
    problems = (a_problem("0"), a_problem("1"))
    session = Waiting(answers, ["other"])
    setting = Setting(tmp_path, session, FakeProposer(["fast", "other"]), problems[:1], config)
    report = setting.review()
    (entry,) = report.entries
    assert (report.ended, entry.skipped, entry.best) == ("budget", None, 0)
    assert report.warnings == ()
    setting = Setting(
        tmp_path, Waiting(answers, ["reference"]), FakeProposer(["other"]), problems[1:], config
    )
    report = setting.review()
    (entry,) = report.entries
    assert (report.ended, entry.skipped) == ("budget", DEVICE_IN_USE)


@pytest.mark.parametrize(("num_slots", "reason"), [(1, DEVICE_IN_USE), (3, SPENT)])
def test_a_wait_that_was_given_up_is_no_bug_of_what_proposes(
    tmp_path, monkeypatch, num_slots, reason
):
    """Where a run has several verifiers they wait for each other."""
    monkeypatch.setattr(RunContext, "num_slots", num_slots)

    class Recording(FakeProposer):
        def propose(self, problem, evaluations, n):
            raise GaveUp("the device was waited for until the run was over")

    report = Setting(tmp_path, FakeSession({}), Recording([])).review()
    (entry,) = report.entries
    assert (report.ended, entry.skipped) == ("budget", reason)
    assert report.warnings == () and "bug" not in str(entry)


def test_a_budget_that_ends_after_the_last_candidate_has_cut_nothing(tmp_path):
    class Slow(FakeSession):
        def evaluate(self, problem, candidate):
            time.sleep(0.06)
            return super().evaluate(problem, candidate)

    setting = Setting(
        tmp_path,
        Slow({"fast": ("passed", 2.0)}),
        FakeProposer(["fast"], []),
        config=ReviewConfig(budget_s=0.05),
    )
    report = setting.review()
    assert report.ended == "done"


def test_what_is_likely_to_take_longer_than_is_left_is_not_begun_and_is_next_time(tmp_path):
    class Slow(FakeSession):
        def evaluate(self, problem, candidate):
            found = super().evaluate(problem, candidate)
            return msgspec.structs.replace(found, elapsed_s=100.0)

    verdicts = {"fast": ("passed", 2.0), "other": ("passed", 3.0)}

    def review(proposer, *, judge):
        config = ReviewConfig(budget_s=60.0)
        return Setting(tmp_path, judge, proposer, config=config).review()

    first, second = Slow(verdicts), Slow(verdicts)
    report = review(FakeProposer(["fast", "other"], []), judge=first)
    assert first.asked.count("other") == 0 and report.ended == "budget"
    assert report.entries[0].best is not None, "what was finished is told"
    report = review(FakeProposer(["fast", "other"], []), judge=second)
    assert second.asked.count("fast") == 0 and second.asked.count("other") == 1
    assert report.ended == "done"


class Clocked(FakeSession):
    """A judge whose verdicts take so many seconds of a clock that only it moves."""

    now_s = 0.0
    took_s = 30.0
    order: tuple[str, ...] = ()

    def evaluate(self, problem, candidate):
        Clocked.now_s += self.took_s
        self.order += (f"{problem.reference.source}:{candidate.program.source}",)
        found = super().evaluate(problem, candidate)
        return msgspec.structs.replace(found, elapsed_s=self.took_s)


class ByProblem:
    """Proposes the same for a target whenever it is asked."""

    name = "by problem"

    def __init__(self, **sources):
        self.sources = sources

    def propose(self, problem, evaluations, n):
        found = self.sources.get(problem.reference.source, ())
        return [] if evaluations else [a_candidate(problem, source) for source in found[:n]]


@pytest.mark.parametrize(
    ("budget_s", "order", "ended"),
    [
        (121.0, ["big:a", "small:c", "big:b", "big:d"], "done"),
        (100.0, ["big:a", "small:c", "big:b"], "budget"),
        (70.0, ["big:a", "small:c"], "budget"),
        (40.0, ["big:a", "small:c"], "budget"),
        (None, ["big:a", "big:b", "big:d", "small:c"], "done"),
    ],
)
def test_no_target_takes_the_turn_of_another_and_what_is_left_over_is_used(
    tmp_path, monkeypatch, budget_s, order, ended
):
    Clocked.now_s = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: Clocked.now_s)
    judge = Clocked(dict.fromkeys("abcd", ("passed", 2.0)))
    setting = Setting(
        tmp_path,
        judge,
        ByProblem(big=("a", "b", "d"), small=("c",)),
        problems=(a_problem("big"), a_problem("small")),
        config=ReviewConfig(budget_s=budget_s),
    )
    report = setting.review()
    assert list(judge.order) == order
    assert report.ended == ended
    assert all(entry.best is not None for entry in report.entries)
    assert not any(entry.reused for entry in report.entries)
    tried = [len(entry.evaluations) for entry in report.entries]
    assert sum(tried) == len(order)


@pytest.mark.parametrize("shares", [(0.1, 0.9), (0.9, 0.1)])
def test_targets_that_take_more_of_the_traced_time_come_first(tmp_path, shares):
    problems = tuple(
        a_problem(f"source{i}", a_workload(share=share)) for i, share in enumerate(shares)
    )
    session = FakeSession({"fast": ("passed", 2.0)})
    setting = Setting(tmp_path, session, FakeProposer(["fast"], [], ["fast"], []), problems)
    names = [entry.target.qualname for entry in setting.review().entries]
    assert names == (["Block0", "Block1"] if shares[0] > shares[1] else ["Block1", "Block0"])


@pytest.mark.parametrize(
    ("share", "min_share", "is_tried"),
    [(0.0004, 0.001, False), (0.0004, 0.0, True), (0.002, 0.001, True), (None, 0.001, True)],
)
def test_what_takes_a_negligible_share_is_left_out_and_said_to_be(
    tmp_path, share, min_share, is_tried
):
    problem = msgspec.structs.replace(
        a_problem("x * torch.sigmoid(x)"), workloads=(a_workload(share=share),)
    )
    session = FakeSession({"fast": ("passed", 2.0)})
    # As the playbook does, which has no rewrite of the whole module here.
    proposer = FakeProposer(["fast"] if is_tried else [])
    config = ReviewConfig(min_share=min_share)
    (entry,) = Setting(tmp_path, session, proposer, (problem,), config).review().entries
    assert (entry.best == 0) is is_tried
    if not is_tried:
        assert session.asked == []
        assert "0.04 % of the traced time, less than 0.1 %" in entry.skipped
        assert "review.min-share" in entry.hint


def test_what_has_no_problem_is_no_line_of_its_own(tmp_path):
    stream = io.StringIO()
    bare = [Planned(target=a_target(qualname=f"Bare{i}"), reason="no workload") for i in range(5)]
    posed = Planned(target=a_target(), problem=a_problem(), workloads=a_problem().workloads)
    plan = Plan(root=tmp_path, repository="repo", targets=(*bare, posed))
    with Archive.open(tmp_path / "archive.sqlite") as archive:
        bench = RunContext(
            session=FakeSession({"fast": ("passed", 2.0)}),
            strategies=[FakeProposer(["fast"], [])],
            archive=archive,
            progress=PlainProgress(stream),
            config=ReviewConfig(),
            policy="p",
        )
        report = review(plan, bench)
    assert [entry.skipped for entry in report.entries] == [None, *["no workload"] * 5]
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("importing torch")
    assert lines[1].startswith("1 target to look at; 5 others cannot be run")
    assert not any("Bare" in line for line in lines)


def test_what_takes_a_negligible_share_comes_after_what_was_not_traced():
    targets = [
        Planned(
            target=a_target(qualname=str(share)),
            problem=msgspec.structs.replace(a_problem(), workloads=(a_workload(share=share),)),
            workloads=(a_workload(share=share),),
        )
        for share in (0.0004, None, 0.002, 0.5)
    ]
    order = [planned.target.qualname for planned in by_promise(targets, 0.001)]
    assert order == ["0.5", "0.002", "None", "0.0004"]


def test_what_was_changed_itself_comes_before_what_uses_it():
    shares = {"calls a.py:f": 0.9, "changed": 0.1}
    targets = [
        Planned(
            target=msgspec.structs.replace(a_target(), selected_because=because),
            problem=a_problem(because),
            workloads=(a_workload(share=share),),
        )
        for because, share in shares.items()
    ]
    first, second = by_promise(targets)
    assert (first.target.selected_because, second.target.selected_because) == tuple(shares)[::-1]


def test_what_fails_on_a_faster_program_costs_nothing_that_was_proposed_before(tmp_path):
    class Rebased(FakeProposer):
        def propose_recorded(self, problem, recording, evaluations, n):
            return self.propose(problem, evaluations, n)

        def base(self, evaluations):
            raise RecursionError("too deep")

        def propose_on(self, problem, base, recording, evaluations, n):
            raise NotImplementedError

    session = FakeSession({"fast": ("passed", 2.0), "faster": ("passed", 3.0)})
    report = Setting(tmp_path, session, Rebased(["fast"], ["faster"])).review()
    (entry,) = report.entries
    assert [one.candidate.program.source for one in entry.evaluations] == ["fast", "faster"]
    assert any("RecursionError" in one for one in entry.warnings)


def test_a_strategy_that_failed_is_forgotten_when_its_target_is_taken_up_again(tmp_path):
    class Broken(FakeProposer):
        name = "broken"

        def propose(self, problem, evaluations, n):
            raise RecursionError("too deep")

    problem = a_problem()
    planned = Planned(target=a_target(), problem=problem, workloads=problem.workloads)
    with Archive.open(tmp_path / "archive.sqlite") as archive:
        context = RunContext(
            session=FakeSession({"fast": ("passed", 2.0)}),
            strategies=(),
            archive=archive,
            progress=SilentProgress(),
            config=ReviewConfig(),
            policy="p",
        )
        entry = optimize_target(planned, [Broken(), FakeProposer(["fast"])], context)
        assert entry.best == 0, "it costs what it would have proposed"
        assert "RecursionError" in context.failed(planned.target)["broken"]
        optimize_target(planned, [FakeProposer(["fast"])], context)
        assert context.failed(planned.target) == {}
