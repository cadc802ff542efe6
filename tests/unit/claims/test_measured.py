"""Claims against measurements: what is contradicted, what is true, and what cannot be known."""

from __future__ import annotations

import msgspec
import pytest

from cudal1_ci.propose.llm.claims.measured import contradictions
from cudal1_ci.propose.llm.claims.operators import OPERATORS, share_of
from cudal1_ci.propose.llm.task import ProfileRow
from cudal1_ci.records import Call, Device, Measurement, Repetition, TensorSpec
from tests.fakes import a_candidate, a_problem, a_workload, an_evaluation

H200 = Device(kind="cuda", name="NVIDIA H200")
MEBIBYTES_48 = Call(args=(TensorSpec(shape=(12_000_000,), dtype="float32"),))
"""48 MB: 10 us at 4800 GB/s."""


def rows(**times_us: float) -> tuple[ProfileRow, ...]:
    return tuple(ProfileRow(name=n, num_calls=1, time_us=t) for n, t in times_us.items())


def found(analysis, profile=(), reference_us=100.0, speedup=2.0, device=H200, **workload):
    problem = a_problem("x", msgspec.structs.replace(a_workload(), **workload))
    candidate = msgspec.structs.replace(a_candidate(problem), analysis=analysis)
    launches = tuple(
        Repetition(
            reference_us=(reference_us * (1 + i / 100),) * 3,
            candidate_us=(reference_us / speedup,) * 3,
            num_calls=9,
        )
        for i in range(-2, 3)
    )
    measured = Measurement(workload="small", repetitions=launches, device=device)
    evaluation = msgspec.structs.replace(
        an_evaluation(candidate), measurements=(measured,), device=device
    )
    return [one.measured for one in contradictions(evaluation, problem, profile)]


def test_an_operator_with_next_to_nothing_of_the_time_is_no_bottleneck():
    said = found("Softmax dominates the runtime.", rows(softmax_kernel=4.0, sgemm=96.0))
    assert said == [
        "softmax has at most 4% of the profiled time of one call of the reference on NVIDIA H200 "
        "(small)"
    ]


@pytest.mark.parametrize(
    "profile",
    [
        rows(softmax_kernel=60.0, sgemm=40.0),
        rows(softmax_kernel=10.0, sgemm=90.0),
        rows(sgemm=100.0),  # it may be there under a name that nobody knows
        rows(softmax_kernel=4.0, triton_poi_fused_1=96.0),  # or in what was fused
        rows(softmax_kernel=4.0, flash_fwd_kernel=96.0),
        (),
    ],
)
def test_an_operator_that_may_have_the_time_is_left(profile):
    assert found("Softmax dominates the runtime.", profile) == []


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_operator_is_found_in_a_row_of_its_name(operator):
    row = f"aten::{OPERATORS[operator][0].replace(' ', '_')}"
    assert share_of(operator, [(row, 1.0), ("zz", 3.0)]) == 0.25
    assert share_of(operator, [("zz", 3.0)]) is None
    assert share_of(operator, [(row, 0.0)]) is None


@pytest.mark.parametrize("claim", ["memory-bound", "compute-bound"])
def test_a_device_that_idles_waits_for_launches(claim):
    said = found(f"The reference is {claim}.", rows(add=8.0, mul=12.0))
    assert said == ["all kernels together take 20% of the reference's time on NVIDIA H200 (small)"]
    assert found("The reference is launch-bound.", rows(add=8.0, mul=12.0)) == []


def test_a_busy_device_does_not_wait_for_launches():
    said = found("The reference is launch-bound.", rows(add=95.0))
    assert said == ["all kernels together take 95% of the reference's time on NVIDIA H200 (small)"]
    # Of arithmetic and memory nothing is known then.
    assert found("The reference is memory-bound.", rows(add=95.0)) == []
    assert found("The reference is compute-bound.", rows(add=95.0)) == []


def test_between_idle_and_busy_nothing_is_contradicted():
    for claim in ("launch", "memory", "compute"):
        assert found(f"The reference is {claim}-bound.", rows(add=70.0)) == []


def test_at_the_limit_of_its_memory_it_is_not_bound_by_arithmetic():
    said = found("It is compute-bound.", rows(add=12.0), reference_us=12.5, call=MEBIBYTES_48)
    assert said == [
        "to read the inputs at full bandwidth takes 80% of the reference's time on NVIDIA H200 "
        "(small)"
    ]
    assert found("It is memory-bound.", rows(add=12.0), reference_us=12.5, call=MEBIBYTES_48) == []
    # Far from that limit it may still be what it reads beside its inputs.
    assert found("It is memory-bound.", rows(add=95.0), call=MEBIBYTES_48) == []


def test_on_a_cpu_and_without_a_profile_nothing_is_known_of_bounds():
    cpu = Device(kind="cpu", name="EPYC", num_threads=1)
    assert found("It is memory-bound.", rows(add=1.0), device=cpu) == []
    assert found("It is memory-bound.", ()) == []
    assert found("It is memory-bound.", rows(add=1.0), mode="train") == []


def test_a_number_outside_of_the_interval_is_contradicted():
    (said,) = found("This is 5x faster.", speedup=2.0)
    assert said.startswith("measured 2.00x [1.9")
    assert said.endswith("] on NVIDIA H200 (small)")


@pytest.mark.parametrize("number", ["2x", "1.98x", "2.0x", "1.6x"])
def test_a_number_that_the_interval_or_its_rounding_holds_is_left(number):
    said = found(f"This is {number} faster.", speedup=2.0)
    assert bool(said) is (number == "1.6x")


def test_what_was_not_measured_contradicts_nothing():
    problem = a_problem()
    candidate = msgspec.structs.replace(a_candidate(problem), analysis="This is 9x faster.")
    evaluation = an_evaluation(candidate, "incorrect_values")
    assert contradictions(evaluation, problem, ()) == ()


def test_between_two_workloads_a_number_may_be_of_both():
    problem = a_problem()
    candidate = msgspec.structs.replace(a_candidate(problem), analysis="This is 3x faster.")
    one = an_evaluation(candidate, "passed", 2.0)
    other = an_evaluation(candidate, "passed", 4.0, ["large"])
    both = msgspec.structs.replace(one, measurements=one.measurements + other.measurements)
    assert contradictions(both, problem, ()) == ()
    assert len(contradictions(one, problem, ())) == 1
