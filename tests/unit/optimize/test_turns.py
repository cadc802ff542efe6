"""Which step of which target is next, by what it is expected to save in a second."""

from __future__ import annotations

import time
from types import SimpleNamespace

import msgspec
import pytest

from cudal1_ci.discover.plan import Plan, Planned
from cudal1_ci.optimize import examination
from cudal1_ci.optimize.context import LEAST_EXAMINED_S, Pace, ReviewConfig, RunContext
from cudal1_ci.optimize.ranking import CONFIRMATION, Count, Ranking, Situation, cells_of
from cudal1_ci.optimize.reasons import AT_THE_BOUND, SPENT
from cudal1_ci.optimize.run import review
from cudal1_ci.optimize.target import LEAST_CONFIRMED_S, TargetSearch
from cudal1_ci.processes.device_wait import GaveUp
from cudal1_ci.propose.wrappers.strategy import HOST
from cudal1_ci.records import Edit, TextProgram, Understanding
from cudal1_ci.records.archive import Archive
from cudal1_ci.render.progress import SilentProgress
from tests.fakes import (
    CPU,
    GPU,
    FakeSession,
    a_candidate,
    a_measurement,
    a_problem,
    a_target,
    a_workload,
)

HERE = Situation("cpu", None)
EVERY_S = 10.0
ROOTS = dict.fromkeys(("model", "block"), a_target(qualname="model").address)


def seen(**logs):
    """A table in which each strategy came to the same a hundred times, ten seconds each."""
    counts = [Count(name, HERE, log, EVERY_S) for name, log in logs.items() for _ in range(100)]
    return Ranking(cells_of([*counts, *[Count(CONFIRMATION, HERE, None, 30.0)] * 100]))


class Timed(FakeSession):
    """Screens and confirms on a clock that it moves; a source says how fast it is."""

    def __init__(self, clock, speedups):
        super().__init__({source: ("passed", one) for source, one in speedups.items()})
        self.clock, self.order, self.limits = clock, [], []
        self.confirmation_limits = []

    def screen(self, problem, candidate, most_s=None):
        self.limits.append(most_s)
        return self.after(EVERY_S, problem, candidate, "screened", 1)

    def confirm(self, problem, candidate, most_s=None):
        self.confirmation_limits.append(most_s)
        return self.after(30.0, problem, candidate, "confirmed", 5)

    def after(self, seconds, problem, candidate, phase, num_launches):
        self.clock[0] += seconds
        mark = "!" if phase == "confirmed" else ""
        self.order.append(f"{problem.reference.source}:{candidate.program.source}{mark}")
        found = super().evaluate(problem, candidate)
        speedup = self.answers[candidate.program.source][1]
        measured = tuple(
            a_measurement(speedup, one.workload, num_launches=num_launches)
            for one in found.measurements
        )
        return msgspec.structs.replace(found, measurements=measured, phase=phase, elapsed_s=seconds)


class Edits:
    """Proposes edits by the names of their operators, in this order."""

    name = "edits"

    def __init__(self, **of):
        self.of = of

    def propose(self, problem, evaluations, n):
        found = []
        for operator in () if evaluations else self.of.get(problem.reference.source, ()):
            edit = Edit(operator=operator, technique="t", found=(), why="w")
            one = a_candidate(problem, operator)
            found.append(msgspec.structs.replace(one, edits=(edit,)))
        return found[:n]


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def texts_are_examined(monkeypatch):
    """As patches of a checkout are."""
    monkeypatch.setattr(examination, "TreeProgram", TextProgram)


def run(
    tmp_path, clock, ranking, strategy, speedups, *, budget_s=None, device=CPU, roots=None, **shares
):
    session = Timed(clock, speedups)
    session.device = lambda: device
    targets = []
    for name in strategy.of:
        inside = (roots or {}).get(name)
        problem = a_problem(name, a_workload(share=shares.get(name), root=inside))
        target = a_target(qualname=name)
        targets.append(Planned(target=target, problem=problem, workloads=problem.workloads))
    with Archive.open(tmp_path / "archive.sqlite") as archive:
        context = RunContext(
            session=session,
            strategies=[strategy],
            archive=archive,
            progress=SilentProgress(),
            config=ReviewConfig(budget_s=budget_s),
            policy="p",
            ranking=ranking,
            started_s=clock[0],
        )
        plan = Plan(root=tmp_path, repository="r", targets=tuple(targets))
        return session, review(plan, context)


def test_what_is_expected_to_gain_most_is_tried_first_and_edits_before_compilations(
    tmp_path, clock
):
    ranking = seen(norm=0.1, scan=1.0, compile=2.0, graph=-0.2)
    speedups = dict.fromkeys(("graph", "norm", "compile", "scan"), 1.0)
    session, _ = run(
        tmp_path, clock, ranking, Edits(one=("graph", "norm", "compile", "scan")), speedups
    )
    assert session.order == ["one:scan", "one:compile", "one:norm", "one:graph"]


def test_a_confirmation_may_take_what_is_left_of_the_budget(tmp_path, clock):
    def limits(budget_s):
        strategy = Edits(one=("scan",))
        folder = tmp_path / str(budget_s)
        folder.mkdir()
        session, _ = run(
            folder, clock, seen(scan=1.0), strategy, {"scan": 3.0},
            budget_s=budget_s,
        )  # fmt: skip
        return session.confirmation_limits

    assert limits(None) == [None]
    assert limits(100.0) == [100.0 - EVERY_S]
    assert limits(EVERY_S + 1.0) == [LEAST_CONFIRMED_S], "the first gain of a run"


def test_no_other_confirmation_is_begun_that_would_end_after_the_budget(tmp_path, clock):
    strategy = Edits(one=("scan",), two=("norm",))
    speedups = {"scan": 3.0, "norm": 2.0}
    ranking = seen(scan=1.0, norm=1.0)

    def order(budget_s):
        folder = tmp_path / str(budget_s)
        folder.mkdir()
        return run(folder, clock, ranking, strategy, speedups, budget_s=budget_s)[0].order

    least_s = 2 * EVERY_S + 30.0
    assert {"one:scan!", "two:norm!"} <= {*order(least_s + LEAST_CONFIRMED_S + 1.0)}
    assert "one:scan!" in order(least_s + LEAST_CONFIRMED_S - 1.0)
    assert "two:norm!" not in order(least_s + LEAST_CONFIRMED_S - 1.5)


def test_what_was_found_makes_less_of_the_rest_worth_a_try(tmp_path, clock):
    """The better guess for a target with a gain is worth less than a fair one for another."""
    ranking = seen(scan=1.0, attention=0.8, norm=0.3)
    strategy = Edits(one=("scan", "attention"), two=("norm",))
    speedups = {"scan": 10.0, "attention": 2.0, "norm": 1.0}
    session, _ = run(tmp_path, clock, ranking, strategy, speedups, budget_s=1000.0)
    assert session.order.index("two:norm") < session.order.index("one:attention")
    speedups["scan"] = 1.0
    (tmp_path / "other").mkdir()
    session, _ = run(tmp_path / "other", clock, ranking, strategy, speedups, budget_s=1000.0)
    assert session.order.index("one:attention") < session.order.index("two:norm")


def test_a_share_of_the_traced_time_weighs_what_is_saved(tmp_path, clock):
    ranking = seen(scan=1.0, norm=0.3)
    strategy = Edits(small=("scan",), big=("norm",))
    speedups = {"scan": 1.0, "norm": 1.0}
    session, _ = run(
        tmp_path, clock, ranking, strategy, speedups, budget_s=1000.0, small=0.01, big=0.9
    )
    assert session.order == ["big:norm", "small:scan"]


def test_on_a_gpu_a_model_is_wrapped_before_its_parts_are_edited(tmp_path, clock):
    ranking = seen(scan=1.0, norm=0.3, compile=0.5, gelu=0.2)
    strategy = Edits(block=("scan",), model=("norm", "compile"), other=("gelu",))
    speedups = {"scan": 1.0, "norm": 1.0, "compile": 1.6, "gelu": 1.0}

    def session(name, **more):
        folder = tmp_path / name
        folder.mkdir()
        shares = {"block": 0.9, "model": 0.05}
        more |= {"budget_s": 1000.0, "roots": ROOTS, **shares}
        return run(folder, clock, ranking, strategy, speedups, **more)[0]

    on_cpu, on_gpu = session("cpu"), session("gpu", device=GPU)
    assert on_cpu.order[0] == "block:scan"
    assert on_gpu.order[:3] == ["model:compile", "model:compile!", "block:scan"]
    assert on_gpu.limits[0] == 500.0, "a compilation of a whole model takes its time"
    strategy.of["model"] = ("cuda_graph",)
    assert session("graph", device=GPU).limits[0] == 250.0


def test_a_compilation_on_top_of_a_gain_waits_for_the_first_try_of_other_models(tmp_path, clock):
    """Where the first try gained nothing, the model keeps its turn."""
    ranking = seen(cuda_graph=0.8, compile=0.5, scan=0.1)
    wrappers = ("cuda_graph", "compile")
    strategy = Edits(model=wrappers, other=wrappers, block=("scan",), part=("scan",))
    roots = ROOTS | dict.fromkeys(("other", "part"), a_target(qualname="other").address)

    def order(name, graph):
        folder = tmp_path / name
        folder.mkdir()
        speedups = {"cuda_graph": graph, "compile": 1.1, "scan": 1.0}
        shares = {"block": 0.5, "part": 0.4, "model": 0.05, "other": 0.05}
        return run(
            folder, clock, ranking, strategy, speedups, budget_s=2000.0, device=GPU, roots=roots,
            **shares,
        )[0].order  # fmt: skip

    fast, slow = order("fast", 3.0), order("slow", 1.0)
    assert fast.index("other:cuda_graph!") < fast.index("model:compile")
    assert slow.index("model:compile") < slow.index("other:cuda_graph")


def test_an_edit_that_lets_a_graph_hold_a_model_comes_before_other_targets(tmp_path, clock):
    """Any other edit is of the model's own lines, which take little of its time."""

    class OneTechnique(Edits):
        """Its edits have a technique; a wrapper comes on top of what was tried."""

        def __init__(self, technique, **of):
            super().__init__(**of)
            self.technique = technique

        def propose(self, problem, evaluations, n):
            names = self.of[problem.reference.source]
            if evaluations:
                names = ("compile",) if len(evaluations) < 3 and len(names) > 1 else ()
            found = []
            for name in names:
                edit = Edit(operator=name, technique=self.technique, found=(), why="w")
                found.append(msgspec.structs.replace(a_candidate(problem, name), edits=(edit,)))
            return found

    def order(technique):
        folder = tmp_path / technique
        folder.mkdir()
        strategy = OneTechnique(technique, model=("cuda_graph", "kept"), block=("scan",))
        speedups = {"cuda_graph": 0.5, "kept": 1.0, "scan": 1.0, "compile": 3.0}
        shares = {"block": 0.9, "model": 0.05}
        ranking = seen(cuda_graph=0.8, kept=0.01, scan=0.5, compile=0.5)
        return run(
            folder, clock, ranking, strategy, speedups, budget_s=1000.0, device=GPU, roots=ROOTS,
            **shares,
        )[0].order  # fmt: skip

    assert order(HOST)[:4] == ["model:cuda_graph", "model:kept", "model:compile", "model:compile!"]
    assert order("others")[:2] == ["model:cuda_graph", "block:scan"]


def test_each_model_of_a_zoo_is_tried_as_a_whole_before_any_of_its_parts(tmp_path, clock):
    """And what is put on top of a gain is worth no more than what else there is."""
    names = [f"model{number}" for number in range(9)]
    parts = {f"part{number}": ("scan",) for number in range(9)}
    strategy = Edits(**dict.fromkeys(names, ("cuda_graph", "compile")), **parts)
    addresses = [a_target(qualname=name).address for name in names]
    roots = dict(zip((*names, *parts), addresses * 2, strict=True))
    shares = dict.fromkeys(names, 0.01) | dict.fromkeys(parts, 0.1)
    ranking = seen(cuda_graph=0.8, compile=0.1, scan=0.5)
    speedups = {"cuda_graph": 3.0, "compile": 1.1, "scan": 1.0}
    session, _ = run(
        tmp_path, clock, ranking, strategy, speedups, budget_s=5000.0, device=GPU, roots=roots,
        **shares,
    )  # fmt: skip
    kinds = [one.partition(":")[2] for one in session.order]
    assert kinds[:18] == ["cuda_graph", "cuda_graph!"] * 9
    assert kinds.index("scan") < kinds.index("compile")


@pytest.mark.usefixtures("texts_are_examined")
def test_what_was_examined_stays_proposed_where_no_time_is_left_for_a_faster_one(
    tmp_path, clock, monkeypatch
):
    ranking = seen(scan=1.0, norm=0.6, gelu=0.3)
    strategy = Edits(one=("scan", "norm"), two=("gelu",))
    speedups = {"scan": 2.0, "norm": 3.0, "gelu": 1.0}
    tried = FakeSession.examine_contract

    def examine_contract(self, problem, evaluation):
        if evaluation.candidate.program.source == "norm":
            raise GaveUp("the budget was spent")
        return tried(self, problem, evaluation)

    monkeypatch.setattr(FakeSession, "examine_contract", examine_contract)
    _, report = run(tmp_path, clock, ranking, strategy, speedups, budget_s=1000.0)
    entry = report.entries[0]
    assert [one.candidate.program.source for one in entry.evaluations] == ["scan", "norm"]
    assert entry.evaluations[1].contract is None
    assert entry.best == 0
    assert examination.UNEXAMINED in entry.warnings


@pytest.mark.usefixtures("texts_are_examined")
def test_what_was_confirmed_is_examined_before_another_target_has_its_turn(tmp_path, clock):
    """And not once more for each better candidate of a target that keeps its turn."""
    ranking = seen(scan=1.0, norm=0.3, gelu=0.3)
    strategy = Edits(one=("scan", "gelu"), two=("norm",))
    speedups = {"scan": 2.0, "norm": 1.2, "gelu": 1.0}
    session, report = run(tmp_path, clock, ranking, strategy, speedups, budget_s=1000.0)
    assert session.order[:3] == ["one:scan", "one:scan!", "two:norm"]
    assert session.examined == ["scan", "norm"]
    assert [one.best for one in report.entries] == [0, 0]


def test_what_is_inside_of_a_faster_model_is_worth_less(tmp_path, clock):
    ranking = seen(scan=0.5, compile=0.5, norm=0.5)

    def order(name, compiled, own="compile"):
        strategy = Edits(model=(own,), block=("scan",), alone=("scan",))
        folder = tmp_path / name
        folder.mkdir()
        shares = {"block": 0.9, "model": 0.05, "alone": 0.5}
        speedups = {"scan": 1.0, own: compiled}
        return run(
            folder, clock, ranking, strategy, speedups, budget_s=1000.0, device=GPU,
            roots=ROOTS, **shares,
        )[0].order  # fmt: skip

    slow, fast = order("slow", 1.0), order("fast", 1.6)
    assert slow.index("block:scan") < slow.index("alone:scan")
    assert fast.index("block:scan") > fast.index("alone:scan")
    edited = order("edited", 1.6, own="norm")
    assert edited.index("block:scan") < edited.index("alone:scan"), "only its own lines are faster"


def test_time_is_kept_for_the_confirmation_of_what_was_found(tmp_path, clock):
    ranking = seen(scan=1.0, norm=0.3, gelu=0.3)
    strategy = Edits(one=("scan", "norm", "gelu"), two=("norm", "gelu"))
    speedups = {"scan": 2.0, "norm": 1.0, "gelu": 1.0}
    session, report = run(tmp_path, clock, ranking, strategy, speedups, budget_s=45.0)
    assert session.order == ["one:scan", "one:scan!", "two:norm"], "the first one is begun"
    assert (report.ended, report.entries[0].best) == ("budget", 0)
    assert {one.reason for entry in report.entries for one in entry.not_tried} == {SPENT}
    (tmp_path / "more").mkdir()
    session, report = run(tmp_path / "more", clock, ranking, strategy, speedups, budget_s=500.0)
    assert len(session.order) == 6 and report.ended == "done"


def test_an_examination_has_its_part_of_the_budget(tmp_path, clock):
    strategy = Edits(one=("scan", "norm"), two=("norm",))
    speedups = {"scan": 1.0, "norm": 1.0}
    session, _ = run(tmp_path, clock, seen(), strategy, speedups, budget_s=600.0)
    assert session.limits[0] == 600.0 / 4
    assert all(LEAST_EXAMINED_S <= one <= 600.0 / 4 for one in session.limits)
    (tmp_path / "free").mkdir()
    session, _ = run(tmp_path / "free", clock, seen(), strategy, speedups)
    assert session.limits == [None] * 3


@pytest.mark.parametrize(("bound", "num"), [("memory", 1), ("arithmetic", 2)])
def test_at_the_bound_nothing_more_is_tried(tmp_path, clock, monkeypatch, bound, num):
    def understand(search):
        search.understanding = Understanding(
            category="memory-bound",
            bound=bound,
            bound_us=98.0 / 2.0,
            total_us=200.0,
            device_us=None,
            host_us=0.0,
            share=None,
            num_operations=2,
            num_syncs=0,
            operations=(),
        )

    monkeypatch.setattr(TargetSearch, "understand", understand)
    speedups = {"scan": 2.0, "norm": 1.0}
    session, report = run(
        tmp_path, clock, seen(scan=0.7, norm=0.6), Edits(one=("scan", "norm")), speedups
    )
    assert len([one for one in session.order if "!" not in one]) == num
    reasons = [one.reason for one in report.entries[0].not_tried]
    assert reasons == [AT_THE_BOUND] * (2 - num)
    assert report.ended == "done" and report.entries[0].best == 0


@pytest.mark.parametrize(
    ("num_slots", "num_found", "seconds"), [(1, 2, 120.0), (3, 3, 60.0), (3, 4, 120.0)]
)
def test_time_is_kept_for_confirmations_as_the_longest_but_one_took(num_slots, num_found, seconds):
    pace = Pace(confirming_s=[10.0, 60.0, 70.0, 20.0])
    pace.unconfirmed = {a_target(qualname=f"Block{n}"): 0.5 for n in range(num_found)}
    context = SimpleNamespace(
        pace=pace,
        num_slots=num_slots,
        session=SimpleNamespace(device=lambda: CPU),
        ranking=SimpleNamespace(forecast=lambda *_: SimpleNamespace(seconds=15.0)),
    )
    assert RunContext.reserved_s(context) == seconds
    pace.unconfirmed.clear()
    assert RunContext.reserved_s(context) == 0.0


@pytest.mark.parametrize(
    ("num_open", "left_s", "seconds"),
    [(1, 400.0, 200.0), (2, 400.0, 200.0), (3, 300.0, 100.0), (9, 400.0, 100.0), (1, 10.0, 20.0)],
)
def test_a_reference_has_up_to_half_of_what_is_left_where_few_targets_are(
    num_open, left_s, seconds
):
    context = SimpleNamespace(pace=Pace(num_open=num_open), num_slots=1, left_s=lambda: left_s)
    assert RunContext.most_for_reference_s(context) == pytest.approx(seconds)
