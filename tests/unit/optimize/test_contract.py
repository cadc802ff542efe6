"""What is proposed breaks no line of its contract."""

from __future__ import annotations

import msgspec
import pytest

from cudal1_ci.errors import WorkerError
from cudal1_ci.optimize.config import ReviewConfig
from cudal1_ci.optimize.context import RunContext
from cudal1_ci.records import TreeProgram
from tests.fakes import FakeProposer, FakeSession, a_problem
from tests.unit.optimize.test_pipeline import Compiling, Screening, Setting

TREE = TreeProgram(root=".", import_root=".", import_path="m:Block", digest="d")
ANSWERS = {"slow": ("passed", 1.5), "fast": ("passed", 3.0), "wrong": ("incorrect_values", 9.0)}


def reviewed(path, session, sources=tuple(ANSWERS)):
    problem = msgspec.structs.replace(a_problem(), reference=TREE)
    setting = Setting(path, session, FakeProposer(list(sources)), problems=(problem,))
    (entry,) = setting.review().entries
    return entry


def best_source(entry):
    return None if entry.best is None else entry.evaluations[entry.best].candidate.program.source


def test_only_the_winner_is_examined(tmp_path):
    session = FakeSession(ANSWERS)
    entry = reviewed(tmp_path, session)
    assert session.examined == ["fast"]
    assert best_source(entry) == "fast"
    assert entry.evaluations[entry.best].contract[0].result == "held"


def test_the_next_best_is_proposed_where_the_best_breaks_a_line(tmp_path):
    session = FakeSession(ANSWERS)
    session.breaking = ["fast"]
    entry = reviewed(tmp_path, session)
    assert session.examined == ["fast", "slow"]
    assert best_source(entry) == "slow"
    broken = [one for one in entry.evaluations if one.broken]
    assert [one.candidate.program.source for one in broken] == ["fast"]


def test_nothing_is_proposed_where_all_break_a_line(tmp_path):
    session = FakeSession(ANSWERS)
    session.breaking = ["fast", "slow"]
    entry = reviewed(tmp_path, session)
    assert entry.best is None
    assert entry.skipped is None


def test_others_are_confirmed_where_the_first_two_break_a_line(tmp_path):
    screened = {"a": 3.0, "b": 2.5, "c": 2.0, "d": 1.8}
    session = Screening(screened, screened)
    session.breaking = ["a", "b"]
    entry = reviewed(tmp_path, session, screened)
    assert session.was_confirmed == ["a", "b", "c"]
    assert best_source(entry) == "c"


@pytest.mark.parametrize(
    ("budget_s", "order"),
    [
        (1e6, ["a", "confirm a", "compiled", "examine a"]),
        (100.0, ["a", "confirm a", "examine a", "compiled"]),
    ],
)
def test_what_may_be_beaten_soon_is_not_examined_yet_where_time_is_left(tmp_path, budget_s, order):
    session = InOrder({"a": 3.0, "compiled": 2.0}, {"a": 3.0, "compiled": 2.0})
    entry = reviewed_in(tmp_path, session, budget_s)
    assert session.order == order
    assert best_source(entry) == "a"


def test_what_was_confirmed_and_not_examined_is_not_proposed(tmp_path):
    class Interrupted(InOrder):
        def screen(self, problem, candidate, most_s=None):
            if candidate.program.source == "compiled":
                raise KeyboardInterrupt
            return super().screen(problem, candidate)

    session = Interrupted({"a": 3.0}, {"a": 3.0})
    entry = reviewed_in(tmp_path, session, 1e6)
    assert [one.phase for one in entry.evaluations] == ["confirmed"]
    assert entry.best is None
    again = InOrder({"compiled": 2.0}, {})
    entry = reviewed_in(tmp_path, again, 1e6)
    assert again.order == ["compiled", "examine a"]
    assert best_source(entry) == "a"


def test_time_is_kept_for_the_impact_once_something_is_proposed(tmp_path, monkeypatch):
    """What was only confirmed may still break a line, and then there is no impact to measure."""
    paces, seen, left_s = [], {}, RunContext.left_s

    def watched(context):
        paces.append(context.pace)
        seen[tuple(session.order[-1:])] = context.pace.has_gain
        return left_s(context)

    session = InOrder({"a": 3.0, "compiled": 2.0}, {"a": 3.0, "compiled": 2.0})
    monkeypatch.setattr(RunContext, "left_s", watched)
    assert best_source(reviewed_in(tmp_path, session, 1e6)) == "a"
    assert session.order[-1] == "examine a"
    assert seen[("confirm a",)] is seen[("compiled",)] is False
    assert paces[-1].has_gain


class InOrder(Screening):
    """Remembers what was asked of it, in order."""

    def __init__(self, *given):
        super().__init__(*given)
        self.order = []

    def screen(self, problem, candidate, most_s=None):
        self.order.append(candidate.program.source)
        return super().screen(problem, candidate)

    def evaluate(self, problem, candidate):
        self.order.append(f"confirm {candidate.program.source}")
        return super().evaluate(problem, candidate)

    def examine_contract(self, problem, evaluation):
        self.order.append(f"examine {evaluation.candidate.program.source}")
        return super().examine_contract(problem, evaluation)


def reviewed_in(path, session, budget_s):
    """Return the entry of an edit and a compilation, within a budget."""
    problem = msgspec.structs.replace(a_problem(), reference=TREE)
    proposer, config = Compiling(["a", "compiled"]), ReviewConfig(budget_s=budget_s)
    (entry,) = Setting(path, session, proposer, problems=(problem,), config=config).review().entries
    return entry


def test_a_second_run_knows_the_contract(tmp_path):
    first = FakeSession(ANSWERS)
    first.breaking = ["fast"]
    reviewed(tmp_path, first)
    again = FakeSession({})
    entry = reviewed(tmp_path, again)
    assert again.examined == []
    assert best_source(entry) == "slow"


def test_texts_of_a_task_have_no_other_callers(tmp_path):
    session = FakeSession(ANSWERS)
    (entry,) = Setting(tmp_path, session, FakeProposer(["fast"])).review().entries
    assert session.examined == []
    assert best_source(entry) == "fast"


def test_a_verifier_that_dies_leaves_a_line_that_was_not_tried(tmp_path, monkeypatch):
    def dies(*_):
        raise WorkerError("it ended")

    session = FakeSession(ANSWERS)
    monkeypatch.setattr(session, "examine_contract", dies)
    entry = reviewed(tmp_path, session)
    (check,) = entry.evaluations[entry.best].contract
    assert check.result == "not_tried"
    assert "it ended" in check.detail


@pytest.mark.parametrize("result", ["held", "differs", "not_applicable", "not_tried"])
def test_only_broken_lines_count(tmp_path, monkeypatch, result):
    session = FakeSession(ANSWERS)
    given = session.examine_contract

    def examine(problem, evaluation):
        found = given(problem, evaluation)
        checks = tuple(msgspec.structs.replace(one, result=result) for one in found.contract)
        return msgspec.structs.replace(found, contract=checks)

    monkeypatch.setattr(session, "examine_contract", examine)
    assert best_source(reviewed(tmp_path, session)) == "fast"
