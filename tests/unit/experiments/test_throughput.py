"""Trials of texts as rows of a result, and throughput compared with KernelBench's."""

from __future__ import annotations

import math

import msgspec
import pytest

from cudal1_ci.records import Device, Repetition
from tests.fakes import a_candidate, a_problem, an_evaluation


def test_a_row_has_the_interval_s_own_estimate(experiment_module):
    """Beside a GPU that is the median of the rounds' ratios, and not the ratio of typical times."""
    text_trials = experiment_module("text_trials")
    evaluation = an_evaluation(a_candidate(a_problem()))
    (measurement,) = evaluation.measurements
    launch = Repetition(
        reference_us=(20.0, 40.0, 80.0, 80.0), candidate_us=(10.0, 20.0, 20.0, 20.0), num_calls=1
    )
    device = Device(kind="cuda", name="none", num_threads=1)
    measured = msgspec.structs.replace(measurement, repetitions=(launch,), device=device)
    row = text_trials.verdict_fields(msgspec.structs.replace(evaluation, measurements=(measured,)))
    assert row["speedup"] == pytest.approx(math.sqrt(8), abs=1e-3)
    assert row["speedup_low"] < row["speedup"] < row["speedup_high"]
    assert row["reference_us"] / row["candidate_us"] == pytest.approx(row["speedup"], rel=1e-3)


def a_row(name: str, kind: str, seconds: float, **requests: float) -> dict[str, object]:
    row = {"name": name, "kind": kind, "seconds": seconds, "status": "passed"}
    return {**row, "seconds_by_request": requests, "spent_s": requests}


def test_throughput_is_compared_on_what_both_finished(experiment_module):
    throughput = experiment_module("throughput")
    ours = [
        a_row("a/pytorch", "pytorch", 4.0, check=1.0, examine=1.0, launch=2.0),
        a_row("a/cuda", "cuda", 5.0, examine=4.0),
        a_row("b/pytorch", "pytorch", 100.0),
    ]
    theirs = [a_row("a/pytorch", "pytorch", 8.0, timing=5.0), a_row("a/cuda", "cuda", 42.0)]
    document = {"ours": {"start_s": 1.0, "rows": ours}, "kernelbench": {"rows": theirs}}
    found = throughput.summary(document["ours"], document["kernelbench"])
    assert found["num_common"] == 2
    assert found["ours"]["per_hour"] == 720.0
    assert found["kernelbench"]["per_hour"] == 144.0
    assert found["times_as_many_an_hour"] == 5.0
    assert found["where_our_time_goes_s"]["cuda"] == {"beside": 1.0, "examine": 4.0}
    assert found["pytorch_verdict_s"][0]["seconds"] == 3.0


def test_every_candidate_of_the_mix_has_a_known_kind_and_a_size_that_can_be_changed(
    experiment_module,
):
    throughput = experiment_module("throughput")
    found = throughput.candidates("*", 3)
    assert {one.kind for one in found} == set(throughput.KINDS)
    assert len({one.name for one in found}) == len(found) == 24
    assert all("\nROWS = 3\n" in one.reference for one in found)
    kinds_by_problem = [one.problem for one in found if one.kind == "cuda"]
    first = [one.problem for one in found].index(kinds_by_problem[0])
    assert {one.problem for one in found[first:]} == set(kinds_by_problem)
