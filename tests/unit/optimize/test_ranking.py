"""What is expected of candidates: from few and from many evaluations, here and elsewhere."""

from __future__ import annotations

import math
import random
import statistics

import msgspec
import pytest

from cudal1_ci.optimize.ranking import (
    CONFIRMATION,
    LEAST_LOG,
    SEEN,
    Cell,
    Count,
    Forecast,
    Ranking,
    Situation,
    Tried,
    base_of,
    cells_of,
    counts_of,
    ranking_of,
    strategy_of,
)
from cudal1_ci.records import Edit, Finding
from cudal1_ci.records.archive import Archive
from cudal1_ci.verification.session import CUT
from tests.fakes import CPU, a_candidate, a_problem, an_evaluation

SHORT = Situation("cuda", 50.0, "launch-bound")
LONG = Situation("cuda", 5000.0, "memory-bound")


def counts(strategy, where, logs, seconds=10.0):
    return cells_of(Count(strategy, where, log, seconds) for log in logs)


def test_a_cell_with_many_evaluations_says_what_they_say_and_one_with_few_what_its_strategy_does():
    cells = counts("compile", LONG, [0.7] * 300) + counts("compile", SHORT, [None] * 300)
    ranking = Ranking(cells)
    here, there = ranking.forecast("compile", LONG), ranking.forecast("compile", SHORT)
    assert here.chance == pytest.approx(1.0, abs=0.02) and here.log == pytest.approx(0.7, abs=0.01)
    assert there.chance == pytest.approx(0.0, abs=0.02)
    unknown = Ranking(cells).forecast("compile", Situation("cuda", 5e7, "compute-bound"))
    assert unknown.chance == pytest.approx(0.5, abs=0.02), "that of the strategy"
    few = Ranking(cells + counts("compile", Situation("cuda", 5e7), [0.7] * 3))
    found = few.forecast("compile", Situation("cuda", 5e7))
    assert found.chance == pytest.approx(0.75, abs=0.02), "half its own, half the strategy's"


def test_graphs_of_training_and_inference_are_graphs():
    graphs = ("training_graph", "cuda_graph")
    assert {strategy_of(one) for one in (graphs, graphs[:1], graphs[1:])} == {"cuda_graph"}
    assert strategy_of(("compile", *graphs)) == "+cuda_graph"
    assert base_of(graphs, {}) == 0.0, "they are on top of nothing"
    assert base_of(("compile", *graphs), {graphs: 0.7}) == 0.7


def test_an_unseen_strategy_is_like_its_family_and_a_kind_of_device_does_not_spoil_another():
    cells = counts("attention", LONG, [0.5] * 100) + counts("channels_last", LONG, [-0.1] * 100)
    ranking = Ranking(cells)
    new, layout = ranking.forecast("new_rule", LONG), ranking.forecast("cudnn_benchmark", LONG)
    assert new.is_new and new.chance > 0.9 and layout.chance < 0.1
    assert not ranking.forecast("attention", LONG).is_new
    both = cells + counts("attention", Situation("cpu", 5000.0, "memory-bound"), [None] * 100)
    assert Ranking(both).forecast("attention", LONG).chance > 0.95
    assert Ranking(both).forecast("attention", Situation("cpu", 5000.0)).chance < 0.05


def test_what_is_less_than_a_gain_is_none_and_nothing_counts_as_more_than_ten_times():
    (cell,) = counts("a", LONG, [LEAST_LOG - 0.01, -3.0, None, math.log(500.0)])
    assert (cell.number, cell.gains, cell.logs) == (4, 1, pytest.approx(math.log(10.0), abs=1e-3))


@pytest.mark.parametrize(("log", "spread", "best"), [(0.3, 0.4, 0.0), (0.3, 0.2, 0.8), (1, 0.5, 1)])
def test_what_is_saved_is_the_mean_over_what_may_be(log, spread, best):
    draw = random.Random(0)
    saved = [max(0.0, math.exp(-best) - math.exp(-draw.gauss(log, spread))) for _ in range(200_000)]
    found = Forecast(0.5, log, spread, 1.0, False).saving(best)
    assert found == pytest.approx(0.5 * statistics.fmean(saved), rel=0.03)


def test_a_combination_counts_by_what_it_adds_to_its_best_part():
    tries = [
        Tried(("attention",), 0.5, 5.0),
        Tried(("cuda_graph",), 0.2, 5.0),
        Tried(("attention", "cuda_graph"), 0.6, 5.0),
        Tried(("norm", "cuda_graph", "compile"), 0.9, 5.0),
        Tried(("scan", "compile"), None, 5.0),
    ]
    found = {one.strategy: one.log for one in counts_of(tries, LONG)}
    assert found["+cuda_graph"] == pytest.approx(0.1)
    assert found["+compile"] == pytest.approx(0.7), "the graph alone is its best part"
    assert "scan" not in found and len(found) == 4, "of no part of the last one anything is known"
    assert strategy_of(("a", "b")) == "+" and strategy_of(()) == "other"


def test_a_confirmation_counts_by_its_seconds_and_its_speedup_once():
    tries = [Tried(("a",), 0.5, 5.0), Tried(("a",), 0.4, 50.0, is_confirmation=True)]
    assert [(one.strategy, one.seconds) for one in counts_of(tries, LONG)] == [
        ("a", 5.0),
        (CONFIRMATION, 50.0),
    ]
    alone = [*counts_of(tries[1:], LONG)]
    assert [(one.strategy, one.log, one.seconds) for one in alone] == [
        (CONFIRMATION, None, 50.0),
        ("a", 0.4, None),
    ]
    unknown = Ranking().forecast("a", LONG)
    assert Ranking(cells_of(alone)).forecast("a", LONG).seconds == unknown.seconds


def test_an_archive_adds_what_was_tried_here(tmp_path):
    problem = a_problem("here")
    edit = Edit(operator="new_rule", technique="t", found=(), why="w")
    candidate = msgspec.structs.replace(a_candidate(problem, "fast"), edits=(edit,))
    gain = an_evaluation(candidate, "passed", 2.0)
    cut = an_evaluation(candidate, "inconclusive", 1.0)
    finding = Finding(rule=CUT, message="not done within 20 s")
    verdict = msgspec.structs.replace(cut.verdict, findings=(finding,))
    where = Situation("cpu", 700.0, "memory-bound")
    with Archive.open(tmp_path / "archive.sqlite") as archive:
        before = ranking_of(archive).forecast("new_rule", where)
        archive.note(SEEN, f"{problem.id} {CPU.kind}", where)
        for _ in range(20):
            archive.record(gain, "p")
        after = ranking_of(archive).forecast("new_rule", where)
        archive.record(cut, "p")
        assert ranking_of(archive).forecast("new_rule", where) == after, "it is the load's"
        archive.record(msgspec.structs.replace(cut, verdict=verdict), "p")
        assert ranking_of(archive).forecast("new_rule", where).chance < after.chance
    assert before.is_new and not after.is_new
    assert after.chance > 0.9 > before.chance and after.log == pytest.approx(math.log(2), abs=0.1)


def test_the_table_is_read_as_it_is_written():
    (cell,) = cells_of([Count("a", LONG, 0.5, 3.0)])
    assert msgspec.json.decode(msgspec.json.encode(cell), type=Cell) == cell
