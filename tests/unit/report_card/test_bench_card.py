"""What speedups say together: known numbers, the fill rule, what is left out."""

from __future__ import annotations

import msgspec
import pytest

from cudal1_ci.records import Finding, Verdict
from cudal1_ci.report_card.card import carded
from cudal1_ci.report_card.documents import standing_of
from cudal1_ci.report_card.page import render_page
from cudal1_ci.report_card.summary import fast_p, geometric_mean, interval, mean, median
from cudal1_ci.report_card.table import render_table
from cudal1_ci.report_card.worth import worth
from tests.unit.report_card.rig import a_run, a_task, launching, told


def rows_of(run, scope="all", policy="strict"):
    return {r.solver: r for r in run.card if (r.scope, r.policy) == (scope, policy)}


def test_statistics_of_a_sample_with_known_answers():
    speedups = [0.5, 1.0, 2.0, 8.0]
    assert interval(speedups, mean).estimate == pytest.approx(2.875)
    assert interval(speedups, geometric_mean).estimate == pytest.approx(8.0**0.25)
    assert interval(speedups, median).estimate == pytest.approx(1.5)
    same = interval([1.3] * 5, geometric_mean)
    assert (same.low, same.high) == pytest.approx((1.3, 1.3))
    many = interval([1.0, 2.0] * 200, mean)
    # The standard error of the mean is 0.5 / 20.
    assert many.high - many.low == pytest.approx(2 * 1.96 * 0.025, rel=0.1)


def test_fast_p_counts_what_is_right_and_strictly_faster():
    found = fast_p([1.0, 1.5, 2.0, 3.0, None])
    assert (found["1"], found["1.5"], found["2"], found["10"]) == (0.6, 0.4, 0.2, 0.0)


def test_what_failed_or_was_not_given_counts_one_and_as_failed():
    run = a_run(
        told(a_task("level1/1"), {"eager": 1.0, "playbook": 4.0, "published": 0.25}),
        told(a_task("level1/2", "b"), {"eager": 1.0, "playbook": None, "published": 0.5}),
        told(a_task("level2/1", "c"), {"eager": 1.0, "playbook": "precision", "published": 9.0}),
    )
    rows = rows_of(run)
    assert rows["playbook"].geometric_mean.estimate == pytest.approx(4 ** (1 / 3), rel=0.02)
    counts = (rows["playbook"].num_given, rows["playbook"].num_success, rows["playbook"].num_above)
    assert counts == (2, 1, 1)
    assert rows["published"].max == pytest.approx(9.0, rel=0.02)
    assert rows["best"].max == pytest.approx(4.0, rel=0.02), "published kernels are not ours"
    assert (rows["best"].num_success, rows["best"].q25) == (3, 1.0), "the reference is its floor"
    assert rows_of(run, "level1")["playbook"].num_tasks == 2
    assert rows_of(run, "level2")["best"].num_above == 0


def test_a_task_that_is_left_out_is_in_no_column_and_named():
    honest = told(a_task("level1/1"), {"eager": 1.0, "published": 1.0})
    empty = told(a_task("level1/2", "b"), {"eager": 1.0, "published": 800.0})
    empty = msgspec.structs.replace(empty, standing="degenerate", reason="reference.constant: same")
    run = a_run(honest, empty)
    assert {row.num_tasks for row in run.card} == {1}
    assert rows_of(run)["published"].max == pytest.approx(1.0, rel=0.02)
    assert "level1/2: reference.constant: same" in render_table(run)


@pytest.mark.parametrize(
    ("verdict", "standing"),
    [
        (Verdict(status="passed"), "judged"),
        (Verdict(status="passed", findings=(Finding(rule="oracle.absent", message=""),)), "judged"),
        (
            Verdict(status="passed", findings=(Finding(rule="workload.weak", message="zeros"),)),
            "degenerate",
        ),
        (Verdict(status="degenerate"), "degenerate"),
        (Verdict(status="invalid_reference"), "invalid"),
        (Verdict(status="harness_error"), "invalid"),
    ],
)
def test_the_judges_word_on_a_reference_decides_where_its_task_stands(verdict, standing):
    assert standing_of(verdict)[0] == standing


def test_by_cuda_l1s_rules_what_is_doubted_counts_one_and_strictly_what_it_is():
    task = told(a_task(), {"eager": 1.0, "playbook": 5.0})
    eager, playbook = task.results
    doubt = Finding(rule="policy.unverified", message="measured again it is 1")
    trial = msgspec.structs.replace(playbook.trials[0], doubted=doubt)
    doubted = msgspec.structs.replace(playbook, trials=(trial,))
    run = a_run(task, policy="cuda-l1")
    assert rows_of(run, policy="cuda-l1")["playbook"].max == pytest.approx(5.0, rel=0.02)
    run = a_run(msgspec.structs.replace(task, results=(eager, doubted)), policy="cuda-l1")
    row = rows_of(run, policy="cuda-l1")["playbook"]
    assert (row.max, row.num_success, row.num_thrown_away) == (1.0, 1, 1)
    assert rows_of(run)["playbook"].max == pytest.approx(5.0, rel=0.02)


def test_what_the_rules_throw_away_is_told_with_its_machine():
    def doubted(machine):
        task = told(a_task(), {"playbook": 5.0}, machine=machine)
        (playbook,) = task.results
        doubt = Finding(rule="policy.variance", message="they vary")
        trial = msgspec.structs.replace(playbook.trials[0], doubted=doubt)
        result = msgspec.structs.replace(playbook, trials=(trial,))
        return msgspec.structs.replace(task, results=(result,))

    other = told(a_task("level1/2", "b"), {"playbook": 5.0}, machine="another")
    text = render_table(a_run(doubted("first"), other, policy="cuda-l1"))
    first, another = text.split("another\n")
    assert "playbook: CUDA-L1's rules throw the times of 1 task away" in first
    assert "throw the times" not in another


def test_best_is_what_would_be_proposed_and_never_noise():
    def best(columns, **measured):
        task = told(a_task(), columns)
        results = []
        for result in task.results:
            trials = [
                msgspec.structs.replace(
                    trial,
                    measurements=[
                        msgspec.structs.replace(one, **measured) for one in trial.measurements
                    ],
                )
                for trial in result.trials
            ]
            results.append(msgspec.structs.replace(result, trials=tuple(trials)))
        found = worth(msgspec.structs.replace(task, results=tuple(results)), "best")
        return found.solver, round(found.speedup, 1)

    assert best({"compile": 1.5, "playbook": 2.0, "published": 9.0}) == ("playbook", 2.0)
    assert best({"eager": 1.3, "playbook": "timeout"}) == ("reference", 1.0)
    assert best({"playbook": 1.01}) == ("reference", 1.0)
    assert best({"playbook": 1.3}, control_spread=0.5) == ("reference", 1.0), "a noisy session"
    assert best({"playbook": 1.3}, reference_us=0.1) == ("reference", 1.0), "half a microsecond"


def test_a_find_that_a_noisy_session_hides_does_not_hide_another_that_is_a_gain():
    task = told(a_task(), {"eager": 1.0, "playbook": 1.4})
    eager, playbook = task.results
    (noisy,) = playbook.trials
    other = told(a_task(), {"playbook": 1.3}).results[0].trials[0]
    noisy = msgspec.structs.replace(
        noisy,
        measurements=[msgspec.structs.replace(m, control_spread=0.9) for m in noisy.measurements],
    )
    both = msgspec.structs.replace(playbook, trials=(noisy, other))
    run = a_run(msgspec.structs.replace(task, results=(eager, both)))
    rows = rows_of(run)
    assert rows["playbook"].max == pytest.approx(1.4, rel=0.02), "the higher bound counts there"
    assert rows["best"].max == pytest.approx(1.3, rel=0.02), "and what is proposed here"
    assert (rows["playbook"].num_gains, rows["best"].num_gains) == (1, 1)


def test_a_card_is_drawn_from_the_tasks_alone():
    run = a_run(told(a_task(), {"eager": 1.0, "playbook": 2.0}))
    assert carded(msgspec.structs.replace(run, card=())) == run


def test_what_a_gain_costs_is_the_time_of_all_that_was_tried():
    def timed(name, columns, elapsed_s):
        task = told(a_task(name, name), columns)
        results = [
            msgspec.structs.replace(
                result,
                trials=tuple(
                    msgspec.structs.replace(one, elapsed_s=elapsed_s) for one in result.trials
                ),
            )
            for result in task.results
        ]
        return msgspec.structs.replace(task, results=tuple(results))

    run = a_run(
        timed("level1/1", {"playbook": 4.0, "compile": 1.0, "published": 2.0}, 3.0),
        timed("level1/2", {"playbook": "incorrect_values", "compile": 1.0, "published": 2.0}, 5.0),
    )
    rows = rows_of(run)
    assert (rows["playbook"].num_gains, rows["playbook"].judged_s) == (1, 8.0)
    assert (rows["compile"].num_gains, rows["published"].num_gains) == (0, 2)
    assert (rows["best"].num_gains, rows["best"].judged_s) == (1, 16.0), "published is not ours"
    text = render_table(run)
    assert "playbook: 1 gain, each 8.0 s of verification" in text
    assert "compile: 0 gains" not in text


def test_who_launches_the_kernels_that_it_brings_along_is_counted():
    """Of what counts in a column: not of what is wrong."""
    columns = {"playbook": 2.0, "published": 1.5}
    run = a_run(
        launching(told(a_task("level1/1", "a"), columns), False, True),
        launching(told(a_task("level1/2", "b"), columns), False),
        launching(told(a_task("level1/3", "c"), columns)),
        launching(told(a_task("level1/4", "d"), {**columns, "published": "timeout"}), True),
    )
    rows = rows_of(run)
    assert (rows["published"].num_declaring, rows["published"].num_launching) == (2, 1)
    assert (rows["playbook"].num_declaring, rows["playbook"].num_launching) == (0, 0)
    assert "  published: 1 of 2 with kernels launch one" in render_table(run)
    assert ">1 of 2 with kernels launch one<" in render_page(run)
    assert "with kernels launch" not in render_table(a_run(told(a_task(), columns)))


def test_a_run_of_single_launches_says_so():
    run = a_run(told(a_task(), {"eager": 1.0, "playbook": 2.0}))
    assert "launches of fresh processes" in render_table(run)
    (task,) = run.tasks

    def alone(trial):
        short = [
            msgspec.structs.replace(m, repetitions=m.repetitions[:1]) for m in trial.measurements
        ]
        return msgspec.structs.replace(trial, measurements=tuple(short))

    results = tuple(
        msgspec.structs.replace(one, trials=tuple(map(alone, one.trials))) for one in task.results
    )
    single = a_run(msgspec.structs.replace(task, results=results))
    assert "one launch, of the process that was examined" in render_table(single)


def test_a_card_says_what_precision_candidates_could_lose():
    task = told(a_task(), {"eager": 1.0})
    assert "precision" not in render_table(a_run(task))
    assert "precision tf32: candidates may be less" in render_table(a_run(task, precision="tf32"))
