"""A helper without a call of its own is measured by what calls it, where that was measured."""

from __future__ import annotations

import msgspec
import pytest

from cudal1_ci.compare.bench import Bench
from cudal1_ci.compare.config import CompareConfig
from cudal1_ci.compare.loop import compare
from cudal1_ci.compare.pairs import Pairs
from cudal1_ci.errors import WorkerError
from cudal1_ci.records import Comparison, Entry, Report
from cudal1_ci.records.archive import Archive
from cudal1_ci.records.recording import Frame, Recording
from cudal1_ci.render.comment import comment as render_comment
from cudal1_ci.render.comment_template import About
from cudal1_ci.render.merge import joined
from cudal1_ci.render.progress import SilentProgress
from cudal1_ci.stats.gate import Policy, judged
from tests.fakes import a_target, a_workload
from tests.unit.compare import test_loop
from tests.unit.compare.test_loop import a_pair

STRICT = Policy(fail_on="regression")


class Verifier(test_loop.Verifier):
    """Says of each recorded call which functions ran."""

    def __init__(self, frames, **answers):
        super().__init__(**answers)
        self.frames, self.recorded = frames, []

    def record(self, problem, workload):
        name = problem.reference.source.partition("'")[2].rstrip("'")
        self.recorded.append((name, workload.name))
        found = self.frames.get(name, "it cannot be recorded")
        if isinstance(found, Exception | str):
            if isinstance(found, str):
                return found
            raise found
        frames = [
            Frame(
                file=one.partition(":")[0],
                function=one.partition(":")[2],
                first_line=1,
                caller=None,
                call=None,
            )
            for one in found
        ]
        return msgspec.structs.replace(EMPTY, frames=tuple(frames))


EMPTY = Recording(values=(), frames=(), scopes=(), operations=(), outputs=(), total_us=1.0)


def a_helper(qualname, cause="skipped", path="pkg/bounds.py"):
    comparison = Comparison(verdict="skipped", reason="no workload", cause=cause)
    target = a_target(qualname=qualname, path=path)
    return Entry(target=target, skipped="no workload", comparison=comparison)


@pytest.fixture
def run(tmp_path):
    def compared(judge, pairs, *others, **more):
        with Archive.open(tmp_path / "archive.sqlite") as archive:
            bench = Bench(
                session=judge,
                archive=archive,
                progress=SilentProgress(),
                config=CompareConfig(),
                policy="p",
                **more,
            )
            entries, _ = compare(Pairs(pairs=pairs, others=others), bench)
        return entries

    return compared


def conclusion(entries):
    return judged(Report(repository="r", entries=tuple(entries)), STRICT).conclusion


def test_a_helper_that_ran_in_a_measured_call_is_measured_with_it(run):
    judge = Verifier({"A": ["pkg/bounds.py:bounded", "pkg/bounds.py:Scale.forward"]}, A=[1.0])
    entries = run(judge, (a_pair("A"),), a_helper("bounded"), a_helper("Scale"))
    assert conclusion(entries) == "success"
    for one in entries[1:]:
        assert one.comparison.within == (entries[0].target.address,)
        assert one.comparison.reason == "it has no call of its own, and ran in measured calls of A"
        assert one.comparison.verdict == "skipped"


@pytest.mark.parametrize(
    "frames",
    [
        {"A": ["pkg/bounds.py:bounded_below", "pkg/other.py:bounded"]},
        {"A": ["pkg/bounds.py:Other.bounded"]},
        {"A": "it cannot be recorded"},
        {"A": WorkerError("it is gone")},
    ],
)
def test_one_that_did_not_run_there_stays_unmeasured(run, frames):
    helper = a_helper("bounded")
    entries = run(Verifier(frames, A=[1.0]), (a_pair("A"),), helper)
    assert entries[1] == helper
    assert conclusion(entries) == "failure"


def test_a_target_without_times_measures_no_helper(run):
    frames = {"A": ["pkg/bounds.py:bounded"], "Guessed": ["pkg/bounds.py:bounded"]}
    guess = msgspec.structs.replace(a_workload("g"), provenance="synthetic")
    judge = Verifier(frames, A=["runtime_error"], Guessed=[1.0])
    entries = run(judge, (a_pair("A"), a_pair("Guessed", guess)), a_helper("bounded"))
    assert entries[-1].comparison.within == () and judge.recorded == []


def test_recording_ends_once_each_helper_was_found(run):
    frames = {name: ["pkg/bounds.py:bounded"] for name in ("A", "B")}
    judge = Verifier(frames, A=[1.0], B=[1.0])
    entries = run(judge, (a_pair("A"), a_pair("B")), a_helper("bounded"))
    assert len(judge.recorded) == 1
    assert len(entries[-1].comparison.within) == 1


def test_nothing_is_recorded_where_no_helper_needs_it(run):
    judge = Verifier({}, A=[1.0])
    run(judge, (a_pair("A"),), a_helper("bounded", cause="lost"))
    assert judge.recorded == []


def test_a_helper_that_one_machine_could_not_measure_is_not_measured():
    within = Comparison(verdict="skipped", reason="ran", within=("m.py:A",))
    other = Comparison(verdict="skipped", reason="ran", within=("m.py:B",))
    missed = Comparison(verdict="skipped", reason="no workload", cause="skipped")
    same = Comparison(verdict="same")
    cases = [
        ((within, other), "success", ("m.py:A", "m.py:B")),
        ((within, missed), "failure", ()),
        ((within, same), "success", ()),
    ]
    for comparisons, expected, callers in cases:
        entry = Entry(target=a_target(), comparison=joined(comparisons))
        assert conclusion([entry]) == expected
        assert entry.comparison.within == callers


def test_a_reader_is_told_what_measured_a_helper():
    within = Comparison(verdict="skipped", reason="it ran in calls of A", within=("m.py:A",))
    helper = Entry(target=a_target(qualname="bounded"), skipped="it ran", comparison=within)
    document = Report(repository="r", entries=(helper,))
    comment = render_comment(document, About(policy=STRICT))
    assert "1 measured by callers" in comment and "not measured (" not in comment.lower()
    assert "- `bounded`: it ran in calls of A\n" in comment
