"""What is counted of a report card beside its tables."""

from __future__ import annotations

import msgspec
import pytest

from cudal1_ci.report_card.shape import DemandDocument
from tests.unit.report_card.rig import a_run, a_task, told


@pytest.fixture
def counts(experiment_module):
    return experiment_module("results_counts")


def task(number, **columns):
    one = a_task(f"level1/{number}", f"class Model: {number} = 0")
    return told(one, {"eager": 1.0, **columns})


def test_gains_and_what_stays_are_told_apart(counts):
    tasks = a_run(task(1, playbook=2.0), task(2, playbook=1.0), task(3, playbook=4.0)).tasks
    said = list(counts.gains(tasks))
    assert said[0] == "gains: 2"
    assert "at 1.00x: 1 {'level1': 1}" in said


def test_published_kernels_are_counted_beside_ours(counts):
    refused = task(3, playbook=2.0, published="incorrect_values")
    ahead, behind = (task(n, playbook=2.0, published=s) for n, s in ((1, 1.5), (2, 6.0)))
    said = "\n".join(counts.published(a_run(ahead, behind, refused).tasks))
    assert "published: 3 {'passed': 2, 'incorrect_values': 1}" in said
    assert "2 right without kernels: 3.00x, ours 2.00x" in said
    assert "ahead on 1, behind on 1" in said


def test_of_a_rewrite_those_that_gain_are_named_and_the_others_taken_together(counts):
    speedups = (2.0, 1.01, 0.5, "incorrect_values")
    tasks = a_run(*(task(n, playbook=one) for n, one in enumerate(speedups, 1))).tasks
    said = list(counts.rewrites(tasks))
    assert said[0].endswith(": 3 of 4 right") and len(said) == 3
    assert said[1].startswith("  level1/1 2.00x [")
    assert said[2] == "  2 others 0.71x, from 0.50x"


def test_the_more_alike_there_are_to_choose_from_the_more_is_luck(counts):
    def luck(*speedups):
        columns = dict(zip(("playbook", "compile", "cuda-graph", "best"), speedups, strict=False))
        return counts.luck(a_run(task(1, **columns)).tasks, 0.05)

    assert luck(1.0) == 0.0  # the reference stays
    assert abs(luck(2.0)) < 0.02  # no choice
    assert luck(2.0, 2.0, 2.0, 2.0) == pytest.approx(0.05, abs=0.02)  # the largest of four
    assert abs(luck(2.0, 4.0)) < 0.02  # nor here


def test_what_compiling_gets_wrong_and_its_order_mends_is_counted(counts):
    columns = ("incorrect_values", "precision", "timeout", 2.0)
    tasks = a_run(*(task(n, compile=one, best=1.5) for n, one in enumerate(columns))).tasks

    def named(task, proposer):
        (eager, compiled, best) = task.results
        (trial,) = best.trials
        candidate = msgspec.structs.replace(trial.candidate, proposer=proposer)
        trial = msgspec.structs.replace(trial, candidate=candidate)
        best = msgspec.structs.replace(best, trials=(trial,))
        demand = DemandDocument(num_bytes=1, convolution_flops=1)
        return msgspec.structs.replace(task, results=(eager, compiled, best), demand=demand)

    told = [named(one, "best:compile-as-laid-out+cuda-graph") for one in tasks]
    said = list(counts.compiling([*told, named(tasks[0], "best:cudnn-benchmark")]))
    assert said[1] == "  3 not right, 3 of these with convolutions;"
    assert said[2] == "  with the layout kept 2 of 2 are right"


def test_a_reference_that_looks_too_fast_beside_one_candidate_is_counted(counts):
    """By the others of its task, of which there have to be enough to have a usual time."""
    one = task(1, playbook=2.0, compile=2.0, best=2.0)

    def with_reference(result, times):
        (trial,) = result.trials
        (measured,) = trial.measurements
        measured = msgspec.structs.replace(measured, reference_us=measured.reference_us * times)
        trial = msgspec.structs.replace(trial, measurements=(measured,))
        return msgspec.structs.replace(result, trials=(trial,))

    *others, last = one.results
    cut, not_cut = (
        msgspec.structs.replace(one, results=(*others, with_reference(last, times)))
        for times in (0.5, 0.7)
    )
    few = msgspec.structs.replace(cut, results=cut.results[-2:])
    assert counts.cut([cut, not_cut, few]).endswith(": 1 of 8")


def test_a_task_whose_reference_was_not_timed_beside_itself_is_passed_over(counts):
    run = a_run(task(1, playbook=2.0), task(2, playbook=2.0), task(3, eager="inconclusive"))
    said = list(counts.noise(run.tasks))
    assert "`eager`: 1.00x to 1.00x on 2 tasks" in said
    assert "intervals of `eager` that hold 1: 2 of 2," in said


def test_tasks_with_large_tensors_are_told_by_what_a_call_holds(counts):
    def holding(one, num_bytes):
        return msgspec.structs.replace(one, demand=DemandDocument(num_bytes=num_bytes))

    small = holding(task(1, playbook=8.0), 2**28)
    several = [holding(task(n, playbook=s), 2**28 + 1) for n, s in ((2, 2.0), (3, 1.0))]
    said = list(counts.large([small, *several, task(4, playbook=16.0)]))
    assert said[0] == "tensors of more than 256 MiB: 2 tasks, `best` 1.41x, 1 at 1.00x"
    assert said[1] == "  `eager` 1.00x to 1.00x"
    assert list(counts.large([small])) == []
